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
    status_line,
    unready,
)

TABLE: tuple[tuple[DaemonState, str, list[str]], ...] = (
    (Starting(), "starting", ["starting"]),
    (Waiting("no route", ("a", "b")), "waiting: no route", ["no route", "a", "b"]),
    (Campaigning(), "waiting for the lease", ["waiting for the lease"]),
    (StandingBy("rome-1"), "standby: rome-1 leads", []),
    (Leading("no webhook"), "leading, but no webhook", ["no webhook"]),
    (Leading(), "leading", []),
    (Routing("no Node"), "no Node", ["no Node"]),
    (Routing("3 networks", converged=True), "3 networks", []),
    (Stopping(), "stopping", ["stopping"]),
)


class StateTests(SynchronousTestCase):
    """Every state has one line, and only a working daemon or a standby is ready."""

    def test_every_state(self) -> None:
        """Each state has its status line and its reasons of not being ready."""
        for state, line, reasons in TABLE:
            self.assertEqual((status_line(state), unready(state)), (line, reasons))

    def test_table_is_complete(self) -> None:
        """No state is missing in the table above."""
        self.assertEqual({type(state) for state, _, _ in TABLE}, set(DaemonState.__args__))
