"""What a peer says before and after it is trusted: frames, sessions, tokens, offers, keys, TXT records."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from liqod.acceptance.check import check as check_offer
from liqod.discovery.candidate import BadRecord, candidates_of, from_txt
from liqod.identity.pairing import PREFIX, BadToken, Token, read_token
from liqod.identity.rotation import fingerprint_of, is_proven
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.quantity import parse, render
from liqod.model.records.offer import Offer, Refusal
from liqod.wire.codec import UnknownEvent, decode, encode
from liqod.wire.errors import LocalProtocolError, RemoteProtocolError
from liqod.wire.events import Advertise, Bye, Event, Hello, Join
from liqod.wire.framing import FrameLimits, frame
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState
from tests.fuzz.cost import Target, step_of
from tests.wire.pairs import ALPHA, BETA, ORDINARY, established

LIMITS: Final = FrameLimits()


def payload(data: bytes) -> None:
    """A frame's content: an event, an unknown one, or RemoteProtocolError; an event can be said again, unchanged."""
    try:
        event = decode(data, LIMITS)
    except RemoteProtocolError as error:
        _has_reason(error)
        return
    if isinstance(event, Event):
        assert decode(encode(event, LIMITS), LIMITS) == event, event


def stream(data: bytes) -> None:
    """Bytes on a connection, cut as the first one says, in each state that a session can be in."""
    step = step_of(data, 256)
    for session in (SessionProtocol("listener"), _greeted("listener"), _greeted("dialer"), established("listener")):
        for start in range(1, len(data), step):
            session.receive_data(data[start : start + step])
            if not _drained(session):
                break
        assert len(session._buffer) <= LIMITS.pending


def conversation(data: bytes) -> None:
    """Well-formed events in any order, replayed and unsolicited, from either party: the tables decide, nothing else."""
    events: tuple[Event, ...] = (ALPHA, BETA, *ORDINARY)
    for role in ("listener", "dialer"):
        session = SessionProtocol("listener" if role == "listener" else "dialer")
        if role == "dialer":
            session.send(ALPHA)
        for byte in data[:64]:
            if byte & 0x80:
                with contextlib.suppress(LocalProtocolError):
                    session.send(session.welcome() if byte & 0x40 else BETA)
            else:
                session.receive_data(frame(encode(events[byte % len(events)], LIMITS)))
                if not _drained(session):
                    break


def txt(data: bytes) -> None:
    """A TXT record as DNS carries it: strings with their length before them."""
    properties: dict[bytes, bytes | None] = {}
    position = 0
    while position < len(data):
        length = data[position]
        key, equals, value = data[position + 1 : position + 1 + length].partition(b"=")
        properties.setdefault(key, value if equals else None)
        position += 1 + length
    try:
        claims = from_txt(properties)
    except BadRecord:
        return
    hosts = [text.decode("latin-1") for text in properties]
    assert len(candidates_of(claims, hosts, len(data), local=(), loopback=False)) <= 8


def token(data: bytes) -> None:
    """A pairing token, mistyped, or made up with a right check sum."""
    made_up = base64.urlsafe_b64encode(data + hashlib.sha256(data).digest()[:4]).decode().rstrip("=")
    for text in (data.decode("latin-1"), PREFIX + data.decode("latin-1"), PREFIX + made_up):
        try:
            found = read_token(text)
        except BadToken:
            continue
        assert read_token(found.text) == found


def offer(data: bytes) -> None:
    """The content of an offer that decoded: sound, or refused by name; what is sound has real quantities."""
    try:
        event = decode(data, LIMITS)
    except RemoteProtocolError:
        return
    if not isinstance(event, Advertise):
        return
    try:
        sound = check_offer(event.offer)
    except Refusal as refusal:
        assert refusal.reason
        assert len(refusal.message) < 2000
        return
    for name, text in sound.resources.items():
        assert parse(text) >= 0, (name, text)


def quantity(data: bytes) -> None:
    """A quantity as Kubernetes writes it, or ValueError; what was read is the same when it is written and read."""
    try:
        value = parse(data.decode("latin-1"))
    except ValueError:
        return
    said = render(value, resource="memory")
    assert abs(parse(said) - value) * 10**9 < 1, (value, said)


def new_key(data: bytes) -> None:
    """An announced key and its proof, of any bytes."""
    public_key, proof = (base64.b64encode(part).decode() for part in (data[:32], data[32:]))
    raw = data.decode("latin-1")
    for one, other in ((public_key, proof), (raw[:44], raw[44:])):
        assert not is_proven(one, other, ClusterID("alpha"), Fingerprint("sha256:" + "0" * 64), bytes(32))
        with contextlib.suppress(ValueError):
            fingerprint_of(one)


def seeds() -> Mapping[str, list[bytes]]:
    """Return what the corpus begins with."""
    events: list[Event] = [ALPHA, BETA, *ORDINARY, Join("0123456789abcdef", "5" * 64), Bye("Stopping", "", 1.5)]
    absurd = {"cpu": "-1", "memory": "9e99Ki", "pods": "NaN", "a/b/c": "1", "x" * 300: "1", "nvidia.com/gpu": "0.5"}
    offers = [Offer(resources={name: value}) for name, value in absurd.items()]
    offers.append(Offer(labels={"kubernetes.io/hostname": "n"}, prices={"cpu": "1e-9"}, storage_classes=["s" * 64]))
    return {
        "payload": [encode(event, LIMITS) for event in events],
        "stream": [b"\x07" + b"".join(frame(encode(event, LIMITS)) for event in events[:3]), b"\x00\xff\xff\xff\xff"],
        "conversation": [bytes(range(24)), b"\x00\xc0\xc0\x02\x03\x00\x01", bytes(reversed(range(128)))],
        "txt": [_txt(b"proto=1", b"id=milan", b"name=milan", b"fp=sha256:" + b"0" * 64), _txt(b"proto=2"), _txt(b"=")],
        "token": [
            Token(
                "0123456789abcdef",
                ClusterID("milan"),
                "milan",
                Fingerprint("sha256:" + "0" * 64),
                ["192.0.2.1:5872"],
                bytes(32),
            ).text.encode(),
            b"liqo1.",
        ],
        "offer": [encode(Advertise(1, number, 1800, made), LIMITS) for number, made in enumerate(offers)],
        "quantity": [b"1.5Gi", b"500m", b"2e3", b"-1", b"9" * 40, b"1e99", b".5E", b"0.0000000001"],
        "new-key": [bytes(96), bytes(range(96)), b"A" * 44 + b"B" * 88],
    }


def _txt(*strings: bytes) -> bytes:
    return b"".join(bytes((len(string),)) + string for string in strings)


def _greeted(role: str) -> SessionProtocol:
    """Return a session that waits for the other's Welcome."""
    session = SessionProtocol("listener" if role == "listener" else "dialer")
    own, theirs = (BETA, ALPHA) if role == "listener" else (ALPHA, BETA)
    if role == "dialer":
        session.send(own)
    session.receive_data(frame(encode(theirs, LIMITS)))
    assert isinstance(session.next_event(), Hello)
    if role == "listener":
        session.send(own)
    session.send(session.welcome())
    return session


def _drained(session: SessionProtocol) -> bool:
    """Take all events out; False when the session ended."""
    try:
        while (event := session.next_event()) is not NEED_DATA:
            assert isinstance(event, Event | UnknownEvent)
    except RemoteProtocolError as error:
        _has_reason(error)
        assert session.state is SessionState.CLOSED
        assert len(session._buffer) == 0
        session.final_bye()
        return False
    return session.state is not SessionState.CLOSED


def _has_reason(error: RemoteProtocolError) -> None:
    assert error.reason.isalpha()
    assert error.message


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "payload": payload,
        "stream": stream,
        "conversation": conversation,
        "txt": txt,
        "token": token,
        "offer": offer,
        "quantity": quantity,
        "new-key": new_key,
    }
)
