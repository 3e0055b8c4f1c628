"""Reading one's own writes: a cache that is behind our last write of a record is not believed about it."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.objects.meta import Object

T = TypeVar("T", bound=Object)

LIFETIME: Final = 10.0
"""Seconds that an answer is believed against a cache that does not show it."""


class Written(Generic[T]):
    """An informer, and on top of it the answers to our writes that it has not shown yet."""

    def __init__(self, informer: Informer[T], clock: IReactorTime) -> None:
        self.informer = informer
        self._clock = clock
        self._answers: dict[Key, tuple[str, T | None, float]] = {}

    def get(self, key: Key) -> T | None:
        """Return the newest state of a record that is known here, or None."""
        seen = self.informer.get(key)
        known = self._answers.get(key)
        if known is None:
            return seen
        before, answer, since = known
        if _version(seen) == before and self._clock.seconds() - since < LIFETIME:
            return answer
        # The cache has moved on since: what it shows is our write, or another's on the way to it. One that does not
        # move for so long tells that the write was lost, or that the watch is: either way it is better done again.
        del self._answers[key]
        return seen

    def items(self) -> list[T]:
        """Return all records, each in its newest known state."""
        keys = dict.fromkeys([*self.informer.keys(), *self._answers])
        return [value for value in map(self.get, keys) if value is not None]

    def put(self, key: Key, answer: T | None) -> None:
        """Note the answer to a write, None for a deletion."""
        seen = self.informer.get(key)
        if _version(seen) != _version(answer):
            self._answers[key] = (_version(seen), answer, self._clock.seconds())


def _version(value: Object | None) -> str:
    return value.metadata.resource_version if value is not None else ""
