"""Notifies controllers of changes of peers: ``ENQUEUED`` is the table of which controller is notified of which change.

The routers call ``Changes.notify``; a controller takes its keys from ``Changes.of(queue)`` (see
``controller.PeerController.sources``). So neither knows the other. What concerns one controller alone goes past the
table: sessions and routers enqueue a peer at its record (``records.enqueue``), and pass answers of the peer to the part
that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

import attrs
from twisted.internet.defer import Deferred

from liqod.flow.observe import Gate
from liqod.model.ids import ClusterID

K = TypeVar("K", bound=Hashable)


class Change(Enum):
    """A change of a peer, or of a record about it."""

    SESSION_OPENED = auto()
    VERDICT_RECEIVED = auto()
    BORROWER_LEFT = auto()
    """The peer stopped using what we lend, by its own decision."""
    HANDED_BACK = auto()
    """The peer acknowledged our withdrawal."""
    PEER_FINISHED = auto()
    """The peer ended the peering and has removed everything."""
    PEER_UNPEERED = auto()
    """The peer ended the peering: our record must be deleted."""
    RECORD_CHANGED = auto()
    RECORD_DELETING = auto()
    ORDER_CHANGED = auto()
    """The annotation with the unpeering order changed, on a record that is already being deleted."""
    DISTRUST_SETTLED = auto()
    """Everything that follows from a distrusted key is done."""
    ADVERTISEMENT_CHANGED = auto()
    ADVERTISEMENT_DELETED = auto()
    """A user deleted the Advertisement of a peer whose offer still holds."""
    OFFER_RECEIVED = auto()
    """The peer sent an offer, or withdrew it; the Advertisement is up to date."""
    OFFER_DECIDED = auto()
    """The decision about the peer's offer is on record."""
    DECISION_CHANGED = auto()
    """It differs from the one before."""
    CREDENTIAL_STORED = auto()
    NODE_STATUS_CHANGED = auto()
    NODE_ADDED_OR_REMOVED = auto()
    LEFTOVERS_GONE = auto()
    """Nothing of the virtual node for the peer is left."""
    SLICES_CHANGED = auto()
    """Some borrower, perhaps another one, has other slices of what we lend."""
    LIMITED = auto()
    """Something was refused to the peer, or reading from it was held, as its status shows."""


class Queue(Enum):
    """One member for each controller with a queue of peers; ``ENQUEUED`` has which change goes to which."""

    STATUS = auto()
    """The status of the ForeignCluster."""
    OUR_OFFER = auto()
    """Our offer to the peer."""
    GRANT = auto()
    """The peer's rights in this cluster."""
    ADVERTISEMENT = auto()
    """The Advertisement with the peer's offer."""
    DECISION = auto()
    """The decision about the peer's offer."""
    VIRTUAL_NODE = auto()
    UNPEERING = auto()
    DISTRUST = auto()
    SLICE_GRANTS = auto()
    """The slices that the peer asks of us."""
    SLICE_REQUESTS = auto()
    """The slices that we ask of the peer."""
    NETWORK = auto()
    DIRECT = auto()
    """Direct connections between lenders, of ours and of other homes."""
    KEY_ROTATION = auto()
    """The rotation of our key, which is announced to every peer."""


ENQUEUED: Final[dict[Change, tuple[Queue, ...]]] = {
    Change.SESSION_OPENED: (
        *(Queue.OUR_OFFER, Queue.GRANT, Queue.UNPEERING, Queue.NETWORK, Queue.DIRECT, Queue.KEY_ROTATION),
        *(Queue.SLICE_GRANTS, Queue.SLICE_REQUESTS),
    ),
    Change.VERDICT_RECEIVED: (Queue.GRANT, Queue.STATUS, Queue.SLICE_GRANTS, Queue.DIRECT),
    Change.BORROWER_LEFT: (Queue.GRANT, Queue.STATUS, Queue.DIRECT),
    Change.HANDED_BACK: (Queue.GRANT, Queue.UNPEERING),
    Change.PEER_FINISHED: (Queue.GRANT, Queue.UNPEERING),
    Change.PEER_UNPEERED: (Queue.UNPEERING,),
    Change.RECORD_CHANGED: (
        *(Queue.STATUS, Queue.OUR_OFFER, Queue.GRANT, Queue.DISTRUST, Queue.DECISION),
        *(Queue.SLICE_GRANTS, Queue.DIRECT),
    ),
    Change.RECORD_DELETING: (Queue.UNPEERING, Queue.VIRTUAL_NODE),
    # A shorter time limit in the order may have passed already.
    Change.ORDER_CHANGED: (Queue.GRANT, Queue.UNPEERING),
    Change.DISTRUST_SETTLED: (Queue.UNPEERING,),
    Change.ADVERTISEMENT_CHANGED: (Queue.STATUS, Queue.DECISION, Queue.DIRECT),
    Change.ADVERTISEMENT_DELETED: (Queue.ADVERTISEMENT,),
    Change.OFFER_RECEIVED: (Queue.DECISION,),
    Change.OFFER_DECIDED: (Queue.VIRTUAL_NODE, Queue.SLICE_REQUESTS),
    Change.DECISION_CHANGED: (Queue.STATUS,),
    Change.CREDENTIAL_STORED: (Queue.VIRTUAL_NODE,),
    Change.NODE_STATUS_CHANGED: (Queue.STATUS,),
    Change.NODE_ADDED_OR_REMOVED: (Queue.VIRTUAL_NODE,),
    Change.LEFTOVERS_GONE: (Queue.VIRTUAL_NODE, Queue.UNPEERING),
    Change.SLICES_CHANGED: (Queue.OUR_OFFER,),
    Change.LIMITED: (Queue.STATUS,),
}


class PeerQueue:
    """A source of peers for a controller (``flow.controller.Source``); synced when all peers on record are known."""

    def __init__(self, known: Gate) -> None:
        self._known = known
        self._subscribers: dict[object, Callable[[ClusterID], None]] = {}

    def notify(self, peer: ClusterID) -> None:
        """Call the subscribers with a peer."""
        for subscriber in list(self._subscribers.values()):
            subscriber(peer)

    def start(self, enqueue: Callable[[ClusterID], None]) -> Callable[[], None]:
        """Call ``enqueue`` with each peer from now on; return the function that stops it."""
        token = object()
        self._subscribers[token] = enqueue
        return lambda: self._subscribers.pop(token, None) and None

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when every peer on record was notified of."""
        return self._known.wait()


class Changes:
    """Passes changes of peers to the controllers that the table names.

    No controller takes a step before ``known`` is open: with some of the records a peer would look as if it had no
    peering, and a rotation as if nobody had to learn the new key.
    """

    def __init__(self) -> None:
        self.known = Gate()
        self._queues = {queue: PeerQueue(self.known) for queue in Queue}

    def notify(self, change: Change, peer: ClusterID) -> None:
        """Enqueue a peer at every controller that a change concerns."""
        for queue in ENQUEUED[change]:
            self._queues[queue].notify(peer)

    def of(self, queue: Queue) -> PeerQueue:
        """Return a queue as a source of keys."""
        return self._queues[queue]


@attrs.frozen
class _Mapped(Generic[K]):
    queue: PeerQueue
    keys_of: Callable[[ClusterID], Iterable[K]]

    def start(self, enqueue: Callable[[K], None]) -> Callable[[], None]:
        def changed(peer: ClusterID) -> None:
            for key in self.keys_of(peer):
                enqueue(key)

        return self.queue.start(changed)

    def when_synced(self) -> Deferred[None]:
        return self.queue.when_synced()


def mapped(queue: PeerQueue, keys_of: Callable[[ClusterID], Iterable[K]]) -> _Mapped[K]:
    """Return a source of the keys that ``keys_of`` names for each peer, for a controller whose keys are not peers."""
    return _Mapped(queue, keys_of)
