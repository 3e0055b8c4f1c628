"""Answers to our own writes, kept until the watch has caught up with them.

A cache lags behind what was just written; deciding from it would write the same thing twice. Every answer is a newer
version of the object, so whichever of cache and answer is newer is what is seen.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from twisted.internet.interfaces import IReactorTime

from liqod.model.objects.meta import ObjectMeta, is_newer

LIFETIME: Final = 30.0
"""Seconds after which an answer is forgotten: a watch that lags longer is not trusted to have shown a deletion."""


class Versioned(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Versioned)
K = TypeVar("K", bound=Hashable)


class Overlay(Generic[K, T]):
    """Newest answers by key; bounded by what is being written, because the cache soon replaces each."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._answers: dict[K, tuple[float, T]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def put(self, key: K, answer: T) -> None:
        """Remember the answer to a write."""
        self._answers[key] = (self._clock.seconds(), answer)

    def drop(self, key: K) -> None:
        """Forget an answer: the object is known to be gone."""
        self._answers.pop(key, None)

    def newest(self, key: K, cached: T | None) -> T | None:
        """Return the newer one of the cached object and the answer kept for it."""
        kept = self._answers.get(key)
        if kept is None:
            return cached
        since, answer = kept
        if self._clock.seconds() - since > LIFETIME or (
            cached is not None and not is_newer(answer.metadata, cached.metadata)
        ):
            del self._answers[key]
            return cached
        return answer
