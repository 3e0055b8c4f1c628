"""When pods of a tainted node are looked at, on a host whose clock is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import Outcome
from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import READY, Readiness, not_ready
from liqod.kubelet.common.views import HomePod, Node
from liqod.kubelet.node.toleration_controller import TolerationController
from liqod.model.ids import Key
from liqod.model.objects.tolerations import TAINTS
from tests.clocks import HostClock

_, UNREACHABLE = TAINTS
EVICT_AFTER = 1800.0


class Pods:
    """Pods that run at the lender, and never change."""

    def __init__(self, *names: str) -> None:
        tolerations = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in TAINTS]
        self.pods = {
            Key("shop", name): msgspec.json.decode(
                msgspec.json.encode(
                    {
                        "metadata": {"name": name, "namespace": "shop", "uid": name},
                        "spec": {"tolerations": [{**one, "tolerationSeconds": 300} for one in tolerations]},
                        "status": {"phase": "Running", "startTime": "2001-09-09T01:00:00Z"},
                    }
                ),
                type=HomePod,
            )
            for name in names
        }

    def get(self, key: Key) -> HomePod | None:
        return self.pods.get(key)

    def items(self) -> list[HomePod]:
        return list(self.pods.values())

    def subscribe(self, subscriber: Callable[[Key, HomePod | None, HomePod | None], None]) -> Callable[[], None]:
        for key, pod in self.pods.items():
            subscriber(key, None, pod)
        return lambda: None

    def when_synced(self) -> Deferred[None]:
        return succeed(None)


class VirtualNode:
    """A virtual node of which the test says what is watched."""

    node_name = "liqo-milan"

    def __init__(self) -> None:
        self.listeners: list[Callable[[Node | None], None]] = []

    def subscribe(self, listener: Callable[[Node | None], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def show(self, *taints: tuple[str, str], note: str = "") -> None:
        """Show the node with these taints, key and date."""
        listed = [{"key": key, "effect": "NoExecute", "timeAdded": date} for key, date in taints]
        metadata = {"name": self.node_name, "annotations": {"note": note}}
        node = msgspec.convert({"metadata": metadata, "spec": {"taints": listed}}, Node)
        for listener in list(self.listeners):
            listener(node)


class Writes:
    """Notes which pods are patched, and when."""

    def __init__(self, clock: HostClock) -> None:
        self.clock = clock
        self.patched: list[tuple[str, float]] = []

    async def patch(self, resource: object, name: str, *about: object, **more: object) -> None:
        self.patched.append((name, self.clock.seconds()))


class ClockStepTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = HostClock(1_000_000_000.0)
        self.node, self.writes = VirtualNode(), Writes(self.clock)
        self.readiness: Latest[Readiness] = Latest(not_ready("LenderSilent", "the lender does not answer"))
        self.steps = 0
        self.controller = TolerationController(
            self.clock,
            cast(Any, self.writes),
            cast(Any, self.node),
            cast(Any, Pods("a", "b")),
            readiness=self.readiness,
            evict_after=EVICT_AFTER,
            metrics=self,
        )
        self.controller.startService()
        self.addCleanup(self.controller.stopService)
        self.addCleanup(lambda: setattr(self.readiness, "value", READY))
        self.run_for(1.0)

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        """Count a step."""
        self.steps += 1

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.01] * 20)
        self.clock.advance(seconds)
        self.clock.pump([0.01] * 20)

    def test_the_date_is_set(self) -> None:
        """Pods stay for their time, however the date is set meanwhile, and a change of the node costs no step."""
        self.node.show((UNREACHABLE, "2001-09-09T01:46:40Z"))
        self.run_for(1.0)
        steps = self.steps
        for step in (3600.0, -7200.0):
            self.clock.set_date(step)
            self.node.show((UNREACHABLE, "2001-09-09T01:46:40Z"), note=str(step))
            self.run_for(1.0)
            self.assertEqual((self.writes.patched, self.steps), ([], steps))

    def test_changes_cost_nothing(self) -> None:
        """A change of a tainted node that is not about its taints enqueues no pod."""
        self.node.show((UNREACHABLE, "2001-09-09T01:46:40Z"))
        self.run_for(1.0)
        steps = self.steps
        for number in range(10):
            self.clock.advance(0.0001234)
            self.clock.wall.offset += 1e-7
            self.node.show((UNREACHABLE, "2001-09-09T01:46:40Z"), note=str(number))
            self.run_for(0.0)
        self.assertEqual(self.steps, steps)

    def test_another_taint(self) -> None:
        """A taint that goes and comes again counts from its new date."""
        self.node.show((UNREACHABLE, "2001-09-09T01:46:40Z"))
        self.run_for(1.0)
        self.node.show()
        self.clock.set_date(3600.0)
        self.run_for(10.0)
        steps = self.steps
        self.node.show((UNREACHABLE, "2001-09-09T02:46:50Z"))
        self.run_for(1.0)
        self.assertGreater(self.steps, steps)
        self.assertEqual(self.writes.patched, [])
