"""A restart in order is begun once, however often it is asked for."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.interfaces import IReactorCore
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.host.reload import Reload, restart_in_order
from liqod.agent.host.sdnotify import Notifier
from liqod.config.schema import Settings


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


class Noted(Notifier):
    """Notes what the service manager would be sent."""

    def __init__(self) -> None:
        super().__init__("/nowhere")
        self.sent: list[str] = []
        self.ready()

    def _send(self, message: str) -> None:
        self.sent.append(message.partition("\n")[0])


class ReloadTests(SynchronousTestCase):
    """What a service manager sees of a SIGHUP."""

    def test_a_defect_while_reading(self) -> None:
        """Whatever reading fails with, the daemon is not shown as reloading for good."""

        def read() -> Settings:
            raise RuntimeError("a defect")

        notifier = Noted()
        reload = Reload(cast(Any, None), Settings(), read=read, restart=self.fail, notifier=notifier)
        reload.running = True
        reload.reload()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual((notifier.sent[1], notifier.sent[-1]), ("RELOADING=1", "READY=1"))


class RestartTests(SynchronousTestCase):
    """The function that a good new configuration calls."""

    def test_hangups_while_it_stops(self) -> None:
        """Services take seconds to stop, and further SIGHUPs with them: the reactor is stopped once."""
        reactor = Reactor()
        restart = restart_in_order(cast(IReactorCore, reactor), "")
        for _ in range(3):
            restart()
        self.assertEqual(reactor.asked, ["after shutdown", "stop"])
