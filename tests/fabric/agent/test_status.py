"""What the record of a tunnel says, by what is known: connected, not yet, cut and where."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.probing.health import SMALL, Health
from liqod.fabric.agent.tunnel_status import Moment, TunnelDevice, tunnel_status
from liqod.fabric.control.records import is_peered
from liqod.fabric.state.report import DEAD_AFTER, NARROW_AFTER, NetworkReport, PodPath, TunnelReport
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.records.network import TunnelEndpointStatus
from liqod.model.records.unpeering import FINALIZER
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec, ForeignClusterStatus
from tests.fabric.agent.test_plan import KEY, LINK, NOW


def observed(handshake: float | None = NOW - 20, received: int = 5) -> NetworkReport:
    """Return a host with everything in place, whose last handshake was then."""
    peer = TunnelReport("192.0.2.7:5871", handshake or 0, received, handshake)
    return NetworkReport("wireguard-go", routes=frozenset(LINK.remote), tunnels={KEY: peer})


def health(since: float, answered_at: float | None = None) -> Health:
    """Return probing that began so many seconds ago, with the last answer so many seconds ago."""
    found = Health(1420, NOW - since)
    if answered_at is not None:
        found.sent(1, SMALL, NOW - answered_at - 0.001)
        found.answered(1, NOW - answered_at)
    return found


class TunnelStatusTests(SynchronousTestCase):
    """One row for each situation."""

    def status(
        self, seen: NetworkReport, probes: Health | None, paths: Sequence[PodPath] = (), before: str = ""
    ) -> tuple[str, str, str]:
        """Return phase, reason and place."""
        report = attrs.evolve(
            seen,
            probes={LINK.peer: probes.result} if probes is not None else {},
            pods={(LINK.peer, 6 if ":" in path.pod else 4): path for path in paths},
        )
        moment = Moment(NOW, datetime.fromtimestamp(NOW, UTC))
        status = tunnel_status(LINK, report, TunnelEndpointStatus(phase=before), TunnelDevice("liqod", 5871), moment)
        return status.phase, status.reason, status.cut

    def test_situations(self) -> None:
        """Each has its phase, its reason and, where packets do not cross, the place of the cut."""
        silent = PodPath("10.72.0.9", NOW - 60, NOW - DEAD_AFTER - 1)
        bare = attrs.evolve(observed(), routes=frozenset())
        six, quiet = PodPath("fd00:72::9", NOW - 60, NOW - 1), PodPath("fd00:72::9", NOW - 60)
        still = health(60, 1)
        still.is_forwarding = False
        narrow = attrs.evolve(silent, answered_at=NOW - 1, size=1420, large_since=NOW - NARROW_AFTER)
        for seen, probes, paths, wanted in (
            (bare, health(60, 1), (), ("Error", "LocalRouteMissing", "local route")),
            (
                attrs.evolve(observed(), implementation=""),
                health(60, 1),
                (),
                ("Error", "LocalRouteMissing", "local route"),
            ),
            (observed(), health(60, 1), (silent,), ("Error", "PodPathCut", "remote pods")),
            (observed(), still, (), ("Error", "PeerForwardingOff", "remote pods")),
            (observed(), still, (silent,), ("Error", "PeerForwardingOff", "remote pods")),
            (observed(), health(60, 1), (silent, quiet), ("Error", "PodPathCut", "remote pods")),
            (observed(), health(60, 1), (silent, six), ("Connected", "FamilyCut", "remote pods")),
            (observed(), health(60, 1), (six, quiet), ("Connected", "PacketsCross", "")),
            (observed(), health(60, 1), (narrow,), ("Connected", "SizesLost", "remote pods")),
            (observed(), health(60, 1), (), ("Connected", "PacketsCross", "")),
            (observed(), health(1), (), ("Connecting", "Probing", "")),
            (observed(), None, (), ("Connecting", "Probing", "")),
            (observed(None), health(59), (), ("Error", "NoHandshake", "tunnel")),
            (observed(None), health(60), (), ("Error", "PortClosed", "tunnel")),
            (observed(NOW - 600), health(60, DEAD_AFTER + 1), (), ("Error", "NoHandshake", "tunnel")),
            (observed(received=0), health(60), (), ("Error", "TunnelSilent", "tunnel")),
            (observed(), health(60, DEAD_AFTER + 1), (), ("Error", "ProbesLost", "remote host")),
        ):
            self.assertEqual(self.status(seen, probes, paths), wanted)

    def test_a_restart_does_not_take_back_what_was_known(self) -> None:
        """Connected stays so until there was time for an answer; then silence counts as ever."""
        self.assertEqual(self.status(observed(), health(DEAD_AFTER - 1), before="Connected")[0], "Connected")
        self.assertEqual(self.status(observed(), health(DEAD_AFTER + 1), before="Connected")[0], "Connecting")
        self.assertEqual(self.status(observed(), health(2 * DEAD_AFTER + 1), before="Connected")[0], "Error")
        self.assertEqual(self.status(observed(), health(DEAD_AFTER - 1), before="Error")[0], "Connecting")
        bare = attrs.evolve(observed(), routes=frozenset())
        self.assertEqual(self.status(bare, health(1), before="Connected")[0], "Error")


class IsPeeredTests(SynchronousTestCase):
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
        self.assertIs(is_peered(self.record("sha256:a", finalizers=[FINALIZER])), True)
        self.assertIs(is_peered(self.record("", finalizers=[FINALIZER])), False)
        self.assertIs(is_peered(self.record("", finalizers=[FINALIZER], status="Unknown")), False)

    def test_a_record_without_a_pin_says_nothing(self) -> None:
        """One that never had a pin is judged by its conditions, and unknown is not no."""
        self.assertIs(is_peered(self.record("", finalizers=[], status="Unknown")), None)
