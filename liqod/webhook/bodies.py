"""How many bytes of reviews are received at a time, from one address and from all."""

from __future__ import annotations

from collections import Counter
from typing import Final

TOGETHER: Final = 32 << 20
"""Bytes of all bodies that are being received: sixteen of the largest are reviewed in less than half a second, should
they all end in one turn of the reactor. An ordinary one has some 10 KiB."""
FROM_ADDRESS: Final = 16 << 20


class Bodies:
    """The bytes that are held, by the address that they come from."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._all = 0

    def take(self, source: str, size: int) -> bool:
        """Hold more bytes of a source; return whether there is room for them."""
        if self._all + size > TOGETHER or self._held.get(source, 0) + size > FROM_ADDRESS:
            return False
        self._held[source] += size
        self._all += size
        return True

    def release(self, source: str, size: int) -> None:
        """Hold these bytes no longer."""
        self._held[source] -= size
        self._all -= size
        if self._held[source] <= 0:
            del self._held[source]
