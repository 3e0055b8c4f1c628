"""Reads the version of an API server and caches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from twisted.internet.defer import DeferredLock

from liqod.flow.observe import Latest
from liqod.kube.errors import Undecodable


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class ServerVersion:
    """Returns ``gitVersion`` ("v1.35.0"); ``known`` is that of the last answer, empty before.

    A failure is raised to the callers and not cached: the next call tries again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[bytes]]) -> None:
        self.known: Latest[str] = Latest("")
        self._fetch = fetch
        self._lock = DeferredLock()

    async def get(self) -> str:
        """Return the version that is known, else ask for it. Raises KubeError."""
        if not self.known.value:
            # The lock merges the concurrent calls at the daemon's start into one request.
            async with self._lock:
                if not self.known.value:
                    await self.ask()
        return self.known.value

    async def ask(self) -> str:
        """Return the version that the API server has now: it changes with an upgrade. Raises KubeError."""
        try:
            self.known.set(msgspec.json.decode(await self._fetch(), type=_Version).git_version)
        except msgspec.MsgspecError as error:
            raise Undecodable(f"the API server's answer to /version cannot be read: {error}") from error
        return self.known.value
