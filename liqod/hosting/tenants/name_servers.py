"""Which name servers the pods of a tenant have here, and where these are: from the tenants' Services and slices."""

from __future__ import annotations

from collections.abc import Callable

from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.names import tenant_namespace
from liqod.model.records.name_service import SLOTS, NameService, NameSlice, object_name

Subscriber = Callable[[str], None]


class NameServers:
    """The name services of all tenants; subscribers are called with the tenant whose servers are elsewhere now.

    ``expected``: whether a tenant lacks something that has none.
    """

    def __init__(self, services: Informer[NameService], slices: Informer[NameSlice], *, expected: bool = True) -> None:
        self.services = services
        self.slices = slices
        self._expected = expected

    async def when_synced(self) -> None:
        """Wait until Services and slices are known."""
        await self.services.when_synced()
        await self.slices.when_synced()

    def of(self, tenant: str) -> tuple[str, ...]:
        """Return the addresses at which pods of a tenant ask, those at which somebody answers; the first one first."""
        found = []
        for slot in SLOTS:
            key = Key(tenant_namespace(tenant), object_name(slot))
            service, piece = self.services.get(key), self.slices.get(key)
            if (
                service is not None
                and piece is not None
                and piece.ready
                and service.spec.cluster_ip not in ("", "None")
            ):
                found.append(service.spec.cluster_ip)
        return tuple(found)

    def is_lacking(self, tenant: str) -> bool:
        """Return whether a tenant should be answered and is not: names are switched on, or it was answered before."""
        made = any(self.services.get(Key(tenant_namespace(tenant), object_name(slot))) is not None for slot in SLOTS)
        return (self._expected or made) and not self.of(tenant)

    def places(self, tenant: str) -> tuple[tuple[str, int], ...]:
        """Return where the packets of these pods go: addresses and ports of the processes that answer, in order."""
        found = set()
        for slot in SLOTS:
            piece = self.slices.get(Key(tenant_namespace(tenant), object_name(slot)))
            if piece is not None:
                ports = {one.port for one in piece.ports or () if one.port}
                found |= {(a, port) for one in piece.endpoints or () for a in one.addresses for port in ports}
        return tuple(sorted(found))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with the tenant of each changed slice; returns the unsubscribe function."""

        def changed(key: Key, old: NameSlice | None, new: NameSlice | None) -> None:
            piece = new or old
            if piece is not None and piece.tenant:
                subscriber(piece.tenant)

        return self.slices.subscribe(changed)
