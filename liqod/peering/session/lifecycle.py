"""The life of one peer as a state machine: which states there are, and what each event leads to. Pure.

A state carries what exists only in it: a peer that is not known owes nothing, and only a peering that is being ended
has a moment at which that began. ``next_state`` is a table over all pairs of state and event; a pair that changes
nothing is in it as well, so that nothing is ignored by accident. docs/peering.md has the drawing, made from this table
by ``python -m tests.peering.lifecycle_drawing --write``.

The session itself is not part of the state (``Peer.session``): it may break and come back in most states.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

import attrs


@attrs.frozen
class Unknown:
    """There is no ForeignCluster for the cluster, and nothing to show in one."""


@attrs.frozen
class Stranger:
    """A cluster whose key is not trusted. ``recorded``: it has a ForeignCluster, else it is to get one."""

    recorded: bool


@attrs.frozen
class Pending:
    """The key is pinned, and there was no session with it yet."""


@attrs.frozen
class Connected:
    """There is a session. ``owed``: the epoch of a withdrawal of the peer's that is to be acknowledged, else None."""

    owed: int | None = None


@attrs.frozen
class Disconnected:
    """There was a session with the pinned key. ``suspect``: it ended because the peer did not answer pings."""

    suspect: bool = False
    owed: int | None = None


@attrs.frozen
class Unpeered:
    """The peer ended the peering, and our ForeignCluster is still to be deleted.

    ``kind``: what the deletion says about the peer (``model.records.unpeering.Order``); ``finished``: the peer has
    removed everything on its side.
    """

    kind: Literal["by-peer", "ended"]
    finished: bool = False
    owed: int | None = None


@attrs.frozen
class Withdrawing:
    """Our ForeignCluster is being deleted; its finalizer keeps it until nothing is left.

    ``since``: seconds of the reactor's clock; ``ever_connected``: the peer may rely on the peering;
    ``unpeered_by_peer``, ``finished``: what the peer said of its own side; ``owed``: as in ``Connected``;
    ``dismissal_owed``: the peer's rights in this cluster are still to be taken back; ``waiting_for``: shown to users.
    """

    since: float
    ever_connected: bool = False
    unpeered_by_peer: bool = False
    finished: bool = False
    owed: int | None = None
    dismissal_owed: bool = False
    waiting_for: str = ""


Peering = Unknown | Stranger | Pending | Connected | Disconnected | Unpeered | Withdrawing
STATES: Final = (Unknown, Stranger, Pending, Connected, Disconnected, Unpeered, Withdrawing)


@attrs.frozen
class RecordObserved:
    """A ForeignCluster is there. ``authenticated``: its status says that there was a session with the pinned key;
    ``lent``: something was offered to the peer; ``now``: seconds of the reactor's clock.
    """

    pinned: bool
    deleting: bool
    authenticated: bool
    lent: bool
    now: float


@attrs.frozen
class RecordGone:
    """There is no ForeignCluster any more."""


@attrs.frozen
class UntrustedKeyShown:
    """The cluster connected, with a key that is not trusted."""


@attrs.frozen
class NoRoom:
    """There are too many ForeignClusters of strangers for one more. ``sighted``: discovery shows the cluster."""

    sighted: bool


@attrs.frozen
class SessionOpened:
    """A session is established."""


@attrs.frozen
class SessionClosed:
    """The session ended, and no other took its place."""

    unresponsive: bool


@attrs.frozen
class WithdrawReceived:
    """The peer takes back what it lends us. ``unpeering``: it ends the whole peering."""

    epoch: int
    unpeering: bool


@attrs.frozen
class Acknowledged:
    """We told the peer that nothing of what it lent us is in use any more."""


@attrs.frozen
class UnpeeredByPeer:
    """The peer ended the peering and has removed everything: ``Bye(Unpeered)``."""


@attrs.frozen
class Admitted:
    """The peer was given rights in this cluster."""


@attrs.frozen
class Dismissed:
    """The peer's rights in this cluster were taken back."""


@attrs.frozen
class WaitingFor:
    """What the end of the peering waits for has changed."""

    sentence: str


Event = (
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
    """What a transition asks for."""

    FORGET_PEERING = "forget what was kept for the peering"
    FORGET_KEY = "forget the key that was shown"
    FOLLOW = "delete our ForeignCluster"


Step = tuple[Peering, frozenset[Action]]
_NOTHING: Final[frozenset[Action]] = frozenset()


def next_state(state: Peering, event: Event) -> Step:
    """Return the state after an event, and what is to be done about it."""
    return TABLE[type(event)][type(state)](state, event)


def ever_connected(state: Peering) -> bool:
    """Return whether there was a session with the key that is pinned now: the peer may rely on the peering."""
    return isinstance(state, Connected | Disconnected | Unpeered) or (
        isinstance(state, Withdrawing) and state.ever_connected
    )


def owed_acknowledgement(state: Peering) -> int | None:
    """Return the epoch of the peer's withdrawal that is not acknowledged yet, None when nothing is owed."""
    return state.owed if isinstance(state, Connected | Disconnected | Unpeered | Withdrawing) else None


def has_finished(state: Peering) -> bool:
    """Return whether the peer has removed everything on its side."""
    return isinstance(state, Unpeered | Withdrawing) and state.finished


# The steps. Each takes the state and the event of its place in the table.


def _stay(state: Peering, event: Any) -> Step:
    return state, _NOTHING


def _observe(state: Peering, event: RecordObserved) -> Step:
    """A record of a peer that has none here, or of one whose pin may have changed."""
    if event.deleting:
        return _withdraw(state, event)
    if not event.pinned:
        return Stranger(recorded=True), _NOTHING
    return (Disconnected() if event.authenticated else Pending()), _NOTHING


def _observe_trusted(state: Peering, event: RecordObserved) -> Step:
    """A record of a peer whose key was pinned: trust taken back makes it a stranger, deletion ends the peering."""
    if event.deleting:
        return _withdraw(state, event)
    if not event.pinned:
        # Whoever trusts again starts from the beginning, and is to see the key that the peer has by then.
        return Stranger(recorded=True), frozenset({Action.FORGET_KEY})
    return state, _NOTHING


def _observe_pending(state: Pending, event: RecordObserved) -> Step:
    return _observe_trusted(Disconnected() if event.authenticated else state, event)


def _observe_withdrawing(state: Withdrawing, event: RecordObserved) -> Step:
    # A deletion cannot be taken back in Kubernetes: a record that is not being deleted is another one.
    return (state, _NOTHING) if event.deleting else _observe(Unknown(), event)


def _withdraw(state: Peering, event: RecordObserved) -> Step:
    ending = Withdrawing(
        since=event.now,
        ever_connected=ever_connected(state) or event.authenticated,
        unpeered_by_peer=isinstance(state, Unpeered),
        finished=has_finished(state),
        owed=owed_acknowledgement(state),
        # Whether rights were given is on record a moment later than they are given: a daemon may end between the two,
        # so that whoever was offered anything is dismissed. It costs one request where nothing is left to take.
        dismissal_owed=event.lent,
    )
    return ending, _NOTHING


def _forget(state: Peering, event: RecordGone) -> Step:
    return Unknown(), frozenset({Action.FORGET_PEERING})


def _show(state: Unknown, event: UntrustedKeyShown) -> Step:
    return Stranger(recorded=False), _NOTHING


def _give_up_showing(state: Stranger, event: NoRoom) -> Step:
    return (state if state.recorded or event.sighted else Unknown()), _NOTHING


def _connect(state: Peering, event: SessionOpened) -> Step:
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


def _follow(state: Peering, event: UnpeeredByPeer) -> Step:
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
    # A pin counts as soon as it is written, so that a session may be there before the watch shows the record.
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
