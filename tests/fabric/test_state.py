"""What crosses from control to the network agent: parsed values, whatever a peer announces and records hold."""

from __future__ import annotations

import ipaddress

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agreement.agreement import agree, allocation
from liqod.fabric.state.network import DesiredNetwork, Link, Vtep, overlaps, without_six
from liqod.fabric.state.report import HostReport
from liqod.fabric.state.validation import is_key
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    Export,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelSide,
    covering,
)
from liqod.model.records.offer import Refusal
from tests.fabric.control.test_agreement import KEY, OTHER_KEY, nets, own

HOSTILE = ("10.9.0.0/16 } ; flush ruleset #", "x\nPostUp = reboot", "$(reboot)", "", "@hosts_4", "a" * 500)


def mixed(*sound: str) -> st.SearchStrategy[str]:
    """Return sound texts most of the time, and texts that would be commands, rules or sections if they were pasted."""
    return st.one_of(*[st.just(one) for one in sound * 20], st.sampled_from(HOSTILE), st.text(max_size=20))


sides = st.builds(
    TunnelSide,
    pod_cidrs=st.lists(mixed("10.201.0.0/16", "10.9.0.0/16"), min_size=1, max_size=2),
    external_cidr=mixed("10.70.0.0/20"),
    endpoints=st.lists(mixed("192.0.2.7:5871", "[2001:db8::7]:5871"), max_size=3),
    public_key=mixed(KEY),
    mtu=st.sampled_from([1280, 1420, 0]),
    next_key=mixed("", OTHER_KEY),
)
acks = st.builds(Subnets, pod_cidrs=st.lists(mixed("10.80.0.0/16"), max_size=1), external_cidr=mixed("10.81.0.0/20"))
exports = st.lists(
    st.builds(
        Export,
        address=mixed("192.0.2.9"),
        external=mixed("10.70.0.9"),
        ports=st.lists(mixed("TCP/80", "UDP/53"), max_size=2),
    ),
    max_size=3,
)


class DesiredNetworkTests(SynchronousTestCase):
    """The seam between the two halves."""

    @given(sides, acks, exports)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
    def test_only_parsed_values_cross(self, side: TunnelSide, ack: Subnets, exported: list[Export]) -> None:
        """Whatever is announced is refused, or every text of the link is a key, an address or an endpoint."""
        record = NetworkConfig(metadata=ObjectMeta(name="milan"), spec=NetworkConfigSpec(exports=exported))
        record = _with_status(record, NetworkConfigStatus(remote=side, ack=ack))
        try:
            found = agree(own(), record, allocation(own(), record, (), ()), ())
        except Refusal:
            return
        if found is not None:
            self.check(found[1])

    def check(self, link: Link) -> None:
        """Parse every text of a link."""
        self.assertTrue(is_key(link.public_key))
        self.assertTrue(not link.next_key or is_key(link.next_key))
        if link.endpoint:
            host, _, port = link.endpoint.rpartition(":")
            ipaddress.ip_address(host.strip("[]"))
            self.assertIn(int(port), range(1, 65536))
        for network in (*link.remote, *(pair.ours for pair in link.local), *(pair.seen for pair in link.local)):
            self.assertIsInstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network)
        for one in link.exports:
            ipaddress.ip_address(one.seen)
            ipaddress.ip_address(one.real)
            self.assertTrue(all(protocol in ("tcp", "udp", "sctp") for protocol, _ in one.ports))
            self.assertTrue(all(0 <= port < 65536 for _, port in one.ports))

    def test_no_key_of_ours_is_in_what_control_decides(self) -> None:
        """No field of the value that control passes on could hold one: the agent has them, and control reads none."""
        fields = [one.name for kind in (DesiredNetwork, HostReport) for one in attrs.fields(kind)]
        self.assertFalse([name for name in fields if "private" in name])


class WithoutSixTests(SynchronousTestCase):
    """The network of a host that has no IPv6."""

    def test_what_is_left(self) -> None:
        """Addresses and networks of IPv4 stay as they are; a peer that has none has no link."""
        four, six = nets("10.70.0.1/32", "10.71.0.0/16"), nets("fd00:70::1/128", "fd00:71::/48")
        one, two = (Link(ClusterID("milan"), KEY, "", remote, ()) for remote in (four + six, six))
        desired = DesiredNetwork(1420, (four[0], six[0]), (one, two), (Vtep("192.0.2.2", four + six),))
        found = without_six(desired)
        self.assertEqual(found.addresses, four[:1])
        self.assertEqual(found.links, (attrs.evolve(one, remote=four),))
        self.assertEqual(found.vteps, (Vtep("192.0.2.2", four),))


def _with_status(record: NetworkConfig, status: NetworkConfigStatus) -> NetworkConfig:
    return NetworkConfig(metadata=record.metadata, spec=record.spec, status=status)


class CoveringTests(SynchronousTestCase):
    """Networks of a host that do not all fit into a record."""

    def test_few_stay_as_they_are(self) -> None:
        """Adjacent ones become one, whatever their order as text."""
        few = [ipaddress.ip_network(text) for text in ("10.9.0.0/24", "172.16.0.1", "10.9.1.0/24", "fd00::/64")]
        self.assertEqual(list(map(str, covering(few, 1024))), ["10.9.0.0/23", "172.16.0.1/32", "fd00::/64"])

    @settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sets(st.integers(0, 2**32 - 1), max_size=3000), st.sets(st.integers(0, 2**128 - 1), max_size=1000))
    def test_none_is_left_out(self, four: set[int], six: set[int]) -> None:
        """However many there are, each is inside of one of those that are written."""
        every = [ipaddress.ip_network(one) for one in map(ipaddress.IPv4Address, four)]
        every += [ipaddress.ip_network(one) for one in map(ipaddress.IPv6Address, six)]
        found = covering(every, 512)
        self.assertLessEqual(len(found), 512)
        for one in every:
            self.assertTrue(overlaps(one, found), one)
