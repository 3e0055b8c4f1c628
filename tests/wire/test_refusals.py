"""What a session refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from liqod.wire.check import MAX_FEATURES, MAX_MINOR, MAX_TEXT
from liqod.wire.codec import encode
from liqod.wire.errors import LocalProtocolError, RemoteProtocolError
from liqod.wire.events import (
    Bye,
    Event,
    Hello,
    Ping,
    Welcome,
)
from liqod.wire.framing import FrameLimits, frame
from liqod.wire.session import NEED_DATA, NEEDS, NEXT, Party, SessionProtocol, SessionState
from tests.wire.pairs import ALPHA, BETA, KEY, ConnectionPair, drain, established, raw


class RefusalTests(SynchronousTestCase):
    """What peers do wrong."""

    def refused(self, session: SessionProtocol, data: bytes) -> str:
        """Feed bytes that must end the session, and return the reason."""
        session.receive_data(data)
        with self.assertRaises(RemoteProtocolError) as caught:
            drain(session)
        self.assertIs(session.state, SessionState.CLOSED)
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
        self.assertEqual(self.refused(SessionProtocol("listener"), raw(17, "token")), "OutOfOrder")

    def test_lying_lengths_are_refused_on_the_header(self) -> None:
        """A frame that is empty or above the cap is refused before any of it arrives."""
        for length in (0, FrameLimits().frame + 1, 2**31, 2**32 - 1):
            self.assertEqual(self.refused(established(), length.to_bytes(4, "big")), "FrameLength")

    def test_a_stranger_has_small_frames(self) -> None:
        """Until we trust the peer a frame is as large as its Hello may be; a costly one is refused on its header."""
        costly = b"\xdc\x0f\xff" + (b"\xdc\x00\x3d" + b"\x90" * 61) * 4000
        greeted = SessionProtocol("listener")
        greeted.receive_data(SessionProtocol("dialer").send(ALPHA))
        self.assertEqual(drain(greeted), [ALPHA])
        greeted.send(BETA)
        for session in (SessionProtocol("listener"), SessionProtocol("dialer"), greeted):
            self.assertEqual(self.refused(session, frame(costly)[:4]), "FrameLength")

    def test_the_largest_hello_is_taken(self) -> None:
        """What a peer may send before it is trusted fits, with every field at its limit."""
        features = [f"f{number:031}" for number in range(MAX_FEATURES)]
        hello = Hello("a" * 63, "b" * 63, 2**53, 0, MAX_MINOR, features)
        session = SessionProtocol("listener")
        session.receive_data(SessionProtocol("dialer").send(hello))
        self.assertEqual(drain(session), [hello])
        bye = Bye("R" * 60, "\U0001f600" * MAX_TEXT, 1.0)
        session = SessionProtocol("listener")
        session.receive_data(frame(encode(bye, FrameLimits())))
        self.assertEqual(drain(session), [bye])

    def test_frame_of_exactly_the_cap_is_taken(self) -> None:
        """The cap itself is allowed."""
        session = established()
        chunks = ["x" * 60000] * 4
        payload = msgpack.packb([4, 1, *chunks])
        payload = msgpack.packb([4, 1, *chunks, "x" * (FrameLimits().frame - len(payload) - 3)])
        self.assertEqual(len(payload), FrameLimits().frame)
        session.receive_data(frame(payload))
        self.assertEqual(drain(session), [Ping(1)])

    def test_truncation_at_every_byte_only_waits(self) -> None:
        """A frame cut off anywhere yields nothing, and the rest completes it."""
        data = SessionProtocol("dialer").send(ALPHA)
        for cut in range(len(data)):
            session = SessionProtocol("listener")
            session.receive_data(data[:cut])
            self.assertIs(session.next_event(), NEED_DATA)
            session.receive_data(data[cut:])
            self.assertEqual(drain(session), [ALPHA])

    def test_truncated_payload_in_a_whole_frame_is_refused(self) -> None:
        """A frame whose msgpack ends too early, or goes on too long, is refused at every cut."""
        payload = SessionProtocol("dialer").send(ALPHA)[4:]
        for cut in range(1, len(payload)):
            self.assertIn(self.refused(SessionProtocol("listener"), frame(payload[:cut])), ("NotMsgpack", "NotAnEvent"))
        self.assertEqual(self.refused(SessionProtocol("listener"), frame(payload + b"\x00")), "NotMsgpack")

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
            (21, "gpu", "large", {}, 1),
            (21, "GPU", "large", {"cpu": "4"}, 1),
            (21, "gpu", "", {"cpu": "4"}, 1),
            (21, "gpu", "large", {"cpu": "-4"}, 1),
            (21, "gpu", "large", {"cpu": "four"}, 1),
            (21, "gpu", "large", {"cpu": "1" * 65}, 1),
            (21, "gpu", "large", {"c p u": "4"}, 1),
            (21, "gpu", "large", {f"r{number}": "1" for number in range(17)}, 1),
            (21, "gpu", "large", {"cpu": "4"}, -1),
            (22, "gpu", 1, "Granted", {}),
            (22, "gpu", 1, "Removed", {"cpu": "4"}),
            (22, "gpu", 1, "Perhaps", {"cpu": "4"}),
            (23, "", 1),
            (24, "Home", ["192.0.2.1:5871"], KEY, [], 1420),
            (24, "home", ["192.0.2.1:5871"] * 9, KEY, [], 1420),
            (24, "home", ["192.0.2.1:5871"], "", [], 1420),
            (24, "home", [], KEY, [], 1420),
            (25, "home", "rome", 1, [], "", [], 1420),
            (25, "home", "../etc", 1, ["192.0.2.1:5871"], KEY, [], 1420),
            (25, "home", "rome", 1, ["192.0.2.1:5871"], KEY, ["10.1.0.0/16"] * 17, 1420),
            (26, "home", "rome", 1, "no reason"),
            (27, "home", "", "Unpeered"),
            (28, 65),
            (28, -1),
            (29, 65),
            (30, 1, "", 1),
            (30, 1, "web..shop", 1),
            (30, 1, "Web.shop", 1),
            (30, 1, "a." * 126 + "ab", 1),
            (30, 1, "web.shop", 0),
            (31, 1, "Records", []),
            (31, 1, "None", [["web.shop", 1, 5, "10.64.0.7"]]),
            (31, 1, "Records", [["web.shop", 1, 5, "10.64.0.256"]]),
            (31, 1, "Records", [["web.shop", 16, 5, "any text"]]),
            (31, 1, "Records", [["web.shop", 28, 5, "fe80::1%eth0"]]),
            (31, 1, "Records", [["web.shop", 33, 5, "0 0 web.shop"]]),
            (31, 1, "Records", [["web.shop", 1, 86401, "10.64.0.7"]]),
            (31, 1, "Records", [["web.shop", 1, 5, "10.64.0.7"]] * 65),
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
            self.assertEqual(self.refused(SessionProtocol("listener"), raw(1, *fields)), "BadField", fields)

    def test_unread_events_may_not_pile_up(self) -> None:
        """A peer that sends while we do not read is cut off at the pending limit, and the memory is freed."""
        session = established()
        data = raw(4, 1) * 10000
        for _ in range(1 + FrameLimits().pending // len(data)):
            session.receive_data(data)
        self.assertEqual(self.refused(session, b""), "TooMuchPending")
        self.assertEqual(len(session._buffer), 0)

    def test_last_words_are_said_once(self) -> None:
        """The peer hears once what it did wrong; there are none without an error."""
        session = established()
        self.assertEqual(session.final_bye(), b"")
        self.refused(session, raw(4, "x"))
        words = session.final_bye()
        other = established("dialer")
        other.receive_data(words)
        (bye,) = drain(other)
        assert isinstance(bye, Bye)
        self.assertEqual(bye.reason, "BadField")
        self.assertEqual(session.final_bye(), b"")
