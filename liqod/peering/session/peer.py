"""The in-memory state of one peer; state that must survive a restart is in records."""

from __future__ import annotations

import hashlib
from typing import Final

import attrs
from twisted.internet.defer import DeferredLock

from liqod.flow.connections.admission import Bucket
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Offer
from liqod.model.records.views import Endpoint, ForeignCluster, Lent
from liqod.peering.session.dialer import Dialer
from liqod.peering.session.lending import Lending
from liqod.peering.session.lifecycle import Action, LifecycleEvent, PeeringState, Unknown, next_state
from liqod.peering.session.protocol import PeerConnection

STATUS_BURST: Final = 20
"""Writes of a pinned peer's status at once, then it is one a second: a first peering makes about ten."""


@attrs.frozen
class ConnectionProblem:
    """Why there is no session: a reason, a message, and whether the peer's key is the cause.

    ``attempt``: why the last attempt to dial failed, where that is not the cause itself.
    """

    reason: str
    message: str
    about_key: bool = False
    attempt: str = ""

    @property
    def sentence(self) -> str:
        """The message for users."""
        return f"{self.message}; {self.attempt}" if self.attempt else self.message


@attrs.frozen(kw_only=True)
class Received:
    """The newest offer of the peer; ``problem``: its validation error; ``at``: when it was last received."""

    epoch: int
    seq: int
    ttl: int
    offer: Offer
    problem: str
    at: float


@attrs.define(kw_only=True, eq=False)
class Peer:
    """One peer. ``broken_at``: when its last session ended (or it became known); ``dialer``: dials it.

    ``state``: its state in the life cycle; ``advance`` changes it. ``lending``: what we lend to it; ``received`` and
    ``credential``: what it lends to us, and whether its credential is stored, None until the Secret was read.
    ``called_at``: when it last showed an untrusted key; ``sighted_at``: when what discovery shows of it last changed;
    ``network``: where it called from then (``stranger_places``), None if it did not.
    ``status_written_at``: when its status was last written; ``status_pace`` limits that while its key is pinned.
    ``impostor_shown_at``: when an Event last named another key that claimed its ID.
    ``knows_key``: the newest key of ours that it acknowledged.
    """

    id: ClusterID
    dialer: Dialer
    broken_at: float
    name: str = ""
    sightings: tuple[Endpoint, ...] = ()
    session: PeerConnection | None = None
    state: PeeringState = attrs.field(factory=Unknown)
    seen: Fingerprint | None = None
    status_written_at: float = 0.0
    status_pace: Bucket = attrs.field(factory=lambda: Bucket(1.0, STATUS_BURST))
    impostor_shown_at: float = -1e9
    called_at: float = 0.0
    network: str | None = None
    sighted_at: float = 0.0
    knows_key: str = ""
    problem: ConnectionProblem | None = None
    lending: Lending = attrs.field(factory=Lending)
    received: Received | None = None
    credential: bool | None = None
    writing: DeferredLock = attrs.field(factory=DeferredLock)

    def advance(self, event: LifecycleEvent) -> frozenset[Action]:
        """Change the state by an event; returns the actions that the caller must take."""
        self.state, actions = next_state(self.state, event)
        if Action.FORGET_PEERING in actions:
            self.lending = Lending()
            self.problem, self.seen, self.received, self.credential = None, None, None, None
        if Action.FORGET_KEY in actions:
            self.seen = None
        return actions

    @property
    def lent(self) -> Lent | None:
        """Our offer to the peer, as it is on record."""
        return self.lending.lent

    @property
    def epoch(self) -> int:
        """The epoch in the Hello of the peer in the current session, 0 without one."""
        hello = self.session.peer_hello if self.session is not None else None
        return hello.epoch if hello is not None else 0


def addresses(peer: Peer, record: ForeignCluster | None) -> tuple[Endpoint, ...]:
    """Return the addresses to dial, best first: configured by a user, sighted now, known from earlier sessions."""
    by_hand = record.spec.endpoints if record is not None else []
    before = record.status.endpoints if record is not None else []
    unique: dict[str, Endpoint] = {}
    for endpoint in (*by_hand, *peer.sightings, *before):
        unique.setdefault(endpoint.address, endpoint)
    return tuple(unique.values())


def short_id(cluster_id: str) -> str:
    """Return six hex digits that distinguish clusters of the same name."""
    return hashlib.sha256(cluster_id.encode()).hexdigest()[:6]
