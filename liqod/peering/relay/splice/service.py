"""Streams to API servers, of both sides: what the rest of peering sees of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol as TwistedProtocol

from liqod.identity.tls import KEPT, TO_API
from liqod.model.ids import ClusterID
from liqod.peering.relay.splice.home import HomeStreams
from liqod.peering.relay.splice.lender import LenderStreams
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import KeepStreams, StreamsKept


class Streams(MultiService):
    """``home`` leads lenders' streams to our API server, ``lender`` our tenants' pods to theirs."""

    def __init__(self, home: HomeStreams, lender: LenderStreams) -> None:
        super().__init__()
        self.home = home
        self.lender = lender
        lender.setServiceParent(self)

    @property
    def protocols(self) -> Mapping[bytes, Callable[[object, str], TwistedProtocol]]:
        """What speaks in connections that peers dial for streams, by ALPN."""
        return {TO_API: self.home.accept, KEPT: self.lender.accept}

    def event_received(self, peer: Peer, connection: PeerConnection, event: KeepStreams | StreamsKept) -> None:
        """Handle an event about streams."""
        if isinstance(event, KeepStreams):
            self.home.asked(peer, connection, event)
        else:
            self.lender.answered(peer, connection, event)

    def session_opened(self, peer: Peer) -> None:
        """Ask for streams where our tenant's pods need them, and wait for a lender that had some to ask for them."""
        self.home.session_opened(peer.id)
        self.lender.session_opened(peer)

    def session_closed(self, peer: ClusterID) -> None:
        """Keep no more idle streams."""
        self.home.session_closed(peer)
        self.lender.session_closed(peer)

    def review(self, peer: ClusterID, *, gone: bool = False) -> None:
        """End the streams of a peer that is not trusted any more; ``gone``: its record was deleted."""
        self.home.review(peer)
        self.lender.review(peer, gone=gone)

    def stopService(self) -> Deferred[None]:
        self.home.close()
        stopped: Deferred[None] = super().stopService()
        return stopped
