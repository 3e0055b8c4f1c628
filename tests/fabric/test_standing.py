"""What the record of a tunnel says, by what is known: connected, not yet, cut and where."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agreement.validation import Remote
from liqod.fabric.kernel.model import Device, Observed, Route, Tunnel, TunnelPeer
from liqod.fabric.probing.health import SILENCE, SMALL, Health
from liqod.fabric.probing.pod_reachability import PodPath
from liqod.fabric.records import _wanted
from liqod.fabric.status import Agreed, tunnel_status
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.records.network import TunnelEndpointStatus
from liqod.model.records.unpeering import FINALIZER
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec, ForeignClusterStatus
from tests.fabric.test_plan import KEY, LINK, NOW, OWN_KEY

AGREED = Agreed(Remote(LINK.remote, None, (), KEY, 1420), LINK)
STAMP = "2027-01-15T08:00:00Z"


def observed(handshake: float | None = NOW - 20, received: int = 5) -> Observed:
    """Return a host with everything in place, whose last handshake was then."""
    peer = TunnelPeer("192.0.2.7:5871", frozenset(LINK.remote), int(handshake or 0), received, 5)
    return Observed(
        device=Device(1420, True, kind="tun"),
        tunnel=Tunnel(OWN_KEY, 5871, {KEY: peer}),
        routes={network: Route("liqod") for network in LINK.remote},
    )


def health(since: float, heard: float | None = None) -> Health:
    """Return probing that began so many seconds ago, with the last answer so many seconds ago."""
    found = Health(1420, NOW - since)
    if heard is not None:
        found.sent(1, SMALL, NOW - heard - 0.001)
        found.answered(1, NOW - heard)
    return found


class Table(SynchronousTestCase):
    """One row for each situation."""

    def say(
        self, seen: Observed, probes: Health | None, paths: Sequence[PodPath] = (), before: str = ""
    ) -> tuple[str, str, str]:
        """Return phase, reason and place."""
        status = tunnel_status(AGREED, seen, probes, paths, "liqod", TunnelEndpointStatus(phase=before), NOW, STAMP)
        return status.phase, status.reason, status.cut

    def test_situations(self) -> None:
        """Each has its phase, its reason and, where packets do not cross, the place of the cut."""
        silent = PodPath("10.72.0.9", NOW - 60, NOW - SILENCE - 1)
        bare = attrs.evolve(observed(), routes={})
        six, quiet = PodPath("fd00:72::9", NOW - 60, NOW - 1), PodPath("fd00:72::9", NOW - 60)
        for seen, probes, paths, wanted in (
            (bare, health(60, 1), (), ("Error", "LocalRouteMissing", "local route")),
            (attrs.evolve(observed(), device=None), health(60, 1), (), ("Error", "LocalRouteMissing", "local route")),
            (observed(), health(60, 1), (silent,), ("Error", "PodPathCut", "remote pods")),
            (observed(), health(60, 1), (silent, quiet), ("Error", "PodPathCut", "remote pods")),
            (observed(), health(60, 1), (silent, six), ("Connected", "FamilyCut", "remote pods")),
            (observed(), health(60, 1), (six, quiet), ("Connected", "PacketsCross", "")),
            (observed(), health(60, 1), (), ("Connected", "PacketsCross", "")),
            (observed(), health(1), (), ("Connecting", "Probing", "")),
            (observed(), None, (), ("Connecting", "Probing", "")),
            (observed(None), health(60), (), ("Error", "NoHandshake", "tunnel")),
            (observed(NOW - 600), health(60, SILENCE + 1), (), ("Error", "NoHandshake", "tunnel")),
            (observed(received=0), health(60), (), ("Error", "TunnelSilent", "tunnel")),
            (observed(), health(60, SILENCE + 1), (), ("Error", "ProbesLost", "remote host")),
        ):
            self.assertEqual(self.say(seen, probes, paths), wanted)

    def test_a_restart_does_not_take_back_what_was_known(self) -> None:
        """Connected stays so until there was time for an answer; then silence counts as ever."""
        self.assertEqual(self.say(observed(), health(SILENCE - 1), before="Connected")[0], "Connected")
        self.assertEqual(self.say(observed(), health(SILENCE + 1), before="Connected")[0], "Connecting")
        self.assertEqual(self.say(observed(), health(2 * SILENCE + 1), before="Connected")[0], "Error")
        self.assertEqual(self.say(observed(), health(SILENCE - 1), before="Error")[0], "Connecting")
        bare = attrs.evolve(observed(), routes={})
        self.assertEqual(self.say(bare, health(1), before="Connected")[0], "Error")


class Peers(SynchronousTestCase):
    """Who is a peer, and has a network."""

    def record(self, pin: str, *, finalizers: list[str], status: str = "True") -> ForeignCluster:
        conditions = [Condition(type=kind, status=status) for kind in ("Accepted", "Lending")]
        return ForeignCluster(
            metadata=ObjectMeta(name="milan", finalizers=finalizers),
            spec=ForeignClusterSpec(cluster_id="milan", fingerprint=pin),
            status=ForeignClusterStatus(conditions=conditions),
        )

    def test_a_pin_that_was_taken_away_ends_the_tunnel(self) -> None:
        """Whatever the conditions say still: they are written later, or by nobody."""
        self.assertIs(_wanted(self.record("sha256:a", finalizers=[FINALIZER])), True)
        self.assertIs(_wanted(self.record("", finalizers=[FINALIZER])), False)
        self.assertIs(_wanted(self.record("", finalizers=[FINALIZER], status="Unknown")), False)

    def test_a_record_without_a_pin_says_nothing(self) -> None:
        """One that never had a pin is judged by its conditions, and unknown is not no."""
        self.assertIs(_wanted(self.record("", finalizers=[], status="Unknown")), None)
