"""Offloads the pods that were scheduled on one virtual node, and brings their status back.

Each pod is a key of a queue. A turn looks at all there is to see about the pod, asks ``decide``, and carries the
decision out in ``steps``. On the way of an ordinary pod that is one POST at the lender and one patch at home.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from attrs import define
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import home_uid
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController, NotOffloaded, Offloaded, Pending, Refused
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.pods.actions import PodActions, Postponed
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
    decide,
    decide_network_down,
    decide_not_offloaded,
    decide_refused,
    decide_unreachable,
)
from liqod.kubelet.pods.restarts import Tally, tally
from liqod.kubelet.ports import Recorder
from liqod.model.ids import Key
from liqod.model.names import DELETION_GRACE_ANNOTATION
from liqod.model.timestamps import parse_rfc3339, rfc3339

PATIENCE: Final = 30.0
"""Seconds after a deleted pod's grace that the lender has to answer before the pod goes at home all the same."""

SILENCE: Final = 40.0
"""Seconds without an answer after which a lender's pods are not ready any more. Source: Kubernetes gives nodes as long
(kube-controller-manager, --node-monitor-grace-period)."""


AGAIN: Final = 3.0
"""Seconds after a request that got no answer until it is made again, if the lender answers others."""


@define
class TrackedPod:
    """What is remembered about one pod between turns; rebuilt from what is seen after a restart."""

    home_uid: str = ""
    tally: Tally | None = None
    status_due: float | None = None
    grace_told: float | None = None


class PodController(MultiService):
    """The pods of one virtual node; ``status_delay`` seconds of changes become one write. ``crosses`` tells whether
    packets get to them.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        pods: Informer[HomePod],
        context: Context,
        namespaces: NamespaceController,
        health: LenderHealth,
        recorder: Recorder,
        workers: int,
        status_delay: float,
        crosses: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._pods = pods
        self._context = context
        self._health = health
        self._delay = status_delay
        self._crosses = crosses
        self._answers_since = 0.0
        self._behind: set[Key] = set()
        self._behind_at_first = 0
        self._namespaces = namespaces
        self._tracks: dict[Key, TrackedPod] = {}
        self._written: Overlay[Key, HomePod] = Overlay(reactor)
        self._postponed: set[Key] = set()
        self._steps = PodActions(reactor, client, context, namespaces, health, recorder, self._written)
        self._queue: WorkQueue[Key] = WorkQueue(reactor, f"pods of {context.node_name}")
        self._workers: Workers[Key] = Workers(
            self._queue, workers, self._process, f"offloading to {context.lender}: pod"
        )
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._pods.subscribe(self._changed)
        self._silent_since: float | None = None
        self._silence: IDelayedCall | None = None
        self._health.state.subscribe(lambda _: self._answered())

    def startService(self) -> None:
        super().startService()
        self._answered()
        self._tasks.spawn(self._begin(), f"offloading pods to {self._context.lender}")

    def stopService(self) -> Deferred[Any]:
        self._end_silence()
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _begin(self) -> None:
        await self._namespaces.when_synced()
        self._workers.setServiceParent(self)

    def __len__(self) -> int:
        """The number of pods that are remembered."""
        return len(self._tracks)

    @property
    def troubles(self) -> dict[Key, str]:
        """The pods whose last turn failed, with the reason."""
        return self._workers.troubles

    def enqueue(self, key: Key) -> None:
        """Have a pod looked at again."""
        self._queue.add(key)

    def _changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> None:
        if new is None:
            self._written.drop(key)
        self._queue.add(key)

    def _answered(self) -> None:
        """The lender answers, or does not: wake up what waits for it, or wait whether it stays so."""
        if not self.running:
            return
        if not self._health.ok:
            if self._silent_since is None:
                self._silent_since = self._reactor.seconds()
                self._silence = self._reactor.callLater(SILENCE + 0.1, self.enqueue_all)
            return
        if self._silent_since is not None:
            self._answers_since = self._reactor.seconds()
            self._behind = set(self._postponed)
            self._behind_at_first = len(self._behind)
        self._end_silence()
        self._queue.hasten()
        self.wake()

    def wake(self) -> None:
        """Look at the pods that wait until the lender answers and what it has is seen again."""
        postponed, self._postponed = self._postponed, set()
        for key in postponed:
            self._queue.add(key)

    def _end_silence(self) -> None:
        self._silent_since = None
        if self._silence is not None and self._silence.active():
            self._silence.cancel()
        self._silence = None

    def enqueue_all(self) -> None:
        """What holds for all pods changed."""
        for pod in self._pods.items():
            self._queue.add(pod.metadata.key)

    def _is_silent(self) -> bool:
        """Tell whether the lender has not answered for so long that its pods are not ready."""
        return self._silent_since is not None and self._reactor.seconds() >= self._silent_since + SILENCE

    async def _process(self, key: Key) -> float | None:
        home = self._written.newest(key, self._pods.get(key))
        now = self._reactor.seconds()
        date = wall_clock(self._reactor)()
        decision, remote = self._decide(key, home, now, date)
        if home is not None and remote is not None:
            if not (self._health.ok and remote.live):
                decision = decide_unreachable(home, decision, rfc3339(date), silent=self._is_silent())
                self._postponed.add(key)
            elif not self._crosses():
                decision = decide_network_down(home, decision, rfc3339(date))
        self._forget_if_gone(key, home, remote)
        if isinstance(decision, WriteStatus) and home is not None:
            again = await self._write_status(key, home, decision, now)
            self._catch_up(key)
            return again
        self._catch_up(key)
        if isinstance(decision, Create | Patch | DeleteShadow) and not self._health.ok:
            self._postponed.add(key)
            return self._time_left(home)
        try:
            again = await self._carry_out(key, home, remote, decision)
        except Postponed:
            self._postponed.add(key)
            # Should the lender answer all the same, nothing else leads back here.
            again = AGAIN
        left = self._time_left(home)
        return again if left is None else min(left, again if again is not None else left)

    def _catch_up(self, key: Key) -> None:
        """Note that a pod is told as the lender has it; say so when that is true of all that waited."""
        track = self._tracks.get(key)
        if key not in self._behind or key in self._postponed or (track is not None and track.status_due is not None):
            return
        self._behind.discard(key)
        if not self._behind:
            self._log.info(
                "{count} pods at {lender} are shown as they are there, {seconds:.1f} s after it answered again",
                count=self._behind_at_first,
                lender=str(self._context.lender),
                seconds=self._reactor.seconds() - self._answers_since,
            )

    def _decide(
        self, key: Key, home: HomePod | None, now: float, date: datetime
    ) -> tuple[Decision, RemoteNamespace | None]:
        written_at = rfc3339(date)
        match self._namespaces.state_of(key.namespace):
            case NotOffloaded(message):
                return decide_not_offloaded(home, message, written_at), None
            case Refused(reason, message):
                return decide_refused(home, reason, message, written_at), None
            case Pending(asked):
                if home is not None and home.metadata.deleting and (not asked or self._is_lost(home, date)):
                    return DeleteHome(home.metadata.uid), None
                return Keep("the namespace is not ready at the lender yet"), None
            case Offloaded(remote, draining):
                if not remote.synced:
                    if home is not None and self._is_lost(home, date):
                        return DeleteHome(home.metadata.uid), remote
                    return Keep("what the lender has of this namespace is not known yet"), remote
                return self._decide_served(key, home, remote, now, date, draining=draining), remote

    def _decide_served(
        self, key: Key, home: HomePod | None, remote: RemoteNamespace, now: float, date: datetime, *, draining: bool
    ) -> Decision:
        runs, shadow = remote.pod(key.name), remote.shadow(key.name)
        counted = self._count(key, home, runs or remote.ended(key.name))
        decision = decide(
            home,
            shadow,
            runs,
            context=self._context,
            namespace=remote.namespace,
            tally=counted,
            now=rfc3339(date),
            lender_lost=home is not None and self._is_lost(home, date),
            ended=remote.ended(key.name),
            grace_ignored=self._is_grace_ignored(key, shadow, now),
        )
        if draining and isinstance(decision, Create):
            return Keep("the namespace is no longer offloaded: the pod is about to leave")
        return decision

    def _is_grace_ignored(self, key: Key, shadow: Shadow | None, now: float) -> bool:
        """Tell whether a lender has known for long with which grace a pod is to end."""
        track = self._tracks.get(key)
        if track is None or shadow is None or DELETION_GRACE_ANNOTATION not in shadow.metadata.annotations:
            return False
        if track.grace_told is None:
            track.grace_told = now
        return now >= track.grace_told + GRACE_DEADLINE

    def _count(self, key: Key, home: HomePod | None, runs: RemotePod | None) -> Tally | None:
        if home is None:
            return None
        track = self._tracks.get(key)
        if track is None or track.home_uid != home.metadata.uid:
            track = self._tracks[key] = TrackedPod(home.metadata.uid)
        if runs is None or home_uid(runs.metadata) not in ("", home.metadata.uid):
            return None
        track.tally = tally(track.tally, decoded(home.status), runs.metadata.uid, decoded(runs.status))
        return track.tally

    def _forget_if_gone(self, key: Key, home: HomePod | None, remote: RemoteNamespace | None) -> None:
        if home is None:
            self._tracks.pop(key, None)
            self._postponed.discard(key)
            self._behind.discard(key)
            self._steps.forget(key, shadow_too=remote is None or remote.shadow(key.name) is None)

    async def _write_status(self, key: Key, home: HomePod, decision: WriteStatus, now: float) -> float | None:
        """Write once per burst of changes: not before the delay after the first, and then the newest."""
        track = self._tracks.setdefault(key, TrackedPod(home.metadata.uid))
        if track.status_due is None:
            track.status_due = now + self._delay
        left = track.status_due - now
        if left > 0.001:
            return left
        track.status_due = None
        await self._steps.write_status(home, decision)
        return self._time_left(home)

    async def _carry_out(
        self, key: Key, home: HomePod | None, remote: RemoteNamespace | None, decision: Decision
    ) -> float | None:
        match decision:
            case Create(body) if home is not None and remote is not None:
                return await self._steps.create(home, remote, body)
            case Patch(patch) if home is not None and remote is not None:
                return await self._steps.patch(home, remote, patch)
            case DeleteShadow(uid) if remote is not None:
                return await self._steps.delete_shadow(key, home, remote, uid)
            case DeleteHome(uid):
                return await self._steps.delete_home(key, uid)
            case Skip(report):
                return await self._steps.skip(home, report)
            case Keep(_, again):
                return again
        return None

    def _is_lost(self, home: HomePod, now: datetime) -> bool:
        """Tell whether a deleted pod has waited for an unreachable lender long enough.

        One of a StatefulSet waits, as on a dead node: its successor would have the same name and volumes while it may
        still run. Whoever knows better deletes it with force.
        """
        if not home.metadata.deleting or self._health.ok or _is_one_of_a_kind(home):
            return False
        deadline = parse_rfc3339(home.metadata.deletion_timestamp)
        return deadline is not None and (now - deadline).total_seconds() > PATIENCE

    def _time_left(self, home: HomePod | None) -> float | None:
        """Return when a deleted pod is due to be given up on; None while the lender answers."""
        if home is None or not home.metadata.deleting or self._health.ok or _is_one_of_a_kind(home):
            return None
        deadline = parse_rfc3339(home.metadata.deletion_timestamp)
        if deadline is None:
            return None
        return max(0.5, (deadline - wall_clock(self._reactor)()).total_seconds() + PATIENCE + 0.5)


def _is_one_of_a_kind(home: HomePod) -> bool:
    return any(owner.controller and owner.kind == "StatefulSet" for owner in home.metadata.owner_references)
