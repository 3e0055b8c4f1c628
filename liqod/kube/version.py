"""Reads the version of an API server once and caches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from twisted.internet.defer import DeferredLock

from liqod.kube.errors import Undecodable


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class ServerVersion:
    """Returns ``gitVersion`` ("v1.35.0"); ``known`` is empty until it was read.

    A failure is raised to the callers and not cached: the next call tries again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[bytes]]) -> None:
        self.known = ""
        self._fetch = fetch
        self._lock = DeferredLock()

    async def get(self) -> str:
        """Return the version. Raises KubeError."""
        if not self.known:
            # The lock merges the concurrent calls at the daemon's start into one request.
            async with self._lock:
                if not self.known:
                    self.known = await self._ask()
        return self.known

    async def _ask(self) -> str:
        try:
            return msgspec.json.decode(await self._fetch(), type=_Version).git_version
        except msgspec.MsgspecError as error:
            raise Undecodable(f"the API server's answer to /version cannot be read: {error}") from error
