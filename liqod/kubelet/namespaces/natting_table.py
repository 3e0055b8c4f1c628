"""The natting table of one lender: read from the watch, written one change at a time with resourceVersion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.resources import NATTINGTABLES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kubelet.namespaces.plan import READY
from liqod.model.ids import ClusterID, Key
from liqod.model.names import HOME_UID_ANNOTATION
from liqod.model.objects.meta import MAX_MESSAGE, to_dict
from liqod.model.records.views import MappingStatus, NamespaceNattingTable

_EMPTY = NamespaceNattingTable()


class NattingTable:
    """Maps local to remote namespaces and back, with the lender's answer for each.

    Both directions are in one record, so that no two local namespaces can be mapped to one remote name. Every write has
    the resourceVersion: of two daemons that write at the same time (after a lost lease) one gets 409.
    """

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        cached: Informer[NamespaceNattingTable],
        lender: ClusterID,
        *,
        home_uid: Latest[str],
    ) -> None:
        self._client = client
        self._home_uid = home_uid
        self._lender = lender
        self._key = Key("", str(lender))
        self._cache: MutationCache[NamespaceNattingTable] = MutationCache(cached, clock)
        self._lock: DeferredLock = DeferredLock()

    def deleted(self) -> None:
        """Drop the cached writes: the record was deleted or replaced."""
        self._cache.forget(self._key)

    def _seen(self) -> NamespaceNattingTable | None:
        return self._cache.get(self._key)

    @property
    def forward(self) -> Mapping[str, str]:
        """Local to remote."""
        return (self._seen() or _EMPTY).spec.natting_table

    @property
    def reverse(self) -> Mapping[str, str]:
        """Remote to local."""
        return (self._seen() or _EMPTY).spec.de_natting_table

    @property
    def is_of_other_cluster(self) -> bool:
        """Whether another cluster wrote the record: it was copied from there."""
        return is_of_other_cluster(self._seen(), self._home_uid.value)

    def status(self, local: str) -> MappingStatus | None:
        """Return the status of a mapping."""
        return (self._seen() or _EMPTY).status.mappings.get(local)

    async def write(self, local: str, remote: str) -> None:
        """Add a mapping; raises Conflict if the table changed meanwhile."""
        former = self.forward.get(local)
        # In a merge patch None removes a key (RFC 7396).
        back: dict[str, str | None] = {remote: local}
        if former is not None and former != remote:
            back[former] = None
        await self._patch({"nattingTable": {local: remote}, "deNattingTable": back})

    async def remove(self, local: str) -> None:
        """Remove a mapping and its status; raises Conflict if the table changed meanwhile."""
        remote = self.forward.get(local)
        if self.status(local) is not None:
            await self.write_status(local, None)
        if remote is not None:
            await self._patch({"nattingTable": {local: None}, "deNattingTable": {remote: None}})

    async def write_status(self, local: str, status: MappingStatus | None) -> None:
        """Write the status of a mapping if it differs; None removes it. Raises Conflict if the table changed."""
        await self._lock.acquire()
        try:
            seen = self._seen()
            if seen is None or seen.status.mappings.get(local) == status:
                return
            mappings: dict[str, Any] = {name: to_dict(known) for name, known in seen.status.mappings.items()}
            mappings.pop(local, None)
            if status is not None:
                mappings[local] = to_dict(status)
            patch = {"mappings": {local: mappings.get(local)}, **_summary({**seen.status.mappings}, local, status)}
            # A write to the status subresource changes nothing else: spec and status need two requests (Kubernetes API
            # conventions).
            body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "status": patch}
            await self._send(seen, body, "status")
        finally:
            self._lock.release()

    async def _patch(self, spec: dict[str, Any]) -> None:
        await self._lock.acquire()
        try:
            seen = self._seen()
            if seen is None:
                await self._create(spec)
                return
            metadata: dict[str, Any] = {"resourceVersion": seen.metadata.resource_version}
            if HOME_UID_ANNOTATION not in seen.metadata.annotations:
                metadata["annotations"] = self._annotations()
            body = {"metadata": metadata, "spec": spec}
            await self._send(seen, body, "")
        finally:
            self._lock.release()

    def _annotations(self) -> dict[str, str]:
        uid = self._home_uid.value
        return {HOME_UID_ANNOTATION: uid} if uid else {}

    async def _create(self, spec: dict[str, Any]) -> None:
        present = {
            table: {key: value for key, value in entries.items() if value is not None}
            for table, entries in spec.items()
        }
        metadata = {"name": str(self._lender), "annotations": self._annotations()}
        body = {"metadata": metadata, "spec": {"clusterID": str(self._lender), **present}}
        try:
            made = await self._client.create(NATTINGTABLES, body, view=NamespaceNattingTable)
        except AlreadyExists:
            made = await self._client.get(NATTINGTABLES, str(self._lender), view=NamespaceNattingTable)
            self._cache.wrote(self._key, None, made)
            raise
        self._cache.wrote(self._key, None, made)

    async def _send(self, before: NamespaceNattingTable, body: dict[str, Any], subresource: str) -> None:
        try:
            after = await self._client.patch(
                NATTINGTABLES, str(self._lender), body, subresource=subresource, view=NamespaceNattingTable
            )
        except (Conflict, NotFound):
            # 409: the resourceVersion is outdated; the controller retries with the table from the watch.
            self.deleted()
            raise
        self._cache.wrote(self._key, before, after)


def _summary(mappings: dict[str, MappingStatus], local: str, status: MappingStatus | None) -> dict[str, str]:
    """Return phase and message that summarize all mappings."""
    mappings.pop(local, None)
    if status is not None:
        mappings[local] = status
    waiting = {name: each for name, each in mappings.items() if each.phase != READY}
    if not waiting:
        return {"phase": READY, "message": ""}
    name, first = min(waiting.items())
    return {
        "phase": f"{len(mappings) - len(waiting)} of {len(mappings)} ready",
        "message": f"{name}: {first.reason}: {first.message}"[:MAX_MESSAGE]
        if first.reason
        else f"{name}: {first.phase}",
    }


def is_of_other_cluster(table: NamespaceNattingTable | None, home_uid: str) -> bool:
    """Return whether a cluster wrote a natting table that is not the one with this UID; an empty UID is not known."""
    writer = (table or _EMPTY).metadata.annotations.get(HOME_UID_ANNOTATION, "")
    return bool(writer and home_uid) and writer != home_uid
