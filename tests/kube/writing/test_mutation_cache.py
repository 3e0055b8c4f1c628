"""Tests of liqod.kube.writing.mutation_cache: own writes and removals are read before the watch shows them."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.informer import Informer
from liqod.kube.writing.mutation_cache import MutationCache, Mutations
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta

KEY = Key("", "one")
OURS = ("write", "remove")
STEPS = st.lists(st.sampled_from([*OURS, "another writes", "another removes", "the watch tells"]), max_size=30)


class Cache:
    """What a watch has reported so far of one object."""

    def __init__(self) -> None:
        self.shown: Object | None = None

    def get(self, key: Key) -> Object | None:
        return self.shown

    def keys(self) -> list[Key]:
        return [KEY] if self.shown is not None else []


class World:
    """One object at an API server, a watch that lags behind, and somebody who writes by what the cache says."""

    def __init__(self) -> None:
        self.states: list[Object | None] = [None]
        self.shown = 0
        self.cache = Cache()
        self.mutations: MutationCache[Object] = MutationCache(cast(Informer[Object], self.cache), Clock())

    def put(self, value: bool) -> Object | None:
        made = Object(metadata=ObjectMeta(name="one", resource_version=str(len(self.states)))) if value else None
        self.states.append(made)
        return made

    def step(self, name: str) -> bool:
        """Take a step; returns whether the object was changed as its writer asked."""
        present = self.states[-1]
        if name == "the watch tells":
            self.shown = min(self.shown + 1, len(self.states) - 1)
            self.cache.shown = self.states[self.shown]
        elif name == "another writes":
            self.put(True)
        elif name == "another removes" and present is not None:
            self.put(False)
        elif name in OURS:
            return self.ours(name)
        return False

    def ours(self, name: str) -> bool:
        """Do as a conditional write does."""
        seen = self.mutations.get(KEY)
        if name == "remove" and seen is None:
            return False
        if seen != self.states[-1]:
            self.mutations.forget(KEY)
            return False
        after = self.put(name == "write")
        if after is not None:
            self.mutations.wrote(KEY, seen, after)
        elif seen is not None:
            self.mutations.removed(KEY, seen)
        return True


class MutationCacheTests(SynchronousTestCase):
    """A cache with what was written on top."""

    @given(STEPS)
    def test_own_changes(self, steps: list[str]) -> None:
        """What was changed last is seen at once, and as long as nobody else changes it."""
        world, ours = World(), True
        for step in steps:
            if step in OURS:
                ours |= world.step(step)
            else:
                world.step(step)
                ours &= not step.startswith("another")
            if ours and step in OURS and world.states[-1] != world.mutations.get(KEY):
                self.fail(f"{world.mutations.get(KEY)} is seen, {world.states[-1]} was written")

    @given(STEPS)
    def test_caught_up(self, steps: list[str]) -> None:
        """Once the watch has reported everything, that is what is seen."""
        world = World()
        for step in [*steps, *["the watch tells"] * (len(steps) + 1)]:
            world.step(step)
            world.mutations.get(KEY)
        self.assertEqual(world.states[-1], world.mutations.get(KEY))
        self.assertEqual([value for value in [world.states[-1]] if value], world.mutations.items())

    def test_removed(self) -> None:
        """What was removed is not there, also while the watch still shows one of the states before."""
        world = World()
        for step in ("write", "the watch tells", "write", "remove"):
            self.assertEqual(step in OURS, world.step(step))
        self.assertIsNone(world.mutations.get(KEY))
        world.step("the watch tells")
        self.assertIsNotNone(world.cache.shown)
        self.assertIsNone(world.mutations.get(KEY))
        self.assertEqual([], world.mutations.items())


def version(number: int, uid: str = "first") -> Object:
    """Return a state of an object."""
    return Object(metadata=ObjectMeta(name="one", uid=uid, resource_version=str(number)))


class MutationsTests(SynchronousTestCase):
    """What counts when the watch and our own writes disagree."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.mutations: Mutations[str, Object] = Mutations(self.clock, ttl=30.0, most=3)

    def test_newer_than_the_watch(self) -> None:
        """A state that the watch shows late, of somebody else and before our write, does not hide our write."""
        self.mutations.wrote("one", version(1), version(5))
        self.assertEqual(self.mutations.newest("one", version(3)), version(5))
        self.assertEqual(self.mutations.newest("one", version(6)), version(6))
        self.assertEqual(len(self.mutations), 0)

    def test_deleted_by_others(self) -> None:
        """An object that was there before our write and that the watch does not show any more is gone."""
        self.mutations.wrote("one", version(1), version(2))
        self.assertIsNone(self.mutations.newest("one", None))

    def test_versions_that_are_no_numbers(self) -> None:
        """Where versions cannot be compared, only those that we wrote over are older than our write."""
        opaque = [Object(metadata=ObjectMeta(name="one", resource_version=text)) for text in ("abc", "def", "ghi")]
        self.mutations.wrote("one", opaque[0], opaque[1])
        self.assertEqual(self.mutations.newest("one", opaque[0]), opaque[1])
        self.assertEqual(self.mutations.newest("one", opaque[2]), opaque[2])

    def test_an_answer_that_changed_nothing(self) -> None:
        """A write that the server found to be no change is nothing to remember."""
        self.mutations.wrote("one", version(1), version(1))
        self.assertEqual(len(self.mutations), 0)

    def test_bounded_in_time(self) -> None:
        """A write that the watch never shows is forgotten: it was undone, or the watch is lost."""
        self.mutations.wrote("one", version(1), version(2))
        self.clock.advance(29.9)
        self.assertEqual(self.mutations.newest("one", version(1)), version(2))
        self.clock.advance(0.2)
        self.assertEqual(self.mutations.newest("one", version(1)), version(1))

    def test_bounded_in_number(self) -> None:
        """Of very many writes the oldest are forgotten."""
        for number in range(10):
            self.mutations.wrote(str(number), None, version(number + 1))
        self.assertEqual(self.mutations.keys(), ["7", "8", "9"])
        for number in range(100):
            self.mutations.wrote("9", version(number + 10), version(number + 11))
        self.assertEqual(len(self.mutations), 3)
