"""Interns equal values: caches of ten thousand pods contain the same labels and specs many times.

Values that are shared this way are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 1024
"""Maximum number of interned values; above it the table is cleared, values in use are not affected."""
LARGEST: Final = 2048
"""Maximum length of the key of an interned value: labels and specs of ordinary pods are shorter."""


class Interner(Generic[T]):
    """Returns the first of equal values; values with equal ``key`` are equal.

    What is interned outlives its object and counts for nobody, so a value with a key longer than ``LARGEST`` is not.
    """

    def __init__(self, key: Callable[[T], bytes], most: int = MOST) -> None:
        self._key = key
        self._most = most
        self._known: dict[bytes, T] = {}

    def __len__(self) -> int:
        """The number of interned values."""
        return len(self._known)

    def __call__(self, value: T) -> T:
        """Return the interned equal value, or intern this one if it is small."""
        key = self._key(value)
        if len(key) > LARGEST:
            return value
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = value
        return value
