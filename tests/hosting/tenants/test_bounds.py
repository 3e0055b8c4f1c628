"""How much a tenant may keep in a namespace, what its pods may use of a node, and what they may reach."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.hosting.shadowpods.quota.resource_requests import of_pod
from liqod.hosting.tenants.bounds import (
    MAX_BLOCKS,
    KnownNetworks,
    default_requests,
    limit_range,
    most_of_namespace,
    most_of_tenant,
    network_policy,
    resource_quota,
    with_limits,
)
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.grants import MAX_NAMESPACES
from liqod.hosting.tenants.quota.levels import OF_NEW_TENANTS, Level, level_of, note
from liqod.hosting.views import PodSpec
from liqod.model.names import QUOTA_ANNOTATION
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.quantity import parse
from liqod.model.records.network import parse_networks

OWN = parse_networks(["10.96.0.0/12", "10.201.0.0/16", "203.0.113.10", "fd00:10::/64"])
PEER = parse_networks(["10.64.0.0/16", "10.70.0.0/20"])
OURS = ("10.96.0.1", "10.201.3.4", "203.0.113.10", "fd00:10::5")
NEVER = ("169.254.169.254", "fd00:ec2::254", "127.0.0.1", "::1", "fe80::1", "224.0.0.1")


def contract(**settings: Any) -> Contract:
    return Contract(HostingSettings(**settings))


def policy(around: KnownNetworks, **settings: Any) -> dict[str, Any]:
    made = network_policy("rome", "shop-rome", contract(**settings), around)
    assert made is not None
    return made


def reaches(made: dict[str, Any], text: str) -> bool:
    """Return whether a policy lets pods reach an address on any port."""
    address = ip_address(text)
    for rule in made["spec"]["egress"]:
        assert rule["to"], "a rule without destinations allows all"
        for peer in rule["to"]:
            block = peer.get("ipBlock")
            if block is None or "ports" in rule or address not in ip_network(block["cidr"]):
                continue
            if not any(address in ip_network(closed) for closed in block.get("except", ())):
                return True
    return False


class NetworkPolicyTests(SynchronousTestCase):
    """What pods of a tenant may reach."""

    def test_internet(self) -> None:
        """Public addresses and the peer; no private one, nothing of this cluster, no metadata service."""
        made = policy(KnownNetworks(OWN, PEER))
        for address in ("1.1.1.1", "2606:4700::1", "10.64.3.4", "10.70.0.1"):
            self.assertTrue(reaches(made, address), address)
        for address in (*OURS, *NEVER, "192.168.7.7", "10.1.2.3", "100.100.100.200", "fd00:ec2::254"):
            self.assertFalse(reaches(made, address), address)

    def test_internet_where_others_connect_the_clusters(self) -> None:
        """No private address, which may be a neighbour's of the nodes, but for networks that are granted."""
        made = policy(KnownNetworks(OWN))
        self.assertTrue(reaches(made, "1.1.1.1"))
        for address in (*OURS, *NEVER, "10.1.2.3", "172.16.0.9", "192.168.7.7", "fd12::1"):
            self.assertFalse(reaches(made, address), address)
        granted = policy(KnownNetworks(OWN), egress_networks=["10.1.0.0/16"])
        for address, fine in (
            ("10.1.2.3", True),
            ("10.2.2.3", False),
            ("192.168.7.7", False),
            *((one, False) for one in OURS),
        ):
            self.assertEqual(reaches(granted, address), fine, address)

    def test_tenant(self) -> None:
        """The peer and what is granted, nothing else; without either there is no rule that allows all."""
        made = policy(KnownNetworks(OWN, PEER), egress="tenant", egress_networks=["192.0.2.0/24"])
        for address in ("10.64.3.4", "192.0.2.9"):
            self.assertTrue(reaches(made, address), address)
        for address in ("1.1.1.1", *OURS, *NEVER):
            self.assertFalse(reaches(made, address), address)
        self.assertFalse(reaches(policy(KnownNetworks(OWN, []), egress="tenant"), "1.1.1.1"))

    def test_each_other_and_names(self) -> None:
        """Pods of the same tenant in all its namespaces, and name servers, are in reach of all pods."""
        for level in ("tenant", "internet"):
            spec = policy(KnownNetworks(OWN, PEER), egress=level)["spec"]
            every = {"matchLabels": None, "matchExpressions": None}
            self.assertEqual((spec["podSelector"], spec["policyTypes"]), (every, ["Egress"]))
            own = {"namespaceSelector": {"matchLabels": {"liqo.io/remote-cluster-id": "rome"}}}
            self.assertIn({"to": [own]}, spec["egress"])
            (names,) = [rule for rule in spec["egress"] if "ports" in rule]
            self.assertIn({"protocol": "UDP", "port": 53}, names["ports"])

    def test_all(self) -> None:
        """Where everything is granted there is no policy."""
        self.assertIsNone(network_policy("rome", "shop-rome", contract(egress="all"), KnownNetworks(OWN, PEER)))

    def test_thousands_of_nodes(self) -> None:
        """The lists are bounded, and what was closed stays closed."""
        count = MAX_BLOCKS + 300
        nodes = parse_networks(f"203.{number // 128}.{number % 128 * 2}.1" for number in range(count))
        made = policy(KnownNetworks(nodes, PEER))
        for rule in made["spec"]["egress"]:
            for peer in rule["to"]:
                self.assertLessEqual(len(peer.get("ipBlock", {}).get("except", ())), MAX_BLOCKS)
        for node in nodes[::297]:
            self.assertFalse(reaches(made, str(node.network_address)))


class QuotaTests(SynchronousTestCase):
    """Objects and storage."""

    def hard(self, offered: Any = None, **settings: Any) -> dict[str, str]:
        most = most_of_namespace(contract(**settings), offered)
        found: dict[str, str] = resource_quota("rome", "shop-rome", most)["spec"]["hard"]
        return found

    def test_what_is_counted(self) -> None:
        """Each kind of Kubernetes that a borrower may create is, and so are node ports, load balancers and storage."""
        names = {f"count/{kind}" for kind in ("configmaps", "secrets", "ingresses.networking.k8s.io")}
        more = {
            "services",
            "services.nodeports",
            "services.loadbalancers",
            "persistentvolumeclaims",
            "requests.storage",
        }
        self.assertEqual(set(self.hard()), names | more)

    def test_the_size_of_the_offer(self) -> None:
        """There is room for the pods that are lent, and for the secrets of their tokens."""
        for pods in (0, 110, 5000):
            hard = self.hard({"pods": Fraction(pods)})
            self.assertGreater(int(hard["count/secrets"]), pods)
            self.assertLess(int(hard["count/secrets"]), pods + 1000)

    def test_settings(self) -> None:
        """Entries are overruled by name; without quotas there is none."""
        self.assertEqual(self.hard(objects={"count/secrets": "7", "pods": "3"})["count/secrets"], "7")
        self.assertEqual(most_of_namespace(contract(quota="none"), None), {})
        left_out = contract(uncounted=["count/secrets"])
        for hard in (most_of_namespace(left_out, None), most_of_tenant(left_out, None)):
            self.assertNotIn("count/secrets", hard)
            self.assertIn("count/configmaps", hard)

    def test_all_namespaces_together(self) -> None:
        """Everything that is counted has a sum for the tenant, far below that of as many namespaces as it may have; it
        is never less than one namespace may have, and the lender's own word counts.
        """
        one, of_tenant = most_of_namespace(contract(), None), most_of_tenant(contract(), None)
        self.assertEqual(set(one), set(of_tenant))
        for name, most in one.items():
            self.assertTrue(most < of_tenant[name] < MAX_NAMESPACES * most / 50, name)
        self.assertEqual(most_of_tenant(contract(objects={"services": "9999"}), None)["services"], 9999)
        self.assertEqual(most_of_tenant(contract(tenant_objects={"services": "3"}), None)["services"], 3)
        self.assertEqual(most_of_tenant(contract(quota="none"), None), {})
        self.assertEqual(
            most_of_namespace(contract(tenant_objects={"count/jobs.batch": "3"}), None)["count/jobs.batch"], 3
        )


OFFERED = {"cpu": Fraction(2), "memory": Fraction(2**30), "pods": Fraction(3)}
DEFAULTS = default_requests(contract(quota="hard"), OFFERED)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "gpu/x"]),
    st.sampled_from(["0", "1n", "1", "2", "500", "8M"]),
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("c")}, optional={"resources": RESOURCES, "restartPolicy": st.just("Always")}
    ),
    max_size=3,
)


def without_zeros(resources: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: value for name, value in resources.items() if value}


class LimitTests(SynchronousTestCase):
    """What a container may use, and what it requests."""

    def test_a_pod_that_names_nothing(self) -> None:
        """It may use as much as the whole offer, and requests something."""
        (made,) = with_limits({"containers": [{"name": "a"}]}, OFFERED, DEFAULTS)["containers"]
        wanted = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "64Mi"}}
        self.assertEqual(made["resources"], wanted)

    def test_what_is_named_stays(self) -> None:
        """Limits within the offer and requests of the pod's own are kept; nothing is for what is not lent by name."""
        resources = {"requests": {"cpu": "10m", "memory": "5Mi"}, "limits": {"memory": "6Mi"}}
        spec = {"containers": [], "initContainers": [{"name": "a", "resources": resources}]}
        (made,) = with_limits(spec, OFFERED, DEFAULTS)["initContainers"]
        self.assertEqual(made["resources"]["requests"], resources["requests"])
        self.assertEqual(made["resources"]["limits"], {"memory": "6Mi", "cpu": "2"})
        self.assertEqual(with_limits(spec, {"pods": Fraction(1)}, {}), spec)
        self.assertEqual(with_limits(spec, None, {}), spec)

    def test_resources_of_the_pod_as_a_whole(self) -> None:
        """What the pod requests or may use as a whole is not set for its containers: the API server would refuse it."""
        spec = {"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "1Mi"}}}
        (made,) = with_limits(spec, OFFERED, DEFAULTS)["containers"]
        self.assertEqual(made["resources"], {"requests": {"cpu": "0"}})  # else it would be that of the LimitRange

    def test_no_limit_above_the_offer(self) -> None:
        """A limit that is named is lowered to the offer, not below the request; none at all (0) is one above it."""
        for named, asked, limit in (
            ({"cpu": "500", "memory": "2Ti"}, {"cpu": "1m", "memory": "1Mi"}, {"cpu": "2", "memory": "1Gi"}),
            ({"cpu": "0", "memory": "0"}, {}, {"cpu": "2", "memory": "1Gi"}),
            ({"cpu": "500", "memory": "1Mi"}, {"cpu": "3"}, {"cpu": "3", "memory": "1Mi"}),
            ({"cpu": 1, "memory": "1024Mi"}, {}, {"cpu": 1, "memory": "1024Mi"}),
            ({"cpu": "500", "memory": "1Mi", "gpu/x": "7"}, {"cpu": "1"}, {"cpu": "2", "memory": "1Mi", "gpu/x": "7"}),
        ):
            resources = {"limits": named, "requests": asked}
            spec = {"containers": [{"name": "a", "resources": resources}], "initContainers": None}
            (made,) = with_limits(spec, OFFERED, DEFAULTS)["containers"]
            self.assertEqual(made["resources"]["limits"], limit)
            whole = with_limits({"containers": [{"name": "a"}], "resources": resources}, OFFERED, DEFAULTS)
            self.assertEqual(whole["resources"]["limits"], limit)

    def test_a_pod_that_requests_something_as_a_whole(self) -> None:
        """It has limits as a whole."""
        spec = {"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
        made = with_limits(spec, OFFERED, DEFAULTS)
        self.assertEqual(made["resources"]["limits"], {"cpu": "2", "memory": "1Gi"})

    def test_a_request_of_zero_is_none(self) -> None:
        """It counts as the default, one of next to nothing as a little, and neither as more than the limit."""
        for named, counted in (
            ({"requests": {"cpu": "0", "memory": "0"}}, ("50m", "64Mi")),
            ({"requests": {"cpu": "1n", "memory": "1"}}, ("1m", "4Mi")),
            ({"requests": {"cpu": "10m", "memory": "8Mi"}}, ("10m", "8Mi")),
            ({"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "5m", "memory": "3Mi"}}, ("5m", "3Mi")),
            ({"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "0", "memory": "0"}}, ("50m", "64Mi")),
            ({"limits": {"cpu": "0", "memory": "0"}}, ("50m", "64Mi")),
        ):
            wanted = {"cpu": parse(counted[0]), "memory": parse(counted[1]), "pods": Fraction(1)}
            for spec in (
                {"containers": [{"name": "a", "resources": named}]},
                {"containers": [{"name": "a"}], "resources": named},
                {"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}}}], "resources": named},
            ):
                made = msgspec.convert(with_limits(spec, OFFERED, DEFAULTS), PodSpec)
                self.assertEqual(of_pod(made), wanted, spec)
                self.assertEqual(of_pod(msgspec.convert(spec, PodSpec), DEFAULTS), wanted, spec)
        nothing = {"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}}}]}
        self.assertEqual(of_pod(msgspec.convert(nothing, PodSpec)), {"cpu": 0, "pods": 1})  # another level

    @given(CONTAINERS, CONTAINERS, RESOURCES)
    def test_limited_once(self, containers: Any, initial: Any, whole: Any) -> None:
        """What has these limits is not changed again, and none is above the offer or the request."""
        spec = {"containers": containers, "initContainers": initial, "resources": whole}
        made = with_limits(spec, OFFERED, DEFAULTS)
        self.assertEqual(with_limits(made, OFFERED, DEFAULTS), made)
        for one in (*made["containers"], *made["initContainers"], made):
            resources = one.get("resources") or {}
            for name, text in (resources.get("limits") or {}).items():
                if name in ("cpu", "memory"):
                    asked = (resources.get("requests") or {}).get(name, text)
                    self.assertLessEqual(parse(str(text)), max(OFFERED[name], parse(str(asked))))
                    self.assertGreater(parse(str(text)), 0)

    @given(CONTAINERS, CONTAINERS, RESOURCES)
    def test_what_is_counted_is_what_is_created(self, containers: Any, initial: Any, whole: Any) -> None:
        """A pod is admitted with the requests that the created one has."""
        spec = {"containers": containers, "initContainers": initial, "resources": whole}
        made = msgspec.convert(with_limits(spec, OFFERED, DEFAULTS), PodSpec)
        admitted = of_pod(msgspec.convert(spec, PodSpec), DEFAULTS)
        self.assertEqual(without_zeros(of_pod(made)), without_zeros(admitted))

    def test_levels(self) -> None:
        """Defaults are for the level ``hard``, of what is lent, and never more than that."""
        self.assertEqual(default_requests(contract(quota="soft"), OFFERED), {})
        self.assertEqual(default_requests(contract(quota="hard"), None), {})
        self.assertEqual(set(DEFAULTS), {"cpu", "memory"})
        little = default_requests(contract(quota="hard"), {"cpu": Fraction(1, 1000)})
        self.assertEqual(little, {"cpu": Fraction(1, 1000)})

    def test_limit_range(self) -> None:
        """The API server has the same defaults."""
        (item,) = limit_range("rome", "shop-rome", DEFAULTS)["spec"]["limits"]
        self.assertEqual(item, {"type": "Container", "defaultRequest": {"cpu": "50m", "memory": "64Mi"}})


class LevelTests(SynchronousTestCase):
    """The quota level of a tenant."""

    def test_levels(self) -> None:
        """The configuration counts; else a new tenant has the level of new ones, and one from before is as it was."""
        before, noted = Object(), Object(metadata=ObjectMeta(annotations=note("")))
        self.assertEqual(level_of("", before), "soft")
        self.assertEqual(level_of("", noted), OF_NEW_TENANTS)
        self.assertEqual(level_of("", None), OF_NEW_TENANTS)
        self.assertEqual(level_of("", Object(metadata=ObjectMeta(annotations=note("hard")))), "hard")
        self.assertEqual(level_of("", Object(metadata=ObjectMeta(annotations=note("none")))), "none")
        self.assertEqual(level_of("", Object(metadata=ObjectMeta(annotations={QUOTA_ANNOTATION: "x"}))), "soft")
        levels: list[Level] = ["none", "soft", "hard"]
        for level in levels:
            for namespace in (before, noted, None):
                self.assertEqual(level_of(level, namespace), level)
