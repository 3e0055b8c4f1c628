"""The session: every scenario goes through two of them, with a network in between that may cut the bytes anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.offer import Offer
from liqod.wire.codec import UnknownEvent
from liqod.wire.errors import LocalProtocolError, RemoteProtocolError
from liqod.wire.events import (
    EVENTS,
    Advertise,
    Bye,
    Credential,
    Event,
    Hello,
    Join,
    MapNamespace,
    NamespaceMapped,
    Network,
    NetworkAck,
    Ping,
    Pong,
    ReleaseNamespace,
    Unsupported,
    Verdict,
    Welcome,
    Withdraw,
    Withdrawn,
)
from liqod.wire.framing import Limits, frame
from liqod.wire.session import NEED_DATA, NEEDS, NEXT, Party, Session, State

ALPHA = Hello("alpha", "turin", 1, 0, 2, ["relay", "network"])
BETA = Hello("beta", "milan.site", 7, 1, 4, ["network", "probe"])
KEY = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
ORDINARY: tuple[Event, ...] = (
    Ping(1),
    Pong(2**63 - 1),
    Unsupported(99),
    Advertise(1, 0, 1800, Offer(resources={"cpu": "4", "nvidia.com/gpu": "1"}, labels={"a/b": "c"})),
    Verdict(1, 0, "Refused", "LimitReached", "five of five offers are accepted"),
    Withdraw(1, "lender", "Unpeered"),
    Withdrawn(1, "borrower"),
    Credential("https://192.0.2.1:6443", "-----BEGIN CERTIFICATE-----\n", "abc.def", 3600, "liqo-tenant-alpha"),
    MapNamespace(1, "shop", "shop-alpha"),
    NamespaceMapped(1, "shop-alpha"),
    ReleaseNamespace(2, "shop-alpha"),
    Network(["10.1.0.0/16", "fd00:1::/48"], "10.70.0.0/20", ["192.0.2.1:5871", "[2001:db8::1]:5871"], KEY, 1420),
    NetworkAck(["10.64.0.0/16", "fd00:1::/48"], "10.70.0.0/20"),
    NetworkAck([], "", "PoolExhausted", "no free network is left"),
)


def drain(session: Session) -> list[Event | UnknownEvent]:
    """Return all events that have arrived in full."""
    events = []
    while (event := session.next_event()) is not NEED_DATA:
        assert isinstance(event, Event | UnknownEvent)
        events.append(event)
    return events


class ConnectionPair:
    """Two sessions and the network between them; the peer must see exactly what was sent."""

    def __init__(self, cut: Callable[[bytes], Sequence[bytes]] = lambda data: [data]) -> None:
        self.dialer = Session("dialer")
        self.listener = Session("listener")
        self._cut = cut

    def other(self, session: Session) -> Session:
        return self.listener if session is self.dialer else self.dialer

    def say(self, session: Session, *events: Event) -> None:
        """Send events and check that the other end sees the same."""
        data = b"".join(session.send(event) for event in events)
        other = self.other(session)
        seen: list[Event | UnknownEvent] = []
        for piece in self._cut(data):
            other.receive_data(piece)
            seen += drain(other)
        assert seen == list(events), (seen, events)

    def greet(self) -> None:
        self.say(self.dialer, ALPHA)
        self.say(self.listener, BETA)

    def establish(self) -> ConnectionPair:
        self.greet()
        self.say(self.listener, self.listener.welcome())
        self.say(self.dialer, self.dialer.welcome())
        return self

    @property
    def states(self) -> tuple[State, State]:
        return self.dialer.state, self.listener.state


def raw(*fields: Any) -> bytes:
    """Return a frame with any content, as an attacker would make it."""
    return frame(msgpack.packb(list(fields)))


def established(role: str = "listener") -> Session:
    """Return one end of an established session."""
    pair = ConnectionPair().establish()
    return pair.listener if role == "listener" else pair.dialer


class Opening(SynchronousTestCase):
    """From nothing to an established session."""

    def test_states_advance_on_both_ends_alike(self) -> None:
        """Both Hellos open the judgement, both Welcomes establish."""
        pair = ConnectionPair()
        self.assertEqual(pair.states, (State.OPENING, State.OPENING))
        pair.greet()
        self.assertEqual(pair.states, (State.JUDGING, State.JUDGING))
        self.assertEqual((pair.dialer.peer_hello, pair.listener.peer_hello), (BETA, ALPHA))
        pair.say(pair.dialer, pair.dialer.welcome())
        self.assertEqual(pair.states, (State.JUDGING, State.JUDGING))
        pair.say(pair.listener, pair.listener.welcome())
        self.assertEqual(pair.states, (State.ESTABLISHED, State.ESTABLISHED))

    def test_highest_common_minor_and_common_features_are_chosen(self) -> None:
        """Peers of different releases work with what both have."""
        pair = ConnectionPair().establish()
        for session in (pair.dialer, pair.listener):
            self.assertEqual((session.minor, session.features), (2, frozenset({"network"})))

    def test_no_common_minor_ends_with_a_reason_for_both(self) -> None:
        """The dialer sees that there is no common minor and its last words tell the listener."""
        pair = ConnectionPair()
        pair.say(pair.dialer, ALPHA)
        pair.dialer.receive_data(pair.listener.send(Hello("beta", "milan", 1, 5, 9)))
        with self.assertRaises(RemoteProtocolError) as caught:
            pair.dialer.next_event()
        self.assertEqual(caught.exception.reason, "NoCommonMinor")
        pair.listener.receive_data(pair.dialer.last_words())
        (farewell,) = drain(pair.listener)
        assert isinstance(farewell, Bye)
        self.assertEqual(farewell.reason, "NoCommonMinor")
        self.assertEqual(pair.states, (State.CLOSED, State.CLOSED))

    def test_listener_does_not_speak_first(self) -> None:
        """What a listener is, it tells only to somebody who said Hello."""
        with self.assertRaises(LocalProtocolError):
            Session("listener").send(BETA)
        dialer = Session("dialer")
        dialer.receive_data(frame(msgpack.packb([1, "beta", "milan", 1, 0, 1, []])))
        with self.assertRaises(RemoteProtocolError):
            dialer.next_event()

    def test_busy_listener_may_say_bye_at_once(self) -> None:
        """A full listener refuses before any Hello, with a time to come back."""
        pair = ConnectionPair()
        pair.say(pair.listener, Bye("Full", "512 sessions are open", 30.0))
        self.assertEqual(pair.states, (State.CLOSED, State.CLOSED))

    def test_welcome_must_be_what_was_agreed(self) -> None:
        """Neither end can establish with a minor or a feature that the other did not name."""
        for welcome in (Welcome(1, []), Welcome(3, []), Welcome(2, ["relay"])):
            pair = ConnectionPair()
            pair.greet()
            with self.assertRaises(LocalProtocolError):
                pair.dialer.send(welcome)
            pair.listener.receive_data(raw(2, welcome.minor, welcome.features))
            with self.assertRaises(RemoteProtocolError) as caught:
                pair.listener.next_event()
            self.assertEqual(caught.exception.reason, "WelcomeDiffers")

    def test_welcome_needs_both_hellos(self) -> None:
        """There is no Welcome to make before both greeted."""
        session = Session("dialer")
        with self.assertRaises(LocalProtocolError):
            session.welcome()
        session.send(ALPHA)
        with self.assertRaises(LocalProtocolError):
            session.send(Welcome(0))


class Joining(SynchronousTestCase):
    """The proof of a pairing token, between Hello and Welcome."""

    def test_a_dialer_may_join_between_hello_and_welcome(self) -> None:
        """Once both have greeted, and only before its own Welcome."""
        pair = ConnectionPair()
        join = Join("0a1b", "f" * 64)
        with self.assertRaises(LocalProtocolError):
            pair.dialer.send(join)
        pair.say(pair.dialer, ALPHA)
        pair.say(pair.listener, BETA)
        pair.say(pair.dialer, join)
        pair.say(pair.dialer, pair.dialer.welcome())
        with self.assertRaises(LocalProtocolError):
            pair.dialer.send(join)

    def test_a_listener_never_joins(self) -> None:
        """Whoever is dialled has nothing to prove by a token."""
        pair = ConnectionPair()
        pair.say(pair.dialer, ALPHA)
        pair.say(pair.listener, BETA)
        with self.assertRaises(LocalProtocolError):
            pair.listener.send(Join("0a1b", "f" * 64))
        pair.dialer.receive_data(raw(18, "0a1b", "f" * 64))
        with self.assertRaises(RemoteProtocolError):
            pair.dialer.next_event()

    def test_the_proof_is_not_shown(self) -> None:
        """What may end in a log names the token only."""
        self.assertNotIn("ffff", repr(Join("0a1b", "f" * 64)))


class Established(SynchronousTestCase):
    """Events between two that trust each other."""

    def test_every_event_travels_both_ways_unchanged(self) -> None:
        """What one end sends the other sees, for every event there is."""
        pair = ConnectionPair().establish()
        for session in (pair.dialer, pair.listener):
            pair.say(session, *ORDINARY)
        self.assertEqual(
            {type(event) for event in ORDINARY} | {Hello, Join, Welcome, Bye}, set(EVENTS), "an event without a sample"
        )

    def test_bytes_may_come_one_at_a_time(self) -> None:
        """Cutting the stream anywhere changes nothing."""
        pair = ConnectionPair(lambda data: [data[i : i + 1] for i in range(len(data))]).establish()
        pair.say(pair.dialer, *ORDINARY)
        pair.say(pair.listener, Bye("Shutdown"))
        self.assertEqual(pair.states, (State.CLOSED, State.CLOSED))

    def test_unknown_number_is_surfaced_and_the_session_goes_on(self) -> None:
        """An event of a later release is named to the owner, who answers Unsupported."""
        pair = ConnectionPair().establish()
        pair.listener.receive_data(raw(60000, {"any": ["thing"]}, 1))
        self.assertEqual(drain(pair.listener), [UnknownEvent(60000)])
        pair.say(pair.listener, Unsupported(60000))
        pair.say(pair.dialer, Ping(3))

    def test_unknown_trailing_fields_are_ignored(self) -> None:
        """A later release may append fields to the events we know."""
        session = established()
        session.receive_data(raw(4, 7, "new", {"x": 1}))
        self.assertEqual(drain(session), [Ping(7)])

    def test_missing_optional_fields_take_their_default(self) -> None:
        """An earlier release may leave out fields that came later."""
        session = established()
        session.receive_data(raw(8, 1, 2, "Accepted"))
        self.assertEqual(drain(session), [Verdict(1, 2, "Accepted")])

    def test_unfit_text_is_made_plain_when_sent(self) -> None:
        """Line ends, escapes and text direction marks do not travel; long text is cut."""
        pair = ConnectionPair().establish()
        pair.listener.receive_data(pair.dialer.send(Bye("Shutdown", "one\ntwo\x1b[31m\u202e" + "x" * 2000)))
        (bye,) = drain(pair.listener)
        assert isinstance(bye, Bye)
        self.assertTrue(bye.message.startswith("one two [31m "))
        self.assertEqual(len(bye.message), 1024)

    def test_nothing_is_said_or_heard_after_bye(self) -> None:
        """After Bye, from either side, sending is our error and what arrives is dropped."""
        pair = ConnectionPair().establish()
        late = pair.listener.send(Ping(1))
        pair.say(pair.dialer, Bye("Shutdown"))
        pair.dialer.receive_data(late)
        self.assertIs(pair.dialer.next_event(), NEED_DATA)
        for session in (pair.dialer, pair.listener):
            with self.assertRaises(LocalProtocolError):
                session.send(Ping(2))
            with self.assertRaises(LocalProtocolError):
                session.send(Bye("Again"))

    def test_credential_hides_its_token(self) -> None:
        """Neither the event nor the error about it shows the token."""
        secret = Credential("https://a", "ca", "t0ken", 10, "ns")
        self.assertNotIn("t0ken", repr(secret))
        with self.assertRaises(LocalProtocolError) as caught:
            established().send(Credential("https://a", "ca", "t0ken with spaces", 10, "ns"))
        self.assertNotIn("t0ken", str(caught.exception))


class Refusals(SynchronousTestCase):
    """What peers do wrong."""

    def refused(self, session: Session, data: bytes) -> str:
        """Feed bytes that must end the session, and return the reason."""
        session.receive_data(data)
        with self.assertRaises(RemoteProtocolError) as caught:
            drain(session)
        self.assertIs(session.state, State.CLOSED)
        again: RemoteProtocolError | None = None
        try:
            session.next_event()
        except RemoteProtocolError as error:
            again = error
        self.assertIs(again, caught.exception)
        with self.assertRaises(LocalProtocolError):
            session.send(Ping(1))
        return str(caught.exception.reason)

    def test_table_is_kept_by_both_sides(self) -> None:
        """In every reachable state, exactly what the table allows is taken from the peer, and from us."""

        def reach(steps: int) -> ConnectionPair:
            pair = ConnectionPair()
            if steps >= 1:
                pair.say(pair.dialer, ALPHA)
            if steps >= 2:
                pair.say(pair.listener, BETA)
            if steps >= 3:
                pair.say(pair.dialer, pair.dialer.welcome())
            if steps >= 4:
                pair.say(pair.listener, pair.listener.welcome())
            return pair

        events: dict[str, tuple[Event, list[Any]]] = {
            "Hello": (ALPHA, ["alpha", "turin", 1, 0, 2, []]),
            "Welcome": (Welcome(2, ["network"]), [2, ["network"]]),
            "Bye": (Bye("X"), ["X"]),
            "Ping": (Ping(1), [1]),
        }
        allowed = {
            ("dialer", 0): "Hello Bye",
            ("dialer", 1): "Bye",
            ("dialer", 2): "Welcome Bye",
            ("dialer", 3): "Bye",
            ("dialer", 4): "Ping Bye",
            ("listener", 0): "Bye",
            ("listener", 1): "Hello Bye",
            ("listener", 2): "Welcome Bye",
            ("listener", 3): "Welcome Bye",
            ("listener", 4): "Ping Bye",
        }
        for (role, steps), expected in allowed.items():
            for name, (event, fields) in events.items():
                pair = reach(steps)
                sender = pair.dialer if role == "dialer" else pair.listener
                receiver = pair.other(sender)
                receiver.receive_data(raw(event.number, *fields))
                if name in expected.split():
                    sender.send(event)
                    receiver.next_event()
                else:
                    with self.assertRaises(LocalProtocolError, msg=f"{role} {steps} {name}"):
                        sender.send(event)
                    with self.assertRaises(RemoteProtocolError, msg=f"{role} {steps} {name}"):
                        receiver.next_event()

    def test_tables_cover_every_state(self) -> None:
        """Every party has a row, and every row of events a need in both roles."""
        self.assertEqual(set(NEXT), set(Party))
        self.assertEqual({role for role, _ in NEEDS}, {"dialer", "listener"})
        self.assertEqual(len(NEEDS), 10)

    def test_replayed_handshake_is_refused(self) -> None:
        """A second Hello or Welcome cannot change who the peer said it was."""
        self.assertEqual(self.refused(established(), raw(1, "gamma", "rome", 1, 0, 2, [])), "OutOfOrder")
        self.assertEqual(self.refused(established(), raw(2, 2, [])), "OutOfOrder")

    def test_unknown_number_before_trust_is_refused(self) -> None:
        """Only a trusted peer may try events of a later release."""
        self.assertEqual(self.refused(Session("listener"), raw(17, "token")), "OutOfOrder")

    def test_lying_lengths_are_refused_on_the_header(self) -> None:
        """A frame that is empty or above the cap is refused before any of it arrives."""
        for length in (0, Limits().frame + 1, 2**31, 2**32 - 1):
            self.assertEqual(self.refused(established(), length.to_bytes(4, "big")), "FrameLength")

    def test_frame_of_exactly_the_cap_is_taken(self) -> None:
        """The cap itself is allowed."""
        session = established()
        chunks = ["x" * 60000] * 4
        payload = msgpack.packb([4, 1, *chunks])
        payload = msgpack.packb([4, 1, *chunks, "x" * (Limits().frame - len(payload) - 3)])
        self.assertEqual(len(payload), Limits().frame)
        session.receive_data(frame(payload))
        self.assertEqual(drain(session), [Ping(1)])

    def test_truncation_at_every_byte_only_waits(self) -> None:
        """A frame cut off anywhere yields nothing, and the rest completes it."""
        data = Session("dialer").send(ALPHA)
        for cut in range(len(data)):
            session = Session("listener")
            session.receive_data(data[:cut])
            self.assertIs(session.next_event(), NEED_DATA)
            session.receive_data(data[cut:])
            self.assertEqual(drain(session), [ALPHA])

    def test_truncated_payload_in_a_whole_frame_is_refused(self) -> None:
        """A frame whose msgpack ends too early, or goes on too long, is refused at every cut."""
        payload = Session("dialer").send(ALPHA)[4:]
        for cut in range(1, len(payload)):
            self.assertIn(self.refused(Session("listener"), frame(payload[:cut])), ("NotMsgpack", "NotAnEvent"))
        self.assertEqual(self.refused(Session("listener"), frame(payload + b"\x00")), "NotMsgpack")

    def test_limits_of_content(self) -> None:
        """Depth, counts, lengths, foreign types and duplicate keys are refused, each within a frame that is small."""
        deep: Any = 1
        for _ in range(8):
            deep = [deep]
        for data, reason in (
            (raw(4, 1, deep), "TooDeep"),
            (frame(b"\x91" * 200000 + b"\x01"), "NotMsgpack"),
            (frame(b"\xdd\xff\xff\xff\xff\x04"), "NotMsgpack"),
            (frame(b"\x92\x04\xdb\xff\xff\xff\xff"), "NotMsgpack"),
            (raw(4, 1, [0] * 4097), "NotMsgpack"),
            (raw(4, 1, {str(i): 0 for i in range(4097)}), "NotMsgpack"),
            (raw(4, 1, "x" * 65537), "NotMsgpack"),
            (raw(4, 1, b"bytes"), "NotMsgpack"),
            (frame(b"\x93\x04\x01\xd6\xff\x00\x00\x00\x01"), "NotMsgpack"),
            (frame(b"\x93\x04\x01\x82\xa1a\x01\xa1a\x02"), "NotMsgpack"),
            (frame(b"\x93\x04\x01\x81\x01\x02"), "NotMsgpack"),
            (frame(b"\x93\x04\x01\xa2\xff\xfe"), "NotMsgpack"),
            (frame(b"\x04"), "NotAnEvent"),
            (frame(b"\x90"), "NotAnEvent"),
            (frame(b"\xc0"), "NotAnEvent"),
            (raw("4", 1), "NotAnEvent"),
            (raw(True, 1), "NotAnEvent"),
            (raw(0), "NotAnEvent"),
            (raw(-1), "NotAnEvent"),
            (raw(65536), "NotAnEvent"),
            (raw(4.0, 1), "NotAnEvent"),
        ):
            self.assertEqual(self.refused(established(), data), reason, data[:40])

    def test_fields_of_wrong_type_or_out_of_bounds(self) -> None:
        """No coercion, no infinities, no names that are none, no control characters."""
        bad: tuple[tuple[Any, ...], ...] = (
            (4, "1"),
            (4, 1.5),
            (4, True),
            (4, None),
            (4, -1),
            (4, 2**63),
            (4, [1]),
            (3,),
            (3, "notcamel"),
            (3, "Has Space"),
            (3, "X", "line\nend"),
            (3, "X", "\u202etxet"),
            (3, "X", "x" * 1025),
            (3, "X", "", -1),
            (3, "X", "", float("inf")),
            (3, "X", "", float("nan")),
            (3, "X", "", 86401),
            (7, 1, 1, -1, {}),
            (7, 1, 1, 365 * 86400 + 1, {}),
            (7, 1, 1, 60.0, {}),
            (7, 1, 1, 60, []),
            (7, 1, 1, 60, {"resources": {"cpu": 4}}),
            (7, 1, 1, 60, {"storageClasses": "abc"}),
            (8, 1, 1, "accepted"),
            (9, 1, "owner"),
            (10, 1, ""),
            (11, "ftp://a", "", "t", 1, "ns"),
            (11, "https://" + "a" * 2048, "", "t", 1, "ns"),
            (11, "https://a b", "", "t", 1, "ns"),
            (11, "https://a", "\u00e9", "t", 1, "ns"),
            (11, "https://a", "", "", 1, "ns"),
            (11, "https://a", "", "t\r\nX: y", 1, "ns"),
            (11, "https://a", "", "t" * 16385, 1, "ns"),
            (11, "https://a", "", "t", -1, "ns"),
            (11, "https://a", "", "t", 1, "kube/system"),
            (12, 1, "Shop", "shop"),
            (12, 1, "shop", "../etc"),
            (12, -1, "shop", "shop"),
            (13, 1, ""),
            (13, 1, "shop", "no reason"),
            (14, 1, "a" * 64),
            (6, 65536),
            (15, ["10.1.0.0/16; drop"], "", [], KEY, 1420),
            (15, ["10.1.0.0/16"] * 17, "", [], KEY, 1420),
            (15, [], "", ["example.org:1"], KEY, 1420),
            (15, [], "", [], "not a key", 1420),
            (15, [], "", [], KEY, -1),
            (16, ["all"]),
            (16, [], "", "no reason"),
        )
        for fields in bad:
            self.assertEqual(self.refused(established(), raw(*fields)), "BadField", fields)

    def test_hello_is_checked(self) -> None:
        """Claims in Hello have their shape and bounds."""
        for fields in (
            ("Alpha", "turin", 1, 0, 1, []),
            ("", "turin", 1, 0, 1, []),
            ("a" * 64, "turin", 1, 0, 1, []),
            ("alpha", "", 1, 0, 1, []),
            ("alpha", "a..b", 1, 0, 1, []),
            ("alpha", "a" * 64, 1, 0, 1, []),
            ("alpha", "turin\n", 1, 0, 1, []),
            ("alpha", "turin", -1, 0, 1, []),
            ("alpha", "turin", 1, 2, 1, []),
            ("alpha", "turin", 1, 0, 65536, []),
            ("alpha", "turin", 1, 0, 1, ["x"] * 65),
            ("alpha", "turin", 1, 0, 1, ["UPPER"]),
            ("alpha", "turin", 1, 0, 1, [1]),
            ("alpha", "turin", 1, 0),
        ):
            self.assertEqual(self.refused(Session("listener"), raw(1, *fields)), "BadField", fields)

    def test_unread_events_may_not_pile_up(self) -> None:
        """A peer that sends while we do not read is cut off at the pending limit, and the memory is freed."""
        session = established()
        data = raw(4, 1) * 10000
        for _ in range(1 + Limits().pending // len(data)):
            session.receive_data(data)
        self.assertEqual(self.refused(session, b""), "TooMuchPending")
        self.assertEqual(len(session._buffer), 0)

    def test_last_words_are_said_once(self) -> None:
        """The peer hears once what it did wrong; there are none without an error."""
        session = established()
        self.assertEqual(session.last_words(), b"")
        self.refused(session, raw(4, "x"))
        words = session.last_words()
        other = established("dialer")
        other.receive_data(words)
        (bye,) = drain(other)
        assert isinstance(bye, Bye)
        self.assertEqual(bye.reason, "BadField")
        self.assertEqual(session.last_words(), b"")


class OurOwnMistakes(SynchronousTestCase):
    """What we may not send."""

    def test_what_a_peer_would_refuse_is_not_sent(self) -> None:
        """Oversized, unfit or wrongly typed events raise, and the session goes on."""
        session = established()
        for event in (
            Advertise(1, 1, 60, Offer(labels={f"k{i}": "x" * 1000 for i in range(300)})),
            Advertise(1, 1, 60, Offer(labels={"k": "x" * 70000})),
            Advertise(1, 1, 60, Offer(labels={str(i): "" for i in range(5000)})),
            Ping(-1),
            Ping(2**70),
            Ping("x"),  # type: ignore[arg-type]
            Bye("not camel"),
            Bye("X", "", float("nan")),
        ):
            with self.assertRaises(LocalProtocolError):
                session.send(event)
        self.assertIs(session.state, State.ESTABLISHED)
        session.send(Ping(1))


class Fuzz(SynchronousTestCase):
    """Any bytes at all."""

    def feed(self, session: Session, data: bytes) -> None:
        started = time.perf_counter()
        session.receive_data(data)
        try:
            drain(session)
        except RemoteProtocolError as error:
            self.assertIs(session.state, State.CLOSED)
            self.assertRegex(error.reason, r"^[A-Z][A-Za-z]+$")
            Session("listener").receive_data(session.last_words())
        self.assertLess(time.perf_counter() - started, 2.0)

    @settings(max_examples=400, deadline=None)
    @given(st.binary(max_size=400), st.sampled_from(("dialer", "listener")))
    def test_any_bytes(self, data: bytes, role: str) -> None:
        """Nothing but RemoteProtocolError comes out of any bytes, framed or not, in any state."""
        for session in (Session("listener"), established(role)):
            self.feed(session, data)
        for session in (Session("listener"), established(role)):
            self.feed(session, frame(data))

    @settings(max_examples=400, deadline=None)
    @given(
        st.integers(0, 20),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
            lambda children: (
                st.lists(children, max_size=6) | st.dictionaries(st.text() | st.integers(0, 9), children, max_size=4)
            ),
            max_leaves=20,
        ),
        st.lists(st.integers(0, 2**63 - 1) | st.text() | st.dictionaries(st.text(), st.text()), max_size=7),
    )
    def test_any_values(self, number: int, value: Any, fields: list[Any]) -> None:
        """Well-formed msgpack of any shape is an event or a RemoteProtocolError."""
        for content in ([number, *fields], [number, value], value):
            self.feed(established(), frame(msgpack.packb(content)))

    @settings(max_examples=300, deadline=None)
    @given(st.sampled_from(ORDINARY), st.integers(0, 10**6), st.integers(0, 255))
    def test_one_changed_byte(self, event: Event, position: int, value: int) -> None:
        """A valid frame with any one byte changed is an event, a wait or a RemoteProtocolError."""
        data = bytearray(established("dialer").send(event))
        data[position % len(data)] = value
        self.feed(established(), bytes(data))

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.sampled_from(ORDINARY), max_size=5), st.lists(st.integers(1, 50), min_size=1))
    def test_any_cut(self, events: list[Event], sizes: list[int]) -> None:
        """However the bytes are cut, the same events come out."""

        def cut(data: bytes) -> list[bytes]:
            pieces, position, index = [], 0, 0
            while position < len(data):
                size = sizes[index % len(sizes)]
                pieces.append(data[position : position + size])
                position += size
                index += 1
            return pieces

        pair = ConnectionPair(cut).establish()
        pair.say(pair.dialer, *events)

    def test_the_worst_frames_are_cheap(self) -> None:
        """A full frame of what costs most to decode takes a fraction of a second, even byte by byte."""
        cap = Limits().frame
        nested = b"\x9f" + b"\x90" * 15
        worst = (
            b"\x91" * cap,
            b"\xdc\x0f\xff" + (b"\xdc\x00\x3d" + b"\x90" * 61) * 4095,
            nested * (cap // len(nested)),
            b"\xdc\x0f\xff" + b"\xbf".join([b"x" * 31] * 4096),
            b"\xde\x0f\xff" + b"".join(b"\xa4%04x\x80" % i for i in range(4095)),
        )
        for payload in worst:
            started = time.process_time()
            self.feed(established(), frame(payload[:cap]))
            self.assertLess(time.process_time() - started, 0.5)
        started = time.process_time()
        session = established()
        for byte in frame(b"\xc1" * cap):
            session.receive_data(bytes((byte,)))
            try:
                session.next_event()
            except RemoteProtocolError:
                break
        self.assertLess(time.process_time() - started, 3.0)
