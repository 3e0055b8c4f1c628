"""Which tenant sees which namespaces, and asks at which port."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.names import (
    ORIGINAL_NAME_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    TENANT_NAMESPACE_LABEL,
)
from liqod.model.objects.meta import Object
from liqod.model.records.facts import POD_NETWORKS, SERVICE_NETWORKS, ClusterFacts, own_networks
from liqod.model.records.name_service import NameService
from liqod.names.records import service_body
from liqod.names.tables import (
    EVERYWHERE,
    MAX_DNS,
    Table,
    closed_networks,
    dns_servers,
    free_ports,
    home_servers,
    tables,
)


def namespace(name: str, tenant: str, home: str | None = None, *, deleting: bool = False, own: bool = False) -> Object:
    annotations = {} if home is None else {ORIGINAL_NAME_ANNOTATION: home}
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {REMOTE_CLUSTER_LABEL: tenant, **({TENANT_NAMESPACE_LABEL: "true"} if own else {})},
        "annotations": annotations,
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata}, Object)


def service(tenant: str, port: int, *, slot: int = 1, domain: str = "", **metadata: str) -> NameService:
    body = service_body(tenant, slot, port, domain)
    body["metadata"] |= metadata
    return msgspec.convert(body, NameService)


def found(namespaces: list[Object], services: list[NameService]) -> dict[str, Table]:
    return tables(namespaces, services, slot=1, domain="cluster.local")


class TableTests(SynchronousTestCase):
    def test_tables(self) -> None:
        """A tenant sees the namespaces that were made for its own, by the domain that its cluster says."""
        namespaces = [
            namespace("shop-rome", "rome", "shop"),
            namespace("shop-paris", "paris", "shop"),
            namespace("liqo-tenant-rome", "rome", "x", own=True),
            namespace("foreign", "rome"),
            namespace("odd", "rome", "no.name"),
        ]
        made = found(namespaces, [service("rome", 15360, domain="home.example"), service("paris", 15361)])
        self.assertEqual(made["rome"].view.remote, {"shop": "shop-rome"})
        self.assertEqual((made["rome"].port, made["rome"].view.home), (15360, "home.example"))
        self.assertEqual(made["paris"].view.remote, {"shop": "shop-paris"})
        self.assertEqual((made["paris"].port, made["paris"].view.home), (15361, "cluster.local"))

    def test_the_one_that_stays(self) -> None:
        """Of two namespaces for the same one of home, one that is being deleted does not count."""
        gone, stays = namespace("a", "rome", "shop", deleting=True), namespace("b", "rome", "shop")
        for order in ([gone, stays], [stays, gone]):
            self.assertEqual(found(order, [service("rome", 1500)])["rome"].view.remote, {"shop": "b"})

    def test_services_of_others(self) -> None:
        """A Service counts in its tenant's own namespace only: elsewhere anybody may have written it."""
        planted = service("rome", 15399, namespace="shop-paris")
        self.assertEqual(found([], [planted]), {})
        self.assertEqual(found([], [service("rome", 15360, slot=2)]), {})
        self.assertEqual(found([], [service("rome", 0)]), {})
        self.assertEqual(found([], [service("rome", 1, domain="Not a domain")])["rome"].view.home, "cluster.local")

    def test_ports_of_others(self) -> None:
        """What tenants write takes no port away; where their own Services have all, there is none."""
        whole = range(15360, 15360 + 512)
        planted = [service("rome", port, namespace="shop-paris") for port in whole]
        self.assertEqual(list(free_ports(planted, whole[0])), list(whole))
        taken = [service(f"t{port}", port) for port in whole]
        self.assertEqual(list(free_ports(taken, whole[0])), [])
        self.assertEqual(list(free_ports([*taken[:7], *taken[8:], *planted], whole[0])), [whole[7]])

    def test_a_port_for_one(self) -> None:
        """A port that two tenants have answers the one that had it first, and no other one."""
        first = service("rome", 15360, creationTimestamp="2026-01-01T00:00:00Z")
        second = service("athens", 15360, creationTimestamp="2026-01-02T00:00:00Z")
        for order in ([first, second], [second, first]):
            self.assertEqual(list(found([], order)), ["rome"])

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans())))
    def test_never_of_others(self, rows: list[tuple[str, str, bool]]) -> None:
        """Whatever namespaces there are, a tenant sees those with its own label alone."""
        namespaces = [
            namespace(f"{home}{n}", tenant, home if ours else None) for n, (tenant, home, ours) in enumerate(rows)
        ]
        owner = {one.metadata.name: one.metadata.labels[REMOTE_CLUSTER_LABEL] for one in namespaces}
        for tenant, table in found(namespaces, [service(one, 1500 + ord(one)) for one in "abc"]).items():
            self.assertTrue(all(owner[here] == tenant for here in table.view.remote.values()))

    def test_where_homes_are_asked_for(self) -> None:
        """What most Services say comes first: that one alone is asked, and a tenant that leaves says an old one."""
        said = {"rome": "192.0.2.9:5870", "paris": "192.0.2.9:5870", "oslo": "192.0.2.1:5870", "bern": ""}
        services = [
            msgspec.convert(service_body(tenant, 1, 15360, "", home=home), NameService) for tenant, home in said.items()
        ]
        self.assertEqual(home_servers(services), [("192.0.2.9", 5870), ("192.0.2.1", 5870)])
        self.assertEqual(home_servers([]), [])


def dns_service(name: str, address: str, label: str = "") -> NameService:
    """Return a Service of kube-system."""
    labels = {"k8s-app": label} if label else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": {"clusterIP": address}}, NameService)


class DnsServerTests(SynchronousTestCase):
    """Which Services are the cluster's own DNS."""

    def test_table(self) -> None:
        """The one of the usual name, with a label or without; else those with the label; none without an address."""
        usual, other = dns_service("kube-dns", "10.96.0.10"), dns_service("metrics-server", "10.96.0.9", "metrics")
        rke, silent = dns_service("rke2-coredns", "10.43.0.10", "kube-dns"), dns_service("kube-dns", "None")
        for services, expected in (
            ([other, usual], [("10.96.0.10", 53)]),
            ([rke, usual], [("10.96.0.10", 53)]),
            ([other, rke], [("10.43.0.10", 53)]),
            ([silent, rke], [("10.43.0.10", 53)]),
            ([silent, other], []),
            ([], []),
        ):
            with self.subTest(expected=expected):
                self.assertEqual(list(dns_servers(services)), expected)

    def test_bound(self) -> None:
        """No more are asked than may be configured."""
        many = [dns_service(f"dns-{number}", f"10.96.0.{number}", "kube-dns") for number in range(9)]
        self.assertEqual(len(dns_servers(many)), MAX_DNS)


class ClosedNetworksTests(SynchronousTestCase):
    """In which networks an address has no names of others for tenants."""

    def test_table(self) -> None:
        """Those of the facts, or of the settings where these say more; everywhere while not all are known."""
        pods_known: dict[str, Any] = {"name": POD_NETWORKS, "values": ["12.13.0.0/16"]}
        facts = [pods_known, {"name": SERVICE_NETWORKS, "values": ["fd10::/108"]}]
        cases: list[tuple[list[dict[str, Any]], list[str], list[str], list[str]]] = [
            (facts, [], [], ["12.13.0.0/16", "fd10::/108"]),
            (facts, ["12.14.0.0/16"], [], ["12.14.0.0/16", "fd10::/108"]),
            (facts, [], ["10.96.0.0/12"], ["12.13.0.0/16", "10.96.0.0/12"]),
            ([], ["12.14.0.0/16"], ["10.96.0.0/12"], ["12.14.0.0/16", "10.96.0.0/12"]),
            ([], ["12.14.0.0/16"], [], ["0.0.0.0/0", "::/0"]),
            (facts[:1], [], [], ["0.0.0.0/0", "::/0"]),
            (facts[1:], [], [], ["0.0.0.0/0", "::/0"]),
        ]
        for known, pods, services, expected in cases:
            record = msgspec.convert({"metadata": {"name": "cluster"}, "status": {"facts": known}}, ClusterFacts)
            own = own_networks(record, pods, services)
            with self.subTest(known=known, pods=pods, services=services):
                self.assertEqual([str(one) for one in closed_networks(own)], expected)
        self.assertEqual(closed_networks(own_networks(None)), EVERYWHERE)
