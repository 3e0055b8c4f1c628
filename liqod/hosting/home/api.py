"""Leads the Services behind which a tenant's pods look for home's API server to this daemon, where there is no tunnel.

Home makes the Service, without endpoints; the slice that is made here leads to the port of the daemon that leads, which
passes the bytes on to home (``peering.relay.splice``). With a tunnel home's own slice leads there, and this one goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest
from liqod.hosting.endpointslice_forge import EndpointSlice
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.networks import TenantNetworks
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import ENDPOINTSLICES, SERVICES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.names import HOME_API_LABEL, REMOTE_CLUSTER_LABEL, SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from liqod.model.records.name_service import NameService
from liqod.model.records.views import EndpointConditions, SliceEndpoint, SlicePort, SliceTemplate

MANAGER: Final = "home-api.liqo.io"
"""Who manages these EndpointSlices: the label by which they are watched."""
SLICES: Final = f"{SLICE_MANAGED_BY_LABEL}={MANAGER}"
_SUFFIX: Final = "-streams"
_PORT_NAME: Final = "https"
"""The name of the port of home's Service: without a selector a slice's port is found by it."""

Place = tuple[str, int]
"""Where pods come for streams: an address of this daemon's host, and the port."""


def slice_key(service: Key) -> Key:
    """Return the key of the slice of a Service."""
    return Key(service.namespace, f"{service.name}{_SUFFIX}")


def service_key(piece: Key) -> Key:
    """Return the key of the Service of a slice."""
    return Key(piece.namespace, piece.name.removesuffix(_SUFFIX))


def template_at(place: Place) -> SliceTemplate:
    """Return what a slice holds."""
    return SliceTemplate(
        address_type="IPv6" if ":" in place[0] else "IPv4",
        endpoints=[SliceEndpoint(addresses=[place[0]], conditions=EndpointConditions(ready=True))],
        ports=[SlicePort(name=_PORT_NAME, port=place[1], protocol="TCP")],
    )


def body_of(service: NameService, tenant: str, place: Place) -> dict[str, Any]:
    """Return the slice of a Service; it goes with that."""
    key = slice_key(service.metadata.key)
    owner = {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": ENDPOINTSLICES.api_version,
        "kind": ENDPOINTSLICES.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {
                SERVICE_NAME_LABEL: service.metadata.name,
                SLICE_MANAGED_BY_LABEL: MANAGER,
                REMOTE_CLUSTER_LABEL: tenant,
            },
            "ownerReferences": [owner],
        },
        "addressType": "IPv6" if ":" in place[0] else "IPv4",
        **_content(place),
    }


def _content(place: Place) -> dict[str, Any]:
    return {
        "endpoints": [{"addresses": [place[0]], "conditions": {"ready": True}}],
        "ports": [{"name": _PORT_NAME, "port": place[1], "protocol": "TCP"}],
    }


class HomeApiSlices(Controller[Key]):
    """Reconciles the slice of each such Service, by the Service's key; ``place`` is where pods are taken."""

    name = "home-api-slices"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        services: Informer[NameService],
        slices: Informer[EndpointSlice],
        namespaces: Namespaces,
        networks: TenantNetworks,
        place: Latest[Place | None],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._services = services
        self._slices = MutationCache(slices, clock)
        self._namespaces = namespaces
        self._networks = networks
        self._place = place

    def sources(self) -> Iterable[Source[Key]]:
        """Services of tenants, the slices, where pods are taken, and who has a tunnel."""
        yield watch(self._services, self._service_changed)
        yield watch(self._slices.informer, self._slice_changed)
        yield observe(self._place, lambda _: self._all())
        if self._networks.decisions is not None:
            yield watch(self._networks.decisions, lambda *_: self._all())
        if self._networks.tunnels is not None:
            yield watch(self._networks.tunnels, lambda *_: self._all())

    async def prepare(self) -> None:
        """Await namespaces and networks: a tenant that is not known yet is not taken for none."""
        await self._namespaces.informer.when_synced()
        await self._networks.prepare()

    async def reconcile(self, key: Key) -> After | None:
        """Make, change or remove one slice."""
        service, there = self._services.get(key), slice_key(key)
        present, place = self._slices.get(there), self._place.value
        tenant = self._namespaces.known_tenant(key.namespace) or ""
        if self._namespaces.is_terminating(key.namespace):
            return None
        is_wanted = service is not None and HOME_API_LABEL in service.metadata.labels and bool(tenant)
        if service is None or not is_wanted or self._networks.has_tunnel(tenant):
            if present is not None and not present.metadata.deleting:
                await self._delete(there, present)
            return None
        if place is None:
            return None  # what is there may lead to the daemon that leads by now; a new one says where it is
        if present is not None and present.address_type != template_at(place).address_type:
            await self._delete(there, present)
            return After(1.0)
        if present is None:
            made = await self._client.create(ENDPOINTSLICES, body_of(service, tenant, place), view=EndpointSlice)
        elif not present.holds(template_at(place)):
            made = await self._client.patch(
                ENDPOINTSLICES, there.name, _content(place), there.namespace, view=EndpointSlice
            )
        else:
            return None
        self._slices.wrote(there, present, made)
        return None

    async def _delete(self, key: Key, present: EndpointSlice) -> None:
        await self._client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=present.metadata.uid)
        self._slices.forget(key)

    def _all(self) -> list[Key]:
        return [one.metadata.key for one in self._services.items() if HOME_API_LABEL in one.metadata.labels]

    def _service_changed(self, key: Key, old: NameService | None, new: NameService | None) -> Iterable[Key]:
        if any(one is not None and HOME_API_LABEL in one.metadata.labels for one in (old, new)):
            yield key

    def _slice_changed(self, key: Key, old: EndpointSlice | None, new: EndpointSlice | None) -> Iterable[Key]:
        if new is None:
            self._slices.forget(key)
        yield service_key(key)
