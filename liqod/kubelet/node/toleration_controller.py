"""Extends the tolerations of offloaded pods while their node is unreachable, so that they are not evicted.

Nothing is read or written while the node is Ready. Once the node lifecycle controller has tainted it, each pod that
runs at the lender is patched in time, and once more where it is to be evicted after all (``evict-after``); at most
``WRITES_PER_SECOND`` of them a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import LearnedDates
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, Invalid, NotFound
from liqod.kube.resources import PODS
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.views import HomePod, Node, Taint, decoded, is_started
from liqod.kubelet.node.controller import NodeController
from liqod.kubelet.node.tolerations import Evict, Rest, plan
from liqod.model.ids import Key
from liqod.model.objects.tolerations import TAINTS

WRITES_PER_SECOND: Final = 50.0
"""Ten thousand pods are patched in less time than ``tolerations.LEAD`` leaves."""

INVALID_RETRY: Final = 1.0
ADMINISTRATIVE_REASONS: Final = ("OfferRefused", "OfferWithdrawn")
"""Not-Ready reasons set by an administrator: the pods keep the default toleration of 300 s (DefaultTolerationSeconds
admission plugin)."""


class TolerationController(Controller[Key]):
    """Reconciles the tolerations of one virtual node's pods; ``evict_after`` is in seconds, 0: never."""

    name = "tolerations"
    workers = 4

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        node: NodeController,
        pods: Informer[HomePod],
        *,
        readiness: Latest[Readiness],
        evict_after: float,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=f"of pods on {node.node_name}", metrics=metrics)
        self._client = client
        self._node = node
        self._pods = pods
        self._readiness = readiness
        self._evict_after = evict_after
        self._tainted: float | None = None
        self._added: LearnedDates[str] = LearnedDates(clock)
        self._next_slot = 0.0
        self._slots: dict[Key, float] = {}
        self._decided_from: tuple[object, ...] = ()

    def sources(self) -> Iterable[Source[Key]]:
        yield watch(self._pods, self._pod_changed)
        yield observe(self._readiness, lambda _: self._affected())

    def startService(self) -> None:
        super().startService()
        self._unsubscribe.append(self._node.subscribe(self._node_changed))

    def _node_changed(self, node: Node | None) -> None:
        now: float = self.clock.seconds()
        seen = self._tainted if self._tainted is not None else now
        self._tainted = tainted_since(node, seen, self._added.at)
        self._added.retain({taint.key for taint in _evicting(node)})
        for key in self._affected():
            self.enqueue(key)

    def _affected(self) -> Iterable[Key]:
        """Return the keys of all pods if an input of the decision changed while the node is tainted."""
        readiness = self._readiness.value
        before = self._decided_from
        self._decided_from = (
            readiness.ready,
            readiness.known,
            readiness.reason in ADMINISTRATIVE_REASONS,
            self._tainted,
        )
        if self._tainted is None or self._decided_from == before:
            return ()
        return [pod.metadata.key for pod in self._pods.items()]

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> Iterable[Key]:
        return (key,) if self._tainted is not None and new is not None and not new.metadata.deleting else ()

    async def reconcile(self, key: Key) -> After | None:
        pod, since, readiness = self._pods.get(key), self._tainted, self._readiness.value
        if pod is None or since is None or readiness.ready or not readiness.known or not is_retained(pod):
            self._slots.pop(key, None)
            return None
        now, meta = self.clock.seconds(), pod.metadata
        step = plan(
            meta.uid,
            decoded(pod.spec).get("tolerations") or [],
            meta.annotations,
            tainted_for=max(0.0, now - since),
            temporary=readiness.reason not in ADMINISTRATIVE_REASONS,
            evict_after=self._evict_after,
        )
        if isinstance(step, Rest):
            self._slots.pop(key, None)
            return None if step.again is None else After(step.again)
        if (wait := self._wait_for_slot(key, now)) > 0:
            return After(wait)
        if isinstance(step, Evict):
            self._log.info("evicting {pod}: its lender has been unreachable for too long", pod=str(key))
        try:
            await self._client.patch(PODS, meta.name, step.patch, meta.namespace, kind="json", view=None)
        except (NotFound, Conflict):
            # The pod was deleted or changed: the watch enqueues it again if it still exists.
            return None
        except Invalid as error:
            # 422: a test operation of the JSON patch failed, because the pod changed meanwhile.
            self._log.debug("the tolerations of {pod} were not changed: {error}", pod=str(key), error=error.message)
            return After(INVALID_RETRY)
        return None

    def _wait_for_slot(self, key: Key, now: float) -> float:
        """Return the seconds until a pod may be written; each pod gets one slot of the rate limit."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = max(self._next_slot, now)
            self._next_slot = slot + 1 / WRITES_PER_SECOND
        if slot > now:
            return slot - now
        del self._slots[key]
        return 0.0


def tainted_since(node: Node | None, seen: float, at: Callable[[str, str], float | None]) -> float | None:
    """Return since when a node has had a NoExecute taint for not-ready or unreachable, in seconds; None without one.

    tolerationSeconds of its pods count from then. A taint without ``timeAdded`` counts from when it was ``seen``;
    ``at`` converts the date of a taint, by its key, into seconds.
    """
    times = [at(taint.key, taint.time_added) for taint in _evicting(node)]
    return min((seen if time is None else time for time in times), default=None)


def _evicting(node: Node | None) -> list[Taint]:
    taints = node.spec.taints if node is not None else ()
    return [taint for taint in taints if taint.key in TAINTS and taint.effect == "NoExecute"]


def is_retained(pod: HomePod) -> bool:
    """Return whether the home status shows that a pod was started at the lender; other pods may be evicted."""
    return not pod.metadata.deleting and is_started(pod)
