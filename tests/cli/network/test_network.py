"""What netcheck makes of probes, what bench makes of pods' words, and what a host learns that it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.network import bench_pods, netcheck
from liqod.config import schema
from liqod.fabric.agent.kernel import preflight
from liqod.fabric.agent.kernel.host import DEADLINE, ProgramOutput
from liqod.fabric.agent.kernel.model import ObservedKernel, TunnelPeer, WireGuardDevice
from liqod.model.diagnosis import hops
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.path import HostObservation, NotObserved, PathProbes, PodPings, SizeProbes, may_send
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL
from liqod.model.objects.pod import Pod
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster

GONE = "ping: 100% packet loss"
PINGED = """\
20 packets transmitted, 19 packets received, 5% packet loss
round-trip min/avg/max = 0.451/0.912/7.250 ms
"""


def tunnel_to_milan(**status: Any) -> ClusterRecords:
    """Return the records of a peer whose network is agreed on, with a path MTU of 1420."""
    meta = {"metadata": {"name": "c2"}}
    cluster = {**meta, "spec": {"fingerprint": "sha256:1"}, "status": {"clusterName": "milan", "phase": "Ready"}}
    spec = {"publicKey": "KEY", "allowedIPs": ["10.80.0.0/16"]}
    found = {"phase": "Connected", "reason": "PacketsCross", "pathMTU": 1420, **status}
    return ClusterRecords(
        leader=LeaderFacts("one", alive=True, age=1.0),
        peers=[msgspec.convert(cluster, ForeignCluster)],
        networks=[msgspec.convert({**meta, "status": {"phase": "Agreed"}}, NetworkConfig)],
        tunnels=[msgspec.convert({**meta, "spec": spec, "status": found}, TunnelEndpoint)],
    )


GOOD = HostObservation(
    routes=frozenset({"10.80.0.0/16"}), rules=9, known=True, endpoint="192.0.2.1:5871", handshake_age=20.0
)


def rounds(passing: int, *, lost: Sequence[int] = ()) -> list[SizeProbes]:
    """Return probes of several sizes, of which those up to a size came back, but for some."""
    found = []
    for size in (64, 576, 1280, 1420, 1500):
        came = size <= passing and size not in lost
        found.append(SizeProbes(size, 3, (0.001, 0.002, 0.003) if came else ()))
    return found


def on_path(facts: ClusterRecords | None = None, **probes: Any) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return hop and code of each problem on the path, and what is well by hop."""
    found = examine(Evidence(records=facts or tunnel_to_milan(), path=PathProbes(peer="c2", **probes)))
    return [(one.hop, one.code) for one in found.problems if one.hop], {one.topic: one.text for one in found.passed}


class PathTests(SynchronousTestCase):
    """What is wrong on the path to a peer, from records and probes."""

    def test_host(self) -> None:
        """Routes, rules, the peer's key, its last handshake: each has a code at its hop, and nothing is well there."""
        for changed, hop, code in (
            ({"routes": frozenset()}, hops.ROUTE, "LocalRouteMissing"),
            ({"rules": None}, hops.ROUTE, "RulesMissing"),
            ({"known": False}, hops.TUNNEL, "KeyNotOnDevice"),
            ({"handshake_age": None}, hops.TUNNEL, "NoHandshake"),
            ({"handshake_age": 181.0}, hops.TUNNEL, "NoHandshake"),
        ):
            host = attrs.evolve(GOOD, **changed)
            problems, passed = on_path(host=host)
            self.assertEqual(problems, [(hop, code)])
            self.assertNotIn(hop, passed)
            self.assertFalse(may_send(tunnel_to_milan(), PathProbes(peer="c2", host=host)))
        problems, passed = on_path(host=GOOD)
        self.assertEqual((problems, set(passed) & set(hops.HOPS)), ([], {hops.AGREEMENT, hops.ROUTE, hops.TUNNEL}))
        self.assertTrue(may_send(tunnel_to_milan(), PathProbes(peer="c2", host=GOOD)))

    def test_the_port_that_must_be_open(self) -> None:
        """The advice names the port of the peer's endpoint; it names none where no endpoint is known."""
        for endpoint, advice in (
            ("192.0.2.1:5871", "UDP port 5871 must be open there, and the peer's daemon running"),
            ("[2001:db8::7]:5871", "UDP port 5871 must be open there, and the peer's daemon running"),
            ("[fe80::1%a b]:5871", "UDP port 5871 must be open there, and the peer's daemon running"),
            ("milan:0", "the tunnel's UDP port must be open there, and the peer's daemon running"),
            ("", "the tunnel's UDP port must be open there, and the peer's daemon running"),
        ):
            host = attrs.evolve(GOOD, handshake_age=None, endpoint=endpoint)
            found = examine(Evidence(records=tunnel_to_milan(), path=PathProbes(peer="c2", host=host)))
            self.assertEqual([one.advice for one in found.problems if one.code == "NoHandshake"], [advice])

    def test_no_host(self) -> None:
        """On another host the records are what there is, and that it was not looked at is no failure."""
        elsewhere = NotObserved("this host is not the gateway", "run it as root on 192.0.2.7")
        problems, passed = on_path(host=elsewhere)
        self.assertEqual(problems, [(hops.HOST, "NotExamined")])
        self.assertIn("says the daemon", passed[hops.TUNNEL])
        problems, passed = on_path(tunnel_to_milan(phase="Error", reason="NoHandshake", cut="tunnel"), host=elsewhere)
        self.assertEqual(problems, [(hops.TUNNEL, "NoHandshake"), (hops.HOST, "NotExamined")])
        self.assertNotIn(hops.TUNNEL, passed)

    def test_probes_and_records(self) -> None:
        """What the daemon recorded is not called well since this host sees it otherwise; the same code stands once."""
        cut = tunnel_to_milan(phase="Error", reason="PodPathCut", cut="remote pods", message="its pod does not answer")
        pod = PodPings("10.80.0.9", answered=True, summary="5 packets transmitted, 5 received")
        problems, passed = on_path(cut, host=GOOD, sizes=rounds(1420), pods=[pod])
        self.assertEqual(problems, [(hops.PODS, "PodPathCut")])
        self.assertNotIn(hops.PODS, passed)
        problems, _ = on_path(cut, host=GOOD, sizes=rounds(1420), pods=[attrs.evolve(pod, answered=False)])
        self.assertEqual(problems, [(hops.PODS, "PodPathCut")])

    def test_no_network(self) -> None:
        """Without an agreement there is nothing to be said of other hops."""
        facts = attrs.evolve(tunnel_to_milan(), networks=[], tunnels=[])
        problems, passed = on_path(facts, host=GOOD, sizes=rounds(0))
        self.assertEqual((problems, set(passed) & set(hops.HOPS)), ([(hops.AGREEMENT, "NoTunnel")], set()))

    def test_all_up_to_the_mtu(self) -> None:
        """What fits crosses and what does not is no fault."""
        problems, passed = on_path(sizes=rounds(1420))
        self.assertEqual(problems, [])
        self.assertIn("1.00 / 2.00 / 3.00 ms", passed[hops.GATEWAY])
        self.assertIn("up to 1420 bytes", passed[hops.SIZES])

    def test_nothing(self) -> None:
        """No answer at all is a cut at the gateway, and nothing more is said."""
        problems, passed = on_path(sizes=rounds(0))
        self.assertEqual(problems, [(hops.GATEWAY, "ProbesLost")])
        self.assertFalse({hops.GATEWAY, hops.SIZES} & set(passed))
        problems, _ = on_path(sizes=NotObserved("nothing can be sent from 10.81.0.1"))
        self.assertEqual(problems, [(hops.GATEWAY, "CannotSend")])

    def test_a_hole_in_the_sizes(self) -> None:
        """A size that is lost below one that crosses, or below the path's MTU, is named."""
        for probes in (rounds(1420, lost=[1280]), rounds(1280)):
            problems, passed = on_path(sizes=probes)
            self.assertEqual(problems, [(hops.SIZES, "SizesLost")])
            self.assertNotIn(hops.SIZES, passed)

    def test_loss_is_shown(self) -> None:
        """Some loss is worth a look."""
        some = [attrs.evolve(one, times=one.times[:2]) for one in rounds(1420)[:1]] + rounds(1420)[1:]
        problems, passed = on_path(sizes=some)
        self.assertEqual(problems, [(hops.GATEWAY, "PacketLoss")])
        self.assertNotIn(hops.GATEWAY, passed)

    def test_observation(self) -> None:
        """What the kernel has of the tunnel to one peer; a handshake that never was has no age."""
        peers = {"KEY": TunnelPeer("192.0.2.1:5871", frozenset(), 1000, 7, 8), "OTHER": TunnelPeer("", frozenset())}
        observed = ObservedKernel(tunnel=WireGuardDevice("OURS", 5871, peers))
        seen = netcheck.observation(observed, "KEY", 1020.0)
        self.assertEqual((seen.known, seen.endpoint, seen.handshake_age), (True, "192.0.2.1:5871", 20.0))
        self.assertIsNone(netcheck.observation(observed, "OTHER", 1020.0).handshake_age)
        self.assertFalse(netcheck.observation(observed, "THIRD", 1020.0).known)


class WordsTests(SynchronousTestCase):
    """What pods say."""

    def test_throughput(self) -> None:
        """Bytes between two times; what is no transfer has none."""
        self.assertEqual(bench_pods.throughput("100.00\n209715300\n104.00\n", 200), 8 * 209715300 / 4)
        for odd in ("", "100.00\n0\n100.10\n", "100.00\n209715300\n100.00\n", "nc: timed out"):
            self.assertIsNone(bench_pods.throughput(odd, 200))

    def test_half_a_transfer(self) -> None:
        """One that broke off has none either: the time-out of its end counted as transfer."""
        self.assertIsNone(bench_pods.throughput("100.00\n104857600\n114.00\n", 200))

    def test_a_server_that_is_not_ready(self) -> None:
        """Time is taken from when the server listens, however long it needs to write its data."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        # It refuses the first two connections.
        (folder / "nc").write_text(
            "#!/bin/sh\ncat >/dev/null\necho x >> $0.tries\n[ $(wc -l < $0.tries) -gt 2 ] && exec cat $0.data\nexit 1\n"
        )
        (folder / "sleep").write_text("#!/bin/sh\n")
        for name in ("nc", "sleep"):
            (folder / name).chmod(0o755)
        (folder / "nc.data").write_bytes(bytes(1 << 20))
        pod = bench_pods.download_pod("client", "busybox", "10.64.0.2")
        environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        command = pod["spec"]["containers"][0]["command"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
        self.assertEqual(done.stdout.splitlines()[1], str(1 << 20))

    def test_many_pings(self) -> None:
        """No more pings of a pod are asked for than end before the command is killed."""
        asked: list[tuple[str, ...]] = []

        class Pinged:
            """A host on which every ping succeeds."""

            async def run(self, argv: tuple[str, ...]) -> ProgramOutput:
                asked.append(argv)
                return ProgramOutput(0, "1 packets transmitted", "")

        class Listed:
            """An API server with one pod at the peer."""

            async def list(self, *_: Any, **__: Any) -> Any:
                pod = {"metadata": {"name": "a"}, "status": {"phase": "Running", "podIPs": [{"ip": "10.81.1.1"}]}}
                return SimpleNamespace(items=[msgspec.convert(pod, Pod)])

        session: Any = SimpleNamespace(client=Listed())
        config = msgspec.convert({"spec": {"remap": {"podCIDRs": ["10.81.0.0/16"]}}}, NetworkConfig)
        kernel: Any = Pinged()
        self.successResultOf(Deferred.fromCoroutine(netcheck._ping_pods(session, kernel, config, 1000)))
        (argv,) = asked
        self.assertLess(float(argv[argv.index("-c") + 1]) * float(argv[argv.index("-i") + 1]), DEADLINE)

    def test_networks_that_are_not_agreed_on(self) -> None:
        """Where a record names no external networks nothing is sent; that is said, and no defect."""
        session: Any = SimpleNamespace(reactor=None, settings=schema.Settings())
        (tunnel,) = tunnel_to_milan().tunnels
        for local, remote in (("", "10.91.0.0/20"), ("10.70.0.0/20", ""), ("", "")):
            spec = {"local": {"externalCIDR": local}, "remap": {"externalCIDR": remote}}
            config = msgspec.convert({"spec": spec}, NetworkConfig)
            sent = Deferred.fromCoroutine(netcheck._probe_sizes(session, config, tunnel, 1))
            self.assertIsInstance(self.successResultOf(sent), NotObserved)

    def test_round_trips(self) -> None:
        """Least, mean, most and what was lost."""
        self.assertEqual(bench_pods.round_trips(PINGED), (0.451, 0.912, 7.25, 5))
        self.assertIsNone(bench_pods.round_trips(GONE))

    def test_places(self) -> None:
        """A pod is bound to the peer's node, or kept off every virtual one."""
        there = bench_pods.server_pod("there", "busybox", "peer-id", 5)["spec"]
        here = bench_pods.ping_pod("here", "busybox", "10.64.0.2", 3)["spec"]
        rules = []
        for spec in (there, here):
            required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (rule,) = required["nodeSelectorTerms"][0]["matchExpressions"]
            rules.append((rule["key"], rule["operator"]))
        self.assertEqual(rules, [(REMOTE_CLUSTER_LABEL, "In"), (TYPE_LABEL, "NotIn")])
        self.assertIn("count=5", there["containers"][0]["command"][2])


class Poor:
    """A host whose kernel refuses some commands."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.commands: list[str] = []

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        """Refuse a command that has one of the words in it."""
        line = " ".join(argv)
        self.commands.append(line)
        if any(word in line for word in self.refused):
            return ProgramOutput(2, "", "Operation not supported\n")
        return ProgramOutput(0, "1\n" if "ip_forward" in line else "", "")


class LackingTests(SynchronousTestCase):
    """Hosts that lack something."""

    def look(self, kernel: Poor, *, capable: bool = True, role: str = "gateway") -> list[preflight.HostCheck]:
        """Return what was found, with all programs installed."""
        self.patch(shutil, "which", lambda name, path="": f"/usr/bin/{name}")
        settings = schema.NetworkSettings(mode="wireguard", role="node" if role == "node" else "gateway")
        work = preflight.check_host(kernel, settings, preflight.Means(capable=lambda: capable), under_systemd=False)
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_all_is_there(self) -> None:
        """A host with everything is given nothing to do, and is as before."""
        kernel = Poor()
        self.assertEqual([one.hint for one in self.look(kernel) if one.hint], [])
        made = [number for number, line in enumerate(kernel.commands) if "link add" in line]
        self.assertEqual(len(made), 2)
        for number in made:
            self.assertIn("link del", kernel.commands[number + 1])

    def test_what_is_missing_is_named(self) -> None:
        """VXLAN, translation by prefix, forwarding: each with what to do."""
        for refused, hint in (
            ("vxlan", "modprobe vxlan"),
            ("nft --check", "nftables 0.9.5"),
            ("ip_forward", "ip_forward"),
        ):
            hints = [one.hint for one in self.look(Poor(refused)) if one.hint]
            self.assertEqual(len(hints), 1, refused)
            self.assertIn(hint, hints[0])

    def test_no_permission(self) -> None:
        """Without the capability nothing is tried, and which one it is is said."""
        kernel = Poor()
        found = self.look(kernel, capable=False)
        self.assertIn("CAP_NET_ADMIN", found[-1].hint)
        self.assertEqual(kernel.commands, [])

    def test_programs(self) -> None:
        """Each missing program comes with its package; a node needs neither wg nor conntrack."""
        self.patch(shutil, "which", lambda name, path="": None)
        for role, count in (("gateway", 6), ("node", 4)):
            settings = schema.NetworkSettings(role="node" if role == "node" else "gateway")
            work = preflight.check_host(Poor(), settings, preflight.Means(capable=lambda: True), under_systemd=False)
            found = self.successResultOf(Deferred.fromCoroutine(work))
            self.assertEqual(len([one for one in found if one.hint.startswith("install the package")]), count)

    def test_the_capability(self) -> None:
        """It is read from the mask of effective capabilities."""
        self.assertTrue(preflight.is_capable("Name:\tx\nCapEff:\t0000000000001000\n"))
        self.assertFalse(preflight.is_capable("Name:\tx\nCapEff:\t0000000000000fff\n"))
        self.assertFalse(preflight.is_capable("Name:\tx\n"))
