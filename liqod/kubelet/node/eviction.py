"""Keeps pods on a virtual node while its lender is away: Kubernetes would delete them after five minutes.

While the node is well nothing is looked at and nothing written. When Kubernetes has tainted it, each pod that runs at
the lender is written to once, in time, and at no more than ``WRITES_PER_SECOND`` a second.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from liqod.flow.clocks import reactor_time
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, Invalid, NotFound
from liqod.kube.resources import PODS
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.views import HomePod, Node, decoded
from liqod.kubelet.node.controller import NodeController
from liqod.kubelet.node.tolerations import Evict, Rest, plan
from liqod.model.ids import Key
from liqod.model.objects.tolerations import TAINTS
from liqod.model.timestamps import parse_rfc3339

WRITES_PER_SECOND: Final = 50.0
"""Pods written to in a second: ten thousand take less than the time in advance that ``forge.patience`` leaves."""

RETRY: Final = 1.0
ADMINISTRATIVE_REASONS: Final = ("OfferRefused", "OfferWithdrawn")
"""Reasons why a node is not Ready that somebody decided: its pods get the time that Kubernetes gives all pods."""


class EvictionController(MultiService):
    """Looks after the pods of one virtual node; ``evict_after`` is in seconds, 0: never."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        node: NodeController,
        pods: Informer[HomePod],
        readiness: Callable[[], Readiness],
        evict_after: float,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._client = client
        self._node = node
        self._pods = pods
        self._readiness = readiness
        self._evict_after = evict_after
        self._tainted: float | None = None
        self._seen: tuple[object, ...] = ()
        self._next = 0.0
        self._turns: dict[Key, float] = {}
        self._queue: WorkQueue[Key] = WorkQueue(reactor, f"pods that stay on {node.node_name}")
        self._workers: Workers[Key] = Workers(self._queue, 4, self._process, f"keeping on {node.node_name} the pod")
        self._workers.setServiceParent(self)
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [self._node.subscribe(self._node_changed), self._pods.subscribe(self._pod_changed)]

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._queue.close()
        return maybeDeferred(super().stopService)

    def refresh(self) -> None:
        """Why the node is (not) Ready may have changed."""
        readiness = self._readiness()
        seen = (readiness.ready, readiness.known, readiness.reason in ADMINISTRATIVE_REASONS, self._tainted)
        if seen != self._seen and self._tainted is not None:
            for pod in self._pods.items():
                self._queue.add(pod.metadata.key)
        self._seen = seen

    def _node_changed(self, node: Node | None) -> None:
        seen = self._tainted if self._tainted is not None else self._reactor.seconds()
        self._tainted = tainted_since(node, seen, lambda date: reactor_time(date, self._reactor))
        self.refresh()

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> None:
        if self._tainted is not None and new is not None and not new.metadata.deleting:
            self._queue.add(key)

    async def _process(self, key: Key) -> float | None:
        pod, since = self._pods.get(key), self._tainted
        readiness = self._readiness()
        if pod is None or since is None or readiness.ready or not readiness.known or not is_retained(pod):
            self._turns.pop(key, None)
            return None
        now = self._reactor.seconds()
        meta = pod.metadata
        step = plan(
            meta.uid,
            decoded(pod.spec).get("tolerations") or [],
            meta.annotations,
            tainted_for=max(0.0, now - since),
            temporary=readiness.reason not in ADMINISTRATIVE_REASONS,
            evict_after=self._evict_after,
        )
        if isinstance(step, Rest):
            self._turns.pop(key, None)
            return step.again
        if (wait := self._turn(key, now)) > 0:
            return wait
        if isinstance(step, Evict):
            self._log.info("{pod} is evicted: its lender has been away for too long", pod=str(key))
        try:
            await self._client.patch(PODS, meta.name, step.patch, meta.namespace, kind="json", view=None)
        except (NotFound, Conflict):
            return None
        except Invalid as error:
            # The guard did not hold, because the pod changed meanwhile; then the watch brings it here again, too.
            self._log.debug("{pod} was not held: {error}", pod=str(key), error=error.message)
            return RETRY
        return None

    def _turn(self, key: Key, now: float) -> float:
        """Return how long a pod has to wait until it may be written to; each waits once, for a time of its own."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = max(self._next, now)
            self._next = turn + 1 / WRITES_PER_SECOND
        if turn > now:
            return turn - now
        del self._turns[key]
        return 0.0


def tainted_since(node: Node | None, seen: float, at: Callable[[datetime], float]) -> float | None:
    """Return since when Kubernetes has counted the time of the pods on a node, in seconds; None while it does not.

    A taint that does not say so counts from when it was ``seen``; ``at`` turns a date into seconds.
    """
    times = [
        parse_rfc3339(taint.time_added)
        for taint in (node.spec.taints if node is not None else ())
        if taint.key in TAINTS and taint.effect == "NoExecute"
    ]
    return min((seen if time is None else at(time) for time in times), default=None)


def is_retained(pod: HomePod) -> bool:
    """Tell whether a pod is at the lender, as far as it shows at home; one that never got there may go elsewhere."""
    status = decoded(pod.status)
    return not pod.metadata.deleting and (status.get("phase", "Pending") != "Pending" or bool(status.get("startTime")))
