"""The numbers of a daemon, read from its services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from twisted.application.service import MultiService, Service
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.daemon import Numbers
from liqod.agent.metrics.reflection import ReflectionNumbers, register
from liqod.flow.controller import Controller, Source
from liqod.kubelet.common.reflection_counts import ReflectionCounts
from liqod.kubelet.reflection.kinds import KINDS
from liqod.metrics.registry import Registry


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

    def test_refusals_of_every_port(self) -> None:
        """Those of one reason are added up, whichever port it was; who stands by has those of these pages."""

        def port(**counts: int) -> Any:
            return SimpleNamespace(refused=SimpleNamespace(counts=Counter(counts)))

        features = SimpleNamespace(
            peering=SimpleNamespace(refusals=Counter(TokenRefused=1, TooManyConnections=2)),
            webhook=port(TooManyConnections=3),
            kubelets=SimpleNamespace(api=port(TooManyHandshakes=4)),
        )
        pages = port(ScrapeUnauthorized=5, TooManyConnections=1)
        leading: Any = SimpleNamespace(features=features, pages=pages)
        expected = {"ScrapeUnauthorized": 5.0, "TokenRefused": 1.0, "TooManyConnections": 6.0, "TooManyHandshakes": 4.0}
        self.assertEqual({labels[0]: count for labels, count in Numbers(leading).refusals()}, expected)
        features.webhook = features.kubelets.api = None
        self.assertEqual(dict(Numbers(leading).refusals())["TooManyConnections",], 3.0)
        standby: Any = SimpleNamespace(features=None, pages=pages)
        self.assertEqual(dict(Numbers(standby).refusals())["ScrapeUnauthorized",], 5.0)


class ReflectionNumbersTests(SynchronousTestCase):
    """What is read from the virtual kubelets."""

    def test_what_is_outstanding(self) -> None:
        """By lender and kind, those of all its virtual nodes together; a kind without any is 0."""

        def kubelet(lender: str, **outstanding: int) -> Any:
            kinds = {one.home.kind: one for one in KINDS}
            reflectors = {kinds[kind]: SimpleNamespace(outstanding=count) for kind, count in outstanding.items()}
            reflection = SimpleNamespace(reflectors=reflectors)
            return SimpleNamespace(context=SimpleNamespace(lender=lender), reflection=reflection)

        kubelets = [kubelet("milan", Secret=2, ConfigMap=0), kubelet("milan", Secret=1), kubelet("oslo", Secret=0)]
        counts = ReflectionCounts()
        counts.arrived("Secret", 0.2)
        counts.failed("Pod", "RemoteForbidden")
        features = SimpleNamespace(kubelets=SimpleNamespace(all=lambda: kubelets, counts=counts))
        daemon: Any = SimpleNamespace(features=features)
        numbers = ReflectionNumbers(daemon)
        self.assertEqual(
            list(numbers.outstanding()),
            [(("milan", "ConfigMap"), 0.0), (("milan", "Secret"), 3.0), (("oslo", "Secret"), 0.0)],
        )
        self.assertEqual(list(numbers.failures()), [(("Pod", "RemoteForbidden"), 1.0)])
        registry = Registry()
        register(registry, numbers)
        page = registry.text()
        for line in (
            b"# TYPE liqod_reflection_lag_seconds histogram\n",
            b'liqod_reflection_lag_seconds_bucket{kind="Secret",le="0.1"} 0.0\n',
            b'liqod_reflection_lag_seconds_bucket{kind="Secret",le="0.5"} 1.0\n',
            b'liqod_reflection_lag_seconds_bucket{kind="Secret",le="+Inf"} 1.0\n',
            b'liqod_reflection_lag_seconds_count{kind="Secret"} 1.0\n',
            b'liqod_reflection_lag_seconds_sum{kind="Secret"} 0.2\n',
        ):
            self.assertIn(line, page)
        counts.arrived("Secret", 0.05)
        self.assertIn(b'liqod_reflection_lag_seconds_bucket{kind="Secret",le="0.1"} 1.0\n', registry.text())
