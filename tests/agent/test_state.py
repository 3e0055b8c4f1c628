"""The states of the daemon: their status lines, and what makes it unready."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.state import (
    Campaigning,
    DaemonState,
    Leading,
    Routing,
    StandingBy,
    Starting,
    Stopping,
    Waiting,
    activity,
    status_line,
    unmet,
    unready,
)
from liqod.model.diagnosis.installation import Unmet

TABLE: tuple[tuple[DaemonState, str, list[str]], ...] = (
    (Starting(), "starting", ["Starting: the daemon is starting"]),
    (
        Waiting("RightsMissing", "no route", ("a", "b")),
        "waiting: RightsMissing: no route",
        ["RightsMissing: no route", "RightsMissing: a", "RightsMissing: b"],
    ),
    (Campaigning(), "waiting for the lease", ["LeaderUnknown: the daemon waits for the lease"]),
    (StandingBy("rome-1"), "standby: rome-1 leads", []),
    (Leading((Unmet("NotListening", "no port"),)), "leading, but no port", ["NotListening: no port"]),
    (Leading((Unmet("NotListening", "no port"),) * 2), "leading, but no port", ["NotListening: no port"]),
    (Leading(), "leading", []),
    (Routing("no Node"), "no Node", ["NotConverged: no Node"]),
    (Routing("3 networks", converged=True), "3 networks", []),
    (Stopping(), "stopping", ["Stopping: the daemon is stopping"]),
)


class StateTests(SynchronousTestCase):
    """Every state has one line, and only a working daemon or a standby is ready."""

    def test_every_state(self) -> None:
        """Each state has its status line and its reasons of not being ready."""
        for state, line, reasons in TABLE:
            self.assertEqual((status_line(state), unready(unmet(state))), (line, reasons))

    def test_activity(self) -> None:
        """What its Lease says is of each state; only who does the work is said to work."""
        said = [(type(state).__name__, activity(state)) for state, _, _ in TABLE]
        self.assertEqual(
            dict(said),
            {
                "Starting": "begins",
                "Waiting": "waits",
                "Campaigning": "begins",
                "StandingBy": "stands by",
                "Leading": "works",
                "Routing": "works",
                "Stopping": "ends",
            },
        )

    def test_table_is_complete(self) -> None:
        """No state is missing in the table above."""
        self.assertEqual({type(state) for state, _, _ in TABLE}, set(DaemonState.__args__))
