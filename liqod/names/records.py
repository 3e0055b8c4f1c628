"""Control's part: two Services for each tenant, and in their EndpointSlices the processes that answer.

A Service stays when nobody answers: running pods have its address. Which process is where is read from the Leases; one
that was not renewed for its duration, by this process's clock, says nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import Settings
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import ENDPOINTSLICES, LEASES, NAMESPACES, SERVICES, SHADOWPODS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.host_port import join_address
from liqod.model.ids import Key
from liqod.model.names import (
    REMOTE_CLUSTER_LABEL,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    TENANT_NAMESPACE_LABEL,
    tenant_namespace,
)
from liqod.model.objects.granted_namespace import is_tenant_namespace, tenant_of
from liqod.model.objects.meta import Object, reference_to, to_dict
from liqod.model.records.name_service import (
    DOMAIN_ANNOTATION,
    HOME_ANNOTATION,
    LABEL,
    SLOTS,
    NameLease,
    NameService,
    NameSlice,
    is_domain,
    object_name,
)
from liqod.model.records.views import EndpointConditions, ShadowPod, SliceEndpoint, SlicePort
from liqod.names.tables import free_ports

MANAGER: Final = "names.liqo.io"
"""Who manages the EndpointSlices."""
_PROTOCOLS: Final = ("UDP", "TCP")
_NO_PORT: Final = (
    "NoNamePort",
    "this tenant has no name service: other tenants have all ports for it ([names] first-port); "
    "it gets one when another tenant leaves",
)
_OTHER_DOMAIN: Final = (
    "this pod was made while the domain of its home was {old}, and it is {new} now: names of home are answered "
    "below that one alone; create the pod again"
)


@frozen
class NameServerAddress:
    """Where a tenant is answered: an address of a process, and its port for this tenant."""

    address: str
    port: int


@frozen
class _Seen:
    """A Lease, and when this renewal of it was seen, in seconds of the reactor's clock."""

    lease: NameLease
    at: float

    def left(self, now: float) -> float:
        """The seconds for which it still counts."""
        return self.at + self.lease.spec.lease_duration_seconds - now


class NameServices(Controller[str]):
    """Reconciles the Services and EndpointSlices of each tenant, by the ID of its cluster."""

    name = "name-services"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        informers: Informers,
        settings: Settings,
        *,
        recorder: Recorder,
        home: tuple[str, int] | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._recorder = recorder
        self._home = "" if home is None else join_address(*home)
        self._first_port = settings.names.first_port
        self._namespaces = informers.of(NAMESPACES, Object, labels=REMOTE_CLUSTER_LABEL)
        self._services = MutationCache(informers.of(SERVICES, NameService, labels=LABEL), clock)
        self._slices = MutationCache(informers.of(ENDPOINTSLICES, NameSlice, labels=LABEL), clock)
        self._leases = informers.of(LEASES, NameLease, namespace=settings.kubernetes.namespace, labels=LABEL)
        self._shadows = informers.of(SHADOWPODS, ShadowPod)
        self._seen: dict[int, _Seen] = {}
        self._domains: dict[str, tuple[str, str]] = {}
        self._without_port: set[str] = set()

    def sources(self) -> Iterable[Source[str]]:
        """Namespaces of tenants, their Services and slices, the Leases, and the domain that ShadowPods say."""
        yield watch(self._namespaces, self._namespace_changed)
        yield watch(self._services.informer, self._service_changed)
        yield watch(self._slices.informer, self._slice_changed)
        yield watch(self._leases, self._lease_changed)
        yield watch(self._shadows, self._shadow_changed)

    async def reconcile(self, key: str) -> After | None:
        """Write what differs for one tenant; look again when a Lease may have run out."""
        namespace = self._namespaces.get(Key("", tenant_namespace(key)))
        if namespace is None or not is_tenant_namespace(namespace, key) or namespace.metadata.deleting:
            self._domains.pop(key, None)
            self._without_port.discard(key)
            return None
        now = self.clock.seconds()
        if not self._seen and self._service(key, SLOTS[0]) is None:
            return None  # nobody has ever answered here
        missing = [slot for slot in SLOTS if self._service(key, slot) is None]
        ports = dict(zip(missing, free_ports(self._services.items(), self._first_port), strict=False))
        if len(ports) < len(missing):
            self._without_port.add(key)
            self._recorder.record_event(reference_to("v1", "Namespace", namespace.metadata), "Warning", *_NO_PORT)
            return None
        self._without_port.discard(key)
        services = {slot: await self._ensure_service(key, slot, ports.get(slot, 0)) for slot in SLOTS}
        for slot in SLOTS:
            await self._ensure_slice(key, slot, services)
        left = [seen.left(now) for seen in self._seen.values() if seen.left(now) > 0]
        return After(min(left) + 0.1) if left else None

    def _service(self, tenant: str, slot: int) -> NameService | None:
        return self._services.get(Key(tenant_namespace(tenant), object_name(slot)))

    async def _ensure_service(self, tenant: str, slot: int, port: int) -> NameService:
        present = self._service(tenant, slot)
        _, domain = self._domains.get(tenant, ("", ""))
        if present is None:
            body = service_body(tenant, slot, port, domain, home=self._home)
            made = await self._client.create(SERVICES, body, view=NameService)
            self._services.wrote(made.metadata.key, None, made)
            return made
        said = present.metadata.annotations
        wanted = {key: text for key, text in self._annotations(domain).items() if said.get(key, "") != text}
        if not wanted:
            return present
        # An annotation that is not to be there any more goes by null (RFC 7396).
        patch = {"metadata": {"annotations": {key: text or None for key, text in wanted.items()}}}
        key = present.metadata.key
        made = await self._client.patch(SERVICES, key.name, patch, key.namespace, view=NameService)
        self._services.wrote(key, present, made)
        return made

    def _annotations(self, domain: str) -> dict[str, str]:
        """Return what a tenant's Services say; an unknown domain leaves what is there."""
        return {HOME_ANNOTATION: self._home, **({DOMAIN_ANNOTATION: domain} if domain else {})}

    def is_name_server(self, address: str) -> bool:
        """Return whether a process that answers says by its Lease that it has an address."""
        now = self.clock.seconds()
        return any(address in seen.lease.addresses for seen in self._seen.values() if seen.left(now) > 0)

    async def _ensure_slice(self, tenant: str, slot: int, services: dict[int, NameService]) -> None:
        service = services[slot]
        key = service.metadata.key
        present = self._slices.get(key)
        place = self._place(slot, services)
        if place is None:
            if present is None or not present.ready:
                return
            # Where somebody answered before; the addresses stay, in case that only the Lease could not be renewed.
            silent = [
                msgspec.structs.replace(one, conditions=EndpointConditions(ready=False))
                for one in present.endpoints or ()
            ]
            wanted = msgspec.structs.replace(present, endpoints=silent)
        else:
            wanted = slice_at(place)
        body = slice_body(tenant, slot, wanted)
        if present is None:
            made = await self._client.create(ENDPOINTSLICES, body, key.namespace, view=NameSlice)
        elif present.endpoints == wanted.endpoints and present.ports == wanted.ports:
            return
        else:
            changed = {"endpoints": body["endpoints"], "ports": body["ports"]}
            made = await self._client.patch(ENDPOINTSLICES, key.name, changed, key.namespace, view=NameSlice)
        self._slices.wrote(key, present, made)

    def _place(self, slot: int, services: dict[int, NameService]) -> NameServerAddress | None:
        """Return where the Service of a slot leads: to the process of the slot, or, where that is away, of another."""
        now = self.clock.seconds()
        is_six = ":" in services[slot].spec.cluster_ip
        for other in (slot, *(one for one in SLOTS if one != slot)):
            seen, port = self._seen.get(other), services[other].port
            if seen is None or seen.left(now) <= 0 or port not in seen.lease.ports:
                continue
            for address in seen.lease.addresses:
                if (":" in address) == is_six:
                    return NameServerAddress(address, port)
        return None

    # Changes

    def _tenants(self) -> list[str]:
        return [
            one.metadata.labels[REMOTE_CLUSTER_LABEL]
            for one in self._namespaces.items()
            if TENANT_NAMESPACE_LABEL in one.metadata.labels
        ]

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        if new is None:
            return ()
        if old is None and (tenant := tenant_of(new)):
            for shadow in self._shadows.items():
                if shadow.metadata.namespace == key.name:
                    self._note_domain(tenant, shadow)
        return (new.metadata.labels.get(REMOTE_CLUSTER_LABEL, ""),)

    def _service_changed(self, key: Key, old: NameService | None, new: NameService | None) -> Iterable[str]:
        if new is None:
            self._services.forget(key)
        known = new or old
        if known is None or not known.tenant:
            return ()
        return (known.tenant, *self._without_port) if new is None else (known.tenant,)

    def _slice_changed(self, key: Key, old: NameSlice | None, new: NameSlice | None) -> Iterable[str]:
        if new is None:
            self._slices.forget(key)
        known = new or old
        return (known.tenant,) if known is not None and known.tenant else ()

    def _lease_changed(self, key: Key, old: NameLease | None, new: NameLease | None) -> Iterable[str]:
        slot = next((one for one in SLOTS if object_name(one) == key.name), 0)
        if not slot:
            return ()
        before = self._seen.get(slot)
        if new is None:
            self._seen.pop(slot, None)
            return self._tenants()
        now = self.clock.seconds()
        is_new = before is None or before.lease.spec.renew_time != new.spec.renew_time
        self._seen[slot] = _Seen(new, now if is_new or before is None else before.at)
        same = before is not None and before.left(now) > 0 and _said(before.lease) == _said(new)
        return () if same else self._tenants()

    def _shadow_changed(self, key: Key, old: ShadowPod | None, new: ShadowPod | None) -> Iterable[str]:
        tenant = tenant_of(self._namespaces.get(Key("", key.namespace)))
        if new is None or not tenant or (old is not None and _domain_said(old) == _domain_said(new)):
            return ()
        return (tenant,) if self._note_domain(tenant, new) else ()

    def _note_domain(self, tenant: str, shadow: ShadowPod) -> bool:
        """Remember what the newest ShadowPod of a tenant says; return whether that changes anything.

        Pods that were made under another domain keep their search lists: that is said of each.
        """
        domain, created = _domain_said(shadow), shadow.metadata.creation_timestamp or ""
        before, known = self._domains.get(tenant, ("", ""))
        if not is_domain(domain):
            return False
        if created < before:
            self._say_of(shadow, domain, known)
            return False
        self._domains[tenant] = (created, domain)
        if known and domain != known:
            for other in self._shadows.items():
                if tenant_of(self._namespaces.get(Key("", other.metadata.namespace))) == tenant:
                    self._say_of(other, _domain_said(other), domain)
        return domain != known

    def _say_of(self, shadow: ShadowPod, old: str, new: str) -> None:
        if is_domain(old) and old != new:
            regarding = reference_to(SHADOWPODS.api_version, SHADOWPODS.kind, shadow.metadata)
            message = _OTHER_DOMAIN.format(old=old, new=new)
            self._recorder.record_event(regarding, "Warning", "ClusterDomainChanged", message)


def service_body(tenant: str, slot: int, port: int, domain: str, *, home: str = "") -> dict[str, Any]:
    """Return the Service of a tenant for a slot; ``port`` is where the process of the slot listens for the tenant.

    ``home`` is where control takes questions for its home; empty: nowhere.
    """
    said = {key: text for key, text in ((DOMAIN_ANNOTATION, domain), (HOME_ANNOTATION, home)) if text}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": object_name(slot),
            "namespace": tenant_namespace(tenant),
            "labels": {LABEL: str(slot), REMOTE_CLUSTER_LABEL: tenant},
            **({"annotations": said} if said else {}),
        },
        "spec": {
            "ports": [{"name": one.lower(), "port": 53, "protocol": one, "targetPort": port} for one in _PROTOCOLS]
        },
    }


def slice_at(place: NameServerAddress) -> NameSlice:
    """Return what the slice holds that leads to a place."""
    return NameSlice(
        address_type="IPv6" if ":" in place.address else "IPv4",
        endpoints=[SliceEndpoint(addresses=[place.address], conditions=EndpointConditions(ready=True))],
        ports=[SlicePort(name=one.lower(), port=place.port, protocol=one) for one in _PROTOCOLS],
    )


def slice_body(tenant: str, slot: int, wanted: NameSlice) -> dict[str, Any]:
    """Return the EndpointSlice of the Service of a slot."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": object_name(slot),
            "namespace": tenant_namespace(tenant),
            "labels": {
                LABEL: str(slot),
                REMOTE_CLUSTER_LABEL: tenant,
                SERVICE_NAME_LABEL: object_name(slot),
                SLICE_MANAGED_BY_LABEL: MANAGER,
            },
        },
        "addressType": wanted.address_type,
        "endpoints": to_dict(wanted.endpoints or []),
        # The protocol is sent also where it is the default, which the encoder would omit.
        "ports": [{"name": one.name, "port": one.port, "protocol": one.protocol} for one in wanted.ports or ()],
    }


def _domain_said(shadow: ShadowPod) -> str:
    return shadow.metadata.annotations.get(DOMAIN_ANNOTATION, "")


def _said(lease: NameLease) -> tuple[tuple[str, ...], frozenset[int]]:
    return lease.addresses, lease.ports
