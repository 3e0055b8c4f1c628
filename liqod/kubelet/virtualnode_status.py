"""Writes the status of a VirtualNode record if it differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.aligned_timer import in_step
from liqod.flow.clocks import wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, observe, watch
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import VIRTUALNODES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import READ_AGAIN
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.kubelet.common.readiness import CREDENTIAL_REJECTED, Readiness, not_ready
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.deletion_judge import HeldDeletions
from liqod.model.ids import Key
from liqod.model.names import DELETIONS_HELD, HOME_API, HOME_SERVICES
from liqod.model.objects.meta import MAX_MESSAGE, Condition, set_condition
from liqod.model.records.views import VirtualNode, VirtualNodeStatus
from liqod.model.timestamps import rfc3339

DEBOUNCE: Final = 0.2
"""Seconds within which changes are combined into one write."""
CHECK_INTERVAL: Final = 10.0
"""Seconds between two checks of the namespaces, which have no notification; aligned with the probes of the lender."""

LIMITS: Final = "Limits"
"""Condition of a VirtualNode with limits: whether its node shows all of them."""

_REFLECTING = Readiness(ready=True, reason="Reflecting", message="every offloaded namespace has its counterpart")


class VirtualNodeStatusController(Controller[Key]):
    """Reconciles the status of one VirtualNode record; ``node`` is the state of its Node."""

    name = "virtual node status"

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        key: Key,
        *,
        records: Informer[VirtualNode],
        readiness: Latest[Readiness],
        node: Latest[Readiness],
        health: Latest[Readiness],
        api_port: Latest[int],
        access: LenderAccess,
        namespaces: NamespaceController,
        held: Latest[HeldDeletions | None],
        limits: Latest[Readiness | None],
        home_api: Latest[Readiness | None],
        home_services: Latest[Readiness],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, subject=f"of {key.name}", metrics=metrics)
        self._key = key
        self._readiness = readiness
        self._node = node
        self._health = health
        self._api_port = api_port
        self._access = access
        self._namespaces = namespaces
        self._held = held
        self._limits = limits
        self._home_api = home_api
        self._home_services = home_services
        self._cache: MutationCache[VirtualNode] = MutationCache(records, clock)
        self._status: StatusWriter[VirtualNode] = StatusWriter(
            client, VIRTUALNODES, VirtualNode, self._cache, versioned=False
        )

    def sources(self) -> Iterable[Source[Key]]:
        yield always(self._key)
        yield watch(self._cache.informer, self._record_changed)
        for value in (self._readiness, self._node, self._health, self._access.readiness, self._access.endpoint):
            yield observe(value, lambda _: self._soon())
        yield observe(self._api_port, lambda _: self._soon())
        yield observe(self._held, lambda _: self._soon())
        yield observe(self._limits, lambda _: self._soon())
        yield observe(self._home_api, lambda _: self._soon())
        yield observe(self._home_services, lambda _: self._soon())

    def _record_changed(self, key: Key, old: VirtualNode | None, new: VirtualNode | None) -> Iterable[Key]:
        if key != self._key:
            return ()
        if new is None:
            self._cache.forget(key)
        return (key,)

    def _soon(self) -> Iterable[Key]:
        self.enqueue(self._key, DEBOUNCE)
        return ()

    async def reconcile(self, key: Key) -> After | None:
        record = self._cache.get(key)
        if record is None:
            return None
        node = self._node.value if not self._node.value.ready else self._readiness.value
        if not node.known:
            return None
        status = forge_status(
            record.status,
            credential=self._credential(),
            node=node,
            reflection=self._reflection(),
            held=self._held.value,
            limits=self._limits.value,
            reachable={HOME_API: self._home_api.value, HOME_SERVICES: self._home_services.value},
            draining=record.metadata.deleting,
            api=self._access.endpoint.value or "",
            # Before it is bound the port of the earlier daemon is kept: it is tried first.
            kubelet_port=self._api_port.value or record.status.kubelet_port,
            now=rfc3339(wall_clock(self.clock)()),
        )
        written = await self._status.write(record, status)
        if not isinstance(written, Written):
            return After(READ_AGAIN)
        return After(in_step(self.clock.seconds(), CHECK_INTERVAL))

    def _credential(self) -> Readiness:
        health = self._health.value
        return health if health.reason == CREDENTIAL_REJECTED else self._access.readiness.value

    def _reflection(self) -> Readiness:
        pending = self._namespaces.pending_reasons()
        return not_ready("NamespacesWaiting", "; ".join(pending)) if pending else _REFLECTING


def forge_status(
    old: VirtualNodeStatus,
    *,
    credential: Readiness,
    node: Readiness,
    reflection: Readiness,
    held: HeldDeletions | None,
    draining: bool,
    limits: Readiness | None = None,
    reachable: Mapping[str, Readiness | None] | None = None,
    api: str = "",
    kubelet_port: int = 0,
    now: str,
) -> VirtualNodeStatus:
    """Return the status of a VirtualNode; equal to the old one if nothing changed.

    ``reachable`` is what offloaded pods reach at home, by the type of their condition; None for what does not matter.
    """
    conditions = list(old.conditions)
    for kind, part in (("Credential", credential), ("Node", node), ("Reflection", reflection)):
        holds = "True" if part.ready else "False"
        new = Condition(type=kind, status=holds, reason=part.reason[:64], message=part.message)
        conditions = set_condition(conditions, new, now)
    if limits is None:
        conditions = [one for one in conditions if one.type != LIMITS]
    else:
        holds = "True" if limits.ready else "False"
        new = Condition(type=LIMITS, status=holds, reason=limits.reason, message=limits.message)
        conditions = set_condition(conditions, new, now)
    for kind, found in (reachable or {}).items():
        if found is not None:
            holds = "True" if found.ready else "False" if found.known else "Unknown"
            new = Condition(type=kind, status=holds, reason=found.reason, message=found.message)
            conditions = set_condition(conditions, new, now)
    if held is not None or any(one.type == DELETIONS_HELD for one in conditions):
        new = Condition(type=DELETIONS_HELD, status="False", reason="NothingHeld")
        if held is not None:
            new = Condition(type=DELETIONS_HELD, status="True", reason=held.reason, message=held.message)
        conditions = set_condition(conditions, new, now)
    phase = "Draining" if draining else "Ready" if node.ready else "NotReady"
    return VirtualNodeStatus(
        phase=phase,
        reason=node.reason[:64],
        message=node.message[:MAX_MESSAGE],
        api=api,
        kubelet_port=kubelet_port,
        deletions_observation="" if held is None else held.observation,
        conditions=conditions,
    )


def idle_status(old: VirtualNodeStatus, reason: str, message: str, now: str) -> VirtualNodeStatus:
    """Return the status of a VirtualNode for which no virtual kubelet runs."""
    node = Condition(type="Node", status="False", reason=reason, message=message)
    return VirtualNodeStatus(
        phase="NotReady",
        reason=reason,
        message=message[:MAX_MESSAGE],
        kubelet_port=old.kubelet_port,
        conditions=set_condition(old.conditions, node, now),
    )
