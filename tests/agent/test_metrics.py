"""The numbers of a daemon, read from its services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics import Numbers
from liqod.flow.controller import Controller, Source


class Idle(Controller[str]):
    """A controller that is not started."""

    name = "idle"

    def sources(self) -> Iterable[Source[str]]:
        return ()

    async def reconcile(self, key: str) -> None:
        """Do nothing."""


class NumbersTests(SynchronousTestCase):
    """What is read from services and clients."""

    def waiting(self, name: str, *keys: str) -> Controller[str]:
        """Return a controller before a queue of these keys, which it does not work on."""
        controller = Idle(Clock())
        controller.name = name
        for key in keys:
            controller.enqueue(key)
        return controller

    def test_wherever_they_are(self) -> None:
        """Every queue in the tree of services counts, those of one name together; other services have none."""
        kubelets = []
        for keys in (("a", "b"), ("c",)):
            inner = MultiService()
            self.waiting("pods", *keys).setServiceParent(inner)
            outer = MultiService()
            inner.setServiceParent(outer)
            kubelets.append(outer)
        services = [self.waiting("peers", "d"), Service(), *kubelets]
        daemon: Any = SimpleNamespace(features=SimpleNamespace(services=services))
        self.assertEqual(list(Numbers(daemon).queues()), [(("peers",), 1.0), (("pods",), 3.0)])

    def test_requests_to_a_lender(self) -> None:
        """Those of all its virtual nodes together."""
        kubelets = [SimpleNamespace(access=SimpleNamespace(requests=Counter({("get", "pods"): n}))) for n in (2, 3)]
        cluster = SimpleNamespace(metadata=SimpleNamespace(name="milan"))
        features = SimpleNamespace(
            informers=SimpleNamespace(of=lambda *_: SimpleNamespace(items=lambda: [cluster])),
            kubelets=SimpleNamespace(of_lender=lambda lender: kubelets if lender == "milan" else []),
        )
        daemon: Any = SimpleNamespace(features=features, client=None)
        self.assertEqual(list(Numbers(daemon).requests()), [(("milan", "get", "pods"), 5.0)])

    def test_who_stands_by(self) -> None:
        """A daemon without running features has no queues, which is not queues without keys."""
        daemon: Any = SimpleNamespace(features=None)
        self.assertEqual(list(Numbers(daemon).queues()), [])
