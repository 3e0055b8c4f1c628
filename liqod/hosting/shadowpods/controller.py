"""ShadowPods made real and kept real, also while the borrower is away.

One queue of names, a few workers. A pod costs one POST on its way to running; what follows is read from the watches.
Writes to a ShadowPod's status are two: a refusal (with the API server's own words where it was the one to refuse) and
the end of the pod.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.hosting.shadowpods import forge, lost_nodes, pod_update, rejections, resource_requests
from liqod.hosting.shadowpods.admission import Refuse, admit, read_spec
from liqod.hosting.shadowpods.crash_backoff import Pace
from liqod.hosting.shadowpods.decide import (
    FINAL_PHASES,
    Collide,
    Create,
    End,
    Finish,
    Follow,
    Remove,
    Step,
    decide,
    how_it_ended,
)
from liqod.hosting.shadowpods.quota import Ledger, Waiting, fitting, remember
from liqod.hosting.shadowpods.status import Recorder, Statuses
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.views import Pod, controller_of, is_managed, order_of_creation
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.model.ids import Key
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import ShadowPod, ShadowPodStatus

LOOK_AGAIN: Final = 300.0
"""Seconds after which a refused ShadowPod is judged again, should no event have led to it before."""
UNSEEN: Final = 30.0
"""Seconds that a created pod may take to come back through the watch before it is asked for."""
COLLECTED: Final = 5.0
"""Seconds that the cluster's garbage collector has for the pod of a deleted ShadowPod before it is deleted from here:
where the collector is at work a second deletion of every pod would only cost the API server a request."""
SETTLING: Final = 0.05
"""Seconds between a new ShadowPod and its pod. The cluster's garbage collector watches both kinds apart from each
other; about a pod of which it hears before its owner it asks the API server whether there is such an owner."""
REPLACED: Final = 0.5
"""Seconds until a name is looked at again that another pod had, or has by now."""
_ROOM_DELAY: Final = 0.05
_MAX_WITNESSED: Final = 16384


class ShadowPods(MultiService):
    """The reconciler of ShadowPods.

    ``offers`` returns what is lent to a tenant now (None: nothing). Counting and reconciling begin when all watches
    have listed: what is unknown is not taken for absent.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        shadows: Informer[ShadowPod],
        pods: Informer[Pod],
        namespaces: Namespaces,
        offers: Callable[[str], Resources | None],
        recorder: Recorder,
        workers: int,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__()
        self._client = client
        self._clock = clock
        self._shadows = shadows
        self._pods = pods
        self._namespaces = namespaces
        self._offers = offers
        self._statuses = Statuses(client, recorder)
        self._refusals = Backoff(initial=1.0, cap=LOOK_AGAIN, random=random)
        self._queue: WorkQueue[Key] = WorkQueue(clock, "shadowpods", Backoff(random=random))
        self._workers = Workers(self._queue, workers, self.process, "keeping the pod of ShadowPod")
        self._subscriptions: list[Callable[[], None]] = []
        self.ledger = Ledger()
        self._pace = Pace()
        self._waiting: dict[str, dict[Key, Waiting]] = {}
        self._ended: dict[Key, tuple[str, Finish]] = {}
        self._witnessed: dict[Key, str] = {}
        self._posted: dict[Key, float] = {}
        self._left: dict[Key, tuple[str, float]] = {}
        self._followed: dict[Key, tuple[str, str]] = {}
        self._short: dict[Key, tuple[str, str]] = {}
        self._attempts: dict[Key, int] = {}
        self._room: set[str] = set()
        self._room_timer: IDelayedCall | None = None

    def begin(self) -> None:
        """Start working; to be called when every watch has listed."""
        for shadow in sorted(self._shadows.items(), key=order_of_creation):
            self._queue.add(shadow.metadata.key)
        self._subscriptions = [
            self._shadows.subscribe(self._shadow_changed),
            self._pods.subscribe(self._pod_changed),
        ]
        self._workers.setServiceParent(self)

    def stopService(self) -> Deferred[None]:
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions = []
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        stopped: Deferred[None] = super().stopService()
        return stopped.addCallback(lambda _: self._queue.close())

    def room(self, tenant: str) -> None:
        """Have the refused ShadowPods of a tenant judged again, those that fit now, oldest first."""
        if self._waiting.get(tenant):
            self._room.add(tenant)
            if self._room_timer is None:
                self._room_timer = self._clock.callLater(_ROOM_DELAY, self._look_for_room)

    async def process(self, key: Key) -> float | None:
        """Do the next step for one name; returns when to look again."""
        shadow, pod = self._shadows.get(key), self._pods.get(key)
        if shadow is None:
            self._forget(key)
            if pod is None:
                self._witnessed.pop(key, None)
                self._left.pop(key, None)
        else:
            self._left.pop(key, None)
        step = decide(shadow, pod, ended=self._ended_of(key, shadow), witnessed=self._witnessed.get(key, ""))
        if isinstance(step, Remove):
            if shadow is None and (wait := self._time_of_collector(key, step.uid)) > 0:
                return wait
            return await self._remove(key, step)
        if shadow is None:
            return None
        return await self._about(shadow, pod, step)

    async def _about(self, shadow: ShadowPod, pod: Pod | None, step: Step) -> float | None:
        match step:
            case Create():
                return await self._create(shadow)
            case Follow() if pod is not None:
                return await self._follow(shadow, pod)
            case Finish():
                await self._statuses.write(shadow, _status_of(step))
                return None
            case Collide():
                return await self._refuse(shadow, _name_taken(shadow.metadata.key))
            case End(uid, grace):
                return None if await self._delete(shadow.metadata.key, uid, grace) else REPLACED
            case _:
                return None if pod is None else await self._await_end(pod)

    async def _await_end(self, pod: Pod) -> float | None:
        """See to it that a pod that is being deleted ends, also on a node that is lost."""
        left = lost_nodes.time_left(pod, self._clock.seconds())
        if left is None or left > 0:
            return left
        if not await lost_nodes.is_on_lost_node(self._client, pod):
            return lost_nodes.PATIENCE
        meta = pod.metadata
        self._log.info("{pod} is removed: its node is lost, it is made again elsewhere", pod=str(meta.key))
        return lost_nodes.PATIENCE if await self._delete(meta.key, meta.uid, grace=0) else REPLACED

    async def _create(self, shadow: ShadowPod) -> float | None:
        key = shadow.metadata.key
        now = self._clock.seconds()
        if (wait := max(self._pace.wait(key, now), self._posted.get(key, -UNSEEN) + UNSEEN - now)) > 0:
            return wait
        if self._namespaces.is_ending(key.namespace):
            return None
        tenant = await self._namespaces.tenant_of(key.namespace)
        offered = self._offers(tenant)
        # From here to the charge nothing is awaited: no two workers can count on the same room.
        verdict = admit(shadow, tenant, offered, self.ledger.used_without(tenant, key))
        if isinstance(verdict, Refuse):
            return await self._refuse(shadow, verdict, tenant, offered)
        try:
            body = forge.pod(shadow)
        except ValueError as error:
            return await self._refuse(shadow, Refuse("InvalidPod", f"spec.pod cannot be run: {error}"))
        self.ledger.charge(key, tenant, verdict.asked)
        try:
            await self._client.create(PODS, body, key.namespace, view=None)
        except AlreadyExists:
            self._count(key)
            return await self._settle_name(shadow)
        except ApiError as error:
            self._count(key)
            if isinstance(error, NotFound) or (refusal := rejections.refusal(error)) is None:
                raise
            return await self._refuse(shadow, refusal)
        except BaseException:
            self._count(key)
            raise
        self._created(key, shadow)
        await self._statuses.clear(shadow)
        return None

    def _created(self, key: Key, shadow: ShadowPod) -> None:
        now = self._clock.seconds()
        self._pace.created(key, now)
        self._attempts.pop(key, None)
        self._stop_waiting(key)
        if (pod := self._pods.get(key)) is None or _owner_uid(pod) != shadow.metadata.uid:
            self._posted[key] = now
            self._queue.add_after(key, UNSEEN)

    async def _settle_name(self, shadow: ShadowPod) -> float | None:
        """A pod of the name is there though no watch showed it: ours, an earlier ShadowPod's, or a stranger's."""
        key = shadow.metadata.key
        try:
            present = await self._client.get(PODS, key.name, key.namespace, view=Pod)
        except NotFound:
            return REPLACED
        if not is_managed(present):
            return await self._refuse(shadow, _name_taken(key))
        if _owner_uid(present) == shadow.metadata.uid:
            self._created(key, shadow)
            return None
        await self._remove(key, Remove(present.metadata.uid, _owner_uid(present), certain=False))
        return REPLACED

    def _time_of_collector(self, key: Key, uid: str) -> float:
        """Return how long the garbage collector still has to delete a pod whose ShadowPod is gone."""
        now: float = self._clock.seconds()
        known, since = self._left.get(key, ("", now))
        if known != uid:
            self._left[key] = (uid, since := now)
        return since + COLLECTED - now

    async def _remove(self, key: Key, step: Remove) -> float | None:
        if not step.certain and not await self._is_gone(key, step.owner):
            return 1.0
        if not await self._delete(key, step.uid):
            return REPLACED
        self._witnessed.pop(key, None)
        return None

    async def _delete(self, key: Key, uid: str, grace: int | None = None) -> bool:
        """Delete a pod; False when another one has its name by now, of which the watch tells soon."""
        try:
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace=grace)
        except Conflict:
            return False
        return True

    async def _is_gone(self, key: Key, uid: str) -> bool:
        try:
            present = await self._client.get(SHADOWPODS, key.name, key.namespace, view=Object)
        except NotFound:
            return True
        return present.metadata.uid != uid or present.metadata.deleting

    async def _follow(self, shadow: ShadowPod, pod: Pod) -> float | None:
        key = shadow.metadata.key
        await self._statuses.clear(shadow)
        try:
            if key in self._short and not pod_update.resize(shadow, pod):
                del self._short[key]
                self._stop_waiting(key)
            patch = pod_update.changes(shadow, pod)
            if not patch or self._followed.get(key) == (pod.metadata.uid, digest := forge.digest_of(shadow)):
                return None
            parts = {"resize": pod_update.resize(shadow, pod), "ephemeralcontainers": pod_update.debugging(shadow, pod)}
        except ValueError as error:
            self._statuses.tell_pod(pod, "UpdateRefused", f"the pod goes on as it was: {error}")
            return None
        is_short = bool(parts["resize"]) and not await self._resize(shadow, pod, parts["resize"])
        if is_short:
            patch = pod_update.changes(shadow, pod, resized=False)
        # What the pod was forged from is noted last: after a crash in between, all of it is compared again.
        part = parts["ephemeralcontainers"]
        if part and not await self._change(pod, part, "ephemeralcontainers"):
            return None
        if patch and not await self._change(pod, patch):
            metadata_only = pod_update.changes(shadow, pod, spec=False, resized=not is_short)
            if metadata_only != patch:
                await self._change(pod, metadata_only)
        if is_short:
            return LOOK_AGAIN
        self._followed[key] = (pod.metadata.uid, digest)
        return None

    async def _resize(self, shadow: ShadowPod, pod: Pod, part: list[dict[str, Any]]) -> bool:
        """Give a pod its new size; returns whether nothing is left to be tried.

        For a size for which there is no room now it is told once, and tried again when there is.
        """
        key = shadow.metadata.key
        tenant = await self._namespaces.tenant_of(key.namespace)
        offered = self._offers(tenant)
        used = self.ledger.used_without(tenant, key)
        verdict = admit(shadow, tenant, offered, used)
        if isinstance(verdict, Refuse):
            self._want_room(shadow, tenant, offered)
            refused = verdict.message
        else:
            self.ledger.charge(key, tenant, verdict.asked)
            refused = await self._change_size(pod, part)
            if not refused:
                self._stop_waiting(key)
                self._short.pop(key, None)
                return True
            self._count(key)
        told = pod.metadata.uid, forge.size_of(shadow)
        if self._short.get(key) != told:
            self._short[key] = told
            self._statuses.tell_pod(pod, "UpdateRefused", f"the pod is not resized: {refused}")
        return False

    def _want_room(self, shadow: ShadowPod, tenant: str, offered: Resources | None) -> None:
        """Have a pod looked at again when there is room for what it asks for beyond what it has."""
        key = shadow.metadata.key
        more = quantity.subtract(resource_requests.of_pod(read_spec(shadow)), self.ledger.charged(key))
        wanted = {name: amount for name, amount in more.items() if amount > 0}
        created = shadow.metadata.creation_timestamp or ""
        remember(self._waiting.setdefault(tenant, {}), Waiting(created, key, wanted, offered))

    async def _change_size(self, pod: Pod, part: list[dict[str, Any]]) -> str:
        """Have the API server resize a pod; returns why it does not, where that may change."""
        key = pod.metadata.key
        try:
            await self._client.patch(PODS, key.name, part, key.namespace, subresource="resize", kind="json", view=None)
        except Forbidden as error:
            return error.message
        except NotFound as error:
            if not await self._is_pod_gone(pod):
                self._statuses.tell_pod(pod, "UpdateRefused", f"the pod goes on as it was: {error.message}")
        except Invalid as error:
            self._statuses.tell_pod(pod, "UpdateRefused", f"the pod goes on as it was: {error.message}")
        return ""

    async def _change(self, pod: Pod, patch: list[dict[str, Any]], subresource: str = "") -> bool:
        """Change a pod in place; what the API server says against it is told. Returns whether the pod is still there
        (and took it, where it is the pod itself that was to change).
        """
        key = pod.metadata.key
        try:
            await self._client.patch(
                PODS, key.name, patch, key.namespace, subresource=subresource, kind="json", view=None
            )
        except NotFound as error:
            if not subresource or await self._is_pod_gone(pod):
                return False
            self._statuses.tell_pod(pod, "UpdateRefused", f"the pod goes on as it was: {error.message}")
        except (Invalid, Forbidden) as error:
            self._statuses.tell_pod(pod, "UpdateRefused", f"the pod goes on as it was: {error.message}")
            return bool(subresource)
        return True

    async def _is_pod_gone(self, pod: Pod) -> bool:
        """Tell a pod that is gone from a cluster that does not know the subresource asked for."""
        key = pod.metadata.key
        try:
            await self._client.get(PODS, key.name, key.namespace, view=Object)
        except NotFound:
            return True
        return False

    async def _refuse(
        self, shadow: ShadowPod, refusal: Refuse, tenant: str = "", offered: Resources | None = None
    ) -> float:
        """Tell the borrower why its pod does not run, when it was not told so before; returns when to try again."""
        key = shadow.metadata.key
        status = ShadowPodStatus(phase="Pending", reason=refusal.reason, message=refusal.message)
        present = self._statuses.of(shadow)
        told = present == status
        again = LOOK_AGAIN
        if refusal.reason in ("QuotaExceeded", "NotLent"):
            before = self._waiting.setdefault(tenant, {}).get(key)
            # What is left changes with every pod that ends; that alone is not worth a write to each of the refused.
            told |= present.reason == refusal.reason and (before is None or before.offered == offered)
            created, asked = shadow.metadata.creation_timestamp or "", resource_requests.of_pod(read_spec(shadow))
            remember(self._waiting[tenant], Waiting(created, key, asked, offered))
        else:
            self._stop_waiting(key)
            attempt = self._attempts.get(key, 0)
            self._attempts[key] = attempt + 1
            again = self._refusals.delay(attempt)
        if not told:
            await self._statuses.write(shadow, status)
            self._statuses.tell(shadow, refusal.reason, refusal.message)
        return again

    def _shadow_changed(self, key: Key, old: ShadowPod | None, new: ShadowPod | None) -> None:
        if new is None and old is not None:
            while len(self._witnessed) >= _MAX_WITNESSED:
                del self._witnessed[next(iter(self._witnessed))]
            self._witnessed[key] = old.metadata.uid
        elif new is not None:
            self._statuses.seen(new)
            if new.status.phase in FINAL_PHASES:
                self._ended.pop(key, None)
            if old is not None and _same_wish(old, new):
                return
        self._attempts.pop(key, None)
        self._queue.add_after(key, SETTLING if old is None else 0.0)

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        self._posted.pop(key, None)
        if new is not None and new.finished and is_managed(new) and (ended := how_it_ended(new)) is not None:
            # Kept here at once: the pod may be deleted before the record shows that it ended.
            self._ended[key] = (_owner_uid(new), ended)
        if old is None or new is None or _countable(old) != _countable(new):
            self._count(key)
        if old is None or new is None or _telling(old) != _telling(new):
            self._queue.add(key)

    def _count(self, key: Key) -> None:
        """Let the ledger say what the watch says."""
        pod = self._pods.get(key)
        if pod is None or pod.finished or not is_managed(pod):
            if freed := self.ledger.release(key):
                self.room(freed)
            return
        tenant = self._namespaces.known_tenant(key.namespace) or pod.metadata.labels.get(ORIGIN_LABEL, "")
        self.ledger.charge(key, tenant, _asked(pod))
        # It may have become smaller.
        self.room(tenant)

    def _look_for_room(self) -> None:
        self._room_timer = None
        tenants, self._room = self._room, set()
        for tenant in sorted(tenants):
            waiting = self._waiting.get(tenant, {})
            offered = self._offers(tenant)
            if offered is None:
                continue
            keys = dict.fromkeys(fitting(waiting.values(), self.ledger.used(tenant), offered))
            # Those told that nothing is lent are told what is, also when it is too little.
            for key in (*keys, *(key for key, entry in waiting.items() if entry.offered is None)):
                self._queue.add(key)

    def _ended_of(self, key: Key, shadow: ShadowPod | None) -> Finish | None:
        uid, ended = self._ended.get(key, ("", None))
        if shadow is not None and (uid != shadow.metadata.uid or shadow.status.phase in FINAL_PHASES):
            self._ended.pop(key, None)
            return None
        return ended

    def _stop_waiting(self, key: Key) -> None:
        for tenant, waiting in list(self._waiting.items()):
            if waiting.pop(key, None) is not None and not waiting:
                del self._waiting[tenant]

    def _forget(self, key: Key) -> None:
        self._pace.forget(key)
        self._stop_waiting(key)
        self._queue.forget(key)
        self._statuses.forget(key)
        for table in (self._ended, self._posted, self._followed, self._short, self._attempts):
            _drop(table, key)


def _drop(table: dict[Key, Any], key: Key) -> None:
    table.pop(key, None)


def _asked(pod: Pod) -> Mapping[str, Fraction]:
    try:
        return resource_requests.of_pod(pod.spec)
    except ValueError:
        # The API server took a quantity that is not understood here; the pod still counts as one.
        return {resource_requests.PODS: Fraction(1)}


def _owner_uid(pod: Pod) -> str:
    owner = controller_of(pod)
    return "" if owner is None else owner.uid


def _status_of(end: Finish) -> ShadowPodStatus:
    return ShadowPodStatus(phase=end.phase, reason=end.reason, message=end.message)


def _name_taken(key: Key) -> Refuse:
    return Refuse(
        "NameTaken", f"a pod named {key.name} that is not of this ShadowPod runs in {key.namespace}; it is left alone"
    )


def _same_wish(old: ShadowPod, new: ShadowPod) -> bool:
    """Tell whether two states differ in nothing but what this cluster wrote itself."""
    before, after = old.metadata, new.metadata
    return (
        before.uid == after.uid
        and before.deletion_timestamp == after.deletion_timestamp
        and before.labels == after.labels
        and before.annotations == after.annotations
        and bytes(old.spec.pod) == bytes(new.spec.pod)
    )


def _countable(pod: Pod) -> tuple[object, ...]:
    """Return what of a pod decides how much of the quota it uses; labels and owner are those it was created with."""
    spec = pod.spec
    return (
        pod.metadata.uid,
        pod.finished,
        is_managed(pod),
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
    )


def _telling(pod: Pod) -> tuple[object, ...]:
    """Return what of a pod may lead to a step."""
    return (
        pod.metadata.uid,
        pod.metadata.deletion_timestamp,
        pod.status.phase,
        pod.status.reason,
        pod.metadata.annotations.get(forge.FORGED_ANNOTATION),
    )
