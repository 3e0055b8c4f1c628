"""The quota of memory for the caches of one server's objects (pure).

The cluster's own API server is believed to be what it is. A lender's is a peer: it may show a million objects, or list
for ever, and every one of its caches would grow until there is no memory left for anybody.
"""

from __future__ import annotations

from typing import Final

from liqod.model.ids import Key

OF_A_PEER: Final = 1 << 30
"""Bytes that all caches of one peer's objects may hold together, and as much again while they are listed again. Ten
thousand pods with their ShadowPods are a fifth of it."""
OVERHEAD: Final = 1024
"""Bytes that an object counts besides its text: what Python takes for it, however small it is."""


class Allowance:
    """What all caches of one server have taken of ``most`` bytes."""

    def __init__(self, most: int = OF_A_PEER) -> None:
        self.most = most
        self.taken = 0


class Held:
    """What one cache has taken.

    What comes of a new list is counted instead of what is held as soon as it is more: a server that shows little again
    must not be refused for what it showed before.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._held: dict[Key, int] = {}
        self._coming: dict[Key, int] | None = None
        self._sizes = (0, 0)

    def begin(self) -> None:
        """Start counting a list; one that was not completed is dropped."""
        self._coming = {}
        self._set(self._sizes[0], 0)

    def complete(self) -> None:
        """The list is complete: it is what is held."""
        if self._coming is not None:
            self._held, self._coming = self._coming, None
            self._set(self._sizes[1], 0)

    def note(self, key: Key, size: int) -> bool:
        """Count an object that came, in place of the one of its key; False, and nothing counted, where that would be
        more than is allowed.
        """
        more = size + OVERHEAD - self._table.get(key, 0)
        before = self._sizes
        self._add(more)
        if more > 0 and self._allowance.taken > self._allowance.most:
            self._set(*before)
            return False
        self._table[key] = size + OVERHEAD
        return True

    def drop(self, key: Key) -> None:
        """Count an object no longer."""
        self._add(-self._table.pop(key, 0))

    def clear(self) -> None:
        """Release everything: the cache is gone."""
        self._held, self._coming = {}, None
        self._set(0, 0)

    @property
    def _table(self) -> dict[Key, int]:
        return self._held if self._coming is None else self._coming

    def _add(self, size: int) -> None:
        held, coming = self._sizes
        self._set(*((held + size, coming) if self._coming is None else (held, coming + size)))

    def _set(self, held: int, coming: int) -> None:
        self._allowance.taken += max(held, coming) - max(self._sizes)
        self._sizes = (held, coming)
