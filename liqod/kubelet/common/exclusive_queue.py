"""Lets one key at a time proceed of those that share something, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ExclusiveQueue(Generic[K]):
    """The keys that proceed and those that wait, by what they share (``place``).

    A key proceeds, or waits, until ``release``. Memory is bounded by the number of keys that ask.
    """

    def __init__(self) -> None:
        self._holders: dict[Hashable, K] = {}
        # Dictionaries, because they keep the order in which keys asked.
        self._waiting: dict[Hashable, dict[K, None]] = {}
        self._asked: dict[K, Hashable] = {}

    def acquire(self, place: Hashable, key: K) -> bool:
        """Return whether it is the turn of a key; else the key waits until ``release`` names it."""
        self._asked[key] = place
        if self._holders.setdefault(place, key) == key:
            return True
        self._waiting.setdefault(place, {})[key] = None
        return False

    def place_of(self, key: K) -> Hashable | None:
        """Return where a key has its turn or waits; None for neither."""
        return self._asked.get(key)

    def waits(self, key: K) -> bool:
        """Return whether a key waits for its turn."""
        return key in self._asked and self._holders.get(self._asked[key]) != key

    def release(self, key: K) -> K | None:
        """End the turn, or the wait, of a key; return the key that has its turn now, if that is another one."""
        place = self._asked.pop(key, None)
        waiting = self._waiting.get(place, {})
        waiting.pop(key, None)
        following = None
        if self._holders.get(place) == key:
            del self._holders[place]
            following = next(iter(waiting), None)
            if following is not None:
                self._holders[place] = following
                del waiting[following]
        if not waiting:
            self._waiting.pop(place, None)
        return following

    def clear(self) -> None:
        """Drop all keys."""
        for known in (self._holders, self._waiting, self._asked):
            known.clear()
