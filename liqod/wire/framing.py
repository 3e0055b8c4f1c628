"""Frames: a length of four bytes, big-endian, then that many bytes of payload.

The receive buffer is bounded twice. A frame whose length exceeds the cap is refused on its header alone; and frames
that wait to be taken may not exceed ``FrameLimits.pending`` together.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.wire.errors import RemoteProtocolError

HEADER: Final = 4
"""Bytes of a frame's length, before the frame (docs/protocol.md)."""


@attrs.frozen
class FrameLimits:
    """What a session accepts from its peer, and sends at most. Sizes in bytes.

    ``frame``: an offer with every field at its own limit stays below 64 KiB, so four times that is generous.
    ``first``: the same before we trust the peer; the largest Hello, Welcome, Join or Bye has half of that.
    ``pending``: a transport reads 64 KiB at a time; an owner that takes the events after each read stays far below.
    """

    frame: int = 256 * 1024
    first: int = 8 * 1024
    depth: int = 8
    string: int = 64 * 1024
    items: int = 4096
    pending: int = attrs.field(default=1024 * 1024, kw_only=True)


def frame(payload: bytes) -> bytes:
    """Return a payload with its header."""
    return len(payload).to_bytes(HEADER, "big") + payload


class FrameBuffer:
    """Collects bytes and yields payloads, in time linear in the bytes, however they are split."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Append bytes; raises RemoteProtocolError when more than ``FrameLimits.pending`` wait."""
        if len(self._data) + len(data) > self._limits.pending:
            raise RemoteProtocolError(
                "TooMuchPending", f"more than {self._limits.pending} bytes of events wait to be read"
            )
        self._data += data

    def take(self, *, trusted: bool = True) -> bytes | None:
        """Return the next whole payload, or None while it is incomplete; RemoteProtocolError for a bad length."""
        cap = self._limits.frame if trusted else self._limits.first
        if len(self._data) < HEADER:
            return None
        length = int.from_bytes(self._data[:HEADER], "big")
        if not 0 < length <= cap:
            raise RemoteProtocolError("FrameLength", f"a frame announces {length} bytes; from 1 to {cap} are allowed")
        end = HEADER + length
        if len(self._data) < end:
            return None
        payload = bytes(self._data[HEADER:end])
        del self._data[:end]
        return payload

    def clear(self) -> None:
        """Drop what was collected."""
        self._data.clear()
