"""Answers that were given lately, so that names which are asked for all the time cost no question. Reads no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MOST: Final = 1024
"""Answers that are kept for one tenant."""
LARGEST: Final = 4096
"""Bytes of an answer that is kept: with ``MOST``, 4 MiB for a tenant at most."""


class Cache:
    """The answers of one tenant; the one that was asked for longest ago goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[bytes, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, now: float) -> bytes | None:
        """Return an answer that is not too old."""
        found = self._kept.get(key)
        if found is None:
            return None
        answer, until = found
        if now >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return answer

    def put(self, key: Hashable, answer: bytes, until: float) -> None:
        """Keep an answer until a time, unless it is too large."""
        if len(answer) > LARGEST:
            return
        self._kept[key] = (answer, until)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
