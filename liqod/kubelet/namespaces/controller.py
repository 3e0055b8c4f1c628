"""Maps home namespaces to namespaces at the lender of one virtual node.

``plan.plan`` returns the next step for a namespace, and this controller applies it. A namespace is requested when its
first pod is scheduled on the virtual node, and released when it is no longer offloaded and its pods are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks, stopped
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Forbidden, KubeError, NotFound
from liqod.kube.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PODS, SHADOWPODS, Resource
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message, clean_reason
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.naming import choose_remote, usable_answer
from liqod.kubelet.common.refusals import Attempts, Meaning
from liqod.kubelet.common.views import HomePod, Namespace, decoded
from liqod.kubelet.namespaces import plan
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.deletion_judge import LossEvidence
from liqod.kubelet.namespaces.natting_table import NattingTable
from liqod.kubelet.namespaces.ports import NoPodQueue, OtherNodes, PodQueue
from liqod.kubelet.namespaces.remote_namespace import (
    NamespacePending,
    NamespaceRefused,
    NamespaceState,
    NotOffloaded,
    Offloaded,
    RemoteNamespace,
    TrackedNamespace,
    is_left_alone,
)
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection, UnknownNode, select
from liqod.kubelet.ports import NamespaceGrants
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, eviction_of, label_selector
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import MappingStatus, NamespaceNattingTable

BY_NAMESPACE: Final = "namespace"
CONTENTS: Final[tuple[Resource, ...]] = (SHADOWPODS, PERSISTENTVOLUMECLAIMS)
"""What runs or is kept in a remote namespace, and is lost with it."""
DRAIN_INTERVAL: Final = 2.0
"""Seconds between two attempts to evict the remaining pods: a PodDisruptionBudget can refuse an eviction (429)."""
LEFT_INTERVAL: Final = 30.0
"""Seconds until it is checked again whether other virtual nodes of the lender use a namespace that this one left."""
WATCH_TIMEOUT: Final = 10.0
"""Seconds after which the grant of a namespace whose watches fail is requested again."""
TOLERATED: Final = 3
"""Requests without an answer before the pods' status shows that the lender cannot be reached."""

NOT_RELEASED: Final = "the virtual node was removed before the lender released the namespace"

RemoteListener = Callable[[str, RemoteNamespace | None], None]


class NamespaceController(Controller[str]):
    """Reconciles the namespaces of one virtual node, by their local name.

    Pods whose namespace changed are added to ``pod_queue``; set it before the start. ``nodes`` are the virtual nodes.
    ``gate`` is asked before a namespace is released because it is missing at home.
    """

    name = "namespaces"
    workers = 4

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        *,
        context: Context,
        enabled: Informer[Namespace],
        offloadings: Informer[NamespaceOffloading],
        nodes: Informer[Object],
        tables: Informer[NamespaceNattingTable],
        pods: Informer[HomePod],
        grants: NamespaceGrants,
        others: OtherNodes,
        gate: DeletionGate,
        home_uid: Latest[str],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=f"at {context.lender}", metrics=metrics)
        self.pod_queue: PodQueue = NoPodQueue()
        self._client = client
        self._context = context
        self._enabled = enabled
        self._offloadings = offloadings
        self._nodes = nodes
        self._tables = tables
        self._pods = pods
        self._grants = grants
        self._others = others
        self._gate = gate
        gate.register(NAMESPACES.plural, lambda: len(self._table.forward), lambda key: self.enqueue(key.name))
        self._unsubscribe_deletions: Callable[[], None] = lambda: None
        self._table = NattingTable(clock, client, tables, context.lender, home_uid=home_uid)
        self._lender: Client | None = None
        self._tracked: dict[str, TrackedNamespace] = {}
        self._listeners: list[RemoteListener] = []
        self._retiring = False
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        pods.add_index(BY_NAMESPACE, lambda pod: (pod.metadata.namespace,))

    def sources(self) -> Iterable[Source[str]]:
        yield watch(self._enabled, lambda key, old, new: (key.name,))
        yield watch(self._offloadings, lambda key, old, new: (key.namespace,))
        yield watch(self._nodes, self._node_changed)
        yield watch(self._tables, self._table_changed)
        yield watch(self._pods, self._pod_changed)

    def startService(self) -> None:
        self._unsubscribe_deletions = self._enabled.subscribe_deletions(
            lambda key, old: self._gate.observe_deletion(NAMESPACES.plural, key)
        )
        super().startService()

    async def cleanup(self) -> None:
        self._unsubscribe_deletions()

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when all caches that decisions need have synced."""
        return DeferredList([informer.when_synced() for informer in self._informers], consumeErrors=True)

    @property
    def synced(self) -> bool:
        """Whether all caches that decisions need have synced."""
        return all(informer.synced for informer in self._informers)

    @property
    def table_synced(self) -> bool:
        """Whether the natting table was read."""
        return self._tables.synced

    @property
    def evidence(self) -> LossEvidence:
        """What speaks for lost state of the home cluster."""
        went_back = max((informer.went_back for informer in self._informers), default=0)
        return LossEvidence(went_back=went_back, other_cluster=self._table.is_of_other_cluster)

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        return (self._enabled, self._offloadings, self._nodes, self._tables, self._pods)

    # For the other parts of the kubelet

    def state_of(self, local: str) -> NamespaceState:
        """Return the state of a namespace."""
        selection, entry = self._selection(local), self._table.forward.get(local)
        if entry is None:
            return self._state_without_entry(local, selection)
        tracked, status = self._tracked.get(local, TrackedNamespace()), self._table.status(local)
        if tracked.remote is not None and tracked.remote.namespace == entry:
            return Offloaded(tracked.remote, draining=isinstance(selection, Excluded))
        if isinstance(selection, Excluded) and (status is None or status.phase != plan.READY or tracked.left):
            # It is not granted, or other nodes alone use it: there is nothing at the lender to wait for.
            return NotOffloaded(selection.message)
        if status is not None and status.phase == plan.REFUSED:
            return NamespaceRefused(status.reason, status.message)
        if status is not None and status.reason == "PeerUnreachable" and tracked.unanswered > TOLERATED:
            return NamespaceRefused(status.reason, status.message)
        return NamespacePending(asked=True)

    def _state_without_entry(self, local: str, selection: Selection) -> NamespaceState:
        if isinstance(selection, Excluded):
            return NotOffloaded(selection.message)
        wanted = selection.remote_name if isinstance(selection, Included) else ""
        if choose_remote(local, self._context.home, self._table.reverse, wanted) is None:
            other = self._table.reverse[wanted]
            return NamespaceRefused(
                "RemoteNameInUse",
                f"the namespace {wanted} at the lender is mapped to the namespace {other} of this cluster; choose "
                "another remoteNamespaceName in the NamespaceOffloading",
            )
        return NamespacePending(asked=False)

    def request_again(self, local: str) -> None:
        """Request a granted namespace again, because the lender refused a write in it."""
        tracked = self._track(local)
        if not tracked.request_again:
            tracked.request_again = True
            self.enqueue(local, 1.0)

    def mappings(self) -> dict[str, str]:
        """Return all mappings, remote by local name."""
        return dict(self._table.forward)

    def is_name_refused(self, local: str) -> bool:
        """Return whether the lender refuses the name of a namespace: no object of ours is in that one."""
        return plan.is_name_refused(self._table.status(local))

    def uses(self, local: str) -> bool:
        """Return whether this node offloads a namespace or has pods in it; True while this is not known."""
        if not self.synced or any(True for _ in self._live_pods(local)):
            return True
        status = self._table.status(local)
        is_released = status is not None and status.phase == plan.RELEASING
        return not is_released and not isinstance(self._selection(local), Excluded)

    @property
    def occupied(self) -> bool:
        """Whether ``retire`` is not complete: namespaces are not released, or those of other nodes have our pods."""
        if not self.synced:
            return True
        if self._others.exist():
            return any(True for local in self._table.forward for _ in self._live_pods(local))
        return bool(self._table.forward)

    def count_shadows(self) -> int:
        """Return the number of our ShadowPods in the watched namespaces."""
        return sum(tracked.remote.shadows for tracked in self._tracked.values() if tracked.remote is not None)

    def remote_pods(self) -> Iterator[Key]:
        """Yield the home keys of all that is ours in the watched namespaces: ShadowPods and pods of any node."""
        for local, tracked in self._tracked.items():
            if tracked.remote is not None and tracked.remote.synced:
                yield from (Key(local, name) for name in tracked.remote.names())

    def pending_reasons(self) -> list[str]:
        """Return a message for each mapped namespace that is not ready."""
        return [
            f"{local}: {status.message or status.phase}"
            for local in sorted(self._table.forward)
            if (status := self._table.status(local)) is not None and status.phase != plan.READY
        ]

    def session_resumed(self) -> None:
        """Retry requests that failed without a session: it was resumed."""
        self.retry_failed()

    def use_client(self, client: Client | None) -> None:
        """Watch the lender through another client (None: there is none yet)."""
        if client is self._lender:
            return
        self._lender = client
        for local in list(self._tracked):
            self._unwatch(local)
        self.refresh()

    def subscribe(self, listener: RemoteListener) -> Callable[[], None]:
        """Call ``listener(local, remote)`` for each namespace that is or becomes offloaded, with None when that ends.

        Return a function that unsubscribes.
        """
        for local, tracked in self._tracked.items():
            if tracked.remote is not None:
                listener(local, tracked.remote)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def retire(self) -> None:
        """Drain and release every namespace, enabled or not."""
        self._retiring = True
        self.refresh()

    def refresh(self) -> None:
        """Re-evaluate all mapped namespaces: another virtual node of the lender may use them no more."""
        for local in self._table.forward:
            self.enqueue(local)

    async def release_all(self, deadline: float) -> bool:
        """Release all namespaces, best effort, until ``deadline`` (reactor's clock); return whether none is left."""
        for local, remote in self.mappings().items():
            self._unwatch(local)
            left = deadline - self.clock.seconds()
            if left <= 0:
                break
            releasing = Deferred.fromCoroutine(self._ask_release(remote))
            try:
                await releasing.addTimeout(left, self.clock)
                await self._table.remove(local)
            except (Refusal, PeerUnreachable, KubeError, DeferredTimeout) as error:
                self._log.warn(
                    "the namespace {remote_namespace} was not released: {error}",
                    remote_namespace=remote,
                    error=str(error),
                )
        return not self.mappings()

    async def note_unreleased(self) -> None:
        """Write that all namespaces that are left are to be released; raises KubeError."""
        for local in self.mappings():
            status = self._table.status(local)
            if status is None or status.phase != plan.RELEASING:
                await self._write_status(local, plan.RELEASING, "PeerUnreachable", NOT_RELEASED)

    # What changed

    def _table_changed(
        self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None
    ) -> Iterable[str]:
        if key.name != str(self._context.lender):
            return ()
        if new is None:
            self._table.deleted()
        before = old.spec.natting_table if old is not None else {}
        after = new.spec.natting_table if new is not None else {}
        return {*before, *after}

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> Iterable[str]:
        if old is not None and new is not None:
            return ()
        tracked = self._tracked.get(key.namespace)
        watched = tracked is not None and tracked.remote is not None
        return () if watched and isinstance(self._selection(key.namespace), Included) else (key.namespace,)

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        """Enqueue every namespace with a NamespaceOffloading: its selector may match other labels of the node."""
        before = old.metadata.labels if old is not None else None
        if key.name != self._context.node_name or new is None or new.metadata.labels == before:
            return ()
        return [offloading.metadata.namespace for offloading in self._offloadings.items()]

    def _selection(self, local: str) -> Selection:
        namespace = self._enabled.get(Key("", local))
        node = self._nodes.get(Key("", self._context.node_name))
        return select(
            local,
            enabled=namespace is not None and not namespace.metadata.deleting and not self._retiring,
            offloading=self._offloadings.get(Key(local, OFFLOADING)),
            node=self._context.node_name,
            labels=None if node is None else node.metadata.labels,
        )

    # One step

    async def reconcile(self, local: str) -> After | None:
        selection = self._selection(local)
        if isinstance(selection, UnknownNode):
            return None
        tracked = self._tracked.get(local)
        step = plan.plan(
            local,
            enabled=isinstance(selection, Included),
            pods=any(True for _ in self._live_pods(local)),
            table=self._table.forward,
            reverse=self._table.reverse,
            status=self._table.status(local),
            asked=tracked is not None and tracked.request_again,
            home=self._context.home,
            wanted=selection.remote_name if isinstance(selection, Included) else "",
        )
        if not isinstance(step, plan.Release):
            self._gate.forget(NAMESPACES.plural, Key("", local), gone=isinstance(selection, Included))
        match step:
            case plan.WriteEntry(remote):
                await self._table.write(local, remote)
                return await self._request(local, remote)
            case plan.Ask(remote):
                return await self._request(local, remote)
            case plan.Serve(remote):
                return self._serve(local, remote)
            case plan.Drain(remote):
                return await self._drain(local, remote)
            case plan.Release(remote):
                if self._others.exist() and (self._retiring or self._others.use(local)):
                    return self._leave(local)
                if not await self._may_release(local, remote, selection):
                    return None
                return await self._release(local, remote)
            case plan.Rest():
                if local in self._table.forward:
                    self._unwatch(local)
                else:
                    self._forget(local)
                self.enqueue_pods(local)
        return None

    async def _request(self, local: str, remote: str) -> After | None:
        """Request a namespace of the lender and write the answer to the natting table."""
        tracked = self._track(local)
        tracked.unanswered += 1
        try:
            answer = await self._grants.map_namespace(self._context.lender, local, remote)
        except Refusal as refusal:
            reason = clean_reason(refusal.reason, "Refused")
            return await self._refused(local, reason, clean_message(refusal.message))
        except PeerUnreachable as error:
            if tracked.remote is None:
                await self._write_status(local, plan.PENDING, "PeerUnreachable", clean_message(str(error)))
            raise
        if answer != remote:
            if not usable_answer(answer, local, self._table.reverse):
                message = f"the lender answered with the namespace {answer[:80]!r}, which cannot be used"
                return await self._refused(local, "BadNamespace", clean_message(message))
            await self._table.write(local, answer)
        if tracked.request_again and not (tracked.remote is not None and tracked.remote.is_watched):
            self._unwatch(local)
        tracked.request_again, tracked.unanswered, tracked.attempts = False, 0, Attempts()
        tracked.release_at = 0.0
        await self._write_status(local, plan.READY, "", "")
        self._watch(local, answer)
        return None

    async def _refused(self, local: str, reason: str, message: str) -> After:
        await self._write_status(local, plan.REFUSED, reason, message)
        return After(self._track(local).attempts.delay(Meaning.REFUSED))

    def _serve(self, local: str, remote: str) -> After | None:
        """Watch the namespace; pods that the lender lost while the namespace drained were not created there again."""
        self._watch(local, remote)
        if self._track(local).drained:
            self._track(local).drained = False
            self.enqueue_pods(local)
        return self._check_watch(local)

    def _check_watch(self, local: str) -> After | None:
        """Request a namespace again if its watches fail: the grant was lost after it was recorded.

        Once they have worked only a refusal tells that; without an answer the grant may be as it was.
        """
        remote = self._track(local).remote
        if remote is None or remote.is_watched:
            return None
        since = remote.refused_since if remote.synced else remote.since if remote.error else None
        if since is not None and self.clock.seconds() - since > WATCH_TIMEOUT:
            self.request_again(local)
        return After(WATCH_TIMEOUT)

    async def _drain(self, local: str, remote: str) -> After:
        """Evict the pods; a grant that was lost meanwhile is requested again, because the pods end at the lender."""
        is_granted = (status := self._table.status(local)) is not None and status.phase == plan.READY
        if is_granted:
            self._watch(local, remote)
            self._check_watch(local)
        self._track(local).drained = True
        self.enqueue_pods(local)
        for pod in list(self._live_pods(local)):
            if not pod.metadata.deleting:
                await self._evict(pod)
        if is_granted and self._track(local).request_again:
            # Without an answer the pods that a disruption budget keeps are evicted all the same.
            with suppress(PeerUnreachable):
                await self._request(local, remote)
        return After(DRAIN_INTERVAL)

    async def _evict(self, pod: HomePod) -> None:
        """Request an eviction, which respects PodDisruptionBudgets (Kubernetes, "API-initiated Eviction")."""
        meta, body = pod.metadata, eviction_of(pod.metadata)
        try:
            await self._client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
        except ApiError as error:
            self._log.debug("{pod} is not evicted yet: {error}", pod=str(meta.key), error=str(error))

    async def _may_release(self, local: str, remote: str, selection: Selection) -> bool:
        """Return whether a namespace may be released: not while it is merely missing at home, with pods or claims.

        Of one that is offloaded, and whose release was begun, the pods may be missing. One that the lender refuses now
        may have been granted before, unless it refuses the name.
        """
        key = Key("", local)
        is_excluded = isinstance(selection, Excluded) and self._enabled.get(key) is not None
        if self._retiring or self.is_name_refused(local) or is_excluded:
            return True
        if self._lender is None:
            # What is in it cannot be known; the next client enqueues the namespace (``use_client``).
            return self._gate.is_allowed(NAMESPACES.plural, key)
        contents = {resource.plural: await self._count(self._lender, resource, remote) for resource in CONTENTS}
        return self._gate.may_delete(NAMESPACES.plural, key, contents=contents)

    async def _count(self, lender: Client, resource: Resource, remote: str) -> int:
        labels = label_selector(ownership(self._context))
        try:
            return len((await lender.list(resource, remote, view=Object, labels=labels)).items)
        except (Forbidden, NotFound):
            # The namespace is not there, or nothing of ours is.
            return 0

    async def _release(self, local: str, remote: str) -> After | None:
        self._unwatch(local)
        tracked = self._track(local)
        if (left := tracked.release_at - self.clock.seconds()) > 0:
            # Writing the refusal into the table enqueued the namespace; the back-off still applies.
            return After(left)
        try:
            await self._ask_release(remote)
        except PeerUnreachable as error:
            await self._write_status(local, plan.RELEASING, "PeerUnreachable", clean_message(str(error)))
            raise
        except Refusal as refusal:
            delay = tracked.attempts.delay(Meaning.REFUSED)
            tracked.release_at = self.clock.seconds() + delay
            reason = clean_reason(refusal.reason, "Refused")
            await self._write_status(local, plan.RELEASING, reason, clean_message(refusal.message))
            return After(delay)
        await self._table.remove(local)
        self._forget(local)
        self.enqueue_pods(local)
        return None

    async def _ask_release(self, remote: str) -> None:
        """Have the lender release a namespace; a refusal after which nothing of ours is left there is as good.

        Raises PeerUnreachable, and any other Refusal.
        """
        try:
            await self._grants.release_namespace(self._context.lender, remote)
        except Refusal as refusal:
            self._log.warn(
                "{peer} does not release the namespace {remote_namespace}: {error}",
                peer=str(self._context.lender),
                remote_namespace=remote,
                error=clean_message(str(refusal)),
            )
            if refusal.reason not in plan.FINAL:
                raise

    def _leave(self, local: str) -> After:
        """Stop using a namespace that other virtual nodes of the lender use."""
        self._unwatch(local)
        self._track(local).left = True
        self.enqueue_pods(local)
        return After(LEFT_INTERVAL)

    async def _write_status(self, local: str, phase: str, reason: str, message: str) -> None:
        await self._table.write_status(local, MappingStatus(phase=phase, reason=reason, message=message))
        self.enqueue_pods(local)

    # Remote namespaces

    def _track(self, local: str) -> TrackedNamespace:
        return self._tracked.setdefault(local, TrackedNamespace())

    def _forget(self, local: str) -> None:
        self._unwatch(local)
        self._tracked.pop(local, None)
        self._gate.forget(NAMESPACES.plural, Key("", local), gone=True)
        self._gate.forget_namespace(SHADOWPODS.plural, local)

    def _watch(self, local: str, name: str) -> None:
        tracked = self._track(local)
        if self._lender is None or (tracked.remote is not None and tracked.remote.namespace == name):
            return
        self._unwatch(local)
        listener = _Pods(local, self)
        tracked.remote = RemoteNamespace(self.clock, self._lender, name, self._context, listener)
        tracked.remote.setServiceParent(self)
        tracked.left = False
        self._notify(local, tracked.remote)

    def _unwatch(self, local: str) -> None:
        tracked = self._tracked.get(local)
        if tracked is None or tracked.remote is None:
            return
        remote, tracked.remote = tracked.remote, None
        self._notify(local, None)
        self._tasks.spawn(stopped(remote), f"closing the watches of {remote.namespace}")

    def _notify(self, local: str, remote: RemoteNamespace | None) -> None:
        for listener in tuple(self._listeners):
            listener(local, remote)

    def _live_pods(self, local: str) -> Iterator[HomePod]:
        """Yield the pods that have not finished, but for what is left alone; lazily: a namespace may have thousands."""
        state = self.state_of(local)
        for pod in self._pods.by_index(BY_NAMESPACE, local):
            if decoded(pod.status).get("phase") not in FINISHED and not is_left_alone(pod, state):
                yield pod

    def enqueue_pods(self, local: str) -> None:
        """Enqueue all pods of a namespace."""
        for pod in self._pods.by_index(BY_NAMESPACE, local):
            self.pod_queue.enqueue(pod.metadata.key)


class _Pods:
    """Enqueues the home pods of one namespace when something changes at the lender."""

    def __init__(self, local: str, controller: NamespaceController) -> None:
        self._local = local
        self._controller = controller

    def pod_changed(self, name: str) -> None:
        self._controller.pod_queue.enqueue(Key(self._local, name))

    def synced(self) -> None:
        self._controller.enqueue_pods(self._local)

    def caught_up(self) -> None:
        self._controller.pod_queue.retry_postponed()

    def interrupted(self) -> None:
        self._controller.enqueue(self._local, WATCH_TIMEOUT)
