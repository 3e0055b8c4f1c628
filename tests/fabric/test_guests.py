"""A peer's pods here that call each other by their home's addresses: which of them, from where, and nobody else."""

from __future__ import annotations

import ipaddress

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.desired import desired_network, link_of
from liqod.fabric.agent.kernel.rules.guest_rules import from_guests, guest_sets, peer_digest, to_guests
from liqod.fabric.agent.node_view import node_desired
from liqod.fabric.control.agreement.agreement import LocalNetwork, allocation
from liqod.fabric.control.cluster_facts import pod_addresses
from liqod.fabric.state.guests import Guests, callable_guests
from liqod.fabric.state.network import Netmap, overlaps
from liqod.model.ids import ClusterID
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.pod import Pod, PodAddress, PodSpec, PodStatus
from liqod.model.records.network import (
    MAX_GUESTS,
    Gateway,
    Network,
    NetworkConfig,
    NetworkConfigStatus,
    NetworkGatewaySpec,
    TunnelEndpoint,
)
from tests.fabric.control.test_desired import LIMITS, OTHER, record

LOCAL = (
    Netmap(ipaddress.ip_network("10.201.0.0/16"), ipaddress.ip_network("10.80.0.0/16")),
    Netmap(ipaddress.ip_network("fd00:201::/48"), ipaddress.ip_network("fd00:80::/48")),
)


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


class CallableTests(SynchronousTestCase):
    """Which guests are translated."""

    def test_ranges_that_are_used_here(self) -> None:
        """A range of the peer's that overlaps anything of ours opens nothing; one that is ours needs nothing."""
        both = {"10.201.0.9", "fd00:201::9"}
        for used, found in (
            ((), both),
            (("10.96.0.0/12", "10.81.0.0/16"), both),
            (("10.80.0.53/32",), {"fd00:201::9"}),
            (("10.64.0.0/10",), {"fd00:201::9"}),
            (("fd00:80::/64",), {"10.201.0.9"}),
            (("0.0.0.0/0", "::/0"), set()),
        ):
            self.assertEqual(callable_guests(both, LOCAL, nets(*used)), found, used)
        same = tuple(Netmap(pair.ours, pair.ours) for pair in LOCAL)
        self.assertEqual(callable_guests(both, same, ()), frozenset())

    def test_only_addresses_inside_our_networks(self) -> None:
        """Text that is no address, and addresses of others, are left out; one that is written otherwise is the same."""
        texts = ["10.201.0.9", "10.202.0.9", "10.201.0.9; flush ruleset", "", "fd00:201:0:0::9", "fd00:202::9"]
        self.assertEqual(callable_guests(texts, LOCAL, ()), {"10.201.0.9", "fd00:201::9"})

    def test_only_pods_of_shadow_pods(self) -> None:
        """What else runs in a granted namespace, what is on the host's network or elsewhere is no guest."""
        shadow = {MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD}
        pods = [
            Pod(
                metadata=ObjectMeta(name=str(number), namespace=namespace, labels=labels),
                spec=PodSpec(host_network=on_host),
                status=PodStatus(pod_ips=[PodAddress(ip=f"10.201.0.{number}")]),
            )
            for number, (namespace, labels, on_host) in enumerate(
                [("of", shadow, False), ("of", {}, False), ("other", shadow, False), ("of", shadow, True)]
            )
        ]
        self.assertEqual(pod_addresses(pods, ["of"], offloaded=True), {"10.201.0.0"})
        self.assertEqual(pod_addresses(pods, ["of"]), {"10.201.0.0", "10.201.0.1"})


class RangeTests(SynchronousTestCase):
    """The ranges by which two clusters know each other."""

    @given(
        st.sampled_from(["10.201.0.0/16", "10.0.0.0/14", "172.20.0.0/20"]),
        st.sampled_from(["10.201.0.0/16", "10.16.0.0/16", "192.168.0.0/20"]),
        st.permutations(["first", "second"]),
    )
    def test_equal_pools_and_different_ranges(self, one: str, two: str, keys: list[str]) -> None:
        """Both choose at once from the same pools, and no address means a pod of either at the same time."""
        sides = [
            LocalNetwork(
                pods=nets(pods),
                external=nets("10.70.0.0/20")[0],
                reserved=nets("10.96.0.0/12"),
                pools=nets("10.64.0.0/10", "172.16.0.0/12"),
                endpoints=(),
                public_key=key,
                mtu=1420,
            )
            for pods, key in zip((one, two), keys, strict=True)
        ]
        seen = []
        for own, other in (sides, sides[::-1]):
            config = NetworkConfig(metadata=ObjectMeta(name="x"), status=NetworkConfigStatus(remote=other.side))
            seen.append(nets(*allocation(own, config, [], []).pod_cidrs))
        for network in seen[0]:
            self.assertIsNone(overlaps(network, seen[1]))


class RuleTests(SynchronousTestCase):
    """Sets, maps and rules."""

    def test_two_homes_with_one_range(self) -> None:
        """Each home's pods lead to its own alone: sources and destinations are sets of the home."""
        everyone = [
            Guests(ClusterID("rome"), frozenset({"10.201.0.5", "10.201.0.9"}), LOCAL),
            Guests(ClusterID("turin"), frozenset({"10.201.0.7", "fd00:201::7"}), LOCAL),
        ]
        rome, turin = peer_digest(ClusterID("rome")), peer_digest(ClusterID("turin"))
        self.assertEqual(
            guest_sets(everyone),
            {
                f"guests_{rome}_4": {"10.201.0.5", "10.201.0.9"},
                f"home_{rome}_4": {"10.80.0.5 : 10.201.0.5", "10.80.0.9 : 10.201.0.9"},
                f"self_{rome}_4": {"10.201.0.5 . 10.201.0.5", "10.201.0.9 . 10.201.0.9"},
                f"guests_{turin}_4": {"10.201.0.7"},
                f"home_{turin}_4": {"10.80.0.7 : 10.201.0.7"},
                f"self_{turin}_4": {"10.201.0.7 . 10.201.0.7"},
                f"guests_{turin}_6": {"fd00:201::7"},
                f"home_{turin}_6": {"fd00:80::7 : fd00:201::7"},
                f"self_{turin}_6": {"fd00:201::7 . fd00:201::7"},
            },
        )
        self.assertEqual(
            to_guests(everyone[:1]),
            [
                f"ip saddr @guests_{rome}_4 dnat ip to ip daddr map @home_{rome}_4",
                f"ip saddr @guests_{rome}_4 ip daddr {{ 10.80.0.0/16 }} drop",
            ],
        )
        for rule in (*to_guests(everyone), *from_guests(everyone)):
            self.assertRegex(rule, "^ip6? saddr @guests_|^ip6? saddr . ip6? daddr @self_")
        self.assertEqual((guest_sets([]), to_guests([]), from_guests([])), ({}, [], []))


class RecordTests(SynchronousTestCase):
    """What agents take from the records, no matter who wrote them."""

    def test_the_gateway(self) -> None:
        """Pods of this cluster alone, each of one home, and never where the range holds what this host needs."""
        guests = ["10.201.0.9", "10.202.0.9", "10.201.0.9\n", "fd00:201::9"]
        one = record(guests=guests)
        self.assertEqual(link_of(one, LIMITS, 1420).guests, {"10.201.0.9", "fd00:201::9"})
        needed = attrs.evolve(LIMITS, needed=(*LIMITS.needed, *nets("10.80.0.1/32")))
        self.assertEqual(link_of(one, needed, 1420).guests, {"fd00:201::9"})
        remote = one.spec.remote_seen.pod_cidrs
        twice = msgspec.structs.replace(one.spec.local_seen, pod_cidrs=remote)
        self.assertEqual(link_of(record(guests=guests, local_seen=twice), LIMITS, 1420).guests, frozenset())
        many = [f"10.201.{number >> 8}.{number & 255}" for number in range(MAX_GUESTS + 9)]
        self.assertEqual(len(link_of(record(guests=many), LIMITS, 1420).guests), MAX_GUESTS)

    def test_one_pod_has_one_home(self) -> None:
        """Of two records that name a pod the first one has it."""
        remote = record().spec.remote_seen
        other = msgspec.structs.replace(
            remote, pod_cidrs=["10.99.0.0/16"], external_cidr="", external_six="", service_cidrs=[]
        )
        records = [
            record(guests=["10.201.0.9"]),
            record("turin", OTHER, guests=["10.201.0.9", "10.201.0.7"], remote_seen=other),
        ]
        found = desired_network(NetworkGatewaySpec(), records, LIMITS, 1420)
        self.assertEqual([link.guests for link in found.network.links], [{"10.201.0.9"}, {"10.201.0.7"}])
        gateway = Gateway(address="192.0.2.9", vni=18952, port=5876)
        for one in records:
            msgspec.structs.force_setattr(one.spec, "gateway", gateway)
        node = node_desired("liqod", "192.0.2.11", 1500, records)
        assert node is not None
        self.assertEqual([one.addresses for one in node.guests], [{"10.201.0.9"}, {"10.201.0.7"}])

    def test_a_range_that_another_peer_has(self) -> None:
        """A peer may see our pods as we see those of another one; hosts and gateway lead its guests all the same."""
        elsewhere = msgspec.structs.replace(
            record().spec.remote_seen, pod_cidrs=["10.80.0.0/16"], external_cidr="", external_six="", service_cidrs=[]
        )
        gateway = Gateway(address="192.0.2.9", vni=18952, port=5876)
        records = [
            record(guests=["10.201.0.9"], gateway=gateway),
            record("turin", OTHER, guests=[], gateway=gateway, remote_seen=elsewhere, allowed_ips=["10.80.0.0/16"]),
        ]
        self.assertEqual(link_of(records[0], LIMITS, 1420).guests, {"10.201.0.9"})
        node = node_desired("liqod", "192.0.2.11", 1500, records)
        assert node is not None
        self.assertEqual([one.addresses for one in node.guests], [{"10.201.0.9"}])

    def test_a_node(self) -> None:
        """A host that is no gateway takes the same out of a record, and nothing where the views do not fit."""
        gateway = Gateway(address="192.0.2.9", vni=18952, port=5876)
        one = record(guests=["10.201.0.9", "10.202.0.9", "fd00:201::9"], gateway=gateway)

        def guests(spec: object) -> list[frozenset[str]]:
            found = node_desired("liqod", "192.0.2.11", 1500, [TunnelEndpoint(metadata=one.metadata, spec=spec)])  # type: ignore[arg-type]
            assert found is not None
            return [each.addresses for each in found.guests]

        self.assertEqual(guests(one.spec), [{"10.201.0.9", "fd00:201::9"}])
        for networks in (["10.201.0.0/16"], ["10.80.0.0/24", "fd00:80::/48"], one.spec.allowed_ips[:2]):
            view = msgspec.structs.replace(one.spec.local_seen, pod_cidrs=networks)
            self.assertEqual(guests(msgspec.structs.replace(one.spec, local_seen=view)), [], networks)
