"""The life of a peer: every pair of state and event, what is owed, and that the page shows what the table says."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.peering.session.lifecycle import (
    EVENTS,
    STATES,
    TABLE,
    Acknowledged,
    Action,
    Admitted,
    Connected,
    Disconnected,
    Dismissed,
    LifecycleEvent,
    NoRoom,
    PeeringState,
    Pending,
    RecordGone,
    RecordObserved,
    SessionClosed,
    SessionOpened,
    Stranger,
    Unknown,
    Unpeered,
    UnpeeredByPeer,
    UntrustedKeyShown,
    WaitingFor,
    Withdrawing,
    WithdrawReceived,
    ever_connected,
    has_finished,
    next_state,
    owed_acknowledgement,
)
from tests.peering.session import lifecycle_drawing as page

U, S, P, C, D, L, W = STATES

PINNED = RecordObserved(pinned=True, deleting=False, authenticated=False, lent=False, since=50.0)
MET = attrs.evolve(PINNED, authenticated=True)
UNPINNED = attrs.evolve(PINNED, pinned=False)
DELETED = attrs.evolve(PINNED, deleting=True)

KINDS: tuple[tuple[LifecycleEvent, tuple[type, ...]], ...] = (
    #                                     U  S  P  C  D  L  W
    (PINNED, (P, P, P, C, D, L, P)),
    (MET, (D, D, D, C, D, L, D)),
    (UNPINNED, (S, S, S, S, S, S, S)),
    (DELETED, (W, W, W, W, W, W, W)),
    (RecordGone(), (U, U, U, U, U, U, U)),
    (UntrustedKeyShown(), (S, S, P, C, D, L, W)),
    (NoRoom(sighted=True), (U, S, P, C, D, L, W)),
    (SessionOpened(), (C, C, C, C, C, L, W)),
    (SessionClosed(unresponsive=False), (U, S, P, D, D, L, W)),
    (SessionClosed(unresponsive=True), (U, S, P, D, D, L, W)),
    (WithdrawReceived(5, unpeering=False), (U, S, P, C, D, L, W)),
    (WithdrawReceived(5, unpeering=True), (U, S, P, L, L, L, W)),
    (Acknowledged(), (U, S, P, C, D, L, W)),
    (UnpeeredByPeer(), (U, S, L, L, L, L, W)),
    (Admitted(), (U, S, P, C, D, L, W)),
    (Dismissed(), (U, S, P, C, D, L, W)),
    (WaitingFor("x"), (U, S, P, C, D, L, W)),
)
"""The kind of state that each event leads to, from each kind of state."""

FOLLOWS = (
    (WithdrawReceived(5, unpeering=True), (C, D)),
    (UnpeeredByPeer(), (P, C, D, L)),
)
"""The events, and states, in which our record is deleted because of the peer."""


class TableTests(SynchronousTestCase):
    """Which state follows."""

    def test_every_pair_is_in_the_table(self) -> None:
        """No event is ignored because somebody forgot it."""
        self.assertEqual({event: set(row) for event, row in TABLE.items()}, {event: set(STATES) for event in EVENTS})
        self.assertEqual({type(event) for event, _ in KINDS}, set(EVENTS))

    def test_the_kind_of_state_that_follows(self) -> None:
        """Every kind of state and event lead where the table of this test says, whatever the state carries."""
        for event, expected in KINDS:
            for state in page.SAMPLES:
                after, _ = next_state(state, event)
                self.assertIs(type(after), expected[STATES.index(type(state))], f"{state} {event}")

    def test_our_record_is_deleted_when_the_peer_ends_the_peering(self) -> None:
        """And for nothing else."""
        for _, event in page.EVENTS:
            for state in page.SAMPLES:
                follows = any(event == one and type(state) in states for one, states in FOLLOWS)
                self.assertEqual(Action.FOLLOW in next_state(state, event)[1], follows, f"{state} {event}")

    def test_without_a_record_nothing_of_the_peering_is_kept(self) -> None:
        """Whatever was: a peer that is trusted again later owes nothing and has met nobody."""
        for state in page.SAMPLES:
            after, actions = next_state(state, RecordGone())
            self.assertEqual(after, Unknown())
            self.assertEqual(Action.FORGET_PEERING in actions, state != Unknown())

    def test_trust_taken_back_forgets_the_key(self) -> None:
        """Once a pin was there; a stranger whose record is seen again keeps the key that it showed."""
        for state in page.SAMPLES:
            forgets = isinstance(state, Pending | Connected | Disconnected | Unpeered)
            self.assertEqual(Action.FORGET_KEY in next_state(state, UNPINNED)[1], forgets, str(state))

    def test_a_stranger_without_room_and_out_of_sight_is_let_go(self) -> None:
        """One that has a record, or is in sight, is not."""
        for recorded in (False, True):
            for sighted in (False, True):
                after, _ = next_state(Stranger(recorded), NoRoom(sighted))
                self.assertEqual(after, Stranger(recorded) if recorded or sighted else Unknown())


class DebtTests(SynchronousTestCase):
    """What is owed is owed until it is done."""

    def test_an_acknowledgement_is_owed_until_it_was_sent(self) -> None:
        """Only an acknowledgement, the end of trust, or the end of the record settles it; a newer one replaces it."""
        for state in page.SAMPLES:
            for _, event in page.EVENTS:
                owed = owed_acknowledgement(state)
                after, _ = next_state(state, event)
                if owed is None or isinstance(event, Acknowledged) or isinstance(after, Unknown | Stranger | Pending):
                    continue
                if isinstance(state, Withdrawing) and not isinstance(after, Withdrawing):
                    continue  # another record than the one whose end it was
                expected = event.epoch if isinstance(event, WithdrawReceived) else owed
                self.assertEqual(owed_acknowledgement(after), expected, f"{state} {event}")

    def test_a_dismissal_is_owed_until_it_was_done(self) -> None:
        """Sessions, restarts of the peer, and time do not settle it: only the dismissal, or the end of the record."""
        for state in page.SAMPLES:
            if not isinstance(state, Withdrawing) or not state.dismissal_owed:
                continue
            for _, event in page.EVENTS:
                after, _ = next_state(state, event)
                if isinstance(after, Withdrawing) and not isinstance(event, Dismissed):
                    self.assertTrue(after.dismissal_owed, f"{state} {event}")
                else:
                    self.assertIsInstance(event, Dismissed | RecordGone | RecordObserved)

    def test_one_that_was_offered_anything_is_dismissed(self) -> None:
        """A deletion that is seen after a restart owes the dismissal again, from whatever state."""
        for state in page.SAMPLES:
            if isinstance(state, Withdrawing):
                continue
            for lent in (False, True):
                after, _ = next_state(state, attrs.evolve(DELETED, lent=lent))
                assert isinstance(after, Withdrawing)
                self.assertEqual(after.dismissal_owed, lent)

    def test_rights_given_during_the_end_are_taken_back_as_well(self) -> None:
        """An admission that was under way when the end began owes a dismissal."""
        state, _ = next_state(Withdrawing(since=10.0), Admitted())
        self.assertEqual(state, Withdrawing(since=10.0, dismissal_owed=True))

    def test_the_end_goes_on_from_what_was(self) -> None:
        """Deleting the record loses nothing of what the peer said before."""
        ended = Withdrawing(since=50.0, ever_connected=True, unpeered_by_peer=True, finished=True, owed=4)
        self.assertEqual(next_state(Unpeered("ended", finished=True, owed=4), DELETED)[0], ended)
        self.assertEqual(next_state(Connected(4), DELETED)[0], Withdrawing(since=50.0, ever_connected=True, owed=4))
        self.assertEqual(next_state(Pending(), DELETED)[0], Withdrawing(since=50.0))

    def test_the_end_begins_once(self) -> None:
        """Another look at the record that is being deleted changes nothing, the moment of the beginning above all."""
        for state in page.SAMPLES:
            if isinstance(state, Withdrawing):
                self.assertEqual(next_state(state, attrs.evolve(DELETED, lent=True, since=99.0))[0], state)


class PredicateTests(SynchronousTestCase):
    """What the rest of the daemon asks of a state."""

    def test_who_ever_connected(self) -> None:
        """A session counts from when it is there until trust is taken back or the record is gone."""
        state: PeeringState = Pending()
        self.assertFalse(ever_connected(state))
        state, _ = next_state(state, SessionOpened())
        self.assertTrue(ever_connected(state))
        state, _ = next_state(state, SessionClosed(unresponsive=True))
        self.assertEqual((state, ever_connected(state)), (Disconnected(suspect=True), True))
        self.assertTrue(ever_connected(next_state(state, DELETED)[0]))
        self.assertFalse(ever_connected(next_state(state, UNPINNED)[0]))

    def test_who_has_finished(self) -> None:
        """A withdrawal of the peer's begins its end, its farewell finishes it."""
        state, _ = next_state(Connected(), WithdrawReceived(5, unpeering=True))
        self.assertFalse(has_finished(state))
        self.assertTrue(has_finished(next_state(state, UnpeeredByPeer())[0]))


class PageTests(SynchronousTestCase):
    """docs/peering.md."""

    def test_the_page_shows_the_table(self) -> None:
        """The drawing is the one made from the table: ``python -m tests.peering.session.lifecycle_drawing --write``."""
        self.assertEqual(page.split(page.PAGE.read_text(encoding="utf-8"))[1], page.drawing())
