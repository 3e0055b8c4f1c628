"""The state of one peer in memory; what must survive a restart is in records."""

from __future__ import annotations

import hashlib

import attrs
from twisted.internet.defer import DeferredLock

from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Offer
from liqod.model.records.views import Endpoint, ForeignCluster, Lent, Switch
from liqod.peering.session.dialer import Dialer
from liqod.peering.session.lifecycle import Action, Event, Peering, Unknown, next_state
from liqod.peering.session.protocol import PeerConnection


@attrs.frozen
class ConnectionProblem:
    """Why there is no session: a reason, a sentence, and whether the peer's key is the matter."""

    reason: str
    message: str
    about_key: bool = False


@attrs.frozen
class Received:
    """The newest offer of the peer: ``problem``: what is wrong with it; ``at``: when it was last received."""

    epoch: int
    seq: int
    ttl: int
    offer: Offer
    problem: str
    at: float


@attrs.frozen
class Withdrawal:
    """Our withdrawal of what we lend: sent ``through`` which session, and whether the peer acknowledged it."""

    through: PeerConnection
    reason: str
    acknowledged: bool = False


@attrs.define(eq=False)
class Peer:
    """One peer. ``broken_at``: when its last session ended (or we began to look); ``dialer``: how to reach it.

    ``state``: where it is in its life; ``advance`` changes it. ``credential``: whether one of the peer's is kept, None
    when nobody has looked yet. ``admitting``: room is being made for it here. ``withdrawing_since``: since when the
    peer has time to hand back what it uses. ``called_at``: when it last showed a key that nobody trusts;
    ``sighted_at``: when a source last ceased to show it. ``knows_key``: the newest key of ours that it said to have on
    record.
    """

    id: ClusterID
    dialer: Dialer
    broken_at: float
    name: str = ""
    sightings: tuple[Endpoint, ...] = ()
    session: PeerConnection | None = None
    state: Peering = attrs.field(factory=Unknown)
    seen: Fingerprint | None = None
    seen_at: float = 0.0
    called_at: float = 0.0
    sighted_at: float = 0.0
    knows_key: str = ""
    problem: ConnectionProblem | None = None
    lent: Lent | None = None
    received: Received | None = None
    credential: bool | None = None
    trouble: str = ""
    admitting: bool = False
    withdrawal: Withdrawal | None = None
    withdrawing_since: float | None = None
    writing: DeferredLock = attrs.field(factory=DeferredLock)

    def advance(self, event: Event) -> frozenset[Action]:
        """Change the state by an event; returns what is to be done, as far as it is not done here."""
        self.state, actions = next_state(self.state, event)
        if Action.FORGET_PEERING in actions:
            self.lent, self.problem, self.seen, self.received, self.credential = None, None, None, None, None
            self.trouble, self.withdrawal, self.withdrawing_since = "", None, None
        if Action.FORGET_KEY in actions:
            self.seen = None
        return actions

    @property
    def acknowledged(self) -> bool:
        """Whether the peer handed back all that we lent to it."""
        return self.withdrawal is not None and self.withdrawal.acknowledged

    @property
    def epoch(self) -> int:
        """The epoch that the peer named in the Hello of the present session, 0 without one."""
        hello = self.session.peer_hello if self.session is not None else None
        return hello.epoch if hello is not None else 0


def is_on(switch: Switch, default: Switch) -> bool:
    """Return whether a direction is wanted: ``Auto`` follows the settings, and Auto there means yes."""
    return (default if switch == "Auto" else switch) != "No"


def addresses(peer: Peer, record: ForeignCluster | None) -> tuple[Endpoint, ...]:
    """Return where the peer may be dialled, best first: written by hand, seen now, known from before."""
    by_hand = record.spec.endpoints if record is not None else []
    before = record.status.endpoints if record is not None else []
    unique: dict[str, Endpoint] = {}
    for endpoint in (*by_hand, *peer.sightings, *before):
        unique.setdefault(endpoint.address, endpoint)
    return tuple(unique.values())


def short_id(cluster_id: str) -> str:
    """Return six hex digits that tell clusters of one name apart."""
    return hashlib.sha256(cluster_id.encode()).hexdigest()[:6]
