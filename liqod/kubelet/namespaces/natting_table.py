"""The natting table of one lender: reads from the watch, writes guarded by the version, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import NATTINGTABLES
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.namespaces.plan import READY
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import to_dict
from liqod.model.records.views import MappingStatus, NamespaceNattingTable

_EMPTY = NamespaceNattingTable()


class NattingTable:
    """Local namespace to remote namespace and back, and what the lender said to each."""

    def __init__(
        self, clock: IReactorTime, client: Client, cached: Informer[NamespaceNattingTable], lender: ClusterID
    ) -> None:
        self._client = client
        self._cached = cached
        self._lender = lender
        self._key = Key("", str(lender))
        self._answers: Overlay[Key, NamespaceNattingTable] = Overlay(clock)
        self._lock: DeferredLock = DeferredLock()

    def deleted(self) -> None:
        """The table is known to have been deleted."""
        self._answers.drop(self._key)

    def _seen(self) -> NamespaceNattingTable | None:
        return self._answers.newest(self._key, self._cached.get(self._key))

    @property
    def forward(self) -> Mapping[str, str]:
        """Local to remote."""
        return (self._seen() or _EMPTY).spec.natting_table

    @property
    def reverse(self) -> Mapping[str, str]:
        """Remote to local."""
        return (self._seen() or _EMPTY).spec.de_natting_table

    def status(self, local: str) -> MappingStatus | None:
        """Return what became of a mapping."""
        return (self._seen() or _EMPTY).status.mappings.get(local)

    async def write(self, local: str, remote: str) -> None:
        """Put a translation in; raises Conflict when the table changed meanwhile."""
        former = self.forward.get(local)
        back: dict[str, str | None] = {remote: local}
        if former is not None and former != remote:
            back[former] = None
        await self._patch({"nattingTable": {local: remote}, "deNattingTable": back})

    async def remove(self, local: str) -> None:
        """Take a translation out, and its status with it."""
        remote = self.forward.get(local)
        if self.status(local) is not None:
            await self.write_status(local, None)
        if remote is not None:
            await self._patch({"nattingTable": {local: None}, "deNattingTable": {remote: None}})

    async def write_status(self, local: str, status: MappingStatus | None) -> None:
        """Write what became of a mapping, if that is news."""
        await self._lock.acquire()
        try:
            seen = self._seen()
            if seen is None or seen.status.mappings.get(local) == status:
                return
            mappings: dict[str, Any] = {name: to_dict(said) for name, said in seen.status.mappings.items()}
            mappings.pop(local, None)
            if status is not None:
                mappings[local] = to_dict(status)
            patch = {"mappings": {local: mappings.get(local)}, **_summary({**seen.status.mappings}, local, status)}
            body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "status": patch}
            await self._send(body, "status")
        finally:
            self._lock.release()

    async def _patch(self, spec: dict[str, Any]) -> None:
        await self._lock.acquire()
        try:
            seen = self._seen()
            if seen is None:
                await self._create(spec)
                return
            body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec}
            await self._send(body, "")
        finally:
            self._lock.release()

    async def _create(self, spec: dict[str, Any]) -> None:
        present = {
            table: {key: value for key, value in entries.items() if value is not None}
            for table, entries in spec.items()
        }
        body = {"metadata": {"name": str(self._lender)}, "spec": {"clusterID": str(self._lender), **present}}
        try:
            made = await self._client.create(NATTINGTABLES, body, view=NamespaceNattingTable)
        except AlreadyExists:
            made = await self._client.get(NATTINGTABLES, str(self._lender), view=NamespaceNattingTable)
            self._answers.put(self._key, made)
            raise
        self._answers.put(self._key, made)

    async def _send(self, body: dict[str, Any], subresource: str) -> None:
        try:
            seen = await self._client.patch(
                NATTINGTABLES, str(self._lender), body, subresource=subresource, view=NamespaceNattingTable
            )
        except NotFound:
            self.deleted()
            raise
        self._answers.put(self._key, seen)


def _summary(mappings: dict[str, MappingStatus], local: str, status: MappingStatus | None) -> dict[str, str]:
    """Return phase and message that sum up all mappings for people."""
    mappings.pop(local, None)
    if status is not None:
        mappings[local] = status
    waiting = {name: said for name, said in mappings.items() if said.phase != READY}
    if not waiting:
        return {"phase": READY, "message": ""}
    name, said = min(waiting.items())
    return {
        "phase": f"{len(mappings) - len(waiting)} of {len(mappings)} ready",
        "message": f"{name}: {said.reason}: {said.message}"[:1024] if said.reason else f"{name}: {said.phase}",
    }
