"""The life cycle of one peer as a state machine: its states, its events, and the table of transitions. Pure.

A state has the fields that are meaningful only in it: an unknown peer owes no acknowledgement, and only a peering that
is being ended has a start time of that. ``next_state`` is a table over all pairs of state and event, including those
that change nothing, so that no event is ignored by accident. The drawing in docs/peering.md is generated from this
table by ``python -m tests.peering.session.lifecycle_drawing --write``.

The session itself is not part of the state (``Peer.session``): it may break and be re-established in most states.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

import attrs


@attrs.frozen
class Unknown:
    """The cluster has no ForeignCluster, and needs none."""


@attrs.frozen
class Stranger:
    """The cluster's key is not trusted. ``recorded``: it has a ForeignCluster, else one must be created."""

    recorded: bool


@attrs.frozen
class Pending:
    """The key is pinned, and no session with it was established yet."""


@attrs.frozen
class Connected:
    """A session is established. ``owed``: the epoch of a Withdraw that is not acknowledged yet, else None."""

    owed: int | None = None


@attrs.frozen
class Disconnected:
    """The session with the pinned key ended. ``suspect``: because the peer did not answer pings."""

    suspect: bool = False
    owed: int | None = None


@attrs.frozen
class Unpeered:
    """The peer ended the peering, and our ForeignCluster must still be deleted.

    ``kind``: the kind of the deletion (``model.records.unpeering.UnpeeringOrder``); ``finished``: the peer has removed
    everything on its side.
    """

    kind: Literal["by-peer", "ended"]
    finished: bool = False
    owed: int | None = None


@attrs.frozen(kw_only=True)
class Withdrawing:
    """Our ForeignCluster is being deleted; its finalizer delays that until nothing of the peering is left.

    ``since``: seconds of the reactor's clock; ``ever_connected``: the peer may rely on the peering;
    ``unpeered_by_peer``, ``finished``: what the peer reported about its side; ``owed``: as in ``Connected``;
    ``dismissal_owed``: the peer's rights in this cluster must still be revoked; ``waiting_for``: shown to users.
    """

    since: float
    ever_connected: bool = False
    unpeered_by_peer: bool = False
    finished: bool = False
    owed: int | None = None
    dismissal_owed: bool = False
    waiting_for: str = ""


PeeringState = Unknown | Stranger | Pending | Connected | Disconnected | Unpeered | Withdrawing
STATES: Final = (Unknown, Stranger, Pending, Connected, Disconnected, Unpeered, Withdrawing)


@attrs.frozen
class RecordObserved:
    """A ForeignCluster exists. ``authenticated``: by its status there was a session with the pinned key;
    ``lent``: an offer was made to the peer; ``since``: when its deletion began, now without one, in seconds of the
    reactor's clock.
    """

    pinned: bool
    deleting: bool
    authenticated: bool
    lent: bool
    since: float


@attrs.frozen
class RecordGone:
    """The ForeignCluster was deleted."""


@attrs.frozen
class UntrustedKeyShown:
    """The cluster connected with an untrusted key."""


@attrs.frozen
class NoRoom:
    """The limit of ForeignClusters of strangers is reached. ``sighted``: discovery shows the cluster."""

    sighted: bool


@attrs.frozen
class SessionOpened:
    """A session was established."""


@attrs.frozen
class SessionClosed:
    """The session ended, and was not replaced by another."""

    unresponsive: bool


@attrs.frozen
class WithdrawReceived:
    """The peer withdrew what it lends us. ``unpeering``: it ends the whole peering."""

    epoch: int
    unpeering: bool


@attrs.frozen
class Acknowledged:
    """We acknowledged the peer's withdrawal: nothing that it lent us is in use."""


@attrs.frozen
class UnpeeredByPeer:
    """The peer ended the peering and has removed everything: ``Bye(Unpeered)``."""


@attrs.frozen
class Admitted:
    """Rights in this cluster were granted to the peer."""


@attrs.frozen
class Dismissed:
    """The peer's rights in this cluster were revoked."""


@attrs.frozen
class WaitingFor:
    """The reason why the end of the peering is delayed changed."""

    sentence: str


LifecycleEvent = (
    RecordObserved
    | RecordGone
    | UntrustedKeyShown
    | NoRoom
    | SessionOpened
    | SessionClosed
    | WithdrawReceived
    | Acknowledged
    | UnpeeredByPeer
    | Admitted
    | Dismissed
    | WaitingFor
)
EVENTS: Final = (
    RecordObserved,
    RecordGone,
    UntrustedKeyShown,
    NoRoom,
    SessionOpened,
    SessionClosed,
    WithdrawReceived,
    Acknowledged,
    UnpeeredByPeer,
    Admitted,
    Dismissed,
    WaitingFor,
)


class Action(Enum):
    """Actions that a transition requests."""

    FORGET_PEERING = "forget what was kept for the peering"
    FORGET_KEY = "forget the key that was shown"
    FOLLOW = "delete our ForeignCluster"


Step = tuple[PeeringState, frozenset[Action]]
_NOTHING: Final[frozenset[Action]] = frozenset()


def next_state(state: PeeringState, event: LifecycleEvent) -> Step:
    """Return the state after an event, and the actions to take."""
    return TABLE[type(event)][type(state)](state, event)


def ever_connected(state: PeeringState) -> bool:
    """Return whether there was a session with the pinned key: the peer may rely on the peering."""
    return isinstance(state, Connected | Disconnected | Unpeered) or (
        isinstance(state, Withdrawing) and state.ever_connected
    )


def owed_acknowledgement(state: PeeringState) -> int | None:
    """Return the epoch of the peer's withdrawal that is not acknowledged yet, None without one."""
    return state.owed if isinstance(state, Connected | Disconnected | Unpeered | Withdrawing) else None


def has_finished(state: PeeringState) -> bool:
    """Return whether the peer has removed everything of the peering on its side."""
    return isinstance(state, Unpeered | Withdrawing) and state.finished


# The transitions. Each takes the state and the event of its cell in the table.


def _stay(state: PeeringState, event: Any) -> Step:
    return state, _NOTHING


def _observe(state: PeeringState, event: RecordObserved) -> Step:
    """Observe a record in a state without one, or with a pin that may have changed."""
    if event.deleting:
        return _withdraw(state, event)
    if not event.pinned:
        return Stranger(recorded=True), _NOTHING
    return (Disconnected() if event.authenticated else Pending()), _NOTHING


def _observe_trusted(state: PeeringState, event: RecordObserved) -> Step:
    """Observe a record in a state with a pinned key: without a pin it is a stranger; deletion ends the peering."""
    if event.deleting:
        return _withdraw(state, event)
    if not event.pinned:
        # A user who trusts the peer again must see the key that it has by then, not the one seen before.
        return Stranger(recorded=True), frozenset({Action.FORGET_KEY})
    return state, _NOTHING


def _observe_pending(state: Pending, event: RecordObserved) -> Step:
    return _observe_trusted(Disconnected() if event.authenticated else state, event)


def _observe_withdrawing(state: Withdrawing, event: RecordObserved) -> Step:
    # Kubernetes cannot undo a deletion (deletionTimestamp is never unset): without it, the record is another one.
    return (state, _NOTHING) if event.deleting else _observe(Unknown(), event)


def _withdraw(state: PeeringState, event: RecordObserved) -> Step:
    ending = Withdrawing(
        since=event.since,
        ever_connected=ever_connected(state) or event.authenticated,
        unpeered_by_peer=isinstance(state, Unpeered),
        finished=has_finished(state),
        owed=owed_acknowledgement(state),
        # The grant is recorded after the rights were created, and the daemon may stop between the two: every peer with
        # an offer is therefore dismissed. Where nothing was granted, that costs one request.
        dismissal_owed=event.lent,
    )
    return ending, _NOTHING


def _forget(state: PeeringState, event: RecordGone) -> Step:
    return Unknown(), frozenset({Action.FORGET_PEERING})


def _show(state: Unknown, event: UntrustedKeyShown) -> Step:
    return Stranger(recorded=False), _NOTHING


def _give_up_showing(state: Stranger, event: NoRoom) -> Step:
    return (state if state.recorded or event.sighted else Unknown()), _NOTHING


def _connect(state: PeeringState, event: SessionOpened) -> Step:
    return Connected(owed_acknowledgement(state)), _NOTHING


def _connect_withdrawing(state: Withdrawing, event: SessionOpened) -> Step:
    return attrs.evolve(state, ever_connected=True), _NOTHING


def _disconnect(state: Connected, event: SessionClosed) -> Step:
    return Disconnected(event.unresponsive, state.owed), _NOTHING


def _owe(state: Connected | Disconnected, event: WithdrawReceived) -> Step:
    if event.unpeering:
        return Unpeered("by-peer", owed=event.epoch), frozenset({Action.FOLLOW})
    return attrs.evolve(state, owed=event.epoch), _NOTHING


def _owe_unpeered(state: Unpeered, event: WithdrawReceived) -> Step:
    return attrs.evolve(state, owed=event.epoch), _NOTHING


def _owe_withdrawing(state: Withdrawing, event: WithdrawReceived) -> Step:
    by_peer = state.unpeered_by_peer or event.unpeering
    return attrs.evolve(state, owed=event.epoch, unpeered_by_peer=by_peer), _NOTHING


def _settle(state: Connected | Disconnected | Unpeered | Withdrawing, event: Acknowledged) -> Step:
    return attrs.evolve(state, owed=None), _NOTHING


def _follow(state: PeeringState, event: UnpeeredByPeer) -> Step:
    return Unpeered("ended", finished=True, owed=owed_acknowledgement(state)), frozenset({Action.FOLLOW})


def _finish(state: Unpeered, event: UnpeeredByPeer) -> Step:
    return attrs.evolve(state, finished=True), frozenset({Action.FOLLOW})


def _finish_withdrawing(state: Withdrawing, event: UnpeeredByPeer) -> Step:
    return attrs.evolve(state, finished=True, unpeered_by_peer=True), _NOTHING


def _admit(state: Withdrawing, event: Admitted) -> Step:
    return attrs.evolve(state, dismissal_owed=True), _NOTHING


def _dismiss(state: Withdrawing, event: Dismissed) -> Step:
    return attrs.evolve(state, dismissal_owed=False), _NOTHING


def _wait(state: Withdrawing, event: WaitingFor) -> Step:
    return attrs.evolve(state, waiting_for=event.sentence), _NOTHING


_Transition = Callable[[Any, Any], Step]


def _row(*transitions: _Transition) -> dict[type, _Transition]:
    """Return a row of the table: one transition for each of ``STATES``, in their order."""
    return dict(zip(STATES, transitions, strict=True))


# fmt: off
TABLE: Final[dict[type, dict[type, _Transition]]] = {
    # Columns: Unknown, Stranger, Pending, Connected, Disconnected, Unpeered, Withdrawing.
    RecordObserved:    _row(_observe, _observe,         _observe_pending, _observe_trusted, _observe_trusted, _observe_trusted, _observe_withdrawing),  # noqa: E501
    RecordGone:        _row(_stay,    _forget,          _forget,          _forget,          _forget,          _forget,          _forget),  # noqa: E501
    UntrustedKeyShown: _row(_show,    _stay,            _stay,            _stay,            _stay,            _stay,            _stay),  # noqa: E501
    NoRoom:            _row(_stay,    _give_up_showing, _stay,            _stay,            _stay,            _stay,            _stay),  # noqa: E501
    # A pin is valid as soon as it is written, so a session may be established before the watch shows the record.
    SessionOpened:     _row(_connect, _connect,         _connect,         _connect,         _connect,         _stay,            _connect_withdrawing),  # noqa: E501
    SessionClosed:     _row(_stay,    _stay,            _stay,            _disconnect,      _stay,            _stay,            _stay),  # noqa: E501
    WithdrawReceived:  _row(_stay,    _stay,            _stay,            _owe,             _owe,             _owe_unpeered,    _owe_withdrawing),  # noqa: E501
    Acknowledged:      _row(_stay,    _stay,            _stay,            _settle,          _settle,          _settle,          _settle),  # noqa: E501
    UnpeeredByPeer:    _row(_stay,    _stay,            _follow,          _follow,          _follow,          _finish,          _finish_withdrawing),  # noqa: E501
    Admitted:          _row(_stay,    _stay,            _stay,            _stay,            _stay,            _stay,            _admit),  # noqa: E501
    Dismissed:         _row(_stay,    _stay,            _stay,            _stay,            _stay,            _stay,            _dismiss),  # noqa: E501
    WaitingFor:        _row(_stay,    _stay,            _stay,            _stay,            _stay,            _stay,            _wait),  # noqa: E501
}
# fmt: on
