"""Owns all connections: authenticates peers, resolves simultaneous sessions, and dials.

A key is authenticated before anything but Hello, Join and Bye is exchanged; a new pin is on record before Welcome is
sent. Sightings of discovery are only hints where to dial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.flow.tasks import Tasks
from liqod.identity.fingerprint_words import words
from liqod.identity.pairing import Token
from liqod.model.host_port import host_of
from liqod.model.ids import ClusterID
from liqod.peering.controller import PeeringContext
from liqod.peering.ports import OwnCluster, Sighting
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.address_book import AddressBook
from liqod.peering.session.connection_limits import ConnectionLimits
from liqod.peering.session.dialer import NO_ADDRESS, Dialer, Target
from liqod.peering.session.peer import ConnectionProblem, Peer, addresses
from liqod.peering.session.protocol import JOINING, RELAY, SPLICE, PeerConnection
from liqod.peering.session.tiebreak import OpenedSession, newcomer_stays
from liqod.peering.trust.authenticator import Authenticator, KeySubscriber
from liqod.peering.trust.pairing import JOIN_REFUSED, token_object
from liqod.peering.trust.records import TrustRecords
from liqod.wire.events import Bye, Event, Hello, Join

OLDEST_MINOR: Final = 0
NEWEST_MINOR: Final = 2
"""The supported minor versions of liqod/1; what each added is in docs/protocol.md."""
KEY_ROTATED: Final = Bye("KeyRotated", "this cluster has a new key", 0.0)
VIOLATIONS: Final = frozenset(
    {
        *("BadField", "FrameLength", "NotAnEvent", "NotMsgpack", "OutOfOrder", "TooDeep", "WelcomeDiffers"),
        *("SlowReader", "TooFast", "TooManyRequests", "TooMuchPending"),
    }
)
"""Why we end the session of a peer that does not keep to the protocol, or to its limits."""


class SessionSubscriber(KeySubscriber, Protocol):
    """Subscribes to the events of sessions: ``routing.event_router.EventRouter``."""

    def session_opened(self, peer: Peer) -> None:
        """A session was established."""

    def session_closed(self, peer: Peer, connection: PeerConnection, *, unresponsive: bool) -> None:
        """The session of a peer ended without a replacement; ``unresponsive``: pings were not answered."""

    def session_replaced(self, peer: Peer, connection: PeerConnection) -> None:
        """The session of a peer was replaced by another."""

    def event_received(self, peer: Peer, connection: PeerConnection, event: Event) -> None:
        """An event was received in a peer's session."""

    def has_peering(self, peer: Peer) -> bool:
        """Return whether there is a peering that the peer can end; a trusted key alone is not one."""

    def peer_unpeered(self, peer: Peer) -> None:
        """A trusted peer reports that it ended the peering."""


@attrs.frozen(eq=False)
class PeerTarget:
    """A cluster, dialled at all its addresses."""

    sessions: Sessions
    expected: ClusterID

    def addresses(self) -> Sequence[str]:
        return self.sessions.addresses_of(self.expected)

    def expected_key(self) -> str:
        return self.sessions.invited_key(self.expected)

    def unreachable(self, why: str) -> None:
        self.sessions.peer_unreachable(self.expected, why)


@attrs.frozen(eq=False)
class AddressTarget:
    """An address whose cluster is not known; ``fingerprint`` is the key that is expected there, empty for any."""

    sessions: Sessions
    address: str
    fingerprint: str
    expected: None = None

    def addresses(self) -> Sequence[str]:
        return [self.address]

    def expected_key(self) -> str:
        return self.sessions.records.successor(self.fingerprint)

    def unreachable(self, why: str) -> None:
        self.sessions.address_unreachable(self.address, why)


class Sessions:
    """Owns connections and peers; until ``ready`` (the records are known) no connection is authenticated."""

    _log = Logger()

    def __init__(
        self,
        *,
        reactor: Reactor,
        context: PeeringContext,
        settings: Settings,
        cluster: OwnCluster,
        records: ForeignClusters,
        trust: TrustRecords,
        tasks: Tasks,
        subscriber: SessionSubscriber,
        random: Callable[[], float],
    ) -> None:
        self.peers = context.peers
        self.records = records
        self.ready = False
        self.me = cluster.id
        self._reactor = reactor
        self._settings = settings.peering
        self._cluster = cluster
        self._tls = cluster.tls
        self._refusals = context.refusals
        self._usages = context.usages
        self._tasks = tasks
        self._subscriber = subscriber
        self._random = random
        self._invitations = trust.invitations
        self._address_book = AddressBook(cluster.id, self.peers, self)
        self._authenticator = Authenticator(
            cluster=cluster,
            clock=reactor,
            settings=settings,
            records=records,
            tombstones=trust.tombstones,
            tokens=trust.tokens,
            refusals=context.refusals,
            tasks=tasks,
            directory=self,
            subscriber=subscriber,
            audit=context.audit,
        )
        self._connections: set[PeerConnection] = set()
        self._stopped: Deferred[None] | None = None
        self.admission = ConnectionLimits(self._incoming, self._settings.max_sessions, self._refusals.record, reactor)

    def _incoming(self, address: str) -> PeerConnection:
        connection = PeerConnection(
            "listener", self, tls=self._tls, clock=self._reactor, times=self._settings, address=address
        )
        self._connections.add(connection)
        return connection

    # Peers.

    def peer(self, cluster_id: ClusterID) -> Peer:
        """Return a peer; creates an unknown one with its dialer."""
        peer = self.peers.get(cluster_id)
        if peer is None:
            dialer = self._dialer(PeerTarget(self, cluster_id))
            peer = self.peers[cluster_id] = Peer(id=cluster_id, dialer=dialer, broken_at=self._reactor.seconds())
        return peer

    def unnamed_dialer(self, address: str, fingerprint: str) -> Dialer:
        """Return a new dialer of an address at which only a given key (or any, if empty) is expected."""
        return self._dialer(AddressTarget(self, address, fingerprint))

    def _dialer(self, target: Target) -> Dialer:
        return Dialer(
            reactor=self._reactor,
            tls=self._tls,
            owner=self,
            times=self._settings,
            random=self._random,
            target=target,
        )

    def address_unreachable(self, address: str, why: str) -> None:
        """Count a failed attempt at an address whose cluster is not known."""
        self._refusals.record("Unreachable", address, why)

    def addresses_of(self, cluster_id: ClusterID) -> list[str]:
        """Return the addresses of a peer, best first."""
        peer = self.peers.get(cluster_id)
        return [endpoint.address for endpoint in addresses(peer, self.records.get(cluster_id))] if peer else []

    def invited_key(self, cluster_id: ClusterID) -> str:
        """Return the only key that anything may be sent to while there is an invitation, else an empty string."""
        token = self._invitation(cluster_id)
        return token.fingerprint if token is not None else ""

    def _invitation(self, issuer: ClusterID) -> Token | None:
        """Return the token to join a cluster with; none that was issued with another key than the pinned one."""
        token, pin = self._invitations.of(issuer), self.records.pins.get(issuer)
        return token if token is None or pin in (None, token.fingerprint) else None

    def peer_unreachable(self, cluster_id: ClusterID, why: str) -> None:
        """Record why a peer could not be reached."""
        peer = self.peers.get(cluster_id)
        if self.records.get(cluster_id) is None:
            self._refusals.record("Unreachable", cluster_id, why)  # no record yet whose status could show it
        if why == NO_ADDRESS and peer is not None and peer.problem is not None and peer.problem.reason != "Unreachable":
            # No attempt was made, so the earlier problem is still the cause. A peer behind NAT, which only dials and is
            # never dialled, has no address at all.
            self.records.enqueue(cluster_id)
            return
        if peer is None or peer.session is not None or (peer.problem is not None and peer.problem.about_key):
            return
        if peer.problem is not None and peer.problem.reason == "Unresponsive":
            # The peer fell silent in a session: that it cannot be dialled either is a consequence, not another cause.
            self.set_problem(peer, attrs.evolve(peer.problem, attempt=why))
        else:
            self.set_problem(peer, ConnectionProblem("Unreachable", why))

    def set_problem(self, peer: Peer, problem: ConnectionProblem) -> None:
        """Record why there is no session with a peer."""
        if peer.problem != problem:
            peer.problem = problem
            self.records.enqueue(peer.id)

    # Where to dial.

    def update_sightings(self, sightings: Iterable[Sighting]) -> None:
        """Replace all sightings; a peer without a sighting is kept."""
        self._address_book.update(sightings)

    def sightings_changed(self, peer: Peer) -> None:
        """Dial a peer at its new addresses; drop one that is seen no longer and has no record."""
        peer.sighted_at = self._reactor.seconds()
        self.records.enqueue(peer.id)
        if peer.sightings and self.ready:
            peer.dialer.link.wake()
        elif not peer.sightings and peer.session is None and self.records.get(peer.id) is None:
            self.forget(peer)

    def record_deleted(self, peer: Peer) -> None:
        """Handle a peer without a record: one that is in sight is dialled, and recorded with its current key."""
        if peer.session is not None:
            peer.session.end(Bye("TrustPending", "the key is not trusted any more"))
        elif not peer.sightings:
            self.forget(peer)
        elif self.ready:
            peer.dialer.link.wake()

    def forget(self, peer: Peer) -> None:
        """Drop a peer that has no record, no sighting and no session."""
        peer.dialer.link.stop()
        self.peers.pop(peer.id, None)

    def start(self) -> None:
        """Start dialling; call it once the records are known."""
        self.ready = True
        self._address_book.start()
        for peer in self.peers.values():
            if peer.sightings or peer.id in self.records.pins or addresses(peer, self.records.get(peer.id)):
                peer.dialer.link.wake()

    # protocol.Owner

    def hello(self, connection: PeerConnection) -> Hello:
        features = [] if self._settings.api == "direct" else [RELAY]
        if self._settings.api_streams:
            features.append(SPLICE)
        if connection.role == "dialer" and connection.expected is not None:
            token, certificate = self._invitation(connection.expected), connection.certificate
            # Only the holder of the issuer's key may learn that we have a token.
            if token is not None and certificate is not None and token.fingerprint == certificate.fingerprint:
                features.append(JOINING)
        return Hello(self.me, self._cluster.name, self._cluster.epoch, OLDEST_MINOR, NEWEST_MINOR, features)

    def join(self, connection: PeerConnection) -> Join | None:
        if connection.expected is None or self._invitation(connection.expected) is None:
            return None
        return self._invitations.join(connection.expected, connection.binding())

    async def authenticate(self, connection: PeerConnection, hello: Hello, join: Join | None) -> Bye | None:
        self._connections.add(connection)
        certificate, claimed = connection.certificate, ClusterID(hello.cluster_id)
        if self._stopped is not None:
            return Bye("Stopping", "the daemon is stopping", 1.0)
        if not self.ready or certificate is None:
            return Bye("Starting", "the daemon does not know its records yet", 0.5)
        if self._has_former_key(connection):
            return KEY_ROTATED
        bye = self._authenticator.check_identity(connection, claimed, certificate)
        if bye is not None:
            return bye
        self._address_book.resolve(connection, claimed)
        bye = await self._authenticator.authenticate(connection, hello, claimed, certificate, join)
        return bye if bye is not None else self._refuse_duplicate(connection, claimed)

    def _refuse_duplicate(self, connection: PeerConnection, claimed: ClusterID) -> Bye | None:
        """Refuse early a session that would not be kept; the existing one is probed."""
        peer = self.peer(claimed)
        existing = peer.session
        if existing is None or not existing.established or self._has_other_key(existing, connection):
            return None
        if newcomer_stays(self._opened(existing), self._opened(connection), self.me, claimed):
            return None
        existing.probe()
        return Bye("Duplicate", "there is a session between us already", 1.0)

    def _has_other_key(self, existing: PeerConnection, connection: PeerConnection) -> bool:
        """Return whether the peer shows another key in the new connection than in the existing one."""
        before, now = existing.certificate, connection.certificate
        return before is not None and now is not None and before.fingerprint != now.fingerprint

    def key_changed(self) -> None:
        """End every session: a TLS connection cannot change its certificate, so the new key needs new ones."""
        for connection in list(self._connections):
            connection.end(KEY_ROTATED)

    def _has_former_key(self, connection: PeerConnection) -> bool:
        """Return whether a connection was opened with a key that is not ours any more: it was in its handshake then."""
        return connection.own_key != self._tls.keypair.fingerprint

    def _opened(self, connection: PeerConnection) -> OpenedSession:
        hello = connection.peer_hello
        since = connection.established_at
        return OpenedSession(
            by_us=connection.role == "dialer",
            peer_epoch=hello.epoch if hello is not None else 0,
            age=self._reactor.seconds() - since if since is not None else 0.0,
            suspect=connection.heartbeat.missed > 0,
        )

    def established(self, connection: PeerConnection) -> None:
        hello, certificate = connection.peer_hello, connection.certificate
        if hello is None or certificate is None or self._stopped is not None:
            connection.end(Bye("Stopping", "the daemon is stopping", 1.0))
            return
        if self._has_former_key(connection):
            connection.end(KEY_ROTATED)
            return
        peer = self.peer(ClusterID(hello.cluster_id))
        # The pin may have been removed while Welcome was in flight.
        if self.records.pins.get(peer.id) != certificate.fingerprint:
            connection.end(Bye("TrustPending", "the key is not trusted any more"))
            return
        bye = self._refuse_duplicate(connection, peer.id)
        if bye is not None:
            connection.end(bye)
            return
        connection.usage = self._usages.of(peer.id)
        self.admission.served(connection)
        self._authenticator.established(connection)
        existing, peer.session = peer.session, connection
        peer.name, peer.seen = hello.cluster_name, certificate.fingerprint
        peer.problem = None
        # Our own attempt continues only if its session would be kept: so both sides decide equally.
        if connection.role == "listener" and not self.me < peer.id:
            peer.dialer.abandon()
        peer.dialer.session_opened()
        if existing is not None:
            self._subscriber.session_replaced(peer, existing)
            existing.end(Bye("Duplicate", "another session between us takes its place"))
        if self._invitations.of(peer.id) is not None:
            self._tasks.spawn(self._invitations.delete(peer.id), f"deleting the invitation of {peer.id}")
        self._log.info("session with {peer} at {address}", peer=peer.id, address=connection.address)
        self._subscriber.session_opened(peer)
        self.records.enqueue(peer.id)

    def received(self, connection: PeerConnection, event: Event) -> None:
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is not None and peer.session is connection:
            self._subscriber.event_received(peer, connection, event)

    def closed(self, connection: PeerConnection) -> None:
        self.admission.closed(connection)
        self._authenticator.closed(connection)
        self._connections.discard(connection)
        ending = self._interpret(connection, connection.ending or Bye("ConnectionLost"))
        if connection.established_at is None and ending.reason != "NotNeeded":
            self._not_established(connection, ending)
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is not None and peer.session is connection:
            self._session_lost(peer, connection, ending)
        elif connection.role == "dialer" and (connection.ended_by_peer or ending.reason != "NotNeeded"):
            self._notify_dialer(connection, ending)
        if self._stopped is not None and not self._connections and not self._stopped.called:
            self._stopped.callback(None)

    def _interpret(self, connection: PeerConnection, ending: Bye) -> Bye:
        """Return the meaning of a Bye: the end of an earlier peering does not end one that was trusted since.

        A peer that refuses a key which is not ours any more has not refused us. The Bye of another key than the pinned
        one says nothing about the dialled peer, not even when to dial it again.
        """
        if connection.established_at is None and ending.reason != "NotNeeded" and self._has_former_key(connection):
            return KEY_ROTATED
        if connection.ended_by_peer and self._has_unpinned_key(connection):
            return Bye("UnexpectedKey", f"another key than the pinned one answers at {connection.address}")
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if (
            ending.reason != "Unpeered"
            or not connection.ended_by_peer
            or peer is None
            or self._subscriber.has_peering(peer)
        ):
            return ending
        return Bye("TrustPending", ending.message, ending.retry_after)

    def _has_unpinned_key(self, connection: PeerConnection) -> bool:
        """Return whether neither the pinned key of a dialled peer nor its announced one answered, before a session."""
        expected, certificate = connection.expected, connection.certificate
        if expected is None or certificate is None or connection.established_at is not None:
            return False
        pin = self.records.pins.get(expected)
        return pin is not None and certificate.fingerprint not in (pin, self.records.next_key(expected))

    def _not_established(self, connection: PeerConnection, ending: Bye) -> None:
        if connection.ended_by_peer:
            self._refused_by_peer(connection, ending)
            return
        peer = self.peers.get(connection.expected) if connection.expected is not None else None
        if ending.reason == "UnexpectedKey" and peer is not None and peer.session is None:
            sentence = f"{ending.message}: not who issued the token, or somebody stands in between; nothing was sent"
            self.set_problem(peer, ConnectionProblem("UnexpectedKey", sentence, about_key=True))
        if connection.role == "listener" or ending.reason not in ("ConnectionLost", "HandshakeFailed"):
            certificate, address = connection.certificate, host_of(connection.address)
            self._refusals.record(
                ending.reason,
                address,
                ending.message,
                peer=connection.peer_id or "",
                fingerprint=certificate.fingerprint if certificate is not None else "",
                address=address,
                proven=self._proven(connection),
            )

    def _proven(self, connection: PeerConnection) -> str:
        """Return the cluster that the other side proved to be, by its pinned key; empty for one that it claims."""
        claimed, certificate = connection.peer_id, connection.certificate
        if claimed is None or certificate is None:
            return ""
        return claimed if self.records.pins.get(claimed) == certificate.fingerprint else ""

    def _refused_by_peer(self, connection: PeerConnection, ending: Bye) -> None:
        """Record that the peer rejected us, so that users see it where we trust the peer."""
        certificate = connection.certificate
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is None or certificate is None or peer.session is not None:
            return
        if self.records.pins.get(peer.id) != certificate.fingerprint:
            return
        if ending.reason == JOIN_REFUSED:
            deleting = self._invitations.delete(peer.id, connection.token_id)
            self._tasks.spawn(deleting, f"deleting the invitation of {peer.id}")
        if ending.reason == "Unpeered":
            self._subscriber.peer_unpeered(peer)
        elif ending.reason == "TrustPending":
            own = words(self._tls.keypair.fingerprint)
            order = f"compare the words {own} and say 'liqodctl trust {self.me}'"
            why = "ended an earlier peering, and " if (connection.ending or ending).reason == "Unpeered" else ""
            sentence = f"the peer {why}does not trust our key yet: its admin is to {order}"
            self.set_problem(peer, ConnectionProblem("WaitingForPeerTrust", sentence, about_key=True))
        elif ending.reason not in ("Duplicate", "Starting", "Stopping", KEY_ROTATED.reason):
            about_key = ending.reason in ("ClusterIDRepetition", JOIN_REFUSED)
            # The token is named: who waits for the outcome of a newer one knows that this is not it.
            is_of_token = ending.reason == JOIN_REFUSED and connection.token_id
            who = f"the peer refuses {token_object(connection.token_id)}" if is_of_token else "the peer says"
            self.set_problem(peer, ConnectionProblem(ending.reason, f"{who}: {ending.message}", about_key))

    def _session_lost(self, peer: Peer, connection: PeerConnection, ending: Bye) -> None:
        peer.session = None
        peer.broken_at = self._reactor.seconds()
        self._log.info("session with {peer} ended: {reason}", peer=peer.id, reason=ending.reason)
        if peer.problem is None:
            peer.problem = ConnectionProblem(ending.reason, ending.message or "the session ended")
        if ending.reason in VIOLATIONS and not connection.ended_by_peer:
            self._refusals.record(ending.reason, peer.id, ending.message)
        unresponsive = ending.reason == "Unresponsive" and not connection.ended_by_peer
        self._subscriber.session_closed(peer, connection, unresponsive=unresponsive)
        if ending.reason == "Unpeered" and connection.ended_by_peer:
            self._subscriber.peer_unpeered(peer)
        self.records.enqueue(peer.id)
        peer.dialer.connection_closed(connection, ending)
        if self.records.get(peer.id) is None:
            self.record_deleted(peer)  # the record was deleted before the connection ended

    def _notify_dialer(self, connection: PeerConnection, ending: Bye) -> None:
        """Notify the dialer of the end of its connection."""
        unnamed = self._address_book.at(connection.address)
        moved = unnamed is not None and ending.reason == "UnexpectedIdentity"
        if unnamed is not None and moved:
            unnamed.cluster_id = None  # another cluster uses the address now
            unnamed.dialer.link.retry(1.0)
        peer = self.peers.get(connection.expected or connection.peer_id or ClusterID(""))
        if peer is not None and (
            connection.expected is not None or (unnamed is not None and unnamed.cluster_id == peer.id)
        ):
            if peer.session is None:
                peer.dialer.connection_closed(connection, ending)
        elif unnamed is not None:
            unnamed.dialer.connection_closed(connection, ending)
        if moved:
            self._address_book.assign_sightings()

    # Stop.

    def stop(self) -> Deferred[None]:
        """Stop dialling, send Bye to every peer, and fire when all connections are closed."""
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        self._address_book.stop()
        for peer in self.peers.values():
            peer.dialer.link.stop()
        for connection in list(self._connections):
            connection.end(Bye("Stopping", "the daemon is stopping; its records stay", 1.0))
        if not self._connections and not stopped.called:
            stopped.callback(None)
        return stopped
