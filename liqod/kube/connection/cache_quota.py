"""Memory quota for the caches of one API server's objects (pure).

The home cluster's API server is trusted. A lender's API server is controlled by a peer: it could list a million objects
or never end a list, and exhaust the daemon's memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from liqod.kube.nesting import count_parts
from liqod.model.ids import Key

OF_A_PEER: Final = 1 << 30
"""Maximum bytes of all caches of one peer's objects, and the same again during a new list. Ten thousand pods with their
ShadowPods need a fifth of it."""
OVERHEAD: Final = 1024
"""Bytes counted per object in addition to its JSON: the approximate size of the Python objects."""
PART: Final = 128
"""Bytes counted per part of what was decoded. Measured with CPython 3.11: 33 for an owner reference ``{}``, 55 for one
with names, 145 for a label, 8 for a short text in a list."""


def decoded_size(value: Any) -> int:
    """Return about how many bytes an object occupies that was decoded to a view, by what the view keeps of it.

    A text occupies 1, 2 or 4 bytes for each character (PEP 393), all of it as many as its widest character.
    """
    text = msgspec.json.encode(value)
    width = 1 if text.isascii() else 4 if any(lead in text for lead in range(0xF0, 0xF5)) else 2
    return len(text) * width + count_parts(text) * PART


class Allowance:
    """Counts the bytes ``taken`` by all caches of one server, out of ``most``."""

    def __init__(self, most: int = OF_A_PEER) -> None:
        self.most = most
        self.taken = 0


class CacheUsage:
    """Counts the bytes of one cache.

    During a new list the larger of the current contents and the new list counts: a server that shrinks to an allowed
    size must not be refused for its earlier size.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._held: dict[Key, int] = {}
        self._coming: dict[Key, int] | None = None
        self._sizes = (0, 0)

    def begin(self) -> None:
        """Start counting a new list; an incomplete one is dropped."""
        self._coming = {}
        self._set(self._sizes[0], 0)

    def complete(self) -> None:
        """Replace the counted contents by the complete list."""
        if self._coming is not None:
            self._held, self._coming = self._coming, None
            self._set(self._sizes[1], 0)

    def note(self, key: Key, size: int) -> bool:
        """Count an object in place of the previous one of its key; return False, and count nothing, above the quota."""
        more = size + OVERHEAD - self._table.get(key, 0)
        before = self._sizes
        self._add(more)
        if more > 0 and self._allowance.taken > self._allowance.most:
            self._set(*before)
            return False
        self._table[key] = size + OVERHEAD
        return True

    def drop(self, key: Key) -> None:
        """Subtract an object."""
        self._add(-self._table.pop(key, 0))

    def contents(self) -> dict[Key, int]:
        """Return the bytes of each object, as they were noted."""
        return {key: size - OVERHEAD for key, size in self._held.items()}

    def clear(self) -> None:
        """Release everything, when the cache is stopped."""
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
