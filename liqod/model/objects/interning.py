"""One value in place of many equal ones: caches of ten thousand pods hold the same labels and specs over and over.

Values that are shared this way are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 1024
"""Values that are known at once; beyond that all are forgotten, and those in use go on being used."""


class Sharing(Generic[T]):
    """Gives back the first of equal values; ``key`` tells which are equal."""

    def __init__(self, key: Callable[[T], Hashable], most: int = MOST) -> None:
        self._key = key
        self._most = most
        self._known: dict[Hashable, T] = {}

    def __len__(self) -> int:
        """The number of values that are known."""
        return len(self._known)

    def __call__(self, value: T) -> T:
        """Return a known value that is equal, or this one."""
        key = self._key(value)
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = value
        return value
