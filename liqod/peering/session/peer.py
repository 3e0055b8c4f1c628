"""What the daemon knows about one peer while it runs: nothing here outlives it, and nothing here decides."""

from __future__ import annotations

import hashlib

import attrs
from twisted.internet.defer import DeferredLock

from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Offer
from liqod.model.records.unpeering import Kind
from liqod.model.records.views import Endpoint, ForeignCluster, Lent, Switch
from liqod.peering.session.dialer import Dialer
from liqod.peering.session.protocol import PeerConnection


@attrs.frozen
class Doubt:
    """Why there is no session: a reason, a sentence, and whether the peer's key is the matter."""

    reason: str
    message: str
    about_key: bool = False


@attrs.frozen
class Received:
    """The newest offer of the peer: ``problem`` tells what is wrong with it, ``at`` when it was last heard."""

    epoch: int
    seq: int
    ttl: int
    offer: Offer
    problem: str
    at: float


@attrs.frozen
class Withdrawal:
    """That we take back what we lend: told ``through`` which session, and whether the peer said that it is done."""

    through: PeerConnection
    reason: str
    acknowledged: bool = False


@attrs.define(eq=False)
class Peer:
    """One peer. ``broken_at``: when its last session ended (or we began to look); ``dialer``: how to reach it.

    ``credential``: whether one of the peer's is kept, None when nobody has looked yet. ``admitting``: room is being
    made for it here. ``withdrawing_since``: since when the peer has time to hand back what it uses. ``owes``: the epoch
    of a withdrawal of the peer's that we have not acknowledged yet. ``leaving``: the peer said that it ends the
    peering; ``left``: it is through with that; ``ordered``: how we are to end it therefore. ``stranger``: it showed a
    key that nobody trusts, and is to have a record. ``called_at``: when it last showed a key that nobody trusts;
    ``sighted_at``: when a source last ceased to show it. ``knows_key``: the newest key of ours that it said to have on
    record. ``ending``: what our own end of the peering waits for.
    """

    id: ClusterID
    dialer: Dialer
    broken_at: float
    name: str = ""
    sightings: tuple[Endpoint, ...] = ()
    session: PeerConnection | None = None
    met: bool = False
    suspect: bool = False
    seen: Fingerprint | None = None
    stranger: bool = False
    seen_at: float = 0.0
    called_at: float = 0.0
    sighted_at: float = 0.0
    knows_key: str = ""
    doubt: Doubt | None = None
    lent: Lent | None = None
    received: Received | None = None
    credential: bool | None = None
    trouble: str = ""
    admitting: bool = False
    withdrawal: Withdrawal | None = None
    withdrawing_since: float | None = None
    owes: int | None = None
    leaving: bool = False
    left: bool = False
    ordered: Kind | None = None
    ending: str = ""
    writing: DeferredLock = attrs.field(factory=DeferredLock)

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
    """Tell whether a direction is wanted: ``Auto`` follows the settings, and Auto there means yes."""
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
