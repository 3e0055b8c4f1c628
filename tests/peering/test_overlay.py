"""Reading one's own writes and removals before the watch tells of them."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.peering.records.mutation_cache import Overlay

KEY = Key("", "one")
OURS = ("write", "remove")
STEPS = st.lists(st.sampled_from([*OURS, "another writes", "another removes", "the watch tells"]), max_size=30)


class Cache:
    """What a watch has told so far of one object."""

    def __init__(self) -> None:
        self.told: Object | None = None

    def get(self, key: Key) -> Object | None:
        return self.told

    def keys(self) -> list[Key]:
        return [KEY] if self.told is not None else []


class World:
    """One object at an API server, a watch that lags behind, and somebody who writes by what the overlay says."""

    def __init__(self) -> None:
        self.states: list[Object | None] = [None]
        self.told = 0
        self.cache = Cache()
        self.overlay: Overlay[Object] = Overlay(cast(Informer[Object], self.cache))

    def put(self, value: bool) -> Object | None:
        made = Object(metadata=ObjectMeta(name="one", resource_version=str(len(self.states)))) if value else None
        self.states.append(made)
        return made

    def step(self, name: str) -> bool:
        """Take a step; returns whether the object was changed as the overlay's user wished."""
        present = self.states[-1]
        if name == "the watch tells":
            self.told = min(self.told + 1, len(self.states) - 1)
            self.cache.told = self.states[self.told]
        elif name == "another writes":
            self.put(True)
        elif name == "another removes" and present is not None:
            self.put(False)
        elif name in OURS:
            return self.ours(name)
        return False

    def ours(self, name: str) -> bool:
        """Do as a conditional write does."""
        seen = self.overlay.get(KEY)
        if name == "remove" and seen is None:
            return False
        if seen != self.states[-1]:
            self.overlay.forget(KEY)
            return False
        after = self.put(name == "write")
        if after is not None:
            self.overlay.wrote(KEY, seen, after)
        elif seen is not None:
            self.overlay.removed(KEY, seen)
        return True


class OverlayTests(SynchronousTestCase):
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
            if ours and step in OURS and world.states[-1] != world.overlay.get(KEY):
                self.fail(f"{world.overlay.get(KEY)} is seen, {world.states[-1]} was written")

    @given(STEPS)
    def test_caught_up(self, steps: list[str]) -> None:
        """Once the watch has told everything, that is what is seen."""
        world = World()
        for step in [*steps, *["the watch tells"] * (len(steps) + 1)]:
            world.step(step)
            world.overlay.get(KEY)
        self.assertEqual(world.states[-1], world.overlay.get(KEY))
        self.assertEqual([value for value in [world.states[-1]] if value], world.overlay.items())

    def test_removed(self) -> None:
        """What was removed is not there, also while the watch still shows one of the states before."""
        world = World()
        for step in ("write", "the watch tells", "write", "remove"):
            self.assertEqual(step in OURS, world.step(step))
        self.assertIsNone(world.overlay.get(KEY))
        world.step("the watch tells")
        self.assertIsNotNone(world.cache.told)
        self.assertIsNone(world.overlay.get(KEY))
        self.assertEqual([], world.overlay.items())
