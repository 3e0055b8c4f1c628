"""What netcheck makes of probes, what test and bench make of pods' words, and what a host learns that it lacks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.findings import failed
from liqod.cli.network import test_pods
from liqod.cli.network.netcheck import judge
from liqod.config import schema
from liqod.fabric.agent.kernel import preflight
from liqod.fabric.agent.kernel.host import Output
from liqod.fabric.agent.probing.probe_burst import SizeResult
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL

GONE = "ping: 100% packet loss"
PINGED = """\
20 packets transmitted, 19 packets received, 5% packet loss
round-trip min/avg/max = 0.451/0.912/7.250 ms
"""


def rounds(passing: int, *, lost: Sequence[int] = ()) -> list[SizeResult]:
    """Return probes of several sizes, of which those up to a size came back, but for some."""
    found = []
    for size in (64, 576, 1280, 1420, 1500):
        came = size <= passing and size not in lost
        found.append(SizeResult(size, 3, [0.001, 0.002, 0.003] if came else []))
    return found


class JudgingTests(SynchronousTestCase):
    """Findings from probes."""

    def test_all_up_to_the_mtu(self) -> None:
        """What fits crosses and what does not is no fault."""
        found = judge(rounds(1420), 1420)
        self.assertFalse(failed(found))
        self.assertIn("1.00 / 2.00 / 3.00 ms", found[0].text)
        self.assertIn("up to 1420 bytes", found[1].text)

    def test_nothing(self) -> None:
        """No answer at all is a cut at the gateway, and nothing more is said."""
        found = judge(rounds(0), 1420)
        self.assertEqual([(one.group, one.verdict) for one in found], [("Peer's gateway", "bad")])

    def test_a_hole_in_the_sizes(self) -> None:
        """A size that is lost below one that crosses, or below the path's MTU, is named."""
        self.assertIn("1280 bytes are lost", judge(rounds(1420, lost=[1280]), 1420)[1].text)
        self.assertIn("1420 bytes are lost", judge(rounds(1280), 1420)[1].text)

    def test_loss_is_shown(self) -> None:
        """Some loss is worth a look."""
        some = rounds(1420)
        some[0].times.pop()
        self.assertEqual(judge(some, 1420)[0].verdict, "warning")


class WordsTests(SynchronousTestCase):
    """What pods say."""

    def test_throughput(self) -> None:
        """Bytes between two times; what is no transfer has none."""
        self.assertEqual(test_pods.throughput("100.00\n209715300\n104.00\n"), 8 * 209715300 / 4)
        for odd in ("", "100.00\n0\n100.10\n", "100.00\n209715300\n100.00\n", "nc: timed out"):
            self.assertIsNone(test_pods.throughput(odd))

    def test_round_trips(self) -> None:
        """Least, mean, most and what was lost."""
        self.assertEqual(test_pods.round_trips(PINGED), (0.451, 0.912, 7.25, 5))
        self.assertIsNone(test_pods.round_trips(GONE))

    def test_places(self) -> None:
        """A pod is bound to the peer's node, or kept off every virtual one."""
        there = test_pods.server_pod("there", "busybox", "peer-id", 5)["spec"]
        here = test_pods.ping_pod("here", "busybox", "10.64.0.2", 3)["spec"]
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

    async def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        """Refuse a command that has one of the words in it."""
        line = " ".join(argv)
        self.commands.append(line)
        if any(word in line for word in self.refused):
            return Output(2, "", "Operation not supported\n")
        return Output(0, "1\n" if "ip_forward" in line else "", "")


class LackingTests(SynchronousTestCase):
    """Hosts that lack something."""

    def look(self, kernel: Poor, *, capable: bool = True, role: str = "gateway") -> list[preflight.HostCheck]:
        """Return what was found, with all programs installed."""
        self.patch(shutil, "which", lambda name, path="": f"/usr/bin/{name}")
        settings = schema.Network(mode="wireguard", role="node" if role == "node" else "gateway")
        work = preflight.check_host(kernel, settings, preflight.Means(capable=lambda: capable), under_systemd=False)
        return self.successResultOf(Deferred.fromCoroutine(work))

    def test_all_is_there(self) -> None:
        """A host with everything is given nothing to do, and is as before."""
        kernel = Poor()
        self.assertEqual([one.hint for one in self.look(kernel) if one.hint], [])
        made = [line for line in kernel.commands if "link add" in line]
        gone = [line for line in kernel.commands if "link del" in line]
        self.assertEqual(len(made), len(gone))

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
            settings = schema.Network(role="node" if role == "node" else "gateway")
            work = preflight.check_host(Poor(), settings, preflight.Means(capable=lambda: True), under_systemd=False)
            found = self.successResultOf(Deferred.fromCoroutine(work))
            self.assertEqual(len([one for one in found if one.hint.startswith("install the package")]), count)

    def test_the_capability(self) -> None:
        """It is read from the mask of effective capabilities."""
        self.assertTrue(preflight.is_capable("Name:\tx\nCapEff:\t0000000000001000\n"))
        self.assertFalse(preflight.is_capable("Name:\tx\nCapEff:\t0000000000000fff\n"))
        self.assertFalse(preflight.is_capable("Name:\tx\n"))
