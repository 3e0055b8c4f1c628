"""Takes back what is lent: after a notice the pods of a tenant are evicted, one after the other.

The order is ``spec.reclaim`` of the peer's ForeignCluster. Pods are evicted as by a drain of their nodes, so that
disruption budgets hold. With its pod a ShadowPod ends: it has failed, by the reason Reclaimed, and is not run again.
Every borrower understands that: the pod at its home fails, and the controller of that makes another one, which is
scheduled elsewhere, for nothing is offered here any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, Literal

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.hosting.shadowpods.decide import requested_grace
from liqod.hosting.shadowpods.status import ShadowPodReports
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders, pace_of
from liqod.hosting.views import Pod, is_managed
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Conflict, NotFound, Unauthorized
from liqod.kube.events import Recorder
from liqod.kube.resources import PODS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.objects.meta import controller_of, eviction_of
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.offer import RECLAIMED
from liqod.model.records.views import ForeignCluster, ShadowPod, ShadowPodStatus

PASSED_OVER: Final = 10.0
"""Seconds for which a pod is passed over whose eviction was refused, by a disruption budget, say."""
LOOK: Final = 5.0
"""Seconds until a tenant is looked at again of which nothing is to be evicted at the moment."""
MESSAGE: Final = "the lender takes back what it lent, as it announced, and has evicted the pod"
_OPEN: Final = "open"

Step = Literal["", "evict", "finish"]
"""What is to be done with a ShadowPod: nothing, evict its pod and finish it, or finish it."""


def next_step(shadow: ShadowPod, pod: Pod | None) -> Step:
    """Return what takes a ShadowPod back; ``pod`` is that of its name. Pure."""
    meta, status = shadow.metadata, shadow.status
    if meta.deleting or requested_grace(shadow) is not None:
        return ""  # its borrower ends it
    owner = controller_of(pod) if pod is not None and is_managed(pod) else None
    if pod is None or pod.metadata.deleting or owner is None or owner.uid != meta.uid:
        return "" if status.phase in FINISHED else "finish"
    if pod.finished:
        return ""  # its result is about to be written
    # One that was just being created when its ShadowPod was finished runs all the same.
    return "evict" if status.phase not in FINISHED or status.reason == RECLAIMED else ""


@define
class _Round:
    """What is left of what the last look at a tenant found; ``refused``: until when those are passed over."""

    left: deque[Key] = field(factory=deque)
    refused: dict[Key, float] = field(factory=dict)

    def ask_again(self, now: float) -> None:
        """Have those come next that were passed over for long enough."""
        for name in [name for name, until in self.refused.items() if until <= now]:
            del self.refused[name]
            self.left.appendleft(name)


class Reclaims(Controller[str]):
    """Evicts the pods of each tenant of which something is reclaimed, by its cluster ID."""

    name = "reclaims"
    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        orders: ReclaimOrders,
        shadows: Informer[ShadowPod],
        pods: Informer[Pod],
        namespaces: Namespaces,
        recorder: Recorder,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._audit = audit
        self._ordered: set[str] = set()
        self._client = client
        self._orders = orders
        self._shadows = MutationCache(shadows, clock)
        shadows.add_index(_OPEN, _open_in)
        self._pods = pods
        self._namespaces = namespaces
        self._reports = ShadowPodReports(client, recorder, self._shadows)
        self._rounds: dict[str, _Round] = {}

    def sources(self) -> Iterable[Source[str]]:
        """The orders; of pods and ShadowPods only that they are known."""
        yield watch(self._orders.informer, _orders)
        known: tuple[Informer[Any], ...] = (self._shadows.informer, self._pods, self._namespaces.informer)
        for informer in known:
            yield watch(informer, lambda key, old, new: ())

    async def reconcile(self, key: str) -> After | None:
        """Evict one pod of a tenant, if it is time; returns when to look again, None without an order."""
        due, now = self._orders.due_in(key), self.clock.seconds()
        self._note(key, ordered=due is not None)
        if due is None:
            self._rounds.pop(key, None)
            return None
        if due > 0:
            return After(due)
        turn = self._rounds.setdefault(key, _Round())
        turn.ask_again(now)
        if not turn.left:
            turn.left.extend(self._look(key, turn.refused))
        pace = After(pace_of(-due, len(turn.left)))
        while turn.left:
            name = turn.left.popleft()
            shadow, pod = self._shadows.get(name), self._pods.get(name)
            if shadow is None or not (step := next_step(shadow, pod)):
                continue
            if not await (self._evict(shadow, pod) if step == "evict" and pod is not None else self._finish(shadow)):
                turn.refused[name] = now + PASSED_OVER
            return pace
        return After(LOOK)

    def _note(self, tenant: str, *, ordered: bool) -> None:
        """Record that a tenant is to give back what it has, or is not any more; who takes over says it again."""
        if ordered == (tenant in self._ordered):
            return
        if ordered:
            self._ordered.add(tenant)
            self._audit.record(AuditEvent("AccessRevoked", "ReclaimOrdered", peer=tenant))
        else:
            self._ordered.discard(tenant)
            self._audit.record(AuditEvent("AccessGranted", "ReclaimEnded", peer=tenant))

    def _look(self, tenant: str, but: Container[Key]) -> Iterator[Key]:
        """Yield the ShadowPods of a tenant of which there is something to take back, but for some."""
        for space in self._namespaces.granted(tenant):
            for one in self._shadows.informer.by_index(_OPEN, space.metadata.name):
                name = one.metadata.key
                shadow = self._shadows.get(name)
                if name not in but and shadow is not None and next_step(shadow, self._pods.get(name)):
                    yield name

    async def _evict(self, shadow: ShadowPod, pod: Pod) -> bool:
        """Request the eviction of a pod, and finish its ShadowPod if that is granted; False where it is refused."""
        meta = pod.metadata
        body = eviction_of(meta)
        try:
            await self._client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
        except (Conflict, NotFound):
            return True  # it is gone, or the name is another pod's: the watch shows that
        except Unauthorized:
            raise
        except ApiError as error:
            # 429: a disruption budget does not allow it now; 500: there are two budgets for one pod (Kubernetes,
            # "API-initiated Eviction"); webhooks refuse with any code. Others may go meanwhile.
            self._log.info("{pod} is not evicted yet: {error}", pod=str(meta.key), error=str(error))
            return False
        self._log.info("{pod} is evicted: what was lent to its home is reclaimed", pod=str(meta.key))
        return await self._finish(shadow)

    async def _finish(self, shadow: ShadowPod) -> bool:
        """Write that a ShadowPod is over, unless it is; False where the API server refuses that."""
        if shadow.status.phase in FINISHED:
            return True
        status = ShadowPodStatus(phase="Failed", reason=RECLAIMED, message=MESSAGE)
        if await self._reports.write(shadow, status) is not None:
            return False
        self._reports.record_event(shadow, RECLAIMED, MESSAGE)
        return True


def _orders(key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> Iterable[str]:
    """Return the peer whose order is new, or another one."""
    before, after = (None if record is None else record.spec.reclaim for record in (old, new))
    return (key.name,) if before != after else ()


def _open_in(shadow: ShadowPod) -> Iterable[str]:
    """Return the namespace of a ShadowPod of which something may be left to take back; none for one that is over."""
    is_over = shadow.status.phase in FINISHED and shadow.status.reason != RECLAIMED
    return () if is_over else (shadow.metadata.namespace,)
