"""Which home namespaces are offloaded through one virtual node, and their counterparts at the lender.

Each namespace is a key of a queue; ``mapping.plan`` says what is next, this file carries it out. A namespace is asked
for when its first pod lands on the virtual node, and given back when it is no longer offloaded and its pods have left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError
from liqod.kube.resources import PODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message, clean_reason
from liqod.kubelet.common.naming import choose_remote, usable_answer
from liqod.kubelet.common.views import FINISHED, HomePod, Namespace, decoded
from liqod.kubelet.namespaces import plan
from liqod.kubelet.namespaces.natting_table import NattingTable
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection, Unknown, select
from liqod.kubelet.ports import NamespaceGrants
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, eviction_of
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import MappingStatus, NamespaceNattingTable

BY_NAMESPACE: Final = "namespace"
DRAIN_CHECK: Final = 2.0
SETTLE: Final = 10.0
"""Seconds that watches of a namespace may take to work before its grant is doubted."""
REFUSED_RETRY: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)


@frozen
class NotOffloaded:
    """The namespace is not offloaded through this node, for the reason that ``message`` gives."""

    message: str


@frozen
class Pending:
    """The namespace is to be offloaded but not usable yet; ``asked`` when the lender may know it already."""

    asked: bool


@frozen
class Refused:
    """The lender will not have the namespace (now)."""

    reason: str
    message: str


@frozen
class Offloaded:
    """Pods of the namespace are offloaded to ``remote``; while ``draining`` no new ones."""

    remote: RemoteNamespace
    draining: bool


NamespaceState = NotOffloaded | Pending | Refused | Offloaded
RemoteListener = Callable[[str, RemoteNamespace | None], None]


class NamespaceController(MultiService):
    """Maps namespaces for one virtual node; ``changed(key)`` asks for a pod to be looked at again, ``caught_up()`` for
    all that wait for the lender to be seen again.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        context: Context,
        enabled: Informer[Namespace],
        offloadings: Informer[NamespaceOffloading],
        nodes: Informer[Object],
        tables: Informer[NamespaceNattingTable],
        pods: Informer[HomePod],
        grants: NamespaceGrants,
        changed: Callable[[Key], None],
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._client = client
        self._context = context
        self._enabled = enabled
        self._offloadings = offloadings
        self._nodes = nodes
        self._tables = tables
        self._pods = pods
        self._grants = grants
        self._changed = changed
        self._caught_up = caught_up
        self._table = NattingTable(reactor, client, tables, context.lender)
        self._lender: Client | None = None
        self._remotes: dict[str, RemoteNamespace] = {}
        self._watchers: list[RemoteListener] = []
        self._again: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._retiring = False
        self._unsubscribe: list[Callable[[], None]] = []
        self._queue: WorkQueue[str] = WorkQueue(reactor, f"namespaces of {context.node_name}")
        self._workers: Workers[str] = Workers(
            self._queue, 4, self._process, f"offloading to {context.lender}: namespace"
        )
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        pods.add_index(BY_NAMESPACE, lambda pod: (pod.metadata.namespace,))

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._enabled.subscribe(lambda key, old, new: self._queue.add(key.name)),
            self._offloadings.subscribe(lambda key, old, new: self._queue.add(key.namespace)),
            self._nodes.subscribe(self._node_changed),
            self._tables.subscribe(self._table_changed),
            self._pods.subscribe(self._pod_changed),
        ]
        self._tasks.spawn(self._begin(), f"mapping namespaces to {self._context.lender}")

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _begin(self) -> None:
        await self.when_synced()
        # Absence means absence from here on: only now may anything be mapped, drained or released.
        self._workers.setServiceParent(self)

    def when_synced(self) -> Any:
        """Return a Deferred that fires when everything that is decided from is complete."""
        return DeferredList([informer.when_synced() for informer in self._sources], consumeErrors=True)

    @property
    def synced(self) -> bool:
        """Whether everything that is decided from is complete."""
        return all(informer.synced for informer in self._sources)

    @property
    def _sources(self) -> tuple[Informer[Any], ...]:
        return (self._enabled, self._offloadings, self._nodes, self._tables, self._pods)

    # Asked by others

    def state_of(self, local: str) -> NamespaceState:
        """Return how a namespace stands."""
        selection, entry = self._selection(local), self._table.forward.get(local)
        if entry is None:
            return self._not_asked_for(local, selection)
        remote = self._remotes.get(local)
        if remote is not None and remote.namespace == entry:
            return Offloaded(remote, draining=isinstance(selection, Excluded))
        status = self._table.status(local)
        if isinstance(selection, Excluded) and (status is None or status.phase != plan.READY):
            # It was never granted, or no longer is: nothing there is to be waited for.
            return NotOffloaded(selection.message)
        if status is not None and status.phase == plan.REFUSED:
            return Refused(status.reason, status.message)
        if status is not None and status.reason == "PeerUnreachable" and self._attempts.get(local, 0) > 3:
            return Refused(status.reason, status.message)
        return Pending(asked=True)

    def _not_asked_for(self, local: str, selection: Selection) -> NamespaceState:
        if isinstance(selection, Excluded):
            return NotOffloaded(selection.message)
        wanted = selection.remote_name if isinstance(selection, Included) else ""
        if choose_remote(local, self._context.home, self._table.reverse, wanted) is None:
            other = self._table.reverse[wanted]
            return Refused(
                "RemoteNameInUse",
                f"the namespace {wanted} at the lender stands for the namespace {other} of this cluster; choose "
                "another remoteNamespaceName in the NamespaceOffloading",
            )
        return Pending(asked=False)

    def request_again(self, local: str) -> None:
        """The lender refused something in a namespace that it had granted: ask for it anew."""
        if local not in self._again:
            self._again.add(local)
            self._queue.add_after(local, 1.0)

    @property
    def known(self) -> bool:
        """Whether the translations were read."""
        return self._tables.synced

    def mapped(self) -> dict[str, str]:
        """Return all translations, local to remote."""
        return dict(self._table.forward)

    def waiting(self) -> list[str]:
        """Return a sentence for each namespace that is wanted and not served."""
        return [
            f"{local}: {status.message or status.phase}"
            for local in sorted(self._table.forward)
            if (status := self._table.status(local)) is not None and status.phase != plan.READY
        ]

    def session_resumed(self) -> None:
        """There is a session with the lender again: what was not to be asked without one is asked now."""
        self._queue.hasten()

    def use(self, client: Client | None) -> None:
        """Watch the lender through another client from now on (None: there is none yet)."""
        if client is self._lender:
            return
        self._lender = client
        for local in list(self._remotes):
            self._forget_remote(local)
        for local in self._table.forward:
            self._queue.add(local)

    def subscribe(self, watcher: RemoteListener) -> Callable[[], None]:
        """Call ``watcher(local, remote)`` for each namespace that is served and becomes so, and with None when it ends.

        Returns what ends that.
        """
        for local, remote in self._remotes.items():
            watcher(local, remote)
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _notify(self, local: str, remote: RemoteNamespace | None) -> None:
        for watcher in tuple(self._watchers):
            watcher(local, remote)

    def retire(self) -> None:
        """Let every namespace go, enabled or not."""
        self._retiring = True
        for local in self._table.forward:
            self._queue.add(local)

    # Events

    def _table_changed(self, key: Key, old: NamespaceNattingTable | None, new: NamespaceNattingTable | None) -> None:
        if key.name != str(self._context.lender):
            return
        if new is None:
            self._table.deleted()
        before = old.spec.natting_table if old is not None else {}
        after = new.spec.natting_table if new is not None else {}
        for local in {*before, *after}:
            self._queue.add(local)

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> None:
        arrived_or_left = old is None or new is None
        if not arrived_or_left:
            return
        remote = self._remotes.get(key.namespace)
        if remote is None or not isinstance(self._selection(key.namespace), Included):
            self._queue.add(key.namespace)

    def _node_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        """A namespace with a selector may be selected by labels that came or went."""
        known = old.metadata.labels if old is not None else None
        if key.name == self._context.node_name and new is not None and new.metadata.labels != known:
            for offloading in self._offloadings.items():
                self._queue.add(offloading.metadata.namespace)

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

    # Work

    async def _process(self, local: str) -> float | None:
        selection = self._selection(local)
        if isinstance(selection, Unknown):
            return None
        step = plan.plan(
            local,
            enabled=isinstance(selection, Included),
            pods=any(True for _ in self._live_pods(local)),
            table=self._table.forward,
            reverse=self._table.reverse,
            status=self._table.status(local),
            asked=local in self._again,
            home=self._context.home,
            wanted=selection.remote_name if isinstance(selection, Included) else "",
        )
        match step:
            case plan.WriteEntry(remote):
                await self._table.write(local, remote)
                return await self._ask(local, remote)
            case plan.Ask(remote):
                return await self._ask(local, remote)
            case plan.Serve(remote):
                self._serve(local, remote)
                return self._check(local)
            case plan.Drain(remote):
                if (status := self._table.status(local)) is not None and status.phase == plan.READY:
                    self._serve(local, remote)
                self._enqueue_pods(local)
                await self._evict(local)
                return DRAIN_CHECK
            case plan.Release(remote):
                await self._release(local, remote)
            case plan.Rest():
                self._forget_remote(local)
                self._enqueue_pods(local)
        return None

    def _check(self, local: str) -> float | None:
        """Ask anew for a namespace that was granted once and cannot be watched (its grant was lost meanwhile)."""
        remote = self._remotes.get(local)
        if remote is None or remote.synced:
            return None
        if remote.error and self._reactor.seconds() - remote.since > SETTLE:
            self.request_again(local)
        return SETTLE

    def _live_pods(self, local: str) -> Iterator[HomePod]:
        """Yield the pods that have not finished; lazily, because a namespace may have thousands."""
        for pod in self._pods.by_index(BY_NAMESPACE, local):
            if decoded(pod.status).get("phase") not in FINISHED:
                yield pod

    async def _ask(self, local: str, remote: str) -> float | None:
        self._attempts[local] = self._attempts.get(local, 0) + 1
        try:
            answered = await self._grants.map_namespace(self._context.lender, local, remote)
        except Refusal as refusal:
            reason = clean_reason(refusal.reason, "Refused")
            await self._write_status(local, plan.REFUSED, reason, clean_message(refusal.message))
            return self._after_refusal(local)
        except PeerUnreachable as error:
            if local not in self._remotes:
                await self._write_status(local, plan.PENDING, "PeerUnreachable", clean_message(str(error)))
            raise
        if answered != remote:
            if not usable_answer(answered, local, self._table.reverse):
                message = f"the lender answered with the namespace {answered[:80]!r}, which cannot be used"
                await self._write_status(local, plan.REFUSED, "BadNamespace", clean_message(message))
                return self._after_refusal(local)
            await self._table.write(local, answered)
        self._attempts.pop(local, None)
        self._refusals.pop(local, None)
        if local in self._again:
            self._again.discard(local)
            self._forget_remote(local)
        await self._write_status(local, plan.READY, "", "")
        self._serve(local, answered)
        return None

    def _after_refusal(self, local: str) -> float:
        """Return when to ask again. Attempts to which there was no answer say nothing about what the lender wants."""
        refusals = self._refusals.get(local, 0)
        self._refusals[local] = refusals + 1
        return REFUSED_RETRY.delay(refusals)

    async def _write_status(self, local: str, phase: str, reason: str, message: str) -> None:
        await self._table.write_status(local, MappingStatus(phase=phase, reason=reason, message=message))
        self._enqueue_pods(local)

    def _serve(self, local: str, name: str) -> None:
        known = self._remotes.get(local)
        if self._lender is None or (known is not None and known.namespace == name):
            return
        self._forget_remote(local)

        def changed(pod: str) -> None:
            if pod:
                self._changed(Key(local, pod))
            else:
                self._enqueue_pods(local)

        remote = RemoteNamespace(self._reactor, self._lender, name, self._context, changed, self._caught_up)
        self._remotes[local] = remote
        remote.setServiceParent(self)
        self._notify(local, remote)

    def _forget_remote(self, local: str) -> None:
        remote = self._remotes.pop(local, None)
        if remote is not None:
            self._notify(local, None)
            self._tasks.spawn(_stopped(remote), f"closing the watches of {remote.namespace}")

    def _enqueue_pods(self, local: str) -> None:
        for pod in self._pods.by_index(BY_NAMESPACE, local):
            self._changed(pod.metadata.key)

    async def _evict(self, local: str) -> None:
        """Ask for the pods' eviction; disruption budgets are honoured, so this is tried again and again."""
        for pod in list(self._live_pods(local)):
            if pod.metadata.deleting:
                continue
            meta = pod.metadata
            body = eviction_of(meta)
            try:
                await self._client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
            except ApiError as error:
                self._log.debug("{pod} is not evicted yet: {error}", pod=str(meta.key), error=str(error))

    async def _release(self, local: str, remote: str) -> None:
        self._forget_remote(local)
        try:
            await self._grants.release_namespace(self._context.lender, remote)
        except PeerUnreachable as error:
            await self._write_status(local, plan.RELEASING, "PeerUnreachable", clean_message(str(error)))
            raise
        except Refusal as refusal:
            # It is the lender's namespace: what it does with it is its business from here on.
            self._log.warn(
                "{lender} keeps the namespace {remote}: {why}",
                lender=str(self._context.lender),
                remote=remote,
                why=clean_message(str(refusal)),
            )
        await self._table.remove(local)
        self._attempts.pop(local, None)
        self._refusals.pop(local, None)
        self._again.discard(local)
        self._enqueue_pods(local)

    async def release_all(self, deadline: float) -> None:
        """Give everything back, best effort: what is not done by then (the clock's time) is the lender's to find."""
        for local, remote in self.mapped().items():
            self._forget_remote(local)
            left = deadline - self._reactor.seconds()
            if left <= 0:
                return
            try:
                releasing = maybeDeferred(_coroutine, self._grants.release_namespace(self._context.lender, remote))
                await releasing.addTimeout(left, self._reactor)
                await self._table.remove(local)
            except (Refusal, PeerUnreachable, KubeError, DeferredTimeout) as error:
                self._log.warn("{remote} could not be given back: {error}", remote=remote, error=str(error))


async def _coroutine(work: Any) -> None:
    await work


async def _stopped(service: MultiService) -> None:
    await maybeDeferred(service.disownServiceParent)
