"""Offloads the pods of one virtual node and writes their status back.

Each step observes a pod at home and at the lender, decides (``step``) and applies the decision (``actions``). An
ordinary pod costs one POST at the lender and one status patch at home.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from attrs import define, frozen
from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import LearnedDates, wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, soonest, watch
from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import SHADOWPODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import home_uid
from liqod.kubelet.common.readiness import CREDENTIAL_REJECTED, Readiness
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded, is_waiting
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.state import NamespaceState, NotOffloaded, Offloaded
from liqod.kubelet.pods.actions import ObservedPod, PodActions, Postponed, TrackedPod
from liqod.kubelet.pods.decide import (
    GRACE_DEADLINE,
    Create,
    Decision,
    DeleteHome,
    DeleteShadow,
    Keep,
    Patch,
    Skip,
    WriteStatus,
    is_held,
)
from liqod.kubelet.pods.restarts import Tally, tally
from liqod.kubelet.pods.status_pace import StatusBudget, is_urgent, size_of
from liqod.kubelet.pods.step import AtLender, LenderState, Observation, is_of_stateful_set, next_step
from liqod.model.ids import Key
from liqod.model.names import DELETION_GRACE_ANNOTATION
from liqod.model.timestamps import rfc3339

GIVE_UP_AFTER: Final = 30.0
"""Seconds after the grace period of a deleted pod until it is deleted at home although the lender does not answer."""

UNREADY_AFTER: Final = 40.0
"""Seconds of outage after which a lender's pods are not ready. Source: the time that Kubernetes allows a silent node
(kube-controller-manager --node-monitor-grace-period, 40 s until 1.31)."""

RETRY: Final = 3.0
"""Seconds after which a pod is reconciled again whose request had no answer, if the lender answers others meanwhile."""


@frozen
class Outage:
    """The lender has not been ready since ``since``: no answer, an error, or the credential was rejected."""

    since: float


@define
class Recovery:
    """The lender answers again since ``since``; ``pods`` had a stale status then, ``left`` of them still have one."""

    since: float
    pods: int
    left: int


class PodController(Controller[Key]):
    """Reconciles the pods of one virtual node.

    Status changes within ``status_delay`` seconds become one write. ``budget`` is that of the lender, which all of its
    virtual nodes spend. ``network_usable``: whether packets reach the lender's pods. ``gate`` is asked before a
    ShadowPod is deleted because its pod is missing at home.
    """

    name = "pods"

    def __init__(
        self,
        clock: IReactorTime,
        pods: Informer[HomePod],
        actions: PodActions,
        *,
        context: Context,
        namespaces: NamespaceController,
        health: LenderHealth,
        network_usable: Latest[bool],
        gate: DeletionGate,
        workers: int,
        status_delay: float,
        budget: StatusBudget,
        sends_policies: bool = False,
        awaits_services: bool = False,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        self.workers = workers
        super().__init__(clock, subject=f"at {context.lender}", metrics=metrics)
        self._pods = pods
        self._actions = actions
        self._context = context
        self._namespaces = namespaces
        self._health = health
        self._network_usable = network_usable
        self._gate = gate
        self._budget = budget
        self.delayed_statuses = 0
        """How often a status waited since its lender had its share of what is written here."""
        gate.register(SHADOWPODS.plural, namespaces.count_shadows, self.enqueue)
        self._unsubscribe_deletions: Callable[[], None] = lambda: None
        self._delay = status_delay
        self._sends_policies = sends_policies
        self._awaits_services = awaits_services
        self._tracked: dict[Key, TrackedPod] = {}
        self._grace_ends: LearnedDates[Key] = LearnedDates(clock)
        # The lender's outage, or the recovery from it; None before the first.
        self._outage: Outage | Recovery | None = None
        self._unready_timer = Timer(clock)

    def __len__(self) -> int:
        """Return the number of tracked pods."""
        return len(self._tracked)

    def sources(self) -> Iterable[Source[Key]]:
        yield watch(self._pods, self._pod_changed)
        yield observe(self._health.state, self._health_changed)
        yield observe(self._network_usable, lambda _: self._all_keys())
        yield observe(self._context.network.translation, lambda _: self._all_keys())
        yield observe(self._context.patch, lambda _: self._patch_changed())
        yield observe(self._context.egress, lambda _: self._all_keys())
        yield observe(self._context.services.api_addresses, lambda _: self._take_postponed())
        yield observe(self._context.services.streams, lambda _: self._take_postponed())
        yield observe(self._context.neighbours, lambda _: self._namespaces.remote_pods())
        yield observe(self._context.policies, lambda _: self._take_postponed())
        yield observe(self._context.settled, lambda _: self._take_postponed())

    def fair_by(self, key: Key) -> Hashable:
        # After a restart all pods are enqueued at once. Two lanes, served in turn: a new pod does not wait until
        # thousands of running ones were looked at.
        return is_waiting(self._pods.get(key))

    async def prepare(self) -> None:
        # Before the first full list an object missing from the cache may exist: nothing may be deleted for its absence.
        await self._namespaces.when_synced()

    async def cleanup(self) -> None:
        self._unready_timer.cancel()
        self._unsubscribe_deletions()

    def startService(self) -> None:
        self._unsubscribe_deletions = self._pods.subscribe_deletions(self._observe_deletion)
        super().startService()
        for key in self._health_changed(self._health.state.value):
            self.enqueue(key)

    def _all_keys(self) -> Iterator[Key]:
        return (pod.metadata.key for pod in self._pods.items())

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> Iterable[Key]:
        if new is None:
            self._actions.mutations.forget(key)
            if old is not None and old.metadata.deleting:
                self._observe_deletion(key, old)
        return (key,)

    def _patch_changed(self) -> Iterator[Key]:
        """Look at every pod once more, at those at once that the lender refused with the old patch."""
        for tracked in self._tracked.values():
            tracked.reset_backoff()
        return self._all_keys()

    def _observe_deletion(self, key: Key, pod: HomePod) -> None:
        self._gate.observe_deletion(SHADOWPODS.plural, key, pod.metadata.uid)

    def _ask_gate(self, key: Key, home: HomePod | None, remote: RemoteNamespace | None, decision: Decision) -> bool:
        """Ask the gate before the deletion of what is merely missing at home, and withdraw the question otherwise.

        Return whether the decision may be carried out.
        """
        shadow = remote.shadow(key.name) if remote is not None else None
        uid = home_uid(shadow.metadata) if shadow is not None else ""
        missing = isinstance(decision, DeleteShadow) and (home is None or uid not in ("", home.metadata.uid))
        if missing:
            return self._gate.may_delete(SHADOWPODS.plural, key, uid)
        known = (
            remote.synced if remote is not None else isinstance(self._namespaces.state_of(key.namespace), NotOffloaded)
        )
        self._gate.forget(SHADOWPODS.plural, key, gone=known and shadow is None)
        return True

    # Outages of the lender

    def _health_changed(self, _: Readiness) -> list[Key]:
        """Record an outage or its end; return the keys of the pods that waited for the end."""
        if not self._health.ok:
            if not isinstance(self._outage, Outage):
                self._outage = Outage(self.clock.seconds())
                self._unready_timer.start(UNREADY_AFTER + 0.1, self._lender_is_lost)
            # An answer that comes after a long silence says more than the silence did.
            return list(self._all_keys()) if self._is_rejected and self._is_lender_lost else []
        if isinstance(self._outage, Outage):
            # After a short answer, some that waited for it have not had their turn: they wait for this one.
            waiting = [tracked for tracked in self._tracked.values() if tracked.postponed or tracked.catching_up]
            for tracked in waiting:
                tracked.postponed = tracked.catching_up = True
            self._outage = Recovery(self.clock.seconds(), len(waiting), len(waiting))
        self._unready_timer.cancel()
        self.retry_failed()
        return self._take_postponed()

    def _lender_is_lost(self) -> None:
        for key in self._all_keys():
            self.enqueue(key)

    def retry_postponed(self) -> None:
        """Enqueue the pods that wait until the lender answers and its objects are observed again."""
        for key in self._take_postponed():
            self.enqueue(key)

    def _take_postponed(self) -> list[Key]:
        waiting = [key for key, tracked in self._tracked.items() if tracked.postponed]
        for key in waiting:
            self._tracked[key].postponed = False
        return waiting

    @property
    def _is_lender_lost(self) -> bool:
        """Whether the lender has not answered for so long that its pods are not ready."""
        return isinstance(self._outage, Outage) and self.clock.seconds() >= self._outage.since + UNREADY_AFTER

    @property
    def _is_rejected(self) -> bool:
        """Whether the lender answers that this cluster has no right to it."""
        return self._health.state.value.reason == CREDENTIAL_REJECTED

    # One step

    async def reconcile(self, key: Key) -> After | None:
        again, tracked = await self._step_of(key), self._tracked.get(key)
        held = tracked.held_for(self.clock.seconds()) if tracked is not None else 0.0
        return soonest(again, After(held) if held else None)

    async def _step_of(self, key: Key) -> After | None:
        home = self._actions.mutations.newest(key, self._pods.get(key))
        tracked = self._tracked.setdefault(key, TrackedPod())
        observed = self._observe(key, home, tracked)
        step = next_step(observed)
        decision, remote = step.decision, _remote_of(observed.namespace)
        if step.postponed:
            tracked.postponed = True
        if home is None:
            tracked = self._forget_home(key, tracked, remote)
        pod = ObservedPod(key, home, remote, tracked)
        if isinstance(decision, WriteStatus) and home is not None:
            again = await self._write_status(home, tracked, decision)
            self._count_if_caught_up(tracked)
            return _after(again)
        self._count_if_caught_up(tracked)
        if not self._ask_gate(key, home, remote, decision):
            return _after(self._until_given_up(home))
        if isinstance(decision, Create | Patch | DeleteShadow) and not self._health.ok:
            tracked.postponed = True
            return _after(self._until_given_up(home))
        if isinstance(decision, Create) and not self._is_prepared(key.namespace):
            tracked.postponed = True
            return _after(self._until_given_up(home))
        try:
            again = await self._carry_out(pod, decision)
        except Postponed:
            tracked.postponed = True
            self._tracked.setdefault(key, tracked)
            # If the lender answers other requests, its health does not change and no event enqueues this pod.
            again = RETRY
        left = self._until_given_up(home)
        return _after(again if left is None else min(left, again if again is not None else left))

    def _is_prepared(self, namespace: str) -> bool:
        """Return whether it is known what pods of a namespace find at the lender.

        That is the way home, their policies, and the Services that were there before them.
        """
        if self._sends_policies and namespace not in self._context.policies.value:
            return False
        if self._awaits_services and namespace not in self._context.settled.value:
            return False
        return self._context.services.knows_api_server(namespace)

    def _forget_home(self, key: Key, tracked: TrackedPod, remote: RemoteNamespace | None) -> TrackedPod:
        """Drop the record of a pod that is gone at home; for a remaining ShadowPod only its deletion is kept."""
        self._count_caught_up(self._tracked.pop(key))
        self._grace_ends.forget(key)
        if remote is not None:
            remote.forget_ended(key.name)
        if remote is None or remote.shadow(key.name) is None:
            return TrackedPod()
        left = self._tracked[key] = TrackedPod(shadow_deletion=tracked.shadow_deletion)
        return left

    def _count_if_caught_up(self, tracked: TrackedPod) -> None:
        """Record that a pod's status is up to date after an outage; log when it is the last one."""
        if tracked.postponed or tracked.status_due is not None:
            return
        self._count_caught_up(tracked)

    def _count_caught_up(self, tracked: TrackedPod) -> None:
        if not tracked.catching_up or not isinstance(self._outage, Recovery):
            return
        tracked.catching_up = False
        self._outage.left -= 1
        if not self._outage.left:
            self._log.info(
                "the statuses of {count} pods at {peer} are up to date {seconds:.1f} s after it answered again",
                count=self._outage.pods,
                peer=str(self._context.lender),
                seconds=self.clock.seconds() - self._outage.since,
            )

    def _observe(self, key: Key, home: HomePod | None, tracked: TrackedPod) -> Observation:
        state = self._namespaces.state_of(key.namespace)
        remote = _remote_of(state)
        return Observation(
            home=home,
            namespace=state,
            there=self._observe_remote(home, remote, key.name, tracked),
            lender=LenderState(
                ok=self._health.ok,
                live=remote is not None and remote.live,
                silent=self._is_lender_lost,
                rejected=self._is_rejected,
                usable=self._network_usable.value,
            ),
            context=self._context,
            given_up=home is not None and self._is_given_up(home),
            name_refused=self._namespaces.is_name_refused(key.namespace),
            prepared=self._is_prepared(key.namespace),
            now=rfc3339(wall_clock(self.clock)()),
        )

    def _observe_remote(
        self, home: HomePod | None, remote: RemoteNamespace | None, name: str, tracked: TrackedPod
    ) -> AtLender | None:
        if remote is None or not remote.synced:
            return None
        pod, ended, shadow = remote.pod(name), remote.ended(name), remote.shadow(name)
        # First of all: what is remembered of another pod of that name is dropped by it.
        counted = _count_restarts(tracked, home, pod or ended)
        return AtLender(
            namespace=remote.namespace,
            shadow=shadow,
            pod=pod,
            ended=ended,
            tally=counted,
            grace_ignored=self._is_grace_ignored(tracked, shadow),
            held=tracked.held if tracked.held_for(self.clock.seconds()) else None,
        )

    def _is_grace_ignored(self, tracked: TrackedPod, shadow: Shadow | None) -> bool:
        """Return whether the lender has known the grace period for ``GRACE_DEADLINE`` and has not deleted the pod.

        A lender that answers with errors is given as long.
        """
        now = self.clock.seconds()
        known = shadow is not None and DELETION_GRACE_ANNOTATION in shadow.metadata.annotations
        if known and tracked.grace_sent_at is None:
            tracked.grace_sent_at = now
        if tracked.grace_sent_at is None:
            return False
        return now >= tracked.grace_sent_at + GRACE_DEADLINE

    async def _write_status(self, home: HomePod, tracked: TrackedPod, decision: WriteStatus) -> float | None:
        """Write the newest status once per burst of changes, ``status_delay`` seconds after the first of them.

        One that changes all the time is written ever later.
        """
        now = self.clock.seconds()
        if home.metadata.deleting and home.metadata.finalizers:
            # It is the final phase, for which somebody waits, and the lender's pod may be gone the next moment.
            tracked.status_due = now
        elif tracked.status_due is None:
            tracked.status_due = now + self._delay
        left = tracked.status_due - now
        if left > 0.001:
            return left
        urgent = is_urgent(decoded(home.status), decision.status)
        left = tracked.pace.wait(now, urgent=urgent)
        if left > 0.001:
            return left
        size = size_of(home, decision.status)
        left = self._budget.wait(size, now, urgent=urgent)
        if left > 0.001:
            self.delayed_statuses += 1
            self._actions.report_flood(now)
            return left
        self._budget.spend(size)
        tracked.status_due = None
        tracked.pace = tracked.pace.written(now, urgent=urgent)
        await self._actions.write_status(home, decision)
        return self._until_given_up(home)

    async def _carry_out(self, pod: ObservedPod, decision: Decision) -> float | None:
        actions, home, remote = self._actions, pod.home, pod.remote
        match decision:
            case Create(body) if home is not None and remote is not None:
                return await actions.create(pod, home, remote, body)
            case Patch(patch) if home is not None and remote is not None:
                return await actions.patch(pod, home, remote, patch)
            case DeleteShadow(uid) if remote is not None:
                return await actions.delete_shadow(pod, remote, uid)
            case DeleteHome(uid):
                return await actions.delete_home(pod.key, pod.tracked, uid)
            case Skip(report):
                return await actions.skip(home, report)
            case Keep(_, again):
                return again
        return None

    # Deleted pods of a lender that does not answer

    def _is_given_up(self, home: HomePod) -> bool:
        """Return whether a deleted pod has waited long enough for a lender that does not answer."""
        deadline = self._deadline(home)
        return deadline is not None and self.clock.seconds() - deadline > GIVE_UP_AFTER

    def _until_given_up(self, home: HomePod | None) -> float | None:
        """Return the seconds until a deleted pod is deleted at home anyway; None while the lender answers.

        None as well for a pod that only finalizers hold: there is nothing left to do at home.
        """
        deadline = None if home is None or is_held(home) else self._deadline(home)
        if deadline is None:
            return None
        return max(0.5, deadline - self.clock.seconds() + GIVE_UP_AFTER + 0.5)

    def _deadline(self, home: HomePod) -> float | None:
        """Return when the grace period of a deleted pod ends; None if it must wait for the lender without limit.

        A pod of a StatefulSet waits without limit, as on a dead node: its successor gets the same name and volumes
        while the old pod may still run. An administrator who knows that it does not run deletes it with force. Source:
        Kubernetes, "Force Delete StatefulSet Pods".
        """
        # The API server sets deletionTimestamp to the request's time plus the grace period (ObjectMeta).
        grace_ends = self._grace_ends.at(home.metadata.key, home.metadata.deletion_timestamp)
        if not home.metadata.deleting or self._health.ok:
            return None
        if is_of_stateful_set(home):
            return None
        return grace_ends


def _remote_of(state: NamespaceState) -> RemoteNamespace | None:
    return state.remote if isinstance(state, Offloaded) else None


def _count_restarts(tracked: TrackedPod, home: HomePod | None, pod: RemotePod | None) -> Tally | None:
    """Update and return the tally of a pod; None without a remote pod of this home pod."""
    if home is None:
        return None
    if tracked.home_uid != home.metadata.uid:
        # Another pod of the same name (StatefulSets reuse names): it starts counting at zero.
        tracked.home_uid, tracked.tally, tracked.status_due, tracked.grace_sent_at = home.metadata.uid, None, None, None
        # What the lender refused was the other pod, and this one may ask for something else.
        tracked.reset_backoff()
        tracked.made = 0
    if pod is None or home_uid(pod.metadata) not in ("", home.metadata.uid):
        return None
    tracked.tally = tally(tracked.tally, decoded(home.status), pod.metadata.uid, decoded(pod.status))
    return tracked.tally


def _after(seconds: float | None) -> After | None:
    return None if seconds is None else After(seconds)
