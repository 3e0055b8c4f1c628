"""Single addresses that peers reach: which ones may be, each its own place, kept over restarts, released when known."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel.host import apply, observe
from liqod.fabric.agent.kernel.model import HostCommand, ObservedKernel, Overlay
from liqod.fabric.agent.kernel.plan import plan, show
from liqod.fabric.agent.kernel.rules import nftables
from liqod.fabric.control.agreement.agreement import LocalNetwork
from liqod.fabric.control.agreement.exports import ExportPolicy, assign_exports, export_refusal, exports_as_seen
from liqod.fabric.control.exported_addresses import ExportedAddresses
from liqod.fabric.state.network import ExportedAddress, Netmap
from liqod.fabric.state.validation import MOST_EXPORTS
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.network import (
    Export,
    ExportRequests,
    Network,
    NetworkConfig,
    NetworkConfigSpec,
    NetworkConfigStatus,
    Subnets,
    TunnelSide,
)
from tests.fabric.agent.test_plan import DESIRED, LINK, NOW, OWN_KEY
from tests.fabric.fake_kernel import FakeKernel, public_key


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


def nets(*texts: str) -> tuple[Network, ...]:
    return tuple(map(net, texts))


POLICY = ExportPolicy(
    pods=(net("10.201.0.0/16"),),
    services=(net("10.96.0.0/12"),),
    externals=(net("10.70.0.0/20"),),
    peer=(net("10.64.0.0/16"),),
    transit=(net("10.65.0.0/16"),),
    foreign=(net("10.66.0.0/20"), net("10.67.0.0/20")),
)
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
addresses = st.one_of(
    st.sampled_from(["10.201.0.5", "169.254.169.254", "10.65.0.9", "::1", "nonsense", "10.64.3.4", "10.70.0.9"]),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
)
requested = st.frozensets(st.tuples(addresses, st.sampled_from(["", "TCP/80", "UDP/53", "TCP/8080"])), max_size=12)


def requests(*wanted: tuple[str, str], complete: bool = True) -> ExportRequests:
    return ExportRequests(frozenset(wanted), complete)


class ExportRefusalTests(SynchronousTestCase):
    """Which addresses no peer ever reaches."""

    def test_every_kind_of_refused_address(self) -> None:
        """What has a meaning elsewhere only, what is mapped otherwise, and what would lead on is not exported."""
        for address, word in (
            ("192.0.2.9", ""),
            ("8.8.8.8", ""),
            ("10.98.0.1", "service"),
            ("10.65.0.9", ""),
            ("10.201.0.9", "this cluster's pods"),
            ("10.64.0.9", "peer's own pods"),
            ("10.70.0.7", "stands for another"),
            ("10.66.0.7", "behind a peer"),
            ("10.67.0.7", "behind a peer"),
            ("127.0.0.1", "own host or link"),
            ("169.254.169.254", "own host or link"),
            ("0.0.0.0", "own host or link"),
            ("0.1.2.3", "own host or link"),
            ("224.0.0.251", "own host or link"),
            ("255.255.255.255", "own host or link"),
            ("fe80::1", "own host or link"),
            ("fe80::1%eth0", "no address"),
            ("::1", "own host or link"),
            ("::ffff:127.0.0.1", "no address"),
            ("100.100.100.200", "credentials"),
            ("fd00:ec2::254", "credentials"),
            ("2001:db8::7", "IPv6"),
            ("64:ff9b::169.254.169.254", "own host or link"),
            ("2002:a9fe:a9fe::1", "own host or link"),
            ("fec0::7", "own host or link"),
            ("", "no address"),
            ("10.0.0.1; drop", "no address"),
        ):
            why = export_refusal(address, POLICY)
            self.assertEqual(bool(why), bool(word), address)
            self.assertIn(word, why, address)

    def test_an_external_network_of_ipv6_only(self) -> None:
        """With an external network of IPv6 it is the other way round."""
        grounds = attrs.evolve(POLICY, externals=(net("fd4c::/116"),), services=(net("fd96::/108"),))
        self.assertEqual(export_refusal("2001:db8::7", grounds), "")
        self.assertIn("IPv4", export_refusal("192.0.2.9", grounds))
        self.assertIn("service", export_refusal("fd96::7", grounds))


class AssignExportsTests(SynchronousTestCase):
    """Which address stands for which."""

    def test_nothing_is_given_twice_and_the_gateway_keeps_its_own(self) -> None:
        """Even in the smallest network every address has its own place, and those without one are reported."""
        grounds = attrs.evolve(POLICY, externals=nets("10.70.0.0/29"))
        wanted = requests(*((f"192.0.2.{n}", "TCP/80") for n in range(1, 9)))
        exports, without = assign_exports(grounds, [], wanted)
        self.assertEqual(sorted(one.external for one in exports), [f"10.70.0.{n}" for n in range(2, 7)])
        self.assertEqual(without, ["192.0.2.6", "192.0.2.7", "192.0.2.8"])

    def test_it_is_bounded(self) -> None:
        """However many are requested, the record holds so many, and those that had a place keep it."""
        wanted = requests(*((f"192.1.{n // 250}.{n % 250 + 1}", "TCP/80") for n in range(MOST_EXPORTS + 10)))
        exports, without = assign_exports(POLICY, [], wanted)
        self.assertEqual((len(exports), len(without)), (MOST_EXPORTS, 10))
        self.assertEqual(assign_exports(POLICY, exports, wanted), (exports, without))

    def test_unknown_is_not_empty(self) -> None:
        """After a restart nothing is released or narrowed before all requests are known; then it is."""
        held, _ = assign_exports(POLICY, [], requests(("192.0.2.9", "TCP/80"), ("192.0.2.7", "TCP/80")))
        kept, _ = assign_exports(POLICY, held, requests(("192.0.2.9", "UDP/53"), complete=False))
        self.assertEqual(
            [(one.address, one.ports) for one in kept], [("192.0.2.7", ["TCP/80"]), ("192.0.2.9", ["TCP/80", "UDP/53"])]
        )
        less, _ = assign_exports(POLICY, kept, requests(("192.0.2.9", "UDP/53")))
        self.assertEqual([(one.address, one.ports) for one in less], [("192.0.2.9", ["UDP/53"])])
        self.assertEqual(assign_exports(POLICY, less, requests()), ([], []))

    def test_what_is_forbidden_goes_though_nothing_is_known(self) -> None:
        """A record that names what may not be exported (edited by hand, or a network changed) is not followed."""
        held = [
            Export(address="169.254.169.254", external="10.70.0.9"),
            Export(address="192.0.2.8", external="10.71.0.9"),
            Export(address="192.0.2.9", external="10.70.0.1"),
            Export(address="192.0.2.7", external="10.70.0.8"),
            Export(address="192.0.2.6", external="10.70.0.8"),
        ]
        exports, _ = assign_exports(POLICY, held, requests(complete=False))
        self.assertEqual([one.address for one in exports], ["192.0.2.7"])

    def test_pods_at_another_peer_are_reached_as_a_whole(self) -> None:
        """Like this cluster's own pods; machines outside only where their slices say."""
        exports, _ = assign_exports(POLICY, [], requests(("10.65.0.9", "TCP/80"), ("192.0.2.9", "TCP/80")))
        self.assertEqual([(one.address, one.ports) for one in exports], [("10.65.0.9", []), ("192.0.2.9", ["TCP/80"])])

    @relaxed
    @given(st.lists(st.tuples(requested, st.booleans()), max_size=6))
    def test_any_history(self, history: list[tuple[frozenset[tuple[str, str]], bool]]) -> None:
        """Places are unique and inside the network, who stays keeps its place, nothing objectionable ever has one."""
        held: list[Export] = []
        for wanted, complete in history:
            before = {one.address: one.external for one in held}
            held, without = assign_exports(POLICY, held, ExportRequests(wanted, complete))
            asked = {address for address, _ in wanted if not export_refusal(address, POLICY)}
            now = {one.address: one.external for one in held}
            self.assertEqual(len(set(now.values())), len(held))
            self.assertFalse(without)
            self.assertEqual(set(now), asked if complete else asked | set(before))
            for address, place in now.items():
                self.assertEqual(export_refusal(address, POLICY), "")
                self.assertIn(ipaddress.ip_address(place), POLICY.externals[0])
                self.assertNotIn(place, ("10.70.0.0", "10.70.0.1", "10.70.15.255"))
                self.assertEqual(before.get(address, place), place)
            again, _ = assign_exports(POLICY, held, ExportRequests(wanted, complete))
            self.assertEqual(again, held)

    def test_addresses_of_both_versions_have_places_of_both(self) -> None:
        """Each in the network of its own version: neither takes the other's room; a record that mixes them is void."""
        both = attrs.evolve(POLICY, externals=nets("10.70.0.0/30", "fd4c::/112"))
        exports, without = assign_exports(
            both, [], requests(("192.0.2.9", "TCP/80"), ("192.0.2.8", "TCP/80"), ("2001:db8::7", "TCP/80"))
        )
        self.assertEqual(without, ["192.0.2.9"])
        self.assertEqual([one.address for one in exports], ["192.0.2.8", "2001:db8::7"])
        for one, network in zip(exports, both.externals, strict=True):
            self.assertIn(ipaddress.ip_address(one.external), network)
        mixed = [
            Export(address="192.0.2.9", external="fd4c::9"),
            Export(address="2001:db8::7", external="10.70.0.2"),
            Export(address="2001:db8::8", external="fd4c::1"),
            Export(address="2001:db8::9", external="fd4c::9", ports=["TCP/80"]),
        ]
        kept, _ = assign_exports(both, mixed, requests(complete=False))
        self.assertEqual([one.address for one in kept], ["2001:db8::9"])

    def test_what_names_no_port_is_closed(self) -> None:
        """Under the closed policy nothing but pods is open as a whole: not by a slice, not by a record of before."""
        closed = attrs.evolve(POLICY, closed=True)
        wanted = requests(("192.0.2.9", ""), ("192.0.2.8", ""), ("192.0.2.8", "TCP/80"), ("10.65.0.9", ""))
        exports, without = assign_exports(closed, [], wanted)
        self.assertEqual([(one.address, one.ports) for one in exports], [("10.65.0.9", []), ("192.0.2.8", ["TCP/80"])])
        self.assertEqual(without, [])
        self.assertIn("names no port", export_refusal("192.0.2.9", closed, whole=True))
        self.assertEqual(export_refusal("192.0.2.9", closed), "")
        self.assertEqual(export_refusal("10.65.0.9", closed, whole=True), "")
        self.assertEqual(export_refusal("192.0.2.9", POLICY, whole=True), "")
        held, _ = assign_exports(POLICY, [], wanted)
        self.assertEqual([one.address for one in held if not one.ports], ["10.65.0.9", "192.0.2.8", "192.0.2.9"])
        narrowed, _ = assign_exports(closed, held, requests(("192.0.2.8", "TCP/80"), complete=False))
        self.assertEqual([(one.address, one.ports) for one in narrowed], [("10.65.0.9", []), ("192.0.2.8", ["TCP/80"])])

    def test_a_lost_record_is_made_again_as_it_was(self) -> None:
        """The place follows from the address: also after others came and went meanwhile."""
        first, _ = assign_exports(POLICY, [], requests(("192.0.2.9", "TCP/80")))
        second, _ = assign_exports(POLICY, [], requests(("192.0.2.9", "TCP/80"), ("192.0.2.10", "TCP/80")))
        self.assertIn(first[0], second)

    def test_as_the_peer_calls_them(self) -> None:
        """Host bits are kept in the peer's view; without a view there is nothing, and unreadable ports open none."""
        exports = [
            Export(address="192.0.2.9", external="10.70.0.77", ports=["TCP/80", "UDP/53", "TCP/99999", "TCP/\u0668"]),
            Export(address="192.0.2.7", external="10.70.0.78", ports=["everything"]),
            Export(address="192.0.2.5", external="10.99.0.78"),
            Export(address="2001:db8::7", external="10.70.0.79"),
            Export(address="192.0.2.5; drop", external="10.70.0.80"),
        ]
        self.assertEqual(
            exports_as_seen(exports, POLICY.externals[0], net("10.74.0.0/20")),
            (
                ExportedAddress("10.74.0.77", "192.0.2.9", frozenset({("tcp", 80), ("udp", 53)})),
                ExportedAddress("10.74.0.78", "192.0.2.7", frozenset({("tcp", 0)})),
            ),
        )
        self.assertEqual(exports_as_seen(exports, POLICY.externals[0], None), ())
        spelled = [Export(address="2001:db8:0::7", external="fd4c:0::9")]
        (one,) = exports_as_seen(spelled, net("fd4c::/116"), net("fd4d::/116"))
        self.assertEqual((one.seen, one.real), ("fd4d::9", "2001:db8::7"))


def record(name: str, remap: Subnets, *exports: Export) -> NetworkConfig:
    """Return the record of a peer that sees our networks by 10.71.0.0/16 and 10.74.0.0/20."""
    local = TunnelSide(pod_cidrs=["10.201.0.0/16"], external_cidr="10.70.0.0/20")
    return NetworkConfig(
        metadata=ObjectMeta(name=name),
        spec=NetworkConfigSpec(cluster_id=name, local=local, remap=remap, exports=list(exports)),
        status=NetworkConfigStatus(
            remote=TunnelSide(pod_cidrs=["10.201.0.0/16"], external_cidr="10.70.0.0/20"),
            ack=Subnets(pod_cidrs=["10.71.0.0/16"], external_cidr="10.74.0.0/20"),
        ),
    )


class FewRecords:
    """The records of two peers."""

    def __init__(self) -> None:
        self.all = {
            "milan": record("milan", Subnets(pod_cidrs=["10.64.0.0/16"], external_cidr="10.66.0.0/20")),
            "turin": record("turin", Subnets(pod_cidrs=["10.65.0.0/16"], external_cidr="10.67.0.0/20")),
        }

    def config(self, peer: str) -> NetworkConfig | None:
        return self.all.get(peer)

    def configs(self) -> list[NetworkConfig]:
        return list(self.all.values())


class Reflection:
    """Asks for what a test says."""

    def __init__(self) -> None:
        self.wanted = requests()

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        return self.wanted

    def network_changed(self) -> None:
        pass


class ExportedAddressesTests(SynchronousTestCase):
    """What reflection is answered, and what is written."""

    def setUp(self) -> None:
        self.records = FewRecords()
        self.user = Reflection()
        records: Any = self.records
        self.exporting = ExportedAddresses(records, user=self.user, closed=False)
        self.own = LocalNetwork((net("10.201.0.0/16"),), net("10.70.0.0/20"), (), (), (), OWN_KEY, 1420)
        self.milan, self.turin = ClusterID("milan"), ClusterID("turin")

    def reconcile(self, peer: ClusterID) -> list[Export]:
        """Write to the record of a peer what it should say."""
        before = self.records.all[peer]
        exports = self.exporting.assign(self.own, before)
        spec = msgspec.structs.replace(before.spec, exports=exports)
        self.records.all[peer] = msgspec.structs.replace(before, spec=spec)
        return exports

    def test_each_address_as_the_peer_sees_it(self) -> None:
        """Our pods by their prefix, the peer's own by their own, another peer's and a machine by what was exported."""
        for address, seen, single in (
            ("10.201.0.5", "10.71.0.5", False),
            ("10.65.0.9", "10.201.0.9", False),
            ("10.64.0.9", "", True),
            ("192.0.2.9", "", True),
        ):
            answers = self.exporting.seen(self.turin, address), self.exporting.is_single(self.turin, address)
            self.assertEqual(answers, (seen, single), address)
        self.user.wanted = requests(("10.64.0.9", "TCP/80"), ("192.0.2.9", "TCP/80"))
        given = {one.address: one.external for one in self.reconcile(self.turin)}
        for address in ("10.64.0.9", "192.0.2.9"):
            seen = self.exporting.seen(self.turin, address)
            self.assertEqual(seen, given[address].replace("10.70.", "10.74."))
            self.assertEqual(self.exporting.seen(self.milan, address), "10.201.0.9" if address[:5] == "10.64" else "")

    def test_an_unknown_peer_reaches_nothing_and_gets_nothing(self) -> None:
        """A peer without a record, and one that has not said how it sees us."""
        stranger = ClusterID("paris")
        self.assertEqual(self.exporting.seen(stranger, "10.201.0.5"), "")
        self.assertFalse(self.exporting.is_single(stranger, "192.0.2.9"))
        silent = msgspec.structs.replace(self.records.all["turin"], status=NetworkConfigStatus())
        self.records.all["turin"] = silent
        self.assertFalse(self.exporting.is_single(self.turin, "192.0.2.9"))

    def test_a_request_waits_for_a_free_address(self) -> None:
        """The request stays, so that it has its turn when another one goes."""
        self.own = attrs.evolve(self.own, external=net("10.70.0.0/30"))
        self.user.wanted = requests(("192.0.2.1", ""), ("192.0.2.2", ""))
        for _ in range(3):
            self.assertEqual([one.address for one in self.reconcile(self.turin)], ["192.0.2.1"])
            self.assertEqual(self.exporting.objection(self.turin, "192.0.2.2"), "")
        self.user.wanted = requests(("192.0.2.2", ""))
        self.assertEqual([one.address for one in self.reconcile(self.turin)], ["192.0.2.2"])

    def test_a_refused_address_has_a_reason(self) -> None:
        """As soon as this cluster's networks are known."""
        self.assertEqual(self.exporting.objection(self.turin, "127.0.0.1"), "")
        self.reconcile(self.turin)
        self.assertIn("own host or link", self.exporting.objection(self.turin, "127.0.0.1"))

    def test_a_request_without_ports_is_refused_when_closed(self) -> None:
        """Under the closed policy; one slice that names a port is enough."""
        records: Any = self.records
        self.exporting = ExportedAddresses(records, user=self.user, closed=True)
        self.user.wanted = requests(("192.0.2.2", ""))
        self.assertEqual(self.reconcile(self.turin), [])
        self.assertIn("names no port", self.exporting.objection(self.turin, "192.0.2.2"))
        self.user.wanted = requests(("192.0.2.2", ""), ("192.0.2.2", "TCP/80"))
        self.assertEqual([one.ports for one in self.reconcile(self.turin)], [["TCP/80"]])
        self.assertEqual(self.exporting.objection(self.turin, "192.0.2.2"), "")


EXTERNAL = Netmap(net("10.70.0.0/20"), net("10.74.0.0/20"))
MACHINE = ExportedAddress("10.74.0.7", "192.0.2.9", frozenset({("tcp", 80)}))
POD = ExportedAddress("10.74.0.8", "10.80.0.9")


def with_exports(*exports: ExportedAddress, **changes: Any) -> Any:
    """Return the desired state of a host whose peer reaches some addresses."""
    return attrs.evolve(DESIRED, links=(attrs.evolve(LINK, external=EXTERNAL, exports=exports),), **changes)


class ExportRuleTests(SynchronousTestCase):
    """The words for nft."""

    def test_who_exports_nothing_has_no_rule_for_it(self) -> None:
        """The table is as it was without an external network."""
        self.assertEqual(nftables.render(with_exports()), nftables.render(DESIRED))

    def test_the_sets(self) -> None:
        """Where each leads, which are open as a whole, and the ports of the others."""
        script = nftables.render(with_exports(MACHINE, POD))
        self.assertIn("elements = { 10.74.0.7 : 192.0.2.9, 10.74.0.8 : 10.80.0.9 }", script)
        self.assertIn("elements = { 10.74.0.8 }", script)
        self.assertIn("elements = { 10.74.0.7 . tcp . 80 }", script)

    def test_both_versions(self) -> None:
        """Sets, guard and translation for each version that something is exported of, and none for the other."""
        six = Netmap(net("fd4c::/112"), net("fd4d::/112"))
        link = attrs.evolve(LINK, remote=(*LINK.remote, net("fd72::/48")), external=EXTERNAL, six=six)
        machine = ExportedAddress("fd4d::7", "2001:db8::9", frozenset({("tcp", 80)}))
        for exports, versions in (((MACHINE,), {"4"}), ((machine,), {"6"}), ((MACHINE, machine), {"4", "6"})):
            script = nftables.render(attrs.evolve(DESIRED, links=(attrs.evolve(link, exports=exports),)))
            self.assertEqual(set(re.findall(r"map @real_[0-9a-f]{64}_([46])\n", script)), versions)
            self.assertEqual(set(re.findall(r"map real_[0-9a-f]{64}_([46]) \{", script)), versions)
            self.assertEqual("ct original ip6 daddr fd4d::/112 masquerade" in script, "6" in versions)
            own = "ct original ip6 daddr fd4d::/112 ct original ip6 daddr != fd4d::1 accept"
            self.assertEqual(own in script, "6" in versions)
            # The gateway has an address of either version in any case.
            self.assertIn("ip6 daddr { fd72::/48 } snat ip6 to fd4d::1\n", script)
            self.assertIn("ip6 daddr fd4d::1 dnat ip6 to fd4c::1\n", script)
        self.assertIn("elements = { fd4d::7 : 2001:db8::9 }", script)
        self.assertIn("elements = { fd4d::7 . tcp . 80 }", script)

    def test_what_the_guard_accepts_comes_before_its_drop(self) -> None:
        """In every chain the exceptions stand before the rule that drops, or they would be none."""
        script = nftables.render(with_exports(POD))
        for chain, accept, drop in (
            ("guard", "@whole_", 'iifname "liqod" drop'),
            (
                "input",
                "ct original ip daddr 10.74.0.0/20 ct original ip daddr != 10.74.0.1 accept",
                'iifname "liqod" drop',
            ),
            ("forward", "ct original ip daddr 10.74.0.0/20 accept", 'iifname "liqod" oifname "liqod" drop'),
        ):
            text = script.split(f"chain {chain} {{")[1].split("}\n\tchain")[0]
            self.assertIn(accept, text)
            self.assertLess(text.index(accept), text.index(drop), chain)

    def test_the_closed_policy_lets_exports_pass_first(self) -> None:
        """The peer's set of pods does not hold them; everything else is dropped as before."""
        link = attrs.evolve(LINK, external=EXTERNAL, exports=(MACHINE,), pods=frozenset({"10.201.0.5"}))
        text = nftables.render(attrs.evolve(DESIRED, links=(link,))).split("chain forward {")[1]
        accept = text.index("ct original ip daddr 10.74.0.0/20 accept")
        self.assertLess(accept, text.index("ip saddr { 10.72.0.0/16, 10.73.0.0/20 } drop"))

    def test_the_number_of_rules_does_not_depend_on_the_number_of_exports(self) -> None:
        """Another address is an element, and so is another target of one, for which connections are forgotten."""
        kernel = FakeKernel()

        def turn(*exports: ExportedAddress) -> tuple[HostCommand, ...]:
            async def once() -> tuple[HostCommand, ...]:
                keys = {"private_key": "ours", "public_key": public_key("ours")}
                steps = plan(with_exports(*exports, **keys), await observe(kernel, "liqod"), NOW)
                await apply(kernel, steps)
                return steps

            return self.successResultOf(Deferred.fromCoroutine(once()))

        turn(MACHINE)
        self.assertEqual(turn(MACHINE), ())
        (step,) = turn(MACHINE, POD)
        self.assertRegex(step.stdin, r"add element inet liqod real_[0-9a-f]{64}_4 \{ 10\.74\.0\.8 : 10\.80\.0\.9 \}\n")
        self.assertRegex(step.stdin, r"add element inet liqod whole_[0-9a-f]{64}_4 \{ 10\.74\.0\.8 \}\n")
        kernel.flows = {("10.72.0.5", "10.74.0.7"), ("10.72.0.5", "10.74.0.8")}
        turn(attrs.evolve(MACHINE, real="192.0.2.10"), POD)
        self.assertEqual(kernel.flows, {("10.72.0.5", "10.74.0.8")})
        turn(POD)
        self.assertEqual(turn(POD), ())
        turn()
        self.assertEqual((turn(), kernel.flows), ((), set()))

    def test_hosts_of_the_overlay_see_the_caller(self) -> None:
        """They know the way back, and the overlay's device has no address to stand for it."""
        overlay = Overlay("liqodx", 18952, 5876, "192.0.2.1", 1400, (), 18951, "liqod")
        script = nftables.render(with_exports(MACHINE, overlay=overlay))
        head = "ip saddr { 10.72.0.0/16, 10.73.0.0/20 } ct original ip daddr 10.74.0.0/20 masquerade"
        self.assertIn(f'\t\toifname != "liqodx" {head}\n', script)
        self.assertNotIn(f"\t\t{head}\n", script)

    def test_each_peer_has_its_own(self) -> None:
        """What is exported to one peer is in no set or rule of another."""
        other = attrs.evolve(LINK, peer=ClusterID("paris"), public_key=OWN_KEY, remote=(net("10.80.0.0/16"),))
        mine = attrs.evolve(LINK, external=EXTERNAL, exports=(MACHINE,))
        script = nftables.render(attrs.evolve(DESIRED, links=(mine, other)))
        self.assertEqual(len([line for line in script.splitlines() if line.startswith(("\tmap", "\tset"))]), 3)
        self.assertNotIn("10.80.0.0/16 } ct original", script)

    def test_what_the_kernel_shows_is_what_was_written(self) -> None:
        """Joined elements and maps read as they are written."""
        text = (
            '{"nftables":[{"map":{"name":"real_ab_4","elem":[["10.74.0.7","192.0.2.9"]]}},'
            '{"set":{"name":"ports_ab_4","elem":[{"concat":["10.74.0.7","tcp",80]}]}},{"set":{"name":"whole_ab_4"}}]}'
        )
        rules = nftables.parse_table(text)
        assert rules is not None
        self.assertEqual(
            rules.sets,
            {
                "real_ab_4": frozenset({"10.74.0.7 : 192.0.2.9"}),
                "ports_ab_4": frozenset({"10.74.0.7 . tcp . 80"}),
                "whole_ab_4": frozenset(),
            },
        )

    def test_protocols_by_number(self) -> None:
        """A host without /etc/protocols shows numbers: that is no difference, so nothing is written again."""
        shown = [("tcp", 6), ("udp", 17), ("sctp", 132), (47, 47)]
        for name, number in shown:
            text = json.dumps(
                {"nftables": [{"set": {"name": "ports_ab_4", "elem": [{"concat": ["10.74.0.7", number, 80]}]}}]}
            )
            rules = nftables.parse_table(text)
            assert rules is not None
            self.assertEqual(rules.sets["ports_ab_4"], {f"10.74.0.7 . {name} . 80"})

    def test_from_nothing_all_is_there_at_once(self) -> None:
        """The first plan has the exports in it, before any route leads to the peer."""
        text = show(plan(with_exports(MACHINE), ObservedKernel(), NOW))
        self.assertLess(text.index("192.0.2.9"), text.index("route replace"))
