"""Maps home namespaces to namespaces at the lender of one virtual node.

``plan.plan`` returns the next step for a namespace, and this controller applies it. A namespace is requested when its
first pod is scheduled on the virtual node, and released when it is no longer offloaded and its pods are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Forbidden, NotFound
from liqod.kube.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PODS, SHADOWPODS, Resource
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.views import HomePod, Namespace, decoded
from liqod.kubelet.namespaces import plan
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.deletion_judge import LossEvidence
from liqod.kubelet.namespaces.natting_table import NattingTable
from liqod.kubelet.namespaces.ports import NoPodQueue, OtherNodes, PodQueue
from liqod.kubelet.namespaces.requests import NamespaceRequests
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection, UnknownNode, select
from liqod.kubelet.namespaces.state import NamespaceState, is_left_alone, state_of_mapped, state_of_unmapped
from liqod.kubelet.namespaces.watched import RemoteListener, WatchedNamespaces
from liqod.kubelet.ports import NamespaceGrants
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, eviction_of, label_selector
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.offer import PeerUnreachable
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import NamespaceNattingTable

BY_NAMESPACE: Final = "namespace"
CONTENTS: Final[tuple[Resource, ...]] = (SHADOWPODS, PERSISTENTVOLUMECLAIMS)
"""What runs or is kept in a remote namespace, and is lost with it."""
DRAIN_INTERVAL: Final = 2.0
"""Seconds between two attempts to evict the remaining pods: a PodDisruptionBudget can refuse an eviction (429)."""
LEFT_INTERVAL: Final = 30.0
"""Seconds until it is checked again whether other virtual nodes of the lender use a namespace that this one left."""
WATCH_TIMEOUT: Final = 10.0
"""Seconds after which the grant of a namespace whose watches fail is requested again."""


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
        self._others = others
        self._gate = gate
        gate.register(NAMESPACES.plural, lambda: len(self._table.forward), lambda key: self.enqueue(key.name))
        self._unsubscribe_deletions: Callable[[], None] = lambda: None
        self._table = NattingTable(clock, client, tables, context.lender, home_uid=home_uid)
        self._watched = WatchedNamespaces(clock, context, lambda local: _Pods(local, self))
        self._watched.setServiceParent(self)
        self._requests = NamespaceRequests(
            clock, context, grants=grants, table=self._table, watched=self._watched, wrote=self.enqueue_pods
        )
        self._retiring = False
        pods.add_index(BY_NAMESPACE, lambda pod: (pod.metadata.namespace,))

    def sources(self) -> Iterable[Source[str]]:
        yield watch(self._enabled, lambda key, old, new: (key.name,))
        yield watch(self._offloadings, lambda key, old, new: (key.namespace,))
        yield watch(self._nodes, self._node_changed)
        yield watch(self._tables, self._table_changed)
        yield watch(self._pods, self._pod_changed)
        yield observe(self._context.egress, lambda _: [one.metadata.name for one in self._enabled.items()])

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
        selection, remote = self._selection(local), self._table.forward.get(local)
        if remote is None:
            return state_of_unmapped(local, selection, self._table.reverse, self._context.home)
        return state_of_mapped(remote, selection, self._table.status(local), self._watched.get(local))

    def request_again(self, local: str) -> None:
        """Request a granted namespace again, because the lender refused a write in it."""
        tracked = self._watched.track(local)
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
        return self._watched.count_shadows()

    def remote_pods(self) -> Iterator[Key]:
        """Return the home keys of all that is ours in the watched namespaces: ShadowPods and pods of any node."""
        return self._watched.pods()

    def pending_reasons(self) -> list[str]:
        """Return a message for each mapped namespace that is not ready."""
        return list(self._requests.pending_reasons())

    def session_resumed(self) -> None:
        """Retry requests that failed without a session: it was resumed."""
        self.retry_failed()

    def use_client(self, client: Client | None) -> None:
        """Watch the lender through another client (None: there is none yet)."""
        if self._watched.use_client(client):
            self.refresh()

    def subscribe(self, listener: RemoteListener) -> Callable[[], None]:
        """Call ``listener(local, remote)`` for each namespace that is or becomes offloaded, with None when that ends.

        Return a function that unsubscribes.
        """
        return self._watched.subscribe(listener)

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
        return await self._requests.release_all(deadline)

    async def note_unreleased(self) -> None:
        """Write that all namespaces that are left are to be released; raises KubeError."""
        await self._requests.note_unreleased()

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
        is_watched = self._watched.get(key.namespace).remote is not None
        return () if is_watched and isinstance(self._selection(key.namespace), Included) else (key.namespace,)

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        """Enqueue every namespace with a NamespaceOffloading: its selector may match other labels of the node."""
        before = old.metadata.labels if old is not None else None
        if key.name != self._context.node_name or new is None or new.metadata.labels == before:
            return ()
        return [offloading.metadata.namespace for offloading in self._offloadings.items()]

    def _selection(self, local: str) -> Selection:
        namespace = self._enabled.get(Key("", local))
        node = self._nodes.get(Key("", self._context.node_name))
        labels = namespace.metadata.labels if namespace is not None else {}
        return select(
            local,
            enabled=namespace is not None and not namespace.metadata.deleting and not self._retiring,
            offloading=self._offloadings.get(Key(local, OFFLOADING)),
            node=self._context.node_name,
            labels=None if node is None else node.metadata.labels,
            stays=self._context.egress.value.objection("namespace", local, labels),
        )

    # One step

    async def reconcile(self, local: str) -> After | None:
        selection = self._selection(local)
        if isinstance(selection, UnknownNode):
            return None
        step = plan.plan(
            local,
            enabled=isinstance(selection, Included),
            pods=any(True for _ in self._live_pods(local)),
            table=self._table.forward,
            reverse=self._table.reverse,
            status=self._table.status(local),
            asked=self._watched.get(local).request_again,
            home=self._context.home,
            wanted=selection.remote_name if isinstance(selection, Included) else "",
        )
        if not isinstance(step, plan.Release):
            self._gate.forget(NAMESPACES.plural, Key("", local), gone=isinstance(selection, Included))
        match step:
            case plan.WriteEntry(remote):
                await self._table.write(local, remote)
                return await self._requests.request(local, remote)
            case plan.Ask(remote):
                return await self._requests.request(local, remote)
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
                    self._watched.unwatch(local)
                else:
                    self._forget(local)
                self.enqueue_pods(local)
        return None

    def _serve(self, local: str, remote: str) -> After | None:
        """Watch the namespace; pods that the lender lost while the namespace drained were not created there again."""
        self._watched.watch(local, remote)
        if self._watched.track(local).drained:
            self._watched.track(local).drained = False
            self.enqueue_pods(local)
        return self._check_watch(local)

    def _check_watch(self, local: str) -> After | None:
        """Request a namespace again if its watches fail: the grant was lost after it was recorded.

        Once they have worked only a refusal tells that; without an answer the grant may be as it was.
        """
        remote = self._watched.get(local).remote
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
            self._watched.watch(local, remote)
            self._check_watch(local)
        self._watched.track(local).drained = True
        self.enqueue_pods(local)
        for pod in list(self._live_pods(local)):
            if not pod.metadata.deleting:
                await self._evict(pod)
        if is_granted and self._watched.get(local).request_again:
            # Without an answer the pods that a disruption budget keeps are evicted all the same.
            with suppress(PeerUnreachable):
                await self._requests.request(local, remote)
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
        lender = self._watched.lender
        if lender is None:
            # What is in it cannot be known; the next client enqueues the namespace (``use_client``).
            return self._gate.is_allowed(NAMESPACES.plural, key)
        contents = {resource.plural: await self._count(lender, resource, remote) for resource in CONTENTS}
        return self._gate.may_delete(NAMESPACES.plural, key, contents=contents)

    async def _count(self, lender: Client, resource: Resource, remote: str) -> int:
        labels = label_selector(ownership(self._context))
        try:
            return len((await lender.list(resource, remote, view=Object, labels=labels)).items)
        except (Forbidden, NotFound):
            # The namespace is not there, or nothing of ours is.
            return 0

    async def _release(self, local: str, remote: str) -> After | None:
        if (again := await self._requests.release(local, remote)) is not None:
            return again
        self._forget(local)
        self.enqueue_pods(local)
        return None

    def _leave(self, local: str) -> After:
        """Stop using a namespace that other virtual nodes of the lender use."""
        self._watched.unwatch(local)
        self._watched.track(local).left = True
        self.enqueue_pods(local)
        return After(LEFT_INTERVAL)

    def _forget(self, local: str) -> None:
        self._watched.forget(local)
        self._gate.forget(NAMESPACES.plural, Key("", local), gone=True)
        self._gate.forget_namespace(SHADOWPODS.plural, local)

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
