"""The overlay between a cluster's hosts: settled by one plan, healed after any crash, gone without a trace."""

from __future__ import annotations

import ipaddress

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel import vxlan
from liqod.fabric.agent.kernel.host import KernelError, apply, observe, observe_node
from liqod.fabric.agent.kernel.model import INWARD, DesiredNodeKernel, Overlay
from liqod.fabric.agent.kernel.plan import node_plan, node_removal, plan
from liqod.fabric.agent.kernel.rules import nftables
from liqod.fabric.agent.node_view import node_desired, own_node
from liqod.fabric.control.cluster_facts import find_vteps
from liqod.fabric.state.network import VNI, Vtep
from liqod.model.names import OVERLAY_ANNOTATION, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeSpec
from liqod.model.records.network import (
    Gateway,
    Network,
    Subnets,
    TunnelEndpoint,
    TunnelEndpointSpec,
    TunnelEndpointStatus,
)
from tests.fabric.agent.test_host import DESIRED
from tests.fabric.cases import NOW, HostCase
from tests.fabric.fake_kernel import FakeKernel


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


def vteps(count: int) -> tuple[Vtep, ...]:
    """Return so many hosts with pods of both IP versions."""
    return tuple(
        Vtep(f"192.0.2.{10 + n}", (net(f"192.0.2.{10 + n}/32"), net(f"10.201.{n}.0/24"), net(f"fd00:ff:0:{n}::/64")))
        for n in range(1, count + 1)
    )


OVERLAY = Overlay("liqodx", VNI, 5876, "192.0.2.1", 1450, vteps(3), INWARD, "liqod")
GATEWAY = attrs.evolve(DESIRED, overlay=OVERLAY)


def record(name: str, gateway: Gateway, allowed: list[str], mtu: int = 0, version: str = "1") -> TunnelEndpoint:
    """Return what the gateway says of a tunnel."""
    spec = TunnelEndpointSpec(gateway=gateway, allowed_ips=allowed, local=Subnets(pod_cidrs=["10.201.0.0/16"]))
    meta = ObjectMeta(name=name, resource_version=version)
    return TunnelEndpoint(metadata=meta, spec=spec, status=TunnelEndpointStatus(path_mtu=mtu))


THERE = Gateway(address="192.0.2.1", vni=VNI, port=5876)


class GatewayTests(HostCase):
    """The gateway's end."""

    def test_settles_at_once_however_hosts_come_and_go(self) -> None:
        """One plan for every change, the same state as from nothing, and a constant number of rules and policies."""
        counts = set()
        for count in (3, 1, 20, 2, 3):
            wanted = attrs.evolve(GATEWAY, overlay=attrs.evolve(OVERLAY, vteps=vteps(count)))
            self.converge(wanted)
            self.assertEqual(self.converge(wanted), 0)
            is_starting = FakeKernel()
            self.kernel, used = is_starting, self.kernel
            self.converge(wanted)
            self.kernel = used
            self.assertEqual(self.kernel.state(), is_starting.state())
            counts.add((len(self.kernel.rules), nftables.render(wanted).count("\n")))
        self.assertEqual(len(counts), 1)

    def test_no_host_no_overlay(self) -> None:
        """When the last other host leaves, the tunnel stays as it would be without any."""
        self.converge(DESIRED)
        alone = self.kernel.state()
        self.converge(GATEWAY)
        self.assertNotEqual(self.kernel.state(), alone)
        self.converge(DESIRED)
        self.assertEqual(self.kernel.state(), alone)

    def test_a_host_without_ipv6(self) -> None:
        """Hosts without networks of IPv6 have no neighbours of it, which such a host's kernel refuses."""
        self.kernel.has_six = False
        one = Vtep("192.0.2.11", (net("192.0.2.11/32"), net("10.201.1.0/24")))
        overlay = attrs.evolve(OVERLAY, vteps=(one,))
        self.converge(attrs.evolve(GATEWAY, addresses=GATEWAY.addresses[:1], links=(), overlay=overlay))
        self.assertEqual(list(self.kernel.links["liqodx"].neighbours), ["192.0.2.11"])
        self.assertIn("inet liqod", self.kernel.tables)

    def test_a_crash_anywhere_is_healed_or_removed(self) -> None:
        """Whatever part was carried out, the next plan completes it, and removal leaves nothing."""
        self.converge(GATEWAY)
        whole = self.kernel.state()
        for after in (self.converge, None):
            for done in range(16):
                self.kernel = FakeKernel()
                self.kernel.fail_after = done

                async def once() -> None:
                    await apply(self.kernel, plan(GATEWAY, await observe(self.kernel, "liqod"), NOW))

                try:
                    self.successResultOf(Deferred.fromCoroutine(once()))
                except self.failureException:
                    self.flushLoggedErrors(KernelError)
                self.kernel.fail_after = None
                if after is not None:
                    after(GATEWAY)
                    self.assertEqual(self.kernel.state(), whole, f"after a crash at step {done}")
                else:
                    self.remove()
                    self.assertEqual(self.kernel.state(), self.before, f"after a crash at step {done}")

    def test_rules_of_an_earlier_release(self) -> None:
        """Rules that do not say that the kernel made them are replaced by one plan; at no moment is there none."""
        self.converge(GATEWAY)
        whole, rules = self.kernel.state(), set(self.kernel.rules)
        spares = {(version, str(int(pref) + 1), table, source) for version, pref, table, source in rules}
        led = {(version, table) for version, _, table, _ in rules}
        self.assertEqual(len(led), 4)
        change = self.kernel._rule

        def watched(verb: str, rule: tuple[str, str, str, str]) -> None:
            change(verb, rule)
            self.assertEqual({(version, table) for version, _, table, _ in self.kernel.rules}, led)

        self.kernel.unmarked = set(rules)
        watch = self.patch(self.kernel, "_rule", watched)
        self.assertGreater(self.converge(GATEWAY), 0)
        self.assertEqual(self.kernel.state(), whole)
        self.assertEqual(self.converge(GATEWAY), 0)
        watch.restore()
        # A process that ended in the middle left the rules that led meanwhile.
        self.kernel.rules |= spares
        self.kernel.unmarked = set(rules)
        self.converge(GATEWAY)
        self.assertEqual(self.kernel.state(), whole)
        self.assertEqual(self.converge(GATEWAY), 0)

    def test_in_a_container(self) -> None:
        """Where nothing of /proc/sys can be written it does without, unless the host filters strictly: that is said."""
        self.kernel.read_only = True
        self.kernel.all_rp_filter = "0"
        self.converge(GATEWAY)
        self.assertEqual(self.converge(GATEWAY), 0)
        self.kernel.all_rp_filter = "1"

        async def again() -> None:
            await apply(self.kernel, plan(GATEWAY, await observe(self.kernel, "liqod"), NOW))

        failure = self.failureResultOf(Deferred.fromCoroutine(again()), KernelError)
        self.assertIn("rp_filter=2 failed: sysctl: cannot set", str(failure.value))

    def test_another_address_makes_another_device(self) -> None:
        """What cannot be changed of a device is changed by making it again."""
        self.converge(GATEWAY)
        moved = attrs.evolve(GATEWAY, overlay=attrs.evolve(OVERLAY, local="192.0.2.9"))
        self.converge(moved)
        self.assertEqual(self.kernel.links["liqodx"].vxlan["local"], "192.0.2.9")
        self.assertEqual(self.converge(moved), 0)

    def test_vxlan_of_other_hosts_is_dropped(self) -> None:
        """The port of the overlay takes packets of the cluster's own hosts alone."""
        script = nftables.render(GATEWAY)
        self.assertIn("udp dport 5876 ip saddr != @hosts_4 drop", script)
        self.assertIn("elements = { 192.0.2.11, 192.0.2.12, 192.0.2.13 }", script)


class NodeTests(SynchronousTestCase):
    """The end of a host that is no gateway."""

    def test_life_of_a_node(self) -> None:
        """One plan settles it, changes of the records settle at once, and removal leaves nothing."""
        kernel = FakeKernel()
        before = kernel.state()

        async def converge(wanted: DesiredNodeKernel) -> int:
            steps = node_plan(wanted, await observe_node(kernel, "liqodx"))
            await apply(kernel, steps)
            return len(steps)

        one = node_desired("liqod", "192.0.2.11", 1500, [record("milan", THERE, ["10.72.0.0/16"], 1420)])
        assert one is not None
        two = node_desired(
            "liqod",
            "192.0.2.11",
            1500,
            [record("milan", THERE, ["10.72.0.0/16"], 1420), record("paris", THERE, ["10.80.0.0/16", "fd00:1::/48"])],
        )
        assert two is not None
        for wanted in (one, two, one):
            self.assertGreater(self.successResultOf(Deferred.fromCoroutine(converge(wanted))), 0)
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(converge(wanted))), 0)
        self.assertEqual(kernel.routes["4"]["10.72.0.0/16"]["metrics"], [{"mtu": 1420}])

        async def remove() -> None:
            await apply(kernel, node_removal("liqodx", await observe_node(kernel, "liqodx")))

        self.successResultOf(Deferred.fromCoroutine(remove()))
        self.assertEqual(kernel.state(), before)

    def test_desired_state_from_the_records(self) -> None:
        """No gateway, one on this very host, or one that cannot be: nothing; else all that its tunnels lead to."""
        self.assertIsNone(node_desired("liqod", "192.0.2.11", 1500, []))
        for gateway in (
            Gateway(),
            Gateway(address="192.0.2.11", vni=1, port=1),
            Gateway(address="nonsense", vni=1, port=1),
            Gateway(address="192.0.2.1", vni=1 << 24, port=1),
            Gateway(address="192.0.2.1", vni=1, port=0),
            Gateway(address="fd00::1", vni=1, port=1),
        ):
            self.assertIsNone(node_desired("liqod", "192.0.2.11", 1500, [record("x", gateway, ["10.72.0.0/16"])]))
        moved = Gateway(address="192.0.2.2", vni=VNI, port=5876)
        found = node_desired(
            "liqod",
            "192.0.2.11",
            9000,
            [record("a", THERE, ["10.72.0.0/16"], version="7"), record("b", moved, ["10.73.0.0/16"], version="9")],
        )
        assert found is not None
        self.assertEqual([end.address for end in found.overlay.vteps], ["192.0.2.2"])
        self.assertEqual(found.overlay.mtu, 8950)

    def test_vteps_are_the_hosts_that_announced_one(self) -> None:
        """Virtual nodes, this host, hosts without a daemon, and nonsense are no ends of the overlay."""

        def node(name: str, said: str, **labels: str) -> Node:
            notes = {OVERLAY_ANNOTATION: said} if said else {}
            meta = ObjectMeta(name=name, annotations=notes, labels=labels)
            return Node(metadata=meta, spec=NodeSpec(pod_cidrs=["10.201.7.0/24"]))

        nodes = [
            node("gateway", "192.0.2.1"),
            node("silent", ""),
            node("odd", "somewhere"),
            node("far", "192.0.2.11"),
            node("liqo-milan", "192.0.2.12", **{TYPE_LABEL: VIRTUAL_NODE_TYPE}),
        ]
        found = find_vteps(nodes, "192.0.2.1")
        self.assertEqual(found, (Vtep("192.0.2.11", (net("192.0.2.11/32"), net("10.201.7.0/24"))),))
        self.assertEqual(own_node(nodes, "far", ""), "far")
        self.assertEqual(own_node(nodes, "", "192.0.2.77"), "")

    def test_next_hops(self) -> None:
        """A host is reached by its own address in IPv4, else by one made of it; no two hosts have the same."""
        self.assertEqual(vxlan.next_hop("192.0.2.11", 4), "192.0.2.11")
        self.assertTrue(vxlan.next_hop("192.0.2.11", 6).startswith("fe80::"))
        self.assertTrue(vxlan.next_hop("fd00::11", 4).startswith("fe80::"))
        made = {vxlan.hardware(f"192.0.{a}.{b}") for a in range(4) for b in range(256)}
        self.assertEqual(len(made), 1024)
        self.assertTrue(all(one.startswith("02:") for one in made))
