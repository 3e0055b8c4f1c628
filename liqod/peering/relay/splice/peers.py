"""What both sides of streams need to know of peers: who has a key, whether there is a session, how to dial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred

from liqod.flow.clocks import Reactor
from liqod.flow.connections.factories import quiet
from liqod.identity.tls import PeerTLS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from liqod.peering.relay.callers import PinnedCallers
from liqod.peering.relay.dial import RelayEndpoint
from liqod.peering.relay.splice.stream import StreamEnd
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.session.usage import Usages


@frozen(kw_only=True, eq=False)
class StreamPeers:
    """The peers, their pinned keys and addresses, and what they take of this daemon."""

    reactor: Reactor
    tls: PeerTLS
    callers: PinnedCallers
    peers: Mapping[ClusterID, Peer]
    usages: Usages
    refusals: RefusalLog

    def of_transport(self, transport: object, protocol: bytes) -> tuple[ClusterID, Fingerprint]:
        """Return whose connection it is, and the key it proved; raises Refusal for who is not trusted."""
        certificate = self.tls.peer_certificate(transport, protocol)
        peer = self.callers.trusted(certificate.fingerprint)
        if peer is None:
            raise Refusal("StreamUnknownKey", "this key is not trusted here")
        return peer, certificate.fingerprint

    def session(self, peer: ClusterID) -> PeerConnection | None:
        """Return the established session with a peer; None without one."""
        known = self.peers.get(peer)
        session = None if known is None else known.session
        return session if session is not None and session.established else None

    def dial(self, peer: ClusterID, protocol: bytes, make: Callable[[], StreamEnd]) -> Callable[[], Deferred[Any]]:
        """Return what opens a stream to a peer; it fires with the end that ``make`` made."""
        callers = self.callers
        endpoint = RelayEndpoint(
            self.reactor, self.tls, lambda: callers.addresses(peer), lambda: callers.keys(peer), protocol=protocol
        )
        return lambda: endpoint.connect(quiet(make))
