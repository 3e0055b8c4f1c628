"""What tests of streams share: connections in memory, and peers of which everything is known."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IHostnameResolver, IReactorPluggableNameResolver, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.testing import MemoryReactorClock
from zope.interface import implementer

from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from liqod.peering.relay.splice.peers import StreamPeers
from liqod.peering.session.protocol import SPLICE
from liqod.peering.session.usage import Usages
from liqod.wire.events import Event, Hello

HELLO = b"\x16\x03\x01\x00\x02hi"
"""What begins as TLS does."""
ROME, MILAN = ClusterID("rome"), ClusterID("milan")
KEYS = {ROME: Fingerprint("sha256:" + "a" * 64), MILAN: Fingerprint("sha256:" + "b" * 64)}


class Wire:
    """A transport in memory; ``lingers``: its other side does not close it when this one does."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.connected = True
        self.written = b""
        self.paused = False
        self.lingers = False
        self.producer: Any = None
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        if self.connected:
            self.written += data

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def loseConnection(self) -> None:
        if not self.lingers:
            self.abortConnection()

    def abortConnection(self) -> None:
        if self.connected:
            self.connected = False
            self.protocol.connectionLost(connectionDone)

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "192.0.2.1", 1)


def connected(protocol: Any, key: str = "") -> Wire:
    """Connect a protocol in memory, and return its transport."""
    wire = Wire(key)
    wire.protocol = protocol
    cast(Protocol, protocol).makeConnection(cast(Any, wire))
    return wire


class Session:
    """An established session: keeps what is sent."""

    def __init__(self, role: str = "listener", features: tuple[str, ...] = (SPLICE,)) -> None:
        self.role = role
        self.established = True
        self.peer_hello = Hello("x", "x", 1, 0, 2, list(features))
        self.sent: list[Event] = []

    def send(self, event: Event) -> bool:
        self.sent.append(event)
        return True


def peer(who: ClusterID, session: Session | None) -> Any:
    """Return a peer that borrows here, and lends to us."""
    return SimpleNamespace(id=who, session=session, credential=True, lending=SimpleNamespace(namespace="liqo-tenant"))


class World:
    """Peers with their pinned keys; what is refused is counted by reason."""

    def __init__(self, clock: IReactorTime, *who: ClusterID) -> None:
        self.pins = {one: KEYS[one] for one in who}
        self.sessions = {one: Session() for one in who}
        self.peers = {one: peer(one, self.sessions[one]) for one in who}
        self.refused: Counter[str] = Counter()
        self.known = StreamPeers(
            reactor=cast(Any, clock),
            tls=cast(Any, self),
            callers=cast(Any, self),
            peers=self.peers,
            usages=Usages(),
            refusals=cast(Any, self),
        )

    def peer_certificate(self, transport: Wire, protocol: bytes) -> Any:
        if not transport.key:
            raise Refusal("NoCertificate", "there is none")
        return SimpleNamespace(fingerprint=transport.key)

    def trusted(self, key: str) -> ClusterID | None:
        return next((one for one, pin in self.pins.items() if pin == key), None)

    def keys(self, who: ClusterID) -> tuple[str, ...]:
        return (self.pins[who],) if who in self.pins else ()

    def addresses(self, who: ClusterID) -> list[str]:
        return []

    def record(self, reason: str, source: str, message: str) -> None:
        self.refused[reason] += 1

    def accepted(self, side: Any, key: str) -> Wire:
        """Return a connection that a peer with a key dialled to one side of the streams."""
        wire = Wire(key)
        wire.protocol = side.accept(wire, "192.0.2.1:1")
        wire.protocol.makeConnection(wire)
        return wire


@implementer(IHostnameResolver)
class _Literal:
    """Resolves addresses only."""

    def resolveHostName(
        self,
        resolutionReceiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        resolutionReceiver.resolutionBegan(self)
        resolutionReceiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        resolutionReceiver.resolutionComplete()
        return self

    def cancel(self) -> None:
        """Nothing is under way."""


@implementer(IReactorPluggableNameResolver)
class Reactor(MemoryReactorClock):
    """A reactor in memory, which resolves addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.nameResolver = cast(Any, _Literal())

    def installNameResolver(self, resolver: Any) -> Any:
        raise OSError("names are not resolved here")
