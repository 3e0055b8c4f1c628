"""The session: every scenario goes through two of them, with a network in between that may cut the bytes anywhere."""

from __future__ import annotations

import time
from typing import Any

import msgpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.offer import Offer
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
    Ping,
    Unsupported,
    Verdict,
    Welcome,
)
from liqod.wire.framing import FrameLimits, frame
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState
from tests.wire.pairs import ALPHA, BETA, ORDINARY, ConnectionPair, drain, established, raw


class OpeningTests(SynchronousTestCase):
    """From nothing to an established session."""

    def test_states_advance_on_both_ends_alike(self) -> None:
        """Both Hellos open the judgement, both Welcomes establish."""
        pair = ConnectionPair()
        self.assertEqual(pair.states, (SessionState.OPENING, SessionState.OPENING))
        pair.greet()
        self.assertEqual(pair.states, (SessionState.JUDGING, SessionState.JUDGING))
        self.assertEqual((pair.dialer.peer_hello, pair.listener.peer_hello), (BETA, ALPHA))
        pair.say(pair.dialer, pair.dialer.welcome())
        self.assertEqual(pair.states, (SessionState.JUDGING, SessionState.JUDGING))
        pair.say(pair.listener, pair.listener.welcome())
        self.assertEqual(pair.states, (SessionState.ESTABLISHED, SessionState.ESTABLISHED))

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
        pair.listener.receive_data(pair.dialer.final_bye())
        (farewell,) = drain(pair.listener)
        assert isinstance(farewell, Bye)
        self.assertEqual(farewell.reason, "NoCommonMinor")
        self.assertEqual(pair.states, (SessionState.CLOSED, SessionState.CLOSED))

    def test_listener_does_not_speak_first(self) -> None:
        """What a listener is, it tells only to somebody who said Hello."""
        with self.assertRaises(LocalProtocolError):
            SessionProtocol("listener").send(BETA)
        dialer = SessionProtocol("dialer")
        dialer.receive_data(frame(msgpack.packb([1, "beta", "milan", 1, 0, 1, []])))
        with self.assertRaises(RemoteProtocolError):
            dialer.next_event()

    def test_busy_listener_may_say_bye_at_once(self) -> None:
        """A full listener refuses before any Hello, with a time to come back."""
        pair = ConnectionPair()
        pair.say(pair.listener, Bye("Full", "512 sessions are open", 30.0))
        self.assertEqual(pair.states, (SessionState.CLOSED, SessionState.CLOSED))

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
        session = SessionProtocol("dialer")
        with self.assertRaises(LocalProtocolError):
            session.welcome()
        session.send(ALPHA)
        with self.assertRaises(LocalProtocolError):
            session.send(Welcome(0))


class JoiningTests(SynchronousTestCase):
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
        """One that is dialled has nothing to prove by a token."""
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


class EstablishedTests(SynchronousTestCase):
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
        self.assertEqual(pair.states, (SessionState.CLOSED, SessionState.CLOSED))

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

    def test_nothing_is_sent_or_received_after_bye(self) -> None:
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


class LocalErrorTests(SynchronousTestCase):
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
        self.assertIs(session.state, SessionState.ESTABLISHED)
        session.send(Ping(1))

    def test_what_a_later_minor_added_is_not_sent_to_an_older_peer(self) -> None:
        """Every event goes to peers of its own minor and later ones; of an older one it is our error."""
        for minor in range(3):
            pair = ConnectionPair()
            pair.say(pair.dialer, Hello("alpha", "turin", 1, 0, 2))
            pair.say(pair.listener, Hello("beta", "milan", 1, 0, minor))
            pair.say(pair.listener, pair.listener.welcome())
            pair.say(pair.dialer, pair.dialer.welcome())
            for event in ORDINARY:
                for session in (pair.dialer, pair.listener):
                    if event.since <= minor:
                        pair.say(session, event)
                    else:
                        with self.assertRaises(LocalProtocolError, msg=f"{minor} {event}"):
                            session.send(event)
            self.assertEqual(pair.states, (SessionState.ESTABLISHED, SessionState.ESTABLISHED))


class FuzzTests(SynchronousTestCase):
    """Any bytes at all."""

    def feed(self, session: SessionProtocol, data: bytes) -> None:
        started = time.perf_counter()
        session.receive_data(data)
        try:
            drain(session)
        except RemoteProtocolError as error:
            self.assertIs(session.state, SessionState.CLOSED)
            self.assertRegex(error.reason, r"^[A-Z][A-Za-z]+$")
            SessionProtocol("listener").receive_data(session.final_bye())
        self.assertLess(time.perf_counter() - started, 2.0)

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.binary(max_size=400), st.sampled_from(("dialer", "listener")))
    def test_any_bytes(self, data: bytes, role: str) -> None:
        """Nothing but RemoteProtocolError comes out of any bytes, framed or not, in any state."""
        for session in (SessionProtocol("listener"), established(role)):
            self.feed(session, data)
        for session in (SessionProtocol("listener"), established(role)):
            self.feed(session, frame(data))

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.integers(0, 40),
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

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(ORDINARY), st.integers(0, 10**6), st.integers(0, 255))
    def test_one_changed_byte(self, event: Event, position: int, value: int) -> None:
        """A valid frame with any one byte changed is an event, a wait or a RemoteProtocolError."""
        data = bytearray(established("dialer").send(event))
        data[position % len(data)] = value
        self.feed(established(), bytes(data))

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
        cap = FrameLimits().frame
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
