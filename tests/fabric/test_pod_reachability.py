"""Which pod of a peer is probed, and what its silence means."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from typing import Any, cast

from twisted.internet import reactor as _reactor
from twisted.internet import task
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.fabric.agent.kernel.host_facts import tunnel_mtu, uplink_mtu
from liqod.fabric.agent.probing.ping import Pinger, checksum, echo_request, icmp6_filter, padding
from liqod.fabric.control.cluster_facts import node_addresses, pod_addresses
from liqod.fabric.control.probe_targets import pod_target, pod_targets
from liqod.fabric.state.report import DEAD_AFTER, NARROW_AFTER, Cut, PodPath, find_cut, find_narrow
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeAddress, NodeSpec, NodeStatus
from liqod.model.objects.pod import Pod, PodAddress, PodSpec, PodStatus
from tests.environment import require

reactor = cast(Any, _reactor)
NETWORKS = (ipaddress.ip_network("10.64.0.0/16"),)


def pod(address: str, phase: str = "Running", namespace: str = "shop", *, host_network: bool = False) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="pod", namespace=namespace),
        spec=PodSpec(host_network=host_network),
        status=PodStatus(phase=phase, pod_ips=[PodAddress(ip=address)] if address else []),
    )


def node(cidrs: list[str], address: str = "192.0.2.1") -> Node:
    return Node(
        spec=NodeSpec(pod_cidrs=cidrs),
        status=NodeStatus(
            addresses=[NodeAddress(type="InternalIP", address=address), NodeAddress(type="Hostname", address="x")]
        ),
    )


class PingerTests(TestCase):
    """Echo requests to this very host."""

    async def test_replies_of_both_ip_versions_are_received(self) -> None:
        """Addresses of either version that answer are noticed, large packets too, and one that does not is not."""
        require("" if not os.geteuid() and has_six() else "raw sockets need root, and this host has to have IPv6")
        pinger = Pinger(reactor)
        self.addCleanup(pinger.close)
        pinger.set_targets({("us", 4): "127.0.0.1", ("us", 6): "::1", ("nobody", 4): "192.0.2.1"}, {"us": 1421})
        pinger.open(["127.0.0.1", "::1"])
        pinger.open(["127.0.0.1", "::1"])
        for _ in range(300):
            await task.deferLater(reactor, 0.1)
            ours = [path for (name, _), path in pinger.paths.items() if name == "us"]
            if all(path.answered_at is not None and path.size and path.large_since is None for path in ours):
                break
        answered_at = {way: path.answered_at is not None for way, path in pinger.paths.items()}
        self.assertEqual(answered_at, {("us", 4): True, ("us", 6): True, ("nobody", 4): False})
        self.assertEqual([(path.size, path.large_since) for path in ours], [(1421, None)] * 2)

    def test_sizes_of_packets(self) -> None:
        """A request has an even number of bytes, as many as were asked for or one less, with all headers."""
        for version, header in ((4, 20), (6, 40)):
            for size in (576, 1420, 1421):
                data = bytes(16 + padding(version, size))
                self.assertEqual(header + len(echo_request(version, 1, data)), size - size % 2)
            self.assertEqual(padding(version, 0), 0)

    def test_the_icmpv6_filter_passes_one_type(self) -> None:
        """All types of ICMPv6 but one are kept away (a bit for each, by words of 32)."""
        words = struct.unpack("=8I", icmp6_filter(129))
        self.assertEqual([kind for kind in range(256) if not words[kind >> 5] >> (kind & 31) & 1], [129])


def has_six() -> bool:
    """Tell whether this host has the loopback address of IPv6."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.bind(("::1", 0))
        return True
    return False


class PodTargetTests(SynchronousTestCase):
    """Which pod is probed."""

    def test_a_running_pod_of_the_peer(self) -> None:
        """Only running pods with an address inside the peer's networks count; the choice is stable."""
        pods = [pod("10.64.0.9", "Pending"), pod("10.201.0.2"), pod(""), pod("10.64.0.7"), pod("10.64.0.5")]
        self.assertEqual(pod_target(pods, NETWORKS, ""), "10.64.0.5")
        self.assertEqual(pod_target(pods, NETWORKS, "10.64.0.7"), "10.64.0.7")
        self.assertEqual(pod_target(pods, NETWORKS, "10.64.0.9"), "10.64.0.5")
        self.assertEqual(pod_target(pods[:3], NETWORKS, "10.64.0.5"), "")

    def test_pods_of_either_version(self) -> None:
        """One of IPv6 is probed where there is none of IPv4, also where both versions are the peer's."""
        both = (*NETWORKS, ipaddress.ip_network("fd00:64::/48"))
        six, four = pod("fd00:64::5"), pod("10.64.0.7")
        self.assertEqual(pod_target([six], both, ""), "fd00:64::5")
        self.assertEqual(pod_target([six, four], both, ""), "10.64.0.7")
        self.assertEqual(pod_target([six], NETWORKS, ""), "")

    def test_one_of_each_version(self) -> None:
        """Where the peer has both versions, an address of each is probed, each for as long as its pod runs."""
        both = (*NETWORKS, ipaddress.ip_network("fd00:64::/48"))
        pods = [pod("10.64.0.7"), pod("fd00:64::5"), pod("10.64.0.5"), pod("fd00:64::9")]
        self.assertEqual(pod_targets(pods, both, {}), {4: "10.64.0.5", 6: "fd00:64::5"})
        self.assertEqual(pod_targets(pods, both, {4: "10.64.0.7", 6: "fd00:64::7"}), {4: "10.64.0.7", 6: "fd00:64::5"})
        self.assertEqual(pod_targets(pods, NETWORKS, {}), {4: "10.64.0.5"})
        self.assertEqual(pod_targets(pods[1:2], both, {}), {6: "fd00:64::5"})

    def test_a_cut_of_one_version(self) -> None:
        """It is distinguished from a cut of all by another one that goes on answering; who never answered proves
        nothing.
        """
        now = 100.0 + DEAD_AFTER
        silent, silent_six = PodPath("10.64.0.5", 0.0, 100.0), PodPath("fd00:64::5", 0.0, 100.0)
        lively, mute = PodPath("10.64.0.5", 0.0, now), PodPath("10.64.0.5", 0.0)
        for paths, wanted in (
            ((lively, silent_six), Cut(("fd00:64::5",), whole=False)),
            ((silent, silent_six), Cut(("10.64.0.5", "fd00:64::5"), whole=True)),
            ((mute, silent_six), Cut(("fd00:64::5",), whole=True)),
            ((silent,), Cut(("10.64.0.5",), whole=True)),
            ((lively,), None),
            ((mute,), None),
            ((), None),
        ):
            self.assertEqual(find_cut(paths, now), wanted)
        self.assertIn("not those of IPv6", Cut(("fd00:64::5",), whole=False).message)
        self.assertIn("pods 10.64.0.5, fd00:64::5 do not", Cut(("10.64.0.5", "fd00:64::5"), whole=True).message)

    def test_silence(self) -> None:
        """A pod that never answered proves nothing; one that stopped does."""
        path = PodPath("10.64.0.5", 0.0)
        self.assertFalse(path.is_silent(100.0))
        path = PodPath("10.64.0.5", 0.0, 100.0)
        self.assertFalse(path.is_silent(100.0 + DEAD_AFTER - 1))
        self.assertTrue(path.is_silent(100.0 + DEAD_AFTER))

    def test_small_packets_alone(self) -> None:
        """A path is narrow while small packets come back and large ones have not for long; a silent one is not."""
        now = 100.0
        begun = now - NARROW_AFTER
        narrow = PodPath("10.64.0.5", 0.0, now, size=1420, large_since=begun)
        self.assertTrue(narrow.is_narrow(now))
        self.assertIn("packets of 1420 bytes", find_narrow([narrow], now))
        for other in (
            PodPath("10.64.0.5", 0.0, now),
            PodPath("10.64.0.5", 0.0, now, size=1420, large_since=begun + 1),
            PodPath("10.64.0.5", 0.0, now - DEAD_AFTER, size=1420, large_since=begun),
            PodPath("10.64.0.5", 0.0, size=1420, large_since=begun),
        ):
            self.assertEqual(find_narrow([other], now), "")

    def test_checksum(self) -> None:
        """A packet with its checksum sums up to zero."""
        packet = struct.pack("!BBHHH", 8, 0, 0, 7, 9) + b"sixteen bytes ok"
        whole = packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]
        self.assertEqual(checksum(whole), 0)


class ClusterFactsTests(SynchronousTestCase):
    """Networks and addresses of a cluster, from its nodes and pods."""

    def test_node_addresses(self) -> None:
        """Only IP addresses count."""
        self.assertEqual(list(map(str, node_addresses([node([])]))), ["192.0.2.1/32"])

    def test_pods_that_may_talk(self) -> None:
        """Pods of the named namespaces with addresses of their own, written as the kernel shows them."""
        pods = [pod("10.201.0.2"), pod("10.201.0.3", namespace="other"), pod("192.0.2.1", host_network=True)]
        self.assertEqual(pod_addresses(pods, ["shop"]), {"10.201.0.2"})
        self.assertEqual(pod_addresses([pod("fd00:201:0:0::13"), pod("none")], ["shop"]), {"fd00:201::13"})

    def test_mtu(self) -> None:
        """The tunnel leaves room for itself; a setting wins; nothing known means what fits everywhere."""
        text = '[{"ifname":"eth0","mtu":1500,"addr_info":[{"local":"192.0.2.1"}]}]'
        self.assertEqual(uplink_mtu(text, "192.0.2.1"), 1500)
        self.assertEqual(uplink_mtu(text, "192.0.2.2"), 0)
        self.assertEqual(
            [tunnel_mtu(0, 1500), tunnel_mtu(0, 9001), tunnel_mtu(1400, 1500), tunnel_mtu(0, 0)],
            [1420, 8920, 1400, 1420],
        )
        self.assertEqual(tunnel_mtu(0, 1300), 1280)
