"""Renews the lease of a virtual node while its lender answers.

The node lifecycle controller takes a node whose lease expires for unreachable, and taints it (Kubernetes, "Leases",
Node heartbeats). So a lender that does not answer makes its node unreachable, even if this daemon stops as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from liqod.flow.aligned_timer import in_step
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After, Controller, Source, observe
from liqod.flow.observe import Latest
from liqod.kube.client import Client
from liqod.kube.errors import NotFound, Unreachable
from liqod.kube.resources import LEASES
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.node.forge import LEASE_NAMESPACE, RENEWED, forge_lease
from liqod.model.timestamps import rfc3339_micro

KEY: Final = "lease"


class LeaseController(Controller[str]):
    """The lease of one virtual node, ``duration`` seconds long; ``node_uid`` returns None while there is no node."""

    name = "virtual node lease"

    def __init__(
        self,
        reactor: Any,
        client: Client,
        node_name: str,
        *,
        duration: int,
        node_uid: Callable[[], str | None],
        health: Latest[Readiness],
    ) -> None:
        # A failed renewal is repeated several times before the lease expires.
        super().__init__(reactor, subject=f"of {node_name}", backoff=Backoff(cap=duration / 8))
        self._client = client
        self._node_name = node_name
        self._duration = duration
        self._node_uid = node_uid
        self._health = health

    def sources(self) -> Iterable[Source[str]]:
        yield observe(self._health, lambda health: (KEY,) if health.ready else ())

    async def reconcile(self, key: str) -> After | None:
        wait = After(in_step(self.clock.seconds(), self._duration * RENEWED))
        uid = self._node_uid()
        if uid is None:
            return None
        if not self._health.value.ready:
            return wait
        renewing = Deferred.fromCoroutine(self._renew(uid))
        renewing.addTimeout(self._duration / 4, self.clock)
        try:
            await renewing
        except DeferredTimeout:
            # Raised, so that it is repeated soon: over another connection an answer may come before the lease expires.
            raise Unreachable(f"the lease of {self._node_name} was not renewed in time") from None
        return wait

    async def _renew(self, node_uid: str) -> None:
        name, now = self._node_name, rfc3339_micro(wall_clock(self.clock)())
        try:
            await self._client.patch(LEASES, name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE, view=None)
        except NotFound:
            lease = forge_lease(name, self._duration, now, node_uid)
            await self._client.create(LEASES, lease, LEASE_NAMESPACE, view=None)
