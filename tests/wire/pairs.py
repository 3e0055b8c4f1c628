"""Two sessions with a network in between that may cut the bytes anywhere, and one of each ordinary event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from liqod.model.records.offer import Offer
from liqod.wire.codec import UnknownEvent
from liqod.wire.events import (
    Advertise,
    AskSlice,
    Credential,
    DirectAgree,
    DirectAsk,
    DirectEnd,
    DirectOffer,
    Event,
    Hello,
    KeepStreams,
    KeyNoted,
    MapNamespace,
    NameAnswer,
    NameQuery,
    NameRecord,
    NamespaceMapped,
    Network,
    NetworkAck,
    NewKey,
    Ping,
    Pong,
    ReleaseNamespace,
    RemoveSlice,
    SliceDecided,
    StreamsKept,
    Unsupported,
    Verdict,
    Withdraw,
    Withdrawn,
)
from liqod.wire.framing import frame
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState

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
    NewKey(KEY, "A" * 86 + "=="),
    NewKey(""),
    KeyNoted(KEY),
    KeyNoted(KEY, "KeyNotProven", "the announced key did not sign for this session"),
    AskSlice("gpu", "large", {"cpu": "4", "nvidia.com/gpu": "1"}, 1),
    SliceDecided("gpu", 1, "Granted", {"cpu": "4", "nvidia.com/gpu": "1"}),
    SliceDecided("gpu", 2, "Refused", {}, "TooLarge", "cpu: 40 are asked for, 4 are free"),
    SliceDecided("gpu", 3, "Refused", {"cpu": "4", "nvidia.com/gpu": "1"}, "TooLarge", "it stays as it is"),
    RemoveSlice("gpu", 4),
    DirectOffer("home", ["192.0.2.1:5871"], KEY, ["10.1.0.0/16"], 1420),
    DirectOffer("home", [], "", [], 0),
    DirectAsk("home", "rome", 1, ["[2001:db8::1]:5871"], KEY, ["10.2.0.0/16", "fd00:2::/48"], 1420),
    DirectAgree("home", "rome", 1),
    DirectEnd("home", "rome", "Unpeered", "the peering with rome ended"),
    KeepStreams(4),
    StreamsKept(2, "TooMany", "two streams are kept for one peer"),
    NameQuery(1, "_http._tcp.web.shop.svc.cluster.local", 33),
    NameAnswer(1, "Records", [NameRecord("web.shop.svc.cluster.local", 1, 5, "10.64.0.7")]),
    NameAnswer(2, "None", [], 30),
    NameAnswer(3, "Refused", [], 0, "NotAllowed", "no name of this cluster"),
)


def drain(session: SessionProtocol) -> list[Event | UnknownEvent]:
    """Return all events that have arrived in full."""
    events = []
    while (event := session.next_event()) is not NEED_DATA:
        assert isinstance(event, Event | UnknownEvent)
        events.append(event)
    return events


class ConnectionPair:
    """Two sessions and the network between them; the peer must see exactly what was sent."""

    def __init__(self, cut: Callable[[bytes], Sequence[bytes]] = lambda data: [data]) -> None:
        self.dialer = SessionProtocol("dialer")
        self.listener = SessionProtocol("listener")
        self._cut = cut

    def other(self, session: SessionProtocol) -> SessionProtocol:
        return self.listener if session is self.dialer else self.dialer

    def say(self, session: SessionProtocol, *events: Event) -> None:
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
    def states(self) -> tuple[SessionState, SessionState]:
        return self.dialer.state, self.listener.state


def raw(*fields: Any) -> bytes:
    """Return a frame with any content, as an attacker would make it."""
    return frame(msgpack.packb(list(fields)))


def established(role: str = "listener") -> SessionProtocol:
    """Return one end of an established session."""
    pair = ConnectionPair().establish()
    return pair.listener if role == "listener" else pair.dialer
