"""Creates a pod for every ShadowPod and keeps it running, also while the borrower is away.

A pod costs one POST; everything else is read from watches. A ShadowPod's status is written for two reasons: a refusal
(with the API server's message where that refused), cleared when the pod runs, and the result of a finished pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import LearnedDates, WallClock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.hosting.first_pods import FirstPods
from liqod.hosting.shadowpods import dns, forge, lost_nodes, rejections
from liqod.hosting.shadowpods.admission import Refuse, admit, read_spec
from liqod.hosting.shadowpods.decide import (
    AwaitTermination,
    Create,
    Delete,
    FinishedPod,
    NameTaken,
    Orphan,
    RecordResult,
    Step,
    Terminate,
    Tracked,
    Update,
    decide,
    result_of,
)
from liqod.hosting.shadowpods.isolation import Isolation, NoIsolation, PodIsolation
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.shadowpods.pod_update.in_place import InPlaceUpdate, compared
from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.shadowpods.quota.capacity import TenantCapacity
from liqod.hosting.shadowpods.quota.ledger import WaitingShadowPod
from liqod.hosting.shadowpods.status import ShadowPodReports
from liqod.hosting.tenants.bounds import default_requests, with_limits
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.name_servers import NameServers
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders
from liqod.hosting.views import FORGED_ANNOTATION, Pod, is_managed, order_of_creation
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kube.writing.mutation_cache import TTL, MutationCache
from liqod.kube.writing.refusals import RefusedWrite, RefusedWrites, Retry
from liqod.model.ids import Key
from liqod.model.objects.granted_namespace import home_name_of
from liqod.model.objects.meta import Object, controller_of
from liqod.model.objects.node import Node
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.objects.quantity import Resources
from liqod.model.records.name_service import domain_of
from liqod.model.records.views import ShadowPod, ShadowPodStatus

RETRY_ADMISSION: Final = 300.0
"""Seconds after which a refused ShadowPod is judged again, should nothing have led to that before."""
RETRY_RECLAIMED: Final = 5.0
"""Seconds after which a ShadowPod is looked at again whose tenant's notice has ended: an order can be taken back."""
COLLECTED: Final = 5.0
"""Seconds that the cluster's garbage collector has for the pod of a deleted ShadowPod before it is deleted from here:
where the collector works, a second deletion of every pod would only cost the API server a request."""
SETTLING: Final = 0.05
"""Seconds between a new ShadowPod and its pod. The garbage collector watches the two kinds independently; for a pod
that it sees before its owner it asks the API server whether the owner exists (kube-controller-manager,
garbagecollector.go, attemptToDeleteItem)."""
REPLACED: Final = 0.5
"""Seconds until the next step for a name that another pod had, or has by now."""
STILL_THERE: Final = 1.0
"""Seconds until a pod is reconciled again whose ShadowPod is missing from the cache but exists at the API server."""

_DEFAULT: Final = Contract()
_AWAITED: Final = (Create, Delete, Terminate)
"""Steps that somebody waits for. All others are about a pod that runs, or has ended."""
_NO_NAMES: Final = (
    "no name service is ready at the lender: this pod does not find services of other namespaces by their names at home"
)


class ShadowPods(Controller[Key]):
    """Reconciles each ShadowPod with the pod of its name; tenants take turns, and what starts or ends has its own."""

    name = "shadowpods"
    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        shadows: Informer[ShadowPod],
        pods: Informer[Pod],
        nodes: Informer[Node],
        namespaces: Namespaces,
        offers: TenantOffers,
        orders: ReclaimOrders,
        recorder: Recorder,
        workers: int,
        contract: Contract = _DEFAULT,
        contracts: Contracts | None = None,
        name_servers: NameServers | None = None,
        isolation: Isolation | None = None,
        first_pods: FirstPods | None = None,
        wall: WallClock | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self.workers = workers
        self._client = client
        self._audit = audit
        self._grace_ends: LearnedDates[Key] = LearnedDates(clock, wall)
        self._shadows = MutationCache(shadows, clock)
        self._pods = MutationCache(pods, clock)
        self._nodes = nodes
        self._namespaces = namespaces
        self._offers = offers
        self._orders = orders
        self._contract = contract
        self._contracts = contracts or Contracts(contract, namespaces.informer)
        self._tenant_nodes = contract.nodes
        self._name_servers = name_servers
        refuse = contract.granted.unenforced_policies == "refuse"
        self._isolation = PodIsolation(isolation or NoIsolation(), refuse_unenforced=refuse)
        self._first_pods = first_pods
        self.capacity = TenantCapacity(clock, pods=self._pods, namespaces=namespaces, offers=offers, metrics=metrics)
        self.capacity.setServiceParent(self)
        self._reports = ShadowPodReports(client, recorder, self._shadows)
        self._updates = InPlaceUpdate(
            client,
            namespaces=namespaces,
            capacity=self.capacity,
            reports=self._reports,
            contract=contract,
            contracts=self._contracts,
            isolation=self._isolation,
        )
        self._refusals: RefusedWrites[Key] = RefusedWrites(Backoff(initial=1.0, cap=RETRY_ADMISSION))
        self._tracked: dict[Key, Tracked] = {}
        # Until when the API server counts as one that drops what pods request as a whole: an upgrade ends that.
        self._drops_until = 0.0

    def sources(self) -> Iterable[Source[Key]]:
        """ShadowPods, their pods, freed capacity, and the NetworkPolicies of home that became known."""
        yield watch(self._shadows.informer, self._shadow_changed)
        yield watch(self._pods.informer, self._pod_changed)
        yield observe(self.capacity, lambda key: (key,))
        yield observe(self._isolation, self._isolation.known_now)
        if self._first_pods is not None:
            yield observe(self._first_pods, lambda keys: keys)

    async def prepare(self) -> None:
        """Count the pods and enqueue everything, the oldest first, once namespaces, offers and nodes are known."""
        for informer in (self._namespaces.informer, self._offers.informer, self._nodes):
            await informer.when_synced()
        if self._name_servers is not None:
            await self._name_servers.when_synced()
        if self._first_pods is not None:
            self._first_pods.begin()
        for pod in self._pods.informer.items():
            self._observe(pod)
            self.capacity.recount(pod.metadata.key)
        for one in (*sorted(self._shadows.informer.items(), key=order_of_creation), *self._pods.informer.items()):
            self.enqueue(one.metadata.key)

    def fair_by(self, key: Key) -> Hashable:
        """Return the tenant that the namespace of a ShadowPod was granted to, and whether a pod is to start or to end.

        After a restart all are enqueued at once: what is new does not wait until thousands that run were looked at.
        """
        step = decide(self._shadows.get(key), self._pods.get(key))
        return self._namespaces.known_tenant(key.namespace) or key.namespace, isinstance(step, _AWAITED)

    async def cleanup(self) -> None:
        if self._first_pods is not None:
            self._first_pods.close()

    async def reconcile(self, key: Key) -> After | None:
        """Take the next step for one name; returns when to reconcile it again."""
        shadow, pod = self._shadows.get(key), self._pods.get(key)
        tracked = self._track(key, shadow, pod)
        step = decide(
            shadow,
            pod,
            result=tracked.result_of(shadow),
            deleted_uid=tracked.deleted_uid,
            unbounded_uid=tracked.unbounded_uid,
        )
        if isinstance(step, Delete):
            if shadow is None and (wait := self._collected_in(tracked, step.uid)) > 0:
                return After(wait)
            return await self._delete_owned(key, step)
        if shadow is None:
            return None
        return await self._take(step, shadow, pod, tracked)

    async def _take(self, step: Step, shadow: ShadowPod, pod: Pod | None, tracked: Tracked) -> After | None:
        match step:
            # Between the eviction of a pod and the end of its ShadowPod it would be created again.
            case Create() if self._orders.is_due(self._namespaces.known_tenant(shadow.metadata.namespace) or ""):
                return After(RETRY_RECLAIMED)
            case Create():
                return await self._create(shadow, tracked)
            case Update() if pod is not None:
                retry = await self._reports.clear(shadow)
                return await self._updates.apply(shadow, pod, tracked) or retry
            case RecordResult(phase, reason, message):
                return await self._reports.write(shadow, ShadowPodStatus(phase=phase, reason=reason, message=message))
            case NameTaken():
                return await self._refuse(shadow, _name_taken(shadow.metadata.key))
            case Terminate(uid, grace):
                return await self._delete(shadow.metadata.key, uid, grace)
            case AwaitTermination() if pod is not None:
                return await self._await_termination(pod)
        return None

    # Creation

    async def _create(self, shadow: ShadowPod, tracked: Tracked) -> After | None:
        key, now = shadow.metadata.key, self.clock.seconds()
        if (wait := tracked.creation_in(now, SETTLING)) > 0:
            return After(wait)
        # Namespace lifecycle admission answers 403 for everything that is created in a terminating namespace.
        if self._namespaces.is_terminating(key.namespace):
            return None
        tenant = await self._namespaces.tenant_of(key.namespace)
        offered = self.capacity.offered(tenant)
        # From here to the charge nothing is awaited: no two workers can admit pods for the same capacity.
        defaults = default_requests(self._contracts.of(tenant), offered)
        verdict = admit(shadow, tenant, offered, self.capacity.used_without(tenant, key), defaults=defaults)
        if isinstance(verdict, Refuse):
            return await self._refuse(shadow, verdict, tenant)
        forged = self._forged(shadow, tenant, offered, age=now - (tracked.appeared or 0.0))
        if isinstance(forged, After):
            return forged
        if isinstance(forged, Refuse):
            return await self._refuse(shadow, forged, tenant)
        body, events = forged
        self.capacity.charge(key, tenant, verdict.asked)
        try:
            pod = await self._client.create(PODS, body, key.namespace, view=Pod)
        except AlreadyExists:
            self.capacity.recount(key)
            return await self._resolve_name(shadow, tracked)
        except ApiError as error:
            self.capacity.recount(key)
            if isinstance(error, NotFound) or (refusal := rejections.refusal(error)) is None:
                raise
            return await self._refuse(shadow, refusal)
        except BaseException:  # a cancelled request as well: what was charged may not exist
            self.capacity.recount(key)
            raise
        self._created(pod, tracked)
        if rejections.is_dropped(body["spec"], pod):
            tracked.unbounded_uid = pod.metadata.uid
            self._drops_until = self.clock.seconds() + RETRY_ADMISSION
            return After(0.0)
        tracked.followed = compared(shadow, pod)
        self._reports.record_created(shadow, self.clock.seconds())
        for reason, message in events:
            self._reports.record_event(shadow, reason, message)
        # Should the watch never show the pod, it is created again when the mutation cache has dropped it.
        return await self._reports.clear(shadow) or After(TTL)

    def _forged(
        self, shadow: ShadowPod, tenant: str, offered: Resources | None, age: float
    ) -> tuple[dict[str, Any], list[tuple[str, str]]] | After | Refuse:
        """Return the body of a pod, and the events to record of it, by reason; ``age`` as in ``PodIsolation.label``."""
        terms = self._contracts.of(tenant)
        try:
            avoided = self._tenant_nodes.avoids_control_plane(self._nodes.items())
            restricted = restrict(shadow, self._contract, off_control_plane=avoided)
            granted = self._contract.granted
            body = forge.pod(restricted, granted.priority_class, granted.service_accounts)
            if terms.granted.quota == "hard":
                body["spec"] = with_limits(body["spec"], offered, default_requests(terms, offered))
            is_named = self._name(body, shadow, tenant)
        except ValueError as error:
            return Refuse("InvalidPod", f"spec.pod cannot be run: {error}")
        if self.clock.seconds() < self._drops_until and rejections.names_whole(body["spec"]):
            return rejections.DROPPED
        if self._first_pods is not None and (held := self._first_pods.wait(shadow.metadata.key)) is not None:
            return held
        events = self._isolation.label(body, shadow, age)
        if isinstance(events, After | Refuse):
            return events
        return body, events if is_named else [*events, ("NoNameService", _NO_NAMES)]

    def _name(self, body: dict[str, Any], shadow: ShadowPod, tenant: str) -> bool:
        """Have a pod ask for the names of its home; return whether it can, or needs not to. Raises ValueError."""
        if self._name_servers is None or not dns.asks_cluster(body["spec"]):
            return True
        namespace = self._namespaces.informer.get(Key("", shadow.metadata.namespace))
        servers, home = self._name_servers.of(tenant), "" if namespace is None else home_name_of(namespace)
        if not servers:
            return not self._name_servers.is_lacking(tenant)
        if not home:
            return False
        body["spec"] = dns.with_name_servers(body["spec"], servers, home, domain_of(shadow))
        return True

    def _created(self, pod: Pod, tracked: Tracked) -> None:
        key = pod.metadata.key
        self._pods.wrote(key, None, pod)
        tracked.creations = tracked.creations.created(self.clock.seconds())
        self._refusals.forget(key)
        self._isolation.forget(key)
        self.capacity.stop_waiting(key)

    async def _resolve_name(self, shadow: ShadowPod, tracked: Tracked) -> After | None:
        """Read the pod that has the name though no watch showed it: ours, an earlier ShadowPod's, or a foreign one."""
        key = shadow.metadata.key
        try:
            present = await self._client.get(PODS, key.name, key.namespace, view=Pod)
        except NotFound:
            return After(REPLACED)
        if not is_managed(present):
            return await self._refuse(shadow, _name_taken(key))
        if _owner_uid(present) == shadow.metadata.uid:
            self._created(present, tracked)
            return After(TTL)
        owner = _owner_uid(present)
        return await self._delete_owned(key, Delete(present.metadata.uid, owner, certain=False)) or After(REPLACED)

    async def _refuse(self, shadow: ShadowPod, refuse: Refuse, tenant: str = "") -> After:
        """Write why a pod does not run, unless the status shows it already; returns when to try again."""
        key, present = shadow.metadata.key, shadow.status
        status = ShadowPodStatus(phase="Pending", reason=refuse.reason, message=refuse.message)
        written, retry = present == status, RETRY_ADMISSION
        if refuse.reason in ("QuotaExceeded", "NotLent"):
            created, offered = shadow.metadata.creation_timestamp or "", self.capacity.offered(tenant)
            requested = resource_requests.of_pod(
                read_spec(shadow), default_requests(self._contracts.of(tenant), offered)
            )
            before = self.capacity.wait(tenant, WaitingShadowPod(created, key, requested, offered))
            # The free capacity changes with every pod that finishes; that alone is not worth a write to each of the
            # refused.
            written |= present.reason == refuse.reason and (before is None or before.offered == offered)
        else:
            self.capacity.stop_waiting(key)
            # Always retried later: policies, Pod Security levels and names in use change without a change of the
            # ShadowPod.
            retry = self._refusals.refused(key, RefusedWrite(Retry.LATER, refuse.reason, refuse.message)) or retry
        if written:
            return After(retry)
        again = await self._reports.write(shadow, status)
        self._reports.record_event(shadow, refuse.reason, refuse.message)
        peer = self._namespaces.known_tenant(key.namespace) or ""
        self._audit.record(AuditEvent("PolicyDenied", refuse.reason, peer=peer, object=f"shadowpod/{key}"))
        return again or After(retry)

    # Deletion

    async def _delete(self, key: Key, uid: str, grace: int | None = None) -> After | None:
        """Delete the pod of this UID; returns when to reconcile again if another pod has its name by now."""
        try:
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace=grace)
        except Conflict:  # 409: the precondition on the UID failed (DeleteOptions.preconditions), it is another pod
            return After(REPLACED)
        return None

    async def _delete_owned(self, key: Key, step: Delete) -> After | None:
        """Delete a pod whose ShadowPod is gone; one missing from the cache is first confirmed at the API server.

        A pod that has no owner any more is deleted where a namespace was granted to a tenant, and nowhere else.
        """
        if not step.owner and not await self._namespaces.tenant_of(key.namespace):
            return None
        if not step.certain:
            try:
                present = await self._client.get(SHADOWPODS, key.name, key.namespace, view=Object)
            except NotFound:
                pass
            else:
                if present.metadata.uid == step.owner and not present.metadata.deleting:
                    return After(STILL_THERE)
        return await self._delete(key, step.uid)

    def _collected_in(self, tracked: Tracked, uid: str) -> float:
        """Return for how long the garbage collector may still delete a pod whose ShadowPod is gone."""
        now = self.clock.seconds()
        if tracked.orphan is None or tracked.orphan.uid != uid:
            tracked.orphan = Orphan(uid, now)
        return tracked.orphan.since + COLLECTED - now

    async def _await_termination(self, pod: Pod) -> After | None:
        """Force-delete a terminating pod whose node is lost; returns when to check again."""
        if not lost_nodes.may_be_forced(pod):
            return None
        # metadata.deletionTimestamp is the time at which the grace period ends, not at which the deletion was asked.
        end = self._grace_ends.at(pod.metadata.key, pod.metadata.deletion_timestamp)
        if end is None:
            return None
        if (left := end + lost_nodes.PATIENCE - self.clock.seconds()) > 0:
            return After(left)
        if not await lost_nodes.is_on_lost_node(self._client, pod):
            return After(lost_nodes.PATIENCE)
        meta = pod.metadata
        self._log.info("pod {pod} is force-deleted: its node is lost; it is created again elsewhere", pod=str(meta.key))
        return await self._delete(meta.key, meta.uid, grace=0) or After(lost_nodes.PATIENCE)

    # What the watches show

    def _track(self, key: Key, shadow: ShadowPod | None, pod: Pod | None) -> Tracked:
        """Return the memory about a name; without a ShadowPod only what is needed to delete its pod is kept."""
        tracked = self._tracked.get(key) or Tracked()
        if shadow is not None:
            tracked.orphan = None
            return self._tracked.setdefault(key, tracked)
        self._refusals.forget(key)
        self._reports.forget(key)
        self._isolation.forget(key)
        self.capacity.stop_waiting(key)
        tracked = tracked.without_shadowpod()
        if pod is None:
            self._tracked.pop(key, None)
            self._grace_ends.forget(key)
        else:
            self._tracked[key] = tracked
        return tracked

    def _shadow_changed(self, key: Key, old: ShadowPod | None, new: ShadowPod | None) -> Iterable[Key]:
        if not self.started:
            return  # ``prepare`` enqueues what is there
        self._shadows.get(key)  # the mutation cache drops what the watch shows
        if new is None:
            self._shadows.forget(key)
            if old is not None and (key in self._tracked or self._pods.get(key) is not None):
                self._tracked.setdefault(key, Tracked()).deleted_uid = old.metadata.uid
        elif old is None:
            self._tracked.setdefault(key, Tracked()).appeared = self.clock.seconds()
        else:
            if new.status.phase in FINISHED and key in self._tracked:
                self._tracked[key].observed = None
            if _is_same_spec(old, new):
                return
        self._refusals.forget(key)
        yield key

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
        if not self.started:
            return
        if new is not None:
            self._observe(new)
        elif old is not None and (known := self._pods.get(key)) is not None and known.metadata.uid == old.metadata.uid:
            self._pods.forget(key)
        if old is None or new is None or _counted(old) != _counted(new):
            self.capacity.recount(key)
        if old is None or new is None or _deciding(old) != _deciding(new):
            yield key

    def _observe(self, pod: Pod) -> None:
        """Remember how a pod finished: it may be deleted before the record shows that."""
        if pod.finished and is_managed(pod) and (result := result_of(pod)) is not None:
            tracked = self._tracked.setdefault(pod.metadata.key, Tracked())
            tracked.observed = FinishedPod(_owner_uid(pod), result)


def _owner_uid(pod: Pod) -> str:
    owner = controller_of(pod)
    return "" if owner is None else owner.uid


def _name_taken(key: Key) -> Refuse:
    return Refuse(
        "NameTaken", f"a pod named {key.name} that is not of this ShadowPod runs in {key.namespace}; it is left alone"
    )


def _is_same_spec(old: ShadowPod, new: ShadowPod) -> bool:
    """Return whether two states differ in nothing but what this cluster wrote itself."""
    before, after = old.metadata, new.metadata
    return (
        before.uid == after.uid
        and before.deletion_timestamp == after.deletion_timestamp
        and before.labels == after.labels
        and before.annotations == after.annotations
        and bytes(old.spec.pod) == bytes(new.spec.pod)
    )


def _counted(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod that determine its use of the quota; labels and owner are those of its creation."""
    spec, status = pod.spec, pod.status
    return (
        pod.metadata.uid,
        pod.finished,
        is_managed(pod),
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        status.container_statuses,
        status.init_container_statuses,
        status.allocated_resources,
        status.resources,
    )


def _deciding(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod that may lead to a step."""
    return (
        pod.metadata.uid,
        pod.metadata.deletion_timestamp,
        pod.status.phase,
        pod.status.reason,
        pod.metadata.annotations.get(FORGED_ANNOTATION),
    )
