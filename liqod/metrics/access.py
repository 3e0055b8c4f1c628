"""Who may read the pages where others than programs of this host reach them: the holder of one token, or whom the
cluster lets.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

MAX_TOKEN: Final = 16 << 10
"""Bytes of the longest token; a service account's has about a thousand."""
REREAD: Final = 10.0
"""Seconds between two reads of the file of a token."""


@attrs.define
class Denied(Exception):
    """A caller does not get a page: status code, reason, and a sentence for the caller; ``detail`` is for the log."""

    code: int
    reason: str
    message: str
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.message


def unknown_caller() -> Denied:
    """Return the refusal of a caller without a token that counts."""
    return Denied(401, "ScrapeUnauthorized", "unauthorized: a bearer token that is accepted here is needed")


class Access(Protocol):
    """Decides who gets a page."""

    def admit(self, token: bytes, path: str, source: str) -> Awaitable[None]:
        """Return if the holder of a token may get a path; raises Denied. ``source`` is the caller's address."""
        ...


class OneToken:
    """Admits those who have the token of a file, which may be replaced at any time."""

    def __init__(self, path: str, clock: IReactorTime) -> None:
        self._path = Path(path).expanduser()
        self._clock = clock
        self._due = float("-inf")
        self._digest = b""
        self._problem = ""

    async def admit(self, token: bytes, path: str, source: str) -> None:
        """Return if this is the token of the file; raises Denied."""
        self._read_if_due()
        if self._problem:
            message = "the token that callers need cannot be read here; the log of liqod has more"
            raise Denied(503, "ScrapeNotReviewed", message, f"{self._path} {self._problem}")
        # Of digests, so that neither the length nor the time of the comparison says anything of the token.
        if not token or len(token) > MAX_TOKEN or not hmac.compare_digest(_digest(token), self._digest):
            raise unknown_caller()

    def _read_if_due(self) -> None:
        now = self._clock.seconds()
        if now < self._due:
            return
        self._due = now + REREAD
        try:
            with self._path.open("rb") as file:
                found = file.read(MAX_TOKEN + 1).strip()
        except (OSError, ValueError) as error:
            self._problem = f"cannot be read: {getattr(error, 'strerror', None) or error}".lower()
            return
        self._problem = "" if found and len(found) <= MAX_TOKEN else "does not hold one token"
        self._digest = _digest(found)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
