"""The base of the controllers of peers: what all of them work with, and where their keys come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source
from liqod.kube.client import Client
from liqod.model.ids import ClusterID
from liqod.peering.changes import Changes, Queue
from liqod.peering.session.peer import Peer
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.session.usage import Usages

PACE: Final = 1.0
"""Seconds between two writes at least to which what a peer sends leads: in between the newest replaces what waits."""


@attrs.frozen(kw_only=True)
class PeeringContext:
    """What the controllers of peers share: this cluster's API server, the clock, and the known peers."""

    client: Client
    clock: IReactorTime
    peers: dict[ClusterID, Peer]
    changes: Changes
    refusals: RefusalLog
    metrics: ReconcileMetrics = NO_METRICS
    audit: Audit = NO_AUDIT
    usages: Usages = attrs.field(factory=Usages)


class PeerController(Controller[ClusterID]):
    """Reconciles peers; ``queue`` names the changes that enqueue one, None where only the controller itself does."""

    queue: ClassVar[Queue | None] = None
    workers = 4

    def __init__(self, context: PeeringContext) -> None:
        super().__init__(context.clock, metrics=context.metrics)
        self._client = context.client
        self._clock = context.clock
        self._peers = context.peers
        self._changes = context.changes
        self._refusals = context.refusals
        self._audit = context.audit
        self._next_write: dict[ClusterID, float] = {}

    def sources(self) -> Iterable[Source[ClusterID]]:
        """Return the changes of peers that concern this controller."""
        if self.queue is not None:
            yield self._changes.of(self.queue)

    def begin_write(self, peer: ClusterID) -> After | None:
        """Note that something is written for a peer now; return when that is allowed, if it is not yet (``PACE``)."""
        now = self._clock.seconds()
        if (wait := self._next_write.get(peer, now) - now) > 0:
            return After(wait)
        self._next_write[peer] = now + PACE
        return None

    def nothing_written(self, peer: ClusterID) -> None:
        """Take back what ``begin_write`` noted: the API server stored nothing."""
        self._next_write.pop(peer, None)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone; a controller that keeps more drops that too."""
        self._next_write.pop(peer, None)
        self.reset_backoff(peer)
