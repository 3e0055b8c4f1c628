"""Keeps the record of a namespace's NetworkPolicies in the namespaces that a lender granted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from attrs import Factory, define
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe
from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from liqod.kube.resources import NAMESPACES, NETWORKPOLICIES, PODS, SHADOWNETWORKPOLICYSETS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.refusals import Attempts, Meaning
from liqod.kubelet.common.views import Namespace
from liqod.kubelet.lender.failed_writes import failed_write
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.isolation.forge import HomeSeen, exported_in, fitting, needs_home, record
from liqod.kubelet.reflection.isolation.views import AnyPod, NetworkPolicy, is_same
from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.home_policies import NAME, HomePoliciesSpec, WholePolicySet, digest_of
from liqod.model.records.network import ExportRequests

PAUSE: Final = 1.0
"""Seconds in which changes of pods and namespaces are gathered, and between two writes of one record."""
LOOKED_AT: Final = 300.0
"""Seconds until the record at the lender is read again: it is not watched."""


@define
class _Sent:
    """A namespace, its policies, and what is known of the record at the lender: its digest, empty while it is not.

    ``exported`` are the exported addresses that it names.
    """

    remote: RemoteNamespace
    policies: Informer[NetworkPolicy]
    unsubscribe: Callable[[], None]
    digest: str = ""
    exported: frozenset[str] = frozenset()
    read_at: float = 0.0
    written_at: float | None = None
    needs_home: bool = False
    postponed: bool = False
    attempts: Attempts = Factory(Attempts)


class HomePolicies(Controller[str]):
    """Reconciles the record in the remote namespace of each home namespace, by its local name.

    ``context.policies`` says of a namespace whether its lender has the record, or takes none: to all virtual nodes of
    the lender, of which one writes it, in ``election``. ``exported`` and ``withheld`` are therefore those of all nodes:
    the addresses that are no pods and reached from there, and the labels that pods of any do not take along. While the
    addresses are not complete, those that the record names stay in it: after a restart all are asked for again.
    """

    name = "home network policies"

    def __init__(
        self,
        clock: IReactorTime,
        *,
        context: Context,
        informers: NamespacedInformers,
        nodes: Informer[Object],
        election: WriterElection,
        namespaces: NamespaceController,
        health: LenderHealth,
        exported: Callable[[], ExportRequests],
        exports: Latest[int],
        withheld: Latest[frozenset[str]],
        workers: int,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        self.workers = workers
        super().__init__(clock, subject=f"at {context.lender}", metrics=metrics)
        self._context = context
        self._informers = informers
        self._nodes = nodes
        self._election = election
        self._leave: dict[str, Callable[[], None]] = {}
        self._namespaces = namespaces
        self._health = health
        self._exported = exported
        self._exports = exports
        self._withheld = withheld
        self._sent: dict[str, _Sent] = {}
        self._pods: Informer[AnyPod] | None = None
        self._all: Informer[Namespace] | None = None
        self._pods_in: dict[str, dict[Key, AnyPod]] = {}
        self._of_home: list[Callable[[], None]] = []
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def sources(self) -> Iterable[Source[str]]:
        yield observe(self._context.network.translation, lambda _: self._home_changed())
        yield observe(self._exports, lambda _: self._home_changed())
        yield observe(self._withheld, lambda _: list(self._sent))
        yield observe(self._health.state, lambda _: self._health_changed())

    def startService(self) -> None:
        super().startService()
        self._unsubscribe.append(self._namespaces.subscribe(self._namespace_changed))

    async def prepare(self) -> None:
        await self._nodes.when_synced()

    async def cleanup(self) -> None:
        sent_before, self._sent = self._sent, {}
        for local, sent in sent_before.items():
            sent.unsubscribe()
            await self._informers.release(sent.policies)
            self._note(local, None)
        for unsubscribe in self._of_home:
            unsubscribe()
        self._of_home.clear()
        for informer in (self._pods, self._all):
            if informer is not None:
                await self._informers.release(informer)
        self._pods = self._all = None
        self._pods_in.clear()
        leaves, self._leave = list(self._leave.values()), {}
        for leave in leaves:
            leave()

    # What changed

    def _namespace_changed(self, local: str, remote: RemoteNamespace | None) -> None:
        self._close(local)
        if remote is not None:
            take = partial(self._open, local, remote)
            self._leave[local] = self._election.join(self._context.lender, local, take, subject=NETWORKPOLICIES.plural)

    def _open(self, local: str, remote: RemoteNamespace) -> None:
        policies = self._informers.acquire(NETWORKPOLICIES, NetworkPolicy, local)
        unsubscribe = policies.subscribe(lambda key, old, new: self.enqueue(local))
        self._sent[local] = _Sent(remote, policies, unsubscribe)
        policies.when_synced().addCallback(lambda _: self.enqueue(local))

    def _close(self, local: str) -> None:
        """Write the record of a namespace no more, and let another virtual node of the lender go on."""
        before = self._sent.pop(local, None)
        if before is not None:
            before.unsubscribe()
            self._note(local, None)
        leave = self._leave.pop(local, None)
        if leave is not None:
            leave()
        if before is not None:
            # Only now: a node that goes on uses the same watch.
            self._tasks.spawn(self._informers.release(before.policies), f"closing the watch of policies in {local}")

    def _home_changed(self) -> Iterable[str]:
        """Return nothing: the namespaces whose policies name something of home are due when changes are gathered."""
        for local, sent in self._sent.items():
            if sent.needs_home:
                self.enqueue(local, PAUSE)
        return ()

    def _health_changed(self) -> Iterable[str]:
        if not self._health.ok:
            return
        self.retry_failed()
        for local, sent in self._sent.items():
            if sent.postponed:
                sent.postponed = False
                yield local

    def _pod_changed(self, key: Key, old: AnyPod | None, new: AnyPod | None) -> None:
        of_namespace = self._pods_in.setdefault(key.namespace, {})
        if new is not None:
            of_namespace[key] = new
        else:
            of_namespace.pop(key, None)
            if not of_namespace:
                del self._pods_in[key.namespace]
        if not is_same(old, new):
            self._home_changed()

    def _label_changed(self, key: Key, old: Namespace | None, new: Namespace | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._home_changed()

    def _note(self, local: str, taken: bool | None) -> None:
        """Note whether the lender has the policies of a namespace; None: that is not known."""
        known = {name: each for name, each in self._context.policies.value.items() if name != local}
        self._context.policies.set(known if taken is None else {**known, local: taken})

    def _note_taken(self, local: str, sent: _Sent, taken: bool) -> None:
        # The namespace may have been left while the lender was asked.
        if self._sent.get(local) is sent:
            self._note(local, taken)

    # One step

    async def reconcile(self, key: str) -> After | None:
        sent = self._sent.get(key)
        if sent is None or not sent.policies.synced:
            return None
        if not self._health.ok:
            sent.postponed = True
            return None
        specs = {one.metadata.name: one.spec for one in sent.policies.items() if not one.metadata.deleting}
        sent.needs_home = needs_home(specs.values())
        if sent.needs_home and not self._is_home_known():
            return None
        try:
            await self._read(sent)
            return await self._write(key, sent, self._record(key, specs, sent))
        except (ApiError, Unreachable) as error:
            return self._failed(key, sent, error)

    def _is_home_known(self) -> bool:
        """Return whether all pods and namespaces are known; they are watched from when they are needed first."""
        if self._pods is None or self._all is None:
            self._pods = self._informers.acquire(PODS, AnyPod, "")
            self._all = self._informers.acquire(NAMESPACES, Namespace, "")
            self._of_home = [self._pods.subscribe(self._pod_changed), self._all.subscribe(self._label_changed)]
            for informer in (self._pods, self._all):
                informer.when_synced().addCallback(lambda _: self._home_changed())
        return self._pods.synced and self._all.synced

    def _record(self, local: str, specs: dict[str, Any], sent: _Sent) -> HomePoliciesSpec:
        context, requests = self._context, self._exported()
        all_of_them = self._all.items() if self._all is not None and sent.needs_home else []
        exported = frozenset(address for address, _ in requests.wanted)
        home = HomeSeen(
            namespaces={one.metadata.name: one.metadata.labels for one in all_of_them},
            pods=self._elsewhere,
            seen=context.network.endpoint_to_lender,
            direct=context.network.direct,
            exported=tuple(exported if requests.complete else exported | sent.exported),
            withheld=tuple(self._withheld.value),
        )
        whole = record(local, specs, home)
        made = fitting(whole)
        if made is not whole:
            self._log.warn(
                "the NetworkPolicies of {namespace} name more pods than a lender reads: none", namespace=local
            )
        return made

    def _elsewhere(self, namespace: str) -> Iterable[AnyPod]:
        """Yield the pods of a namespace that do not run at the lender."""
        pods = self._pods_in.get(namespace, {})
        return (one for one in pods.values() if not self._is_at_lender(one.spec.node_name))

    def _is_at_lender(self, node: str) -> bool:
        known = self._nodes.get(Key("", node))
        label = None if known is None else known.metadata.labels.get(REMOTE_CLUSTER_LABEL)
        return node == self._context.node_name or label == str(self._context.lender)

    async def _read(self, sent: _Sent) -> None:
        """Read the record at the lender, at first and from time to time."""
        remote, kind, now = sent.remote, SHADOWNETWORKPOLICYSETS, self.clock.seconds()
        if sent.digest and now < sent.read_at + LOOKED_AT:
            return
        try:
            there = await remote.client.get(kind, NAME, remote.namespace, view=WholePolicySet)
        except NotFound:
            sent.digest = ""
        else:
            sent.digest, sent.exported = digest_of(there.spec), exported_in(there.spec)
        sent.read_at = now

    async def _write(self, local: str, sent: _Sent, wanted: HomePoliciesSpec) -> After | None:
        """Write the record where it differs."""
        now, content = self.clock.seconds(), msgspec.to_builtins(wanted)
        digest = digest_of(content)
        if sent.digest != digest:
            if sent.written_at is not None and (left := sent.written_at + PAUSE - now) > 0:
                return After(left)
            await self._put(sent, content)
            sent.digest, sent.written_at = digest, self.clock.seconds()
            sent.exported = frozenset(one.home for one in wanted.addresses)
            self._health.request_succeeded()
        sent.attempts = Attempts()
        self._note_taken(local, sent, True)
        return After(LOOKED_AT)

    async def _put(self, sent: _Sent, content: dict[str, Any]) -> None:
        remote, kind = sent.remote, SHADOWNETWORKPOLICYSETS
        body = {"metadata": {"name": NAME, "namespace": remote.namespace, "labels": ownership(self._context)}}
        if not sent.digest:
            try:
                await remote.client.create(
                    kind, {**body, "spec": content}, remote.namespace, view=None, manager=REFLECTION_MANAGER
                )
            except AlreadyExists:
                pass
            else:
                return
        # Not a merge patch of the spec: it would leave what is no longer in a policy's (RFC 7396).
        patch = [{"op": "add", "path": "/spec", "value": content}]
        await remote.client.patch(
            kind, NAME, patch, remote.namespace, kind="json", view=None, manager=REFLECTION_MANAGER
        )

    def _failed(self, local: str, sent: _Sent, error: ApiError | Unreachable) -> After:
        """Handle a failed write; return when to try again. Raises the error itself for 429 and 5xx."""
        granted_for = self.clock.seconds() - sent.remote.since
        failed = failed_write(error, sent.attempts, self._health, granted_for=granted_for, creating=not sent.digest)
        sent.digest = ""
        if failed.meaning is Meaning.NO_ANSWER:
            sent.postponed = True
        if failed.namespace_missing:
            self._namespaces.request_again(local)
        elif failed.is_refused and not failed.namespace_terminating:
            self._log.warn(
                "{peer} takes no NetworkPolicies of the namespace {namespace}: pods there run without them ({error})",
                peer=str(self._context.lender),
                namespace=local,
                error=failed.message,
            )
            self._note_taken(local, sent, False)
        return After(failed.delay)
