"""Creates an EndpointSlice for every ShadowEndpointSlice and keeps it up to date, also while the borrower is away.

The slice is owned by its ShadowEndpointSlice and deleted with it by the garbage collector; what that leaves is deleted
from here. A slice names its Service only while that is one of the borrower's: in front of a Service of this cluster's
own, the proxies of all nodes would send its traffic to the borrower.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.flow.backoff import Backoff
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest
from liqod.hosting.crash_backoff import Creations
from liqod.hosting.endpointslice_forge import (
    Create,
    Delete,
    EndpointSlice,
    Nothing,
    Replace,
    Step,
    Update,
    body_of,
    decide,
    digest_of,
    direct_ways,
    directly,
    of_no_service,
    refused_addresses,
    says_lost,
    service_of,
    template_of,
    unready,
)
from liqod.hosting.shadowpods.admission import sentence
from liqod.hosting.shadowpods.decide import Orphan
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.networks import TenantNetworks, direct_changes
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import ENDPOINTSLICES, SHADOWENDPOINTSLICES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import RefusedWrite, RefusedWrites, Retry, refused_write
from liqod.model.ids import Key
from liqod.model.names import PATH_LOST_ANNOTATION, SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object, reference_to
from liqod.model.objects.node import Node
from liqod.model.records.facts import ClusterFacts
from liqod.model.records.name_service import NameService
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ShadowEndpointSlice, SliceTemplate

REFUSED: Final = Backoff(initial=4.0, cap=300.0)
COLLECTED: Final = 5.0
"""Seconds that the cluster's garbage collector has for the slice of a deleted ShadowEndpointSlice before it is deleted
from here."""
AWAITED: Final = 4.0
"""Seconds that a slice waits for its Service, before it is made of none: the borrower writes both, in any order. Of
many the Services come later than the slices; so it waits on while there come others in its namespace."""
STILL_THERE: Final = 1.0
"""Seconds until a slice is reconciled again whose ShadowEndpointSlice is missing from the cache but exists at the API
server, or whose name another slice has by now."""


_BY_SERVICE: Final = "service"


def _services_of(shadow: ShadowEndpointSlice) -> Iterable[Key]:
    service = service_of(shadow)
    return () if service is None else (service,)


@attrs.frozen
class WrittenSlice:
    """The digest of the content last written for a ShadowEndpointSlice (by its UID), and how often in a row."""

    uid: str
    content: bytes
    creations: Creations = attrs.field(factory=Creations)

    def again(self, uid: str, template: SliceTemplate, now: float) -> WrittenSlice:
        """Return the record of one more write; other content starts a new count."""
        content = digest_of(template)
        same = self.uid == uid and self.content == content
        return WrittenSlice(uid, content, (self.creations if same else Creations()).created(now))


_NEVER: Final = WrittenSlice("", b"")


@attrs.define
class _Tracked:
    """What is known of one name: what was written last, the addresses left out and why, and what is to be deleted.

    ``alone_since``: since when, by the reactor's clock, it waits for its Service.
    """

    written: WrittenSlice = _NEVER
    left_out: Mapping[str, str] = attrs.Factory(dict)
    orphan: Orphan | None = None
    alone_since: float | None = None


class ShadowEndpointSlices(Controller[Key]):
    """Reconciles each ShadowEndpointSlice with the EndpointSlice of its name; tenants take turns.

    ``services`` are those of tenants. ``lost``: of each tenant of which that is known, whether the path to its home is
    lost.
    """

    name = "shadowendpointslices"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        shadows: Informer[ShadowEndpointSlice],
        slices: Informer[EndpointSlice],
        services: Informer[NameService],
        namespaces: Namespaces,
        networks: TenantNetworks,
        lost: Latest[Mapping[str, bool]],
        recorder: Recorder,
        workers: int,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self.workers = workers
        self._client = client
        self._shadows = shadows
        shadows.add_index(_BY_SERVICE, _services_of)
        self._slices = MutationCache(slices, clock)
        self._services = services
        self._namespaces = namespaces
        self._networks = networks
        self._lost = lost
        self._recorder = recorder
        self._refusals: RefusedWrites[Key] = RefusedWrites(REFUSED)
        self._tracked: dict[Key, _Tracked] = {}
        # When a Service came last, by namespace, of those where that is not long ago.
        self._came: dict[str, float] = {}

    def sources(self) -> Iterable[Source[Key]]:
        """ShadowEndpointSlices, their slices and Services, and the networks of tenants."""
        yield watch(self._shadows)
        yield watch(self._services, self._service_changed)
        # What was changed by others is written again: slices lead traffic, and the label managed-by keeps only
        # Kubernetes' own controller off.
        yield watch(self._slices.informer, self._slice_changed)
        yield observe(self._lost, lambda _: [shadow.metadata.key for shadow in self._shadows.items()])
        yield watch(self._networks.facts, self._facts_changed)
        yield watch(self._networks.nodes, self._node_changed)
        if self._networks.tunnels is not None:
            yield watch(self._networks.tunnels, self._tunnel_changed)
        if self._networks.decisions is not None:
            yield watch(self._networks.decisions, self._decision_changed)

    async def prepare(self) -> None:
        """Await namespaces and networks.

        A namespace missing from an unsynced cache is not taken for one that is not granted.
        """
        await self._namespaces.informer.when_synced()
        await self._networks.prepare()

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant that the namespace of a ShadowEndpointSlice was granted to."""
        return self._namespaces.known_tenant(key.namespace) or key.namespace

    async def reconcile(self, key: Key) -> After | None:
        """Take the next step for one name; returns when to reconcile it again."""
        shadow = self._shadows.get(key)
        # The admission plugin NamespaceLifecycle answers 403 to every create in a terminating namespace.
        if shadow is None or self._namespaces.is_terminating(key.namespace):
            self._refusals.forget(key)
            before = self._tracked.pop(key, None)
            if shadow is not None:
                return None
            return await self._delete_orphan(key, None if before is None else before.orphan)
        tracked = self._tracked.setdefault(key, _Tracked())
        tracked.orphan = None
        tenant = await self._namespaces.tenant_of(key.namespace)
        if not tenant:
            self._record_event(shadow, "NotGranted", f"namespace {key.namespace} was granted to no cluster")
            return None
        service = service_of(shadow)
        if service is None or self._services.get(service) is not None:
            tracked.alone_since = None
        elif (later := await self._without_service(shadow, tracked)) is not None:
            return later
        else:
            shadow = of_no_service(shadow)
        if self._networks.is_awaited and not self._networks.has_tunnel(tenant):
            return None  # the facts of this cluster enqueue it when they are written; what is there stays until then
        wanted = template_of(shadow, tenant, self._refused_addresses(shadow, tenant, tracked))
        present = self._slices.get(key)
        # While it is not known whether the path is lost the slice goes on saying what it said.
        lost = self._lost.value.get(tenant, says_lost(present))
        wanted = self._by_paths(shadow, tenant, wanted, lost=lost)
        step = decide(shadow, present, wanted, lost=lost)
        if isinstance(step, Nothing):
            return None
        written, now = tracked.written, self.clock.seconds()
        # Another controller may revert what is written (two writers): the writes are repeated with a growing back-off.
        again = written.again(shadow.metadata.uid, wanted, now)
        if again.creations.count > 1 and (wait := written.creations.wait(now)) > 0:
            return After(wait)
        try:
            if await self._apply(shadow, body_of(shadow, wanted, lost=lost), step):
                tracked.written = again
        except (Invalid, Forbidden, AlreadyExists) as error:
            return self._refused(shadow, error)
        self._refusals.forget(key)
        return None

    def _by_paths(
        self, shadow: ShadowEndpointSlice, tenant: str, wanted: SliceTemplate, *, lost: bool
    ) -> SliceTemplate:
        """Return what is wanted as the paths are: unready where the one is lost, direct where there is a direct way."""
        ways = direct_ways(shadow, self._networks.direct(tenant) if shadow.spec.direct else {})
        if lost:
            wanted = unready(wanted, besides=ways)
        return directly(wanted, ways) if ways else wanted

    async def _apply(self, shadow: ShadowEndpointSlice, body: dict[str, Any], step: Step) -> bool:
        """Take a step; returns whether the slice has the content of ``body`` now."""
        key, client = shadow.metadata.key, self._client
        present, said = self._slices.get(key), body["metadata"]["annotations"].get(PATH_LOST_ANNOTATION)
        match step:
            case Create():
                created = await client.create(ENDPOINTSLICES, body, key.namespace, view=EndpointSlice)
                self._slices.wrote(key, None, created)
                return True
            case Update(uid):
                patch = {
                    "metadata": {
                        "uid": uid,
                        "labels": body["metadata"]["labels"],
                        "annotations": {PATH_LOST_ANNOTATION: said},
                    },
                    "endpoints": body["endpoints"],
                    "ports": body["ports"],
                }
                try:
                    answer = await client.patch(ENDPOINTSLICES, key.name, patch, key.namespace, view=EndpointSlice)
                except (NotFound, Conflict):
                    self._slices.forget(key)  # deleted or replaced: the watch enqueues the key
                    return False
                self._slices.wrote(key, present, answer)
                return True
            case Replace(uid):
                # The address type is immutable (Kubernetes: "EndpointSlices", address types). The watch enqueues the
                # key when the slice is gone.
                await client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=uid)
        return False

    async def _delete_orphan(self, key: Key, orphan: Orphan | None) -> After | None:
        """Delete a slice whose ShadowEndpointSlice is gone, also at the API server; returns when to look again."""
        step = decide(None, self._slices.get(key), SliceTemplate())
        if not isinstance(step, Delete) or self._namespaces.is_terminating(key.namespace):
            return None
        now = self.clock.seconds()
        if orphan is None or orphan.uid != step.uid:
            orphan = Orphan(step.uid, now)
        self._tracked[key] = _Tracked(orphan=orphan)
        if (wait := orphan.since + COLLECTED - now) > 0:
            return After(wait)
        if not await self._namespaces.tenant_of(key.namespace):
            return None
        # The right to list and watch them is all that is needed otherwise.
        named = f"metadata.name={key.name}"
        if (await self._client.list(SHADOWENDPOINTSLICES, key.namespace, view=Object, fields=named)).items:
            return After(STILL_THERE)
        try:
            await self._client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=step.uid)
        except Conflict:  # 409: the precondition on the UID failed, it is another slice
            return After(STILL_THERE)
        return None

    async def _without_service(self, shadow: ShadowEndpointSlice, tracked: _Tracked) -> After | None:
        """Delete what joins a Service that is none of the tenant's; return how long its slice waits for one that is."""
        key, now = shadow.metadata.key, self.clock.seconds()
        present = self._slices.get(key)
        step = decide(None, present, SliceTemplate())
        if isinstance(step, Delete) and present is not None and SERVICE_NAME_LABEL in present.metadata.labels:
            tracked.written = _NEVER
            try:
                await self._client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=step.uid)
            except Conflict:  # 409: the precondition on the UID failed, it is another slice
                return After(STILL_THERE)
        if tracked.alone_since is None:
            tracked.alone_since = now
        came = self._came.get(key.namespace, tracked.alone_since)
        if (wait := max(tracked.alone_since, came) + AWAITED - now) > 0:
            return After(wait)
        if present is None:
            name = shadow.metadata.labels[SERVICE_NAME_LABEL]
            message = f"no service {name} of yours is in namespace {key.namespace}: the slice is made of no service"
            self._record_event(shadow, "NoService", message)
        return None

    def _refused_addresses(self, shadow: ShadowEndpointSlice, tenant: str, tracked: _Tracked) -> Collection[str]:
        """Return the addresses to leave out; an event records them when they change."""
        refused = refused_addresses(shadow, lambda address: self._networks.objection(tenant, address))
        if refused and refused != tracked.left_out:
            parts = [f"the endpoint {address} {why}" for address, why in refused.items()]
            self._record_event(shadow, "AddressRefused", sentence("; ".join(parts)))
        tracked.left_out = refused
        return refused

    def _service_changed(self, key: Key, old: NameService | None, new: NameService | None) -> Iterable[Key]:
        if old is None:
            now = self.clock.seconds()
            self._came = {one: at for one, at in self._came.items() if now - at < AWAITED} | {key.namespace: now}
        if old is None or new is None:
            yield from (shadow.metadata.key for shadow in self._shadows.by_index(_BY_SERVICE, key))

    def _tunnel_changed(self, key: Key, old: TunnelEndpoint | None, new: TunnelEndpoint | None) -> Iterable[Key]:
        for tenant in direct_changes(old, new):
            yield from self._of_tenant(tenant)
        if old is not None and new is not None and old.spec.remote_seen == new.spec.remote_seen:
            return
        yield from self._of_tenant(key.name)

    def _decision_changed(self, key: Key, old: NetworkConfig | None, new: NetworkConfig | None) -> Iterable[Key]:
        if not self._networks.is_same_decision(old, new):
            yield from self._of_tenant(key.name)

    def _facts_changed(self, key: Key, old: ClusterFacts | None, new: ClusterFacts | None) -> Iterable[Key]:
        if not self._networks.is_same_facts(old, new):
            yield from (shadow.metadata.key for shadow in self._shadows.items())

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        if not self._networks.is_same(old, new):
            yield from (shadow.metadata.key for shadow in self._shadows.items())

    def _of_tenant(self, tenant: str) -> Iterable[Key]:
        for shadow in self._shadows.items():
            if self._namespaces.known_tenant(shadow.metadata.namespace) == tenant:
                yield shadow.metadata.key

    def _slice_changed(self, key: Key, old: EndpointSlice | None, new: EndpointSlice | None) -> Iterable[Key]:
        if new is None:
            self._slices.forget(key)
        yield key

    def _refused(self, shadow: ShadowEndpointSlice, error: KubeError) -> After | None:
        key = shadow.metadata.key
        if isinstance(error, AlreadyExists):
            message = f"an endpoint slice {key.name} that is not of this ShadowEndpointSlice exists; it is left alone"
            refusal = RefusedWrite(Retry.LATER, "NameTaken", message)
        else:
            refusal = attrs.evolve(refused_write(error, creating=True), reason="SliceRefused")
        self._record_event(shadow, refusal.reason, sentence(refusal.message))
        seconds = self._refusals.refused(key, refusal)
        return After(seconds) if seconds is not None else None

    def _record_event(self, shadow: ShadowEndpointSlice, reason: str, message: str) -> None:
        regarding = reference_to(SHADOWENDPOINTSLICES.api_version, SHADOWENDPOINTSLICES.kind, shadow.metadata)
        self._recorder.record_event(regarding, "Warning", reason, message)
