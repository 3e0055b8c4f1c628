"""Home's side of streams: grants idle ones to lenders, and leads each that is used to this cluster's API server.

Where the stream leads is not the lender's choice, nor the pod's: it is one address, of this cluster's own facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.connections.admission import Bucket
from liqod.flow.connections.factories import quiet
from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.identity.tls import KEPT, TO_API
from liqod.model.ids import ClusterID
from liqod.model.records.offer import HomeStreamsGrant, Refusal
from liqod.peering.relay.splice.kept import KeptStreams
from liqod.peering.relay.splice.limits import (
    ASKED_AT_ONCE,
    ASKED_PER_SECOND,
    CONNECT,
    IDLE_AT_HOME,
    MOST_OPEN,
    UNASKED,
    StreamSituation,
    grant,
    refusal,
)
from liqod.peering.relay.splice.peers import StreamPeers
from liqod.peering.relay.splice.stream import FirstSpeaker, Refused, StreamBudget, StreamEnd
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import KeepStreams, StreamsKept


@attrs.frozen(kw_only=True, eq=False)
class OwnApiServer:
    """Where streams lead: ``place`` returns host and port of this cluster's API server, None where none is known.

    ``names`` returns the names in its certificate; none where they are not known. ``called`` are those by which pods
    call it, first the one that they are given.
    """

    place: Callable[[], tuple[str, int] | None]
    names: Callable[[], Collection[str]]
    called: Sequence[str]


class HomeStream(FirstSpeaker):
    """A stream of a lender's: idle until its first bytes come."""

    def __init__(
        self,
        peers: StreamPeers,
        budget: StreamBudget,
        closed: Callable[[StreamEnd], object],
        spoke: Callable[[FirstSpeaker], object],
    ) -> None:
        super().__init__(peers.reactor, budget, closed, spoke)
        self.connecting: Deferred[Any] | None = None

    def opened(self) -> None:
        self.limit.start(IDLE_AT_HOME, self.abort)


@attrs.define(eq=False, kw_only=True)
class _Lender:
    """What one lender has: the grant, the streams that are open, and who dials idle ones."""

    budget: StreamBudget
    kept: KeptStreams
    unasked: Timer
    state: Latest[HomeStreamsGrant | None] = attrs.field(factory=lambda: Latest(None))
    pace: Bucket = attrs.field(factory=lambda: Bucket(ASKED_PER_SECOND, ASKED_AT_ONCE))
    open: dict[HomeStream, frozenset[str]] = attrs.Factory(dict)

    @property
    def granted(self) -> int:
        return 0 if self.state.value is None else self.state.value.count

    @property
    def idle(self) -> int:
        return sum(1 for stream in self.open if stream.is_idle)

    @property
    def used(self) -> int:
        return len(self.open) - self.idle  # also those that are being closed: they take as much as before


class HomeStreams:
    """The streams of all lenders. ``most`` is how many idle ones each may have; 0: no streams."""

    _log = Logger()

    def __init__(self, peers: StreamPeers, api: OwnApiServer, most: int) -> None:
        self._peers = peers
        self._api = api
        self._most = most
        self._lenders: dict[ClusterID, _Lender] = {}

    def state(self, lender: ClusterID) -> Latest[HomeStreamsGrant | None]:
        """Return what was granted to a lender; None: it asks for no streams."""
        return self._of(lender).state

    def open_streams(self, lender: ClusterID) -> int:
        """Return how many streams of a lender are open, idle and used."""
        known = self._lenders.get(lender)
        return 0 if known is None else len(known.open)

    def _of(self, lender: ClusterID) -> _Lender:
        known = self._lenders.get(lender)
        if known is None:
            budget = StreamBudget(self._peers.reactor, self._peers.usages.of(lender))
            reactor, dial = self._peers.reactor, self._peers.dial(lender, KEPT, lambda: self._stream(lender))
            known = self._lenders[lender] = _Lender(
                budget=budget, kept=KeptStreams(reactor, dial), unasked=Timer(reactor)
            )
        return known

    # Events of the session.

    def asked(self, peer: Peer, connection: PeerConnection, event: KeepStreams) -> None:
        """Answer a lender that asks for idle streams."""
        pace, now = self._of(peer.id).pace, self._peers.reactor.seconds()
        if pace.delay(now) > 0:
            # Each may begin or end watches for the lender's namespaces: it asks again by itself.
            self._peers.refusals.record("TooManyStreams", peer.id, "it asks for streams too often")
            return
        pace.take(now)
        place = self._api.place()
        given = grant(
            event.count,
            self._most,
            borrows=bool(peer.credential),
            target="" if place is None else place[0],
            certified=self._api.names(),
            called=self._api.called,
        )
        lender = self._of(peer.id)
        lender.unasked.cancel()
        lender.state.set(given if event.count else None)
        # First the answer: the lender takes no stream that it does not expect.
        connection.send(StreamsKept(given.count, given.reason, plain(given.message)))
        if connection.role == "dialer":
            lender.kept.want(given.count)
        else:
            # The side that dialled the session reaches the other one, and dials these as well.
            lender.kept.stop()

    def session_opened(self, peer: ClusterID) -> None:
        """Wait for a lender that had streams to ask again: one that serves no pods any more does not say so."""
        known = self._lenders.get(peer)
        if known is not None and known.state.value is not None:
            known.unasked.start(UNASKED, partial(known.state.set, None))

    def session_closed(self, peer: ClusterID) -> None:
        """Dial no more for a lender without a session; streams that are used go on while its key is trusted."""
        known = self._lenders.get(peer)
        if known is not None:
            known.kept.stop()
            known.unasked.cancel()
            for stream in [one for one in known.open if one.is_idle]:
                stream.end()

    def review(self, peer: ClusterID) -> None:
        """End the streams of a peer whose key is not trusted any more."""
        known = self._lenders.get(peer)
        if known is None:
            return
        pinned = self._peers.callers.keys(peer)
        if not pinned:
            known.kept.stop()
            known.state.set(None)
        for stream, keys in list(known.open.items()):
            if keys.isdisjoint(pinned):
                stream.abort()

    def close(self) -> None:
        """End all streams."""
        for known in list(self._lenders.values()):
            known.kept.stop()
            known.unasked.cancel()
            for stream in list(known.open):
                stream.abort()

    # Streams.

    def accept(self, transport: object, address: str) -> TwistedProtocol:
        """Return the protocol of a stream that a lender dialled."""
        try:
            lender, key = self._peers.of_transport(transport, TO_API)
        except Refusal as refused:
            self._peers.refusals.record(refused.reason, address, refused.message)
            return Refused()
        known = self._of(lender)
        situation = StreamSituation(
            has_session=self._peers.session(lender) is not None,
            granted=known.granted,
            idle=known.idle,
            used=known.used,
        )
        if (why := refusal(situation)) is not None:
            self._peers.refusals.record(why[0], lender, why[1])
            return Refused()
        return self._stream(lender, frozenset({key}))

    def _stream(self, lender: ClusterID, keys: frozenset[str] = frozenset()) -> HomeStream:
        """Return a new stream; without ``keys`` we dialled it, and one of those that are pinned was proved."""
        known = self._of(lender)
        stream = HomeStream(self._peers, known.budget, partial(self._closed, lender), partial(self._spoke, lender))
        known.open[stream] = keys or frozenset(self._peers.callers.keys(lender))
        return stream

    def _closed(self, lender: ClusterID, stream: StreamEnd) -> None:
        if not isinstance(stream, HomeStream):
            return
        if stream.connecting is not None:
            stream.connecting.cancel()
        known = self._lenders.get(lender)
        if known is not None:
            known.open.pop(stream, None)
            known.kept.left(stream, used=False)

    def _spoke(self, lender: ClusterID, stream: FirstSpeaker) -> None:
        """Connect a stream that is used from now on to the API server."""
        if not isinstance(stream, HomeStream):
            return
        known, place = self._of(lender), self._api.place()
        keys = known.open.get(stream, frozenset())
        trusted = not keys.isdisjoint(self._peers.callers.keys(lender))
        if not trusted or place is None or not known.granted or self._peers.session(lender) is None:
            self._peers.refusals.record("StreamNotAsked", lender, "its stream leads nowhere now")
            stream.abort()
            return
        if known.used > MOST_OPEN:
            # Those that this side dialled are counted nowhere else.
            self._peers.refusals.record("TooManyStreams", lender, f"{MOST_OPEN} streams of the peer are used")
            stream.abort()
            return
        known.kept.left(stream, used=True)
        # After the endpoint, which says what does not answer.
        stream.limit.start(CONNECT + 1.0, stream.abort)
        host, port = place
        endpoint = HostnameEndpoint(self._peers.reactor, host.encode("ascii"), port, CONNECT)
        stream.connecting = endpoint.connect(quiet(lambda: StreamEnd(self._peers.reactor, known.budget)))
        stream.connecting.addCallbacks(partial(self._reached, stream), partial(self._not_reached, stream))

    def _reached(self, stream: HomeStream, end: StreamEnd) -> None:
        stream.connecting = None
        if stream.is_over:
            end.abort()
        else:
            stream.join(end)

    def _not_reached(self, stream: HomeStream, failure: Failure) -> None:
        stream.connecting = None
        # One that ended meanwhile, by the lender's will as well, is no failure of the API server.
        if not stream.is_over:
            # Not said to the lender: it names addresses of this cluster.
            self._log.warn("a stream does not reach the API server: {error}", error=failure.getErrorMessage())
        stream.abort()
