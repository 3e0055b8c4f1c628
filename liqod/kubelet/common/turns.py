"""Gives keys that share something their turns: one at a time, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """The keys that have a turn and those that wait for one, by what they share (``place``).

    A key has its turn, or its place in the line, until ``leave``. Memory is bounded by the number of keys that ask.
    """

    def __init__(self) -> None:
        self._has_turn: dict[Hashable, K] = {}
        # Dictionaries, because they keep the order in which keys asked.
        self._waiting: dict[Hashable, dict[K, None]] = {}
        self._asked: dict[K, Hashable] = {}

    def take(self, place: Hashable, key: K) -> bool:
        """Return whether it is the turn of a key; else the key waits until ``leave`` names it."""
        self._asked[key] = place
        if self._has_turn.setdefault(place, key) == key:
            return True
        self._waiting.setdefault(place, {})[key] = None
        return False

    def place_of(self, key: K) -> Hashable | None:
        """Return where a key has its turn or waits; None for neither."""
        return self._asked.get(key)

    def waits(self, key: K) -> bool:
        """Return whether a key waits for its turn."""
        return key in self._asked and self._has_turn.get(self._asked[key]) != key

    def leave(self, key: K) -> K | None:
        """End the turn, or the wait, of a key; return the key that has its turn now, if that is another one."""
        place = self._asked.pop(key, None)
        waiting = self._waiting.get(place, {})
        waiting.pop(key, None)
        following = None
        if self._has_turn.get(place) == key:
            del self._has_turn[place]
            following = next(iter(waiting), None)
            if following is not None:
                self._has_turn[place] = following
                del waiting[following]
        if not waiting:
            self._waiting.pop(place, None)
        return following

    def clear(self) -> None:
        """Forget all keys."""
        for known in (self._has_turn, self._waiting, self._asked):
            known.clear()
