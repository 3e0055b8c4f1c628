"""The notification table: which controllers reconcile a peer after which change. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


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
    OFFER_CHANGED = auto()
    OFFER_DELETED = auto()
    """A user deleted the Advertisement of a peer whose offer still holds."""
    OFFER_RULED = auto()
    RULING_CHANGED = auto()
    CREDENTIAL_STORED = auto()
    NODE_STATUS_CHANGED = auto()
    NODE_ADDED_OR_REMOVED = auto()
    LEFTOVERS_GONE = auto()
    """Nothing of the virtual node for the peer is left."""


class Queue(Enum):
    """The controllers whose queue holds peers."""

    RECORD = auto()
    """The status of the ForeignCluster."""
    OFFER = auto()
    """Our offer to the peer."""
    GRANT = auto()
    """The peer's rights in this cluster."""
    ADVERTISEMENT = auto()
    """The Advertisement with the peer's offer."""
    VIRTUAL_NODE = auto()
    UNPEERING = auto()
    DISTRUST = auto()
    NETWORK = auto()


ENQUEUED: Final[dict[Change, tuple[Queue, ...]]] = {
    Change.SESSION_OPENED: (Queue.OFFER, Queue.GRANT, Queue.UNPEERING, Queue.NETWORK),
    Change.VERDICT_RECEIVED: (Queue.GRANT, Queue.RECORD),
    Change.BORROWER_LEFT: (Queue.GRANT, Queue.RECORD),
    Change.HANDED_BACK: (Queue.GRANT, Queue.UNPEERING),
    Change.PEER_FINISHED: (Queue.GRANT, Queue.UNPEERING),
    Change.PEER_UNPEERED: (Queue.UNPEERING,),
    Change.RECORD_CHANGED: (Queue.RECORD, Queue.OFFER, Queue.GRANT, Queue.DISTRUST),
    Change.RECORD_DELETING: (Queue.UNPEERING, Queue.VIRTUAL_NODE),
    # A shorter time limit in the order may have passed already.
    Change.ORDER_CHANGED: (Queue.GRANT, Queue.UNPEERING),
    Change.OFFER_CHANGED: (Queue.RECORD,),
    Change.OFFER_DELETED: (Queue.ADVERTISEMENT,),
    Change.OFFER_RULED: (Queue.VIRTUAL_NODE,),
    Change.RULING_CHANGED: (Queue.RECORD,),
    Change.CREDENTIAL_STORED: (Queue.VIRTUAL_NODE,),
    Change.NODE_STATUS_CHANGED: (Queue.RECORD,),
    Change.NODE_ADDED_OR_REMOVED: (Queue.VIRTUAL_NODE,),
    Change.LEFTOVERS_GONE: (Queue.VIRTUAL_NODE, Queue.UNPEERING),
}
