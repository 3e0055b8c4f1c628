"""Writes how a virtual kubelet stands into the status of its VirtualNode record, on change only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred

from liqod.flow.aligned_timer import in_step
from liqod.flow.clocks import wall_clock
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import VIRTUALNODES
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.readiness import Readiness, not_ready
from liqod.kubelet.lender.access import LenderAccess
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.node.controller import NodeController
from liqod.model.ids import Key
from liqod.model.objects.meta import Condition, set_condition, to_dict
from liqod.model.records.views import VirtualNode, VirtualNodeStatus
from liqod.model.timestamps import rfc3339

DELAY: Final = 0.2
"""Seconds that changes are gathered for before they are written."""

CHECK: Final = 10.0
"""Seconds between two looks at what nobody tells of: as often as the lender is asked, so they fall due together."""

_REFLECTING = Readiness(ready=True, reason="Reflecting", message="every offloaded namespace has its counterpart")


class VirtualNodeStatusController(MultiService):
    """Keeps the status of one VirtualNode record."""

    def __init__(
        self,
        reactor: Any,
        client: Client,
        key: Key,
        records: Informer[VirtualNode],
        node: NodeController,
        access: LenderAccess,
        health: LenderHealth,
        namespaces: NamespaceController,
        readiness: Callable[[], Readiness],
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._client = client
        self._key = key
        self._records = records
        self._node = node
        self._access = access
        self._health = health
        self._namespaces = namespaces
        self._readiness = readiness
        self._written: Overlay[Key, VirtualNode] = Overlay(reactor)
        self._queue: WorkQueue[Key] = WorkQueue(reactor, f"status of {key}")
        self._workers: Workers[Key] = Workers(self._queue, 1, self._process, "writing the status of the VirtualNode")
        self._workers.setServiceParent(self)
        self.refresh()

    def refresh(self) -> None:
        """Something that the status tells about changed."""
        self._queue.add_after(self._key, DELAY)

    def stopService(self) -> Deferred[Any]:
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _process(self, key: Key) -> float | None:
        record = self._written.newest(key, self._records.get(key))
        if record is None:
            self._written.drop(key)
            return None
        node = self._node.state.value if not self._node.state.value.ready else self._readiness()
        if not node.known:
            return None
        status = forge_status(
            record.status,
            credential=self._credential(),
            node=node,
            reflection=self._reflection(),
            draining=record.metadata.deleting,
            api=self._access.endpoint.value or "",
            now=rfc3339(wall_clock(self._reactor)()),
        )
        if status != record.status:
            wanted = {"phase": "", "reason": "", "message": "", "api": "", **to_dict(status)}
            try:
                seen = await self._client.patch(
                    VIRTUALNODES, key.name, {"status": wanted}, key.namespace, subresource="status", view=VirtualNode
                )
            except NotFound:
                return None
            self._written.put(key, seen)
        return in_step(self._reactor.seconds(), CHECK)

    def _credential(self) -> Readiness:
        health = self._health.state.value
        return health if health.reason == "CredentialRejected" else self._access.readiness.value

    def _reflection(self) -> Readiness:
        waiting = self._namespaces.waiting()
        if not waiting:
            return _REFLECTING
        return not_ready("NamespacesWaiting", "; ".join(waiting)[:1024])


def forge_status(
    old: VirtualNodeStatus,
    *,
    credential: Readiness,
    node: Readiness,
    reflection: Readiness,
    draining: bool,
    api: str = "",
    now: str,
) -> VirtualNodeStatus:
    """Return the status of a VirtualNode; equal to the old one when nothing changed."""
    conditions = list(old.conditions)
    for kind, part in (("Credential", credential), ("Node", node), ("Reflection", reflection)):
        word = "True" if part.ready else "False"
        new = Condition(type=kind, status=word, reason=part.reason[:64], message=part.message[:1024])
        conditions = set_condition(conditions, new, now)
    phase = "Draining" if draining else "Ready" if node.ready else "NotReady"
    return VirtualNodeStatus(
        phase=phase, reason=node.reason[:64], message=node.message[:1024], api=api, conditions=conditions
    )
