"""When the pod of a new ShadowPod is made: a moment after the ShadowPod was seen, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods.controller import SETTLING, ShadowPods
from liqod.model.ids import Key
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import ShadowPod, ShadowPodSpec

KEY = Key("shop", "web")


class Cache:
    """An informer that holds what it is given."""

    def __init__(self) -> None:
        self.held: dict[Key, Any] = {}
        self.tell: Callable[[Key, Any, Any], None] = lambda key, old, new: None

    def get(self, key: Key) -> Any:
        return self.held.get(key)

    def items(self) -> list[Any]:
        return list(self.held.values())

    def subscribe(self, subscriber: Callable[[Key, Any, Any], None]) -> Callable[[], None]:
        self.tell = subscriber
        return lambda: None

    def put(self, new: Any) -> None:
        """Change an object and tell of it."""
        key = new.metadata.key
        old = self.held.get(key)
        self.held[key] = new
        self.tell(key, old, new)


class Server:
    """Takes every pod, and is the namespace's tenant's as well."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.created: list[float] = []

    async def create(self, *args: Any, **options: Any) -> None:
        self.created.append(self.clock.seconds())

    def is_ending(self, namespace: str) -> bool:
        return False

    async def tenant_of(self, namespace: str) -> str:
        return "borrower"


def shadow(version: str, image: str) -> ShadowPod:
    """Return a ShadowPod as a watch shows it."""
    spec = {"containers": [{"name": "main", "image": image}]}
    labels = {ORIGIN_LABEL: "borrower"}
    meta = ObjectMeta(name=KEY.name, namespace=KEY.namespace, uid="u1", resource_version=version, labels=labels)
    return ShadowPod(metadata=meta, spec=ShadowPodSpec(pod=msgspec.Raw(msgspec.json.encode(spec))))


class SettlingTests(SynchronousTestCase):
    """The garbage collector hears of a ShadowPod before it hears of the pod."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.shadows, self.server = Cache(), Server(self.clock)
        shadows: Any = self.shadows
        pods: Any = Cache()
        server: Any = self.server
        recorder: Any = None
        offer = {"pods": Fraction(5)}
        self.hosting = ShadowPods(
            server, self.clock, shadows, pods, server, lambda tenant: offer, recorder, 1, random=lambda: 0.5
        )
        self.addCleanup(self.hosting.stopService)

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([seconds, 0, 0, 0])

    def test_a_new_one_settles(self) -> None:
        """The pod of a ShadowPod that appears is made once, when the moment is over and not before."""
        self.hosting.startService()
        self.hosting.begin()
        self.pass_time(1.0)
        self.shadows.put(shadow("1", "web:1"))
        self.pass_time(SETTLING / 2)
        self.assertEqual(self.server.created, [])
        self.pass_time(SETTLING)
        self.assertEqual(len(self.server.created), 1)

    def test_what_was_there_before_has_settled(self) -> None:
        """What a daemon finds when it begins waits for nothing."""
        self.shadows.put(shadow("1", "web:1"))
        self.hosting.startService()
        self.hosting.begin()
        self.pass_time(0.0)
        self.assertEqual(len(self.server.created), 1)
