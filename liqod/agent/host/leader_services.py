"""Services that lead to the daemon that leads: it writes their endpoints itself.

Of several daemons in pods all are ready, and one leads: no selector of a Service tells it from the others. So these
Services have none, and each new leader takes over their EndpointSlices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import Settings
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import ENDPOINTSLICES, SERVICES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.names import SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from liqod.model.objects.meta import Object, View, to_dict
from liqod.model.records.name_service import ServicePort
from liqod.model.records.views import EndpointConditions, SliceEndpoint, SlicePort

MANAGED_BY: Final = "leader.liqod.io"
"""Who manages the EndpointSlices."""


class LedServiceSpec(View, frozen=True):
    """What selects the pods of a Service, and its ports."""

    selector: dict[str, str] | None = None
    ports: list[ServicePort] = []


class LedService(Object, frozen=True):
    """A Service that may lead to the leader."""

    spec: LedServiceSpec = LedServiceSpec()


class LeaderSlice(Object, frozen=True):
    """The EndpointSlice of such a Service."""

    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class LeaderServices(Controller[Key]):
    """Leads the Services that ``[kubernetes] leader-services`` names to this daemon; ``address`` is its own."""

    name = "leader-services"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        informers: Informers,
        settings: Settings,
        *,
        address: str,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._address = address
        own = settings.kubernetes.namespace
        self._keys = [Key(own, name) for name in settings.kubernetes.leader_services]
        self._services = informers.of(SERVICES, LedService, namespace=own)
        managed = f"{SLICE_MANAGED_BY_LABEL}={MANAGED_BY}"
        self._slices = MutationCache(informers.of(ENDPOINTSLICES, LeaderSlice, namespace=own, labels=managed), clock)

    def sources(self) -> Iterable[Source[Key]]:
        """The Services that are named, and their slices."""
        yield watch(self._services, lambda key, old, new: (key,) if key in self._keys else ())
        yield watch(self._slices.informer, self._slice_changed)

    def _slice_changed(self, key: Key, old: LeaderSlice | None, new: LeaderSlice | None) -> Iterable[Key]:
        if new is None:
            self._slices.forget(key)
        return (key,) if key in self._keys else ()

    async def reconcile(self, key: Key) -> After | None:
        """Have the slice of one Service lead here; a Service with a selector is not ours to lead."""
        service = self._services.get(key)
        if service is None or service.metadata.deleting or service.spec.selector:
            return None
        wanted = slice_of(service, self._address)
        present = self._slices.get(key)
        if present is not None and not _is_kept(present, wanted, service):
            # The kind of addresses is immutable, and the slice of a Service that is gone goes with it.
            await self._client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=present.metadata.uid)
            self._slices.removed(key, present)
            present = None
        body = body_of(service, wanted)
        if present is None:
            made = await self._client.create(ENDPOINTSLICES, body, key.namespace, view=LeaderSlice)
        elif present.endpoints == wanted.endpoints and present.ports == wanted.ports:
            return None
        else:
            changed = {"endpoints": body["endpoints"], "ports": body["ports"]}
            made = await self._client.patch(ENDPOINTSLICES, key.name, changed, key.namespace, view=LeaderSlice)
        self._slices.wrote(key, present, made)
        self._log.info("{service} leads to this daemon, at {address}", service=str(key), address=self._address)
        return None


def slice_of(service: LedService, address: str) -> LeaderSlice:
    """Return what the slice of a Service holds that leads to an address; ports that are named lead nowhere. Pure."""
    ports = [
        SlicePort(name=one.name, port=one.target_port, protocol=one.protocol)
        for one in service.spec.ports
        if isinstance(one.target_port, int)
    ]
    return LeaderSlice(
        address_type="IPv6" if ":" in address else "IPv4",
        endpoints=[SliceEndpoint(addresses=[address], conditions=EndpointConditions(ready=True))],
        ports=ports,
    )


def body_of(service: LedService, wanted: LeaderSlice) -> dict[str, Any]:
    """Return the EndpointSlice of a Service, which is deleted with it. Pure."""
    meta = service.metadata
    owner = {"apiVersion": SERVICES.api_version, "kind": SERVICES.kind, "name": meta.name, "uid": meta.uid}
    return {
        "apiVersion": ENDPOINTSLICES.api_version,
        "kind": ENDPOINTSLICES.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {SERVICE_NAME_LABEL: meta.name, SLICE_MANAGED_BY_LABEL: MANAGED_BY},
            "ownerReferences": [owner],
        },
        "addressType": wanted.address_type,
        "endpoints": to_dict(wanted.endpoints or []),
        # The protocol is sent also where it is the default, which the encoder would omit.
        "ports": [{"name": one.name, "port": one.port, "protocol": one.protocol} for one in wanted.ports or ()],
    }


def _is_kept(present: LeaderSlice, wanted: LeaderSlice, service: LedService) -> bool:
    owners = {one.uid for one in present.metadata.owner_references}
    return present.address_type == wanted.address_type and service.metadata.uid in owners
