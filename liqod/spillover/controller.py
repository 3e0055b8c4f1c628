"""Brings offloaded pods home, one at a time, when own nodes have room for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, Literal

from twisted.internet.interfaces import IReactorTime

from liqod.config.schema import OffloadingSettings
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import LearnedDates
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.errors import ApiError, Conflict, KubeError, NotFound, Unauthorized
from liqod.kube.events import Recorder
from liqod.kube.resources import NAMESPACEOFFLOADINGS, NODES, PODS
from liqod.model.ids import Key
from liqod.model.objects.meta import controller_of, eviction_of, reference_to
from liqod.model.objects.node import Node
from liqod.model.objects.pod import OCCUPYING_PODS, Pod
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading, policy_of
from liqod.model.records.spillover import RETURN
from liqod.spillover.planner import OffloadedPod, RefusedEviction, attempted, requested_on, returnable, rooms
from liqod.spillover.successors import Successors

REASON: Final = "ReturningHome"
MESSAGE: Final = (
    "evicted from the virtual node {node}: this cluster's own nodes have room for it again, and its controller makes "
    "another pod (spillover Return in namespace {namespace})"
)
REFUSED: Final = Backoff(initial=60.0, cap=1800.0)
"""How long a pod whose eviction was refused is passed over: as long as its budget does not allow one, others may go."""
_KEY: Final = "return"

Outcome = Literal["evicted", "refused"]


class ReturnController(Controller[str]):
    """Evicts at most one pod in each interval; namespaces take part by their spillover mode, Return.

    ``enabled`` are the namespaces with the label. ``returns`` counts evictions, and attempts that were refused.
    """

    name = "spillover return"

    def __init__(
        self,
        clock: IReactorTime,
        informers: Informers,
        *,
        settings: OffloadingSettings,
        enabled: Informer[Any],
        recorder: Recorder,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self.returns: Counter[Outcome] = Counter()
        self._client = informers.client
        self._settings = settings
        self._enabled = enabled
        self._offloadings = informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading)
        self._nodes = informers.of(NODES, Node)
        self._pods = informers.of(PODS, Pod, fields=OCCUPYING_PODS)
        self._recorder = recorder
        self._started_at: float | None = None
        self._created: LearnedDates[str] = LearnedDates(clock)
        self.passed_over: dict[str, RefusedEviction] = {}
        """The pods whose eviction was refused or got no answer, by UID."""
        self._known: set[str] = set()
        self._successors = Successors(settings.return_after + settings.return_interval)

    def sources(self) -> Iterable[Source[str]]:
        """Only time: what changes in between makes no pod return earlier. The caches have to be complete."""
        yield always(_KEY)
        informers: tuple[Informer[Any], ...] = (self._enabled, self._offloadings, self._nodes, self._pods)
        for informer in informers:
            yield watch(informer, lambda key, old, new: ())

    async def reconcile(self, key: str) -> After:
        """Evict one pod that has room at home, if there is one; the first time only wait.

        A daemon that is restarted again and again would evict a pod at each start.
        """
        interval = After(self._settings.return_interval)
        if self._started_at is None:
            self._started_at = self.clock.seconds()
            return interval
        candidates = await self._candidates()
        if not candidates:
            return interval
        # A pod without a node is the scheduler's to place: what it waits for may be the room that is free here.
        pending = await self._client.list(PODS, view=OffloadedPod, fields="spec.nodeName=,status.phase=Pending")
        nodes = self._nodes.items()
        requested = requested_on((node.metadata.name for node in nodes if node.lendable), self._pods.items())
        found = returnable(candidates, rooms(nodes, requested), pending.items)
        for pod in attempted(found, self.passed_over, self.clock.seconds()):
            if await self._evict(pod):
                break
        return interval

    async def cleanup(self) -> None:
        """A new start waits again."""
        self._started_at = None

    def _returning(self) -> list[str]:
        """Return the namespaces whose pods come home."""
        names = [namespace.metadata.name for namespace in self._enabled.items() if not namespace.metadata.deleting]
        default = self._settings.spillover
        return sorted(
            name
            for name in names
            if policy_of(name, self._offloadings.get(Key(name, OFFLOADING)), default).spillover.mode == RETURN
        )

    async def _candidates(self) -> list[OffloadedPod]:
        """Return the running pods on virtual nodes that have been there long enough, but for those that would be back.

        A pod that was not there in the step before, running or not yet, may be the successor of one that was evicted.
        """
        namespaces = self._returning()
        virtual = {node.metadata.name for node in self._nodes.items() if node.virtual}
        occupied = {pod.metadata.namespace for pod in self._pods.items() if pod.spec.node_name in virtual}
        now = self.clock.seconds()
        found: list[OffloadedPod] = []
        seen: set[str] = set()
        for namespace in namespaces:
            if namespace not in occupied:
                continue
            listing = await self._client.list(PODS, namespace, view=OffloadedPod, fields=OCCUPYING_PODS)
            for pod in listing.items:
                uid = pod.metadata.uid
                seen.add(uid)
                created = self._created.at(uid, pod.metadata.creation_timestamp)
                if pod.spec.node_name not in virtual:
                    continue
                if uid not in self._known:
                    self._successors.appeared(_owner_of(pod), now)
                if (
                    pod.status.phase == "Running"
                    and created is not None
                    and created <= now - self._settings.return_after
                ):
                    found.append(pod)
        self._created.retain(seen)
        self._known = seen
        self._successors.forget(now)
        self.passed_over = {uid: refusal for uid, refusal in self.passed_over.items() if uid in seen}
        return [pod for pod in found if not self._successors.stays(_owner_of(pod), now)]

    async def _evict(self, pod: OffloadedPod) -> bool:
        """Request the eviction of a pod; return whether it may have been done, so that this step ends.

        A disruption budget refuses it (429), for instance. A refused pod is passed over for a while: what refuses it, a
        budget or a webhook, may refuse many of one kind. An eviction without an answer counts as one.
        """
        meta = pod.metadata
        body = eviction_of(meta)
        try:
            await self._client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
        except (Conflict, NotFound):
            # It is gone, or the name is another pod's.
            return False
        except Unauthorized:
            raise
        except KubeError as error:
            # With two disruption budgets for one pod the API server answers 500 (Kubernetes, "API-initiated Eviction"),
            # and a webhook refuses with any code; 504 is the time-out of the API server or of a proxy before it.
            self._pass_over(meta.uid)
            self._log.debug("{pod} does not return yet: {error}", pod=str(meta.key), error=str(error))
            if isinstance(error, ApiError) and error.code != HTTPStatus.GATEWAY_TIMEOUT:
                self.returns["refused"] += 1
                return False
            self._successors.evicted(_owner_of(pod), self.clock.seconds())
            return True
        self.returns["evicted"] += 1
        self._successors.evicted(_owner_of(pod), self.clock.seconds())
        message = MESSAGE.format(node=pod.spec.node_name, namespace=meta.namespace)
        self._recorder.record_event(reference_to("v1", "Pod", meta), "Normal", REASON, message)
        self._log.info("{pod} returns from {node}", pod=str(meta.key), node=pod.spec.node_name)
        return True

    def _pass_over(self, uid: str) -> None:
        before = self.passed_over.get(uid)
        count = before.count if before is not None else 0
        self.passed_over[uid] = RefusedEviction(count + 1, self.clock.seconds() + REFUSED.delay(count))


def _owner_of(pod: OffloadedPod) -> str:
    """Return the UID of the controller that makes another pod for this one; empty for a pod without."""
    owner = controller_of(pod)
    return owner.uid if owner is not None else ""
