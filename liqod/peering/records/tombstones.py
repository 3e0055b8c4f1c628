"""Tombstones of ended peerings, in a ConfigMap, so that a peer that was unreachable is notified when it connects.

An entry also prevents that the settings automatically trust a key that a user distrusted. It is deleted when a user
trusts the peer again; any other is deleted a day after the peer was notified.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import wall_clock
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import CONFIGMAPS
from liqod.model.ids import ClusterID, is_dns_label
from liqod.model.objects.meta import Object
from liqod.model.records.unpeering import TOMBSTONES, Tombstone, read, write
from liqod.model.timestamps import parse_rfc3339, rfc3339

KEPT: Final = 256
"""Tombstones at most, besides those of distrusted keys; beyond that the oldest is deleted."""
DISTRUSTED: Final = 2048
"""Tombstones of distrusted keys at most: only users create them, and a ConfigMap holds 1 MiB (Kubernetes)."""
AFTERWARDS: Final = 86400.0
"""Seconds that a tombstone is kept after the peer was notified: a Bye is not acknowledged and may be lost."""


class _Data(Object, frozen=True):
    data: dict[str, str] = {}


@attrs.define
class _Kept:
    """A tombstone, and whether it is in the ConfigMap."""

    tombstone: Tombstone
    is_written: bool = False


class Tombstones:
    """The tombstones, in memory and in the ConfigMap."""

    def __init__(self, client: Client, clock: IReactorTime, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._known: dict[ClusterID, _Kept] = {}
        # Two writes about one peer reach the API server in the order in which they were decided.
        self._writing: DeferredLock = DeferredLock()

    async def load(self) -> None:
        """Read the ConfigMap; raises KubeError."""
        try:
            found: _Data = await self._client.get(CONFIGMAPS, TOMBSTONES, self._namespace, view=_Data)
        except NotFound:
            return
        for peer, text in found.data.items():
            tombstone = read(text)
            if tombstone is not None and is_dns_label(peer):
                self._known.setdefault(ClusterID(peer), _Kept(tombstone, is_written=True))

    def get(self, peer: ClusterID) -> Tombstone | None:
        """Return the tombstone of a peer, or None."""
        known = self._known.get(peer)
        return None if known is None or self._is_over(known.tombstone) else known.tombstone

    def refuses(self, peer: ClusterID, key: str) -> bool:
        """Return whether the peering with a cluster, or with its key under any ID, was ended and not begun again."""
        if self.get(peer) is not None:
            return True
        tombstones = (known.tombstone for known in self._known.values())
        return any(one.fingerprint == key and not self._is_over(one) for one in tombstones)

    async def trusted(self, peer: ClusterID, key: str) -> None:
        """Delete the tombstones of a cluster that a user trusts again, and those of its key under any ID.

        Raises KubeError.
        """
        for other in [one for one, known in self._known.items() if one == peer or known.tombstone.fingerprint == key]:
            await self.delete(other)

    def is_written(self, peer: ClusterID) -> bool:
        """Return whether the tombstone of a peer is in the ConfigMap."""
        known = self._known.get(peer)
        return known is not None and known.is_written

    async def put(self, peer: ClusterID, tombstone: Tombstone) -> None:
        """Add a tombstone: at once in memory, and in the ConfigMap when this returns; raises KubeError."""
        kept_now = self._known[peer] = _Kept(tombstone)
        others = [other for other, known in self._known.items() if other != peer and self._is_over(known.tombstone)]
        by_age = sorted(self._known, key=lambda other: self._known[other].tombstone.at)
        for distrusted, kept in ((False, KEPT), (True, DISTRUSTED)):
            alike = [other for other in by_age if self._known[other].tombstone.distrusted is distrusted]
            others += [other for other in alike[: max(0, len(alike) - kept)] if other != peer]
        spent = {other: self._known[other] for other in others}
        await self._write({peer: write(tombstone), **dict.fromkeys(spent)})
        kept_now.is_written = True
        for other, known in spent.items():
            if self._known.get(other) is known:
                del self._known[other]

    async def mark_notified(self, peer: ClusterID) -> None:
        """Record that the peer was notified; raises KubeError."""
        known = self._known.get(peer)
        if known is not None and not known.tombstone.notified:
            notified = rfc3339(wall_clock(self._clock)())
            await self.put(peer, msgspec.structs.replace(known.tombstone, notified=notified))

    async def delete(self, peer: ClusterID) -> None:
        """Delete the tombstone of a peer; the ConfigMap stays, others may be written meanwhile. Raises KubeError."""
        if self._known.pop(peer, None) is not None:
            await self._write({peer: None})

    async def _write(self, change: dict[str, Any]) -> None:
        await self._writing.acquire()
        try:
            await self._patch(change)
        finally:
            self._writing.release()

    async def _patch(self, change: dict[str, Any]) -> None:
        try:
            await self._client.patch(CONFIGMAPS, TOMBSTONES, {"data": change}, self._namespace, view=None)
        except NotFound:
            # A null deletes a key only in a merge patch (RFC 7396); a new ConfigMap must not have it.
            kept = {name: text for name, text in change.items() if text is not None}
            body = {"metadata": {"name": TOMBSTONES, "namespace": self._namespace}, "data": kept}
            try:
                await self._client.create(CONFIGMAPS, body, view=None)
            except AlreadyExists:
                await self._client.patch(CONFIGMAPS, TOMBSTONES, {"data": change}, self._namespace, view=None)

    def _is_over(self, tombstone: Tombstone) -> bool:
        stays = tombstone.by_settings or tombstone.distrusted
        notified = parse_rfc3339(tombstone.notified) if tombstone.notified and not stays else None
        return notified is not None and (wall_clock(self._clock)() - notified).total_seconds() > AFTERWARDS
