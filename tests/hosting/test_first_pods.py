"""How long the first pods of a namespace wait for what they call, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.first_pods import HELD, PROXIES, FirstPods, is_in_place
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.store import Store
from liqod.model.ids import Key
from liqod.model.names import HOME_API_LABEL, SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object, ObjectMeta

SPACE = "shop-rome"
WEB, OTHER = Key(SPACE, "web"), Key(SPACE, "other")
WAY = "liqod-home-api"


def thing(name: str, *, namespace: str = SPACE, uid: str = "1", **labels: str) -> Any:
    """Return an object with labels, whose names are written with underscores here."""
    names = {"home": HOME_API_LABEL, "of": SERVICE_NAME_LABEL}
    found = {names[key]: value for key, value in labels.items()}
    return Object(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=uid, labels=found))


class Cache:
    """An informer that holds what it is given."""

    def __init__(self) -> None:
        self.store: Store[Any] = Store()
        self.subscribers: list[Any] = []

    def add_index(self, name: str, values: Any) -> None:
        self.store.add_index(name, values)

    def by_index(self, name: str, value: str) -> list[Any]:
        return self.store.by_index(name, value)

    def items(self) -> list[Any]:
        return list(self.store)

    def subscribe(self, subscriber: Any) -> Any:
        for value in self.items():
            subscriber(value.metadata.key, None, value)
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def put(self, new: Any) -> None:
        """Show an object."""
        if (delta := self.store.put(new)) is not None:
            for subscriber in list(self.subscribers):
                subscriber(delta.key, delta.old, delta.new)

    def take(self, old: Any) -> None:
        """Show that an object is gone."""
        self.store.remove(old.metadata.key)
        for subscriber in list(self.subscribers):
            subscriber(old.metadata.key, old, None)


class InPlaceTests(SynchronousTestCase):
    """The decision of one moment."""

    def test_nothing_is_wanted(self) -> None:
        """A namespace without Services lacks nothing."""
        self.assertTrue(is_in_place([], [], []))

    def test_way_home(self) -> None:
        """The way to home's API server is one when a slice of any name joins its Service."""
        way = thing(WAY, home="true")
        self.assertFalse(is_in_place([way], [], []))
        self.assertFalse(is_in_place([way], [], [thing("cache-1", of="cache")]))
        self.assertTrue(is_in_place([way], [], [thing("by-streams", of=WAY)]))

    def test_slices_of_services(self) -> None:
        """Each slice that is wanted of a Service has to be made; one of no Service is not waited for."""
        cache, wanted = thing("cache"), thing("cache-1", of="cache")
        self.assertFalse(is_in_place([cache], [wanted], []))
        self.assertTrue(is_in_place([cache], [wanted], [wanted]))
        self.assertTrue(is_in_place([], [wanted], []))
        self.assertTrue(is_in_place([cache], [], []))


class FirstPodsTests(SynchronousTestCase):
    """A namespace that is granted while the daemon runs, and one that was there."""

    def setUp(self) -> None:
        """Watch nothing but a namespace of an earlier day."""
        self.clock = Clock()
        self.namespaces, self.services, self.shadows, self.slices = Cache(), Cache(), Cache(), Cache()
        self.namespaces.put(thing("old", namespace=""))
        self.first = FirstPods(
            self.clock,
            namespaces=cast(Informer[Any], self.namespaces),
            services=cast(Informer[Any], self.services),
            shadows=cast(Informer[Any], self.shadows),
            slices=[cast(Informer[Any], self.slices)],
        )
        self.first.begin()
        self.released: list[Sequence[Key]] = []
        self.first.subscribe(self.released.append)
        self.addCleanup(lambda: self.assertFalse(self.clock.getDelayedCalls()))
        self.addCleanup(self.first.close)
        self.namespaces.put(thing(SPACE, namespace=""))

    def held(self, key: Key = WEB) -> float | None:
        """Return for how long a pod waits; None for one that does not."""
        after = self.first.wait(key)
        return None if after is None else after.seconds

    def test_way_home_comes(self) -> None:
        """Pods wait until the way home is made and the proxies had their time; then all of them are released."""
        self.services.put(thing(WAY, home="true"))
        self.assertEqual((self.held(), self.held(OTHER)), (HELD, HELD))
        self.clock.advance(2.0)
        self.assertEqual(self.held(), HELD - 2.0)
        self.slices.put(thing(WAY, of=WAY))
        self.clock.advance(PROXIES - 0.1)
        self.assertEqual((self.released, self.held() is None), ([], False))
        self.clock.advance(0.2)
        self.assertEqual(self.released, [(WEB, OTHER)])
        self.assertIsNone(self.held())

    def test_made_before(self) -> None:
        """Slices that are there already get the proxies' time as well: they may be a moment old."""
        self.services.put(thing(WAY, home="true"))
        self.slices.put(thing(WAY, of=WAY))
        self.assertIsNotNone(self.held())
        self.clock.advance(PROXIES)
        self.assertIsNone(self.held())

    def test_later_slices(self) -> None:
        """What comes while the proxies have their time gets as much of it."""
        self.services.put(thing("cache"))
        self.shadows.put(thing("cache-1", of="cache"))
        self.held()
        self.slices.put(thing("cache-1", of="cache"))
        self.clock.advance(PROXIES / 2)
        self.shadows.put(thing("cache-2", of="cache"))
        self.clock.advance(PROXIES)
        self.assertIsNotNone(self.held())
        self.slices.put(thing("cache-2", of="cache"))
        self.clock.advance(PROXIES)
        self.assertIsNone(self.held())

    def test_nothing_to_wait_for(self) -> None:
        """Pods of a namespace without Services, and of one of an earlier day, do not wait."""
        self.assertIsNone(self.held())
        self.services.put(thing(WAY, namespace="old", home="true"))
        self.assertIsNone(self.held(Key("old", "web")))

    def test_it_ends(self) -> None:
        """Where something never comes pods wait no longer than they may, and later ones not at all."""
        self.services.put(thing(WAY, home="true"))
        self.held()
        self.held(OTHER)
        self.clock.advance(HELD)
        self.assertIsNone(self.held())
        self.assertIn(OTHER, self.released[0])
        self.assertIsNone(self.held(OTHER))

    def test_once(self) -> None:
        """When a Service comes later the pods of its namespace do not wait again; those of a new namespace do."""
        self.assertIsNone(self.held())
        self.services.put(thing(WAY, home="true"))
        self.assertIsNone(self.held())
        self.namespaces.take(thing(SPACE, namespace=""))
        self.namespaces.put(thing(SPACE, namespace="", uid="2"))
        self.assertIsNotNone(self.held())
        self.namespaces.put(thing(SPACE, namespace="", uid="3"))
        self.slices.put(thing(WAY, of=WAY))
        self.assertIsNotNone(self.held())
