"""A restart in order is begun once, however often it is asked for."""

from __future__ import annotations

from typing import cast

from twisted.internet.interfaces import IReactorCore
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.host.reload import restart_in_order


class Reactor:
    """Notes what is asked of it, and stops once as Twisted's own do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def addSystemEventTrigger(self, phase: str, event: str, *_: object) -> None:
        """Note the phase."""
        self.asked.append(f"{phase} {event}")

    def stop(self) -> None:
        """Raise where it stops already."""
        assert "stop" not in self.asked, "ReactorNotRunning"
        self.asked.append("stop")


class RestartTests(SynchronousTestCase):
    """The function that a good new configuration calls."""

    def test_hangups_while_it_stops(self) -> None:
        """Services take seconds to stop, and further SIGHUPs with them: the reactor is stopped once."""
        reactor = Reactor()
        restart = restart_in_order(cast(IReactorCore, reactor), "")
        for _ in range(3):
            restart()
        self.assertEqual(reactor.asked, ["after shutdown", "stop"])
