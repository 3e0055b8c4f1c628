"""Two lanes: after a restart, when all pods are looked at, a new one does not wait until thousands had their turn."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import Controller
from liqod.flow.observe import Latest
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.lender.health import ANSWERS
from liqod.kubelet.pods.controller import PodController
from liqod.kubelet.pods.status_pace import StatusBudget
from liqod.kubelet.tokens.controller import TokenController
from liqod.model.ids import Key
from tests.clocks import HostClock
from tests.hosting.shadowpods.test_controller import Cache
from tests.kubelet.pods.test_decide import CONTEXT, DELETING, PENDING, RUNNING, home

COUNT: Final = 300


def nothing(*_: object) -> None:
    """Do nothing, as what is not asked here."""


class Pods(Cache):
    """The pods on the virtual node."""

    def subscribe_deletions(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        return lambda: None


class Namespaces:
    """The namespaces of the lender, of which nothing changes."""

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        return lambda: None

    def count_shadows(self) -> int:
        return 0


class LanesTests(SynchronousTestCase):
    """Pods of a node and their tokens, with one worker."""

    def setUp(self) -> None:
        self.clock = HostClock()
        self.pods = Pods()
        health = SimpleNamespace(ok=True, state=Latest(ANSWERS))
        other = SimpleNamespace(register=nothing, observe_deletion=nothing, mutations=SimpleNamespace(forget=nothing))
        fakes: Any = SimpleNamespace(pods=self.pods, namespaces=Namespaces(), health=health, other=other)
        self.controllers: list[Controller[Key]] = [
            PodController(
                self.clock,
                fakes.pods,
                fakes.other,
                context=CONTEXT,
                namespaces=fakes.namespaces,
                health=fakes.health,
                network_usable=Latest(True),
                gate=fakes.other,
                workers=1,
                status_delay=0.0,
                budget=StatusBudget(),
            ),
            TokenController(
                self.clock,
                fakes.other,
                context=CONTEXT,
                pods=fakes.pods,
                namespaces=fakes.namespaces,
                health=fakes.health,
                recorder=fakes.other,
                workers=1,
            ),
        ]

    def place(self, controller: Controller[Key], last: HomePod) -> int:
        """Return how many pods had their turn before one that came after all others."""
        taken: list[str] = []

        async def reconcile(key: Key) -> None:
            taken.append(key.name)
            await deferLater(self.clock, 1.0)

        self.patch(controller, "reconcile", reconcile)
        controller.startService()
        self.pods.put(last)
        for _ in range(COUNT + 5):
            self.clock.advance(1.0)
        self.assertEqual((len(taken), len(set(taken))), (COUNT + 1, COUNT + 1))
        return taken.index(last.metadata.name)

    def test_a_new_pod(self) -> None:
        """One that is to be started, or deleted, comes third at the latest, though hundreds that run came before it."""
        for number in range(COUNT):
            self.pods.put(home(RUNNING, name=f"runs-{number}", uid=f"u{number}"))
        lasts = (home(PENDING, name="new", uid="n"), home(RUNNING, name="ends", uid="e", **DELETING))
        for controller, last in zip(self.controllers, lasts, strict=True):
            self.assertLessEqual(self.place(controller, last), 2, controller.name)
            self.pods.remove(last.metadata.key)

    def test_a_running_pod(self) -> None:
        """Nor does one that runs wait behind hundreds of new ones: the lanes take turns."""
        for number in range(COUNT):
            self.pods.put(home(PENDING, name=f"new-{number}", uid=f"u{number}"))
        last = home(RUNNING, name="runs", uid="r")
        for controller in self.controllers:
            self.assertLessEqual(self.place(controller, last), 2, controller.name)
            self.pods.remove(last.metadata.key)
