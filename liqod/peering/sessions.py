"""Who is at the other end, whether to trust it, and which session of a peer stays.

The owner of all connections. A key is judged before anything but Hello and Bye is exchanged; a new pin is on record
before Welcome is sent. What discovery says is only where to dial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.tasks import Tasks
from liqod.identity.pins import Mismatch, Trusted, judge
from liqod.identity.tls import PeerCertificate, PeerTLS
from liqod.identity.words import words
from liqod.model.ids import ClusterID, Fingerprint, is_dns_label
from liqod.model.offer import Refusal
from liqod.model.records import Endpoint, ForeignCluster
from liqod.peering.dial import join_address
from liqod.peering.dialer import Dialer
from liqod.peering.joining import REFUSED, Invitations, Tokens
from liqod.peering.listener import Admission
from liqod.peering.peer import Doubt, Peer, addresses
from liqod.peering.ports import Sighting
from liqod.peering.protocol import JOINING, PeerConnection
from liqod.peering.records import STRANGER, Records
from liqod.peering.refusals import Refusals
from liqod.peering.tiebreak import Opened, newcomer_stays
from liqod.peering.tombstones import Tombstones
from liqod.wire.events import Bye, Event, Hello, Join

MINOR: Final = 0
"""The minor version of liqod/1 that is spoken here."""
MAX_SIGHTINGS: Final = 2048
"""Sightings that are followed: what a network shows is not bounded by anything else."""
MAX_SIGHTINGS_PER_PEER: Final = 8


class Followers(Protocol):
    """Who is told what happens to sessions."""

    def up(self, peer: Peer) -> None:
        """A session is established."""

    def down(self, peer: Peer, connection: PeerConnection) -> None:
        """The session of a peer ended, and there is no other."""

    def replaced(self, peer: Peer, connection: PeerConnection) -> None:
        """The session of a peer ended because another took its place."""

    def heard(self, peer: Peer, connection: PeerConnection, event: Event) -> None:
        """A peer said something in its session."""

    def unpeered(self, peer: Peer) -> None:
        """A peer that was trusted says that it ended the peering."""

    def repeated(self, peer: ClusterID, seen: Fingerprint) -> None:
        """A key that is not the pinned one claims to be the peer."""


@attrs.define
class _Stray:
    """An address without a known cluster: ``leads_to`` is who was found there."""

    endpoint: Endpoint
    dialer: Dialer
    leads_to: ClusterID | None = None


class Sessions:
    """Owns connections and peers; ``ready`` is set when the records are known, and before that nobody is let in."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        cluster_id: ClusterID,
        cluster_name: str,
        tls: PeerTLS,
        epoch: int,
        refusals: Refusals,
        tasks: Tasks,
        followers: Followers,
        records: Records,
        peers: dict[ClusterID, Peer],
        random: Callable[[], float],
        tombstones: Tombstones,
        tokens: Tokens,
        invitations: Invitations,
    ) -> None:
        self.peers = peers
        self.records = records
        self.ready = False
        self.me = cluster_id
        self._reactor = reactor
        self._settings = settings.peering
        self._name = cluster_name
        self._tls = tls
        self._epoch = epoch
        self._refusals = refusals
        self._tasks = tasks
        self._followers = followers
        self._random = random
        self._tombstones = tombstones
        self._tokens = tokens
        self._invitations = invitations
        self._by_hand = {peer.fingerprint for peer in settings.discovery.peers if peer.fingerprint}
        self._strays: dict[str, _Stray] = {}
        self._sighted: dict[ClusterID, tuple[Endpoint, ...]] = {}
        self._connections: set[PeerConnection] = set()
        self._stopped: Deferred[None] | None = None
        self.admission = Admission(self._incoming, self._settings.max_sessions, refusals.note)

    def _incoming(self, address: str) -> PeerConnection:
        connection = PeerConnection("listener", self, self._tls, self._reactor, self._settings, address)
        self._connections.add(connection)
        return connection

    # Peers.

    def peer(self, cluster_id: ClusterID) -> Peer:
        """Return what is known about a peer; one that was unknown is followed from now on."""
        peer = self.peers.get(cluster_id)
        if peer is None:
            dialer = Dialer(
                self._reactor,
                self._tls,
                self,
                self._settings,
                self._random,
                lambda: self._addresses(cluster_id),
                lambda why: self._unreachable(cluster_id, why),
                cluster_id,
                lambda: self._invitations.key_of(cluster_id),
            )
            peer = self.peers[cluster_id] = Peer(cluster_id, dialer, self._reactor.seconds())
        return peer

    def _addresses(self, cluster_id: ClusterID) -> list[str]:
        peer = self.peers.get(cluster_id)
        return [endpoint.address for endpoint in addresses(peer, self.records.get(cluster_id))] if peer else []

    def _unreachable(self, cluster_id: ClusterID, why: str) -> None:
        peer = self.peers.get(cluster_id)
        if peer is not None and peer.session is None and not (peer.doubt is not None and peer.doubt.about_key):
            self._doubt(peer, Doubt("Unreachable", why))

    def _doubt(self, peer: Peer, doubt: Doubt | None) -> None:
        if peer.doubt != doubt:
            peer.doubt = doubt
            self.records.poke(peer.id)

    # Where to dial.

    def sighted(self, sightings: Iterable[Sighting]) -> None:
        """Take over what discovery sees now; a peer that is not seen any more is not forgotten for that."""
        by_peer: dict[ClusterID, dict[str, Endpoint]] = {}
        nameless: dict[str, tuple[Endpoint, str]] = {}
        for number, sighting in enumerate(sightings):
            if number >= MAX_SIGHTINGS:
                break
            endpoint = Endpoint(join_address(sighting.host, sighting.port), sighting.source)
            if not sighting.cluster_id:
                nameless[endpoint.address] = (endpoint, sighting.fingerprint)
            elif sighting.cluster_id != self.me and is_dns_label(sighting.cluster_id):
                found = by_peer.setdefault(ClusterID(sighting.cluster_id), {})
                if len(found) < MAX_SIGHTINGS_PER_PEER:
                    found[endpoint.address] = endpoint
        self._sighted = {peer: tuple(found.values()) for peer, found in by_peer.items()}
        self._follow_strays(nameless)
        self._resight()

    def _follow_strays(self, nameless: Mapping[str, tuple[Endpoint, str]]) -> None:
        for address in [address for address in self._strays if address not in nameless]:
            self._strays.pop(address).dialer.link.stop()
        for address, (endpoint, fingerprint) in nameless.items():
            if address not in self._strays:
                dialer = Dialer(
                    self._reactor,
                    self._tls,
                    self,
                    self._settings,
                    self._random,
                    lambda address=address: [address],  # type: ignore[misc]
                    lambda why, address=address: self._refusals.note("Unreachable", address, why),  # type: ignore[misc]
                    None,
                    lambda fingerprint=fingerprint: fingerprint,  # type: ignore[misc]
                )
                self._strays[address] = _Stray(endpoint, dialer)
                if self.ready:
                    dialer.link.wake()

    def _resight(self) -> None:
        """Give each peer the addresses it is seen at, and dial those for whom that is news."""
        seen: dict[ClusterID, list[Endpoint]] = {peer: list(found) for peer, found in self._sighted.items()}
        for stray in self._strays.values():
            if stray.leads_to is not None:
                seen.setdefault(stray.leads_to, []).append(stray.endpoint)
        for cluster_id in seen:
            self.peer(cluster_id)
        for peer in list(self.peers.values()):
            now = tuple(seen.get(peer.id, ()))
            if now == peer.sightings:
                continue
            peer.sightings = now
            self.records.poke(peer.id)
            if now and self.ready:
                peer.dialer.link.wake()
            elif not now and peer.session is None and self.records.get(peer.id) is None:
                self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """Follow a peer no longer that is neither on record, nor seen, nor connected."""
        peer.dialer.link.stop()
        self.peers.pop(peer.id, None)

    def begin(self) -> None:
        """The records are known: dial whoever is worth it."""
        self.ready = True
        for stray in self._strays.values():
            stray.dialer.link.wake()
        for peer in self.peers.values():
            if peer.sightings or peer.id in self.records.pins or addresses(peer, self.records.get(peer.id)):
                peer.dialer.link.wake()

    # Being the owner of connections.

    def greeting(self, connection: PeerConnection) -> Hello:
        features = []
        if connection.role == "dialer" and connection.expected is not None:
            token, certificate = self._invitations.of(connection.expected), connection.certificate
            # Only the issuer's own key is told of it.
            if token is not None and certificate is not None and token.fingerprint == certificate.fingerprint:
                features.append(JOINING)
        return Hello(self.me, self._name, self._epoch, MINOR, MINOR, features)

    def introduction(self, connection: PeerConnection) -> Join | None:
        if connection.expected is None:
            return None
        return self._invitations.join(connection.expected, connection.binding())

    async def judge(self, connection: PeerConnection, hello: Hello, join: Join | None) -> Bye | None:
        self._connections.add(connection)
        certificate, claimed = connection.certificate, ClusterID(hello.cluster_id)
        if self._stopped is not None:
            return Bye("Stopping", "the daemon is stopping", 1.0)
        if not self.ready or certificate is None:
            return Bye("Starting", "the daemon does not know its records yet", 0.5)
        bye = self._mistaken(connection, claimed, certificate)
        if bye is not None:
            return bye
        self._lead(connection, claimed)
        # Whom a person sent away, only a person lets in again.
        sent_away = self._tombstones.get(claimed) is not None
        vouched = self._settings.autojoin and certificate.vouches_for(claimed) and not sent_away
        judgement = judge(claimed, certificate.fingerprint, self.records.pins, chains_to_ca=vouched)
        if isinstance(judgement, Mismatch):
            return self._repeated(claimed, certificate)
        if join is not None and not isinstance(judgement, Trusted):
            bye = await self._joined(connection, claimed, certificate, join)
            if bye is not None:
                return bye
        elif not isinstance(judgement, Trusted) and (sent_away or not self._joins(certificate)):
            return self._unknown(connection, hello, claimed, certificate)
        if claimed not in self.records.pins:
            bye = await self._pin(claimed, certificate, joined=join is None)
            if bye is not None:
                return bye
        return self._duplicate(connection, claimed)

    def _mistaken(self, connection: PeerConnection, claimed: ClusterID, certificate: PeerCertificate) -> Bye | None:
        if claimed == self.me:
            if certificate.fingerprint == self._tls.keypair.fingerprint:
                return Bye("Self", "this is the very same cluster")
            return Bye(
                "ClusterIDRepetition", f"{claimed} is this cluster's own ID: give one of the two another [cluster] id"
            )
        if connection.expected is not None and claimed != connection.expected:
            return Bye(
                "UnexpectedIdentity", f"{connection.expected} was expected at {connection.address}, not {claimed}"
            )
        if connection.expected_key and certificate.fingerprint != connection.expected_key:
            return Bye("UnexpectedKey", f"another key than the configured one answers at {connection.address}")
        return None

    def _joins(self, certificate: PeerCertificate) -> bool:
        """Whether an unknown key is pinned without asking; a key that is pinned already is another cluster's."""
        if certificate.fingerprint in self.records.pins.values():
            return False
        return self._settings.autojoin_untrusted or certificate.fingerprint in self._by_hand

    async def _joined(
        self, connection: PeerConnection, claimed: ClusterID, certificate: PeerCertificate, join: Join
    ) -> Bye | None:
        if certificate.fingerprint in self.records.pins.values():
            return Bye("KeyInUse", "this key is trusted as another cluster's already")
        try:
            await self._tokens.redeem(join, connection.binding(), certificate.fingerprint, claimed)
        except Refusal as refusal:
            return Bye(refusal.reason, refusal.message)
        return None

    async def _pin(self, claimed: ClusterID, certificate: PeerCertificate, *, joined: bool) -> Bye | None:
        pins = self.records.pins
        pins[claimed] = certificate.fingerprint  # from now on no other key can claim the ID
        try:
            record = await self._kept(
                self.records.ensure(claimed, certificate.fingerprint, joined=joined), f"pinning {claimed}"
            )
        except Exception:
            pins.pop(claimed, None)
            raise
        pins[claimed] = Fingerprint(record.spec.fingerprint)
        if record.spec.fingerprint != certificate.fingerprint:
            return self._repeated(claimed, certificate)
        self._log.info("pinned the key of {peer}: {words}", peer=claimed, words=words(certificate.fingerprint))
        return None

    def _kept(self, work: Any, what: str) -> Deferred[ForeignCluster]:
        """Run work that goes on even if the connection it is for ends."""
        outcome: Deferred[ForeignCluster] = Deferred()

        async def run() -> None:
            try:
                result = await work
            except Exception as error:
                if not outcome.called:
                    outcome.errback(error)
                return
            if not outcome.called:
                outcome.callback(result)

        self._tasks.spawn(run(), what)
        return outcome

    def _repeated(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye:
        sentence = (
            f"another key is pinned for {claimed}: an impostor, or a cluster that lost its key; if the key is right, "
            f"clear spec.fingerprint of ForeignCluster {claimed} and trust it anew"
        )
        peer = self.peers.get(claimed)
        if peer is not None and peer.session is None:
            self._doubt(peer, Doubt("ClusterIDRepetition", sentence, about_key=True))
        self._followers.repeated(claimed, certificate.fingerprint)
        return Bye("ClusterIDRepetition", sentence)

    def _unknown(
        self, connection: PeerConnection, hello: Hello, claimed: ClusterID, certificate: PeerCertificate
    ) -> Bye:
        """Show the stranger to the user, as long as there is room for strangers."""
        told = words(certificate.fingerprint)
        bye = self._farewell(claimed, certificate) or Bye(
            "TrustPending", f"your key is not trusted here yet; your words are {told}", 0.0
        )
        record = self.records.get(claimed)
        if record is None:
            if self.records.strangers() >= self._settings.max_untrusted:
                self._refusals.note("TooManyUntrusted", connection.address, f"no room to show {claimed} to the user")
                return bye
            self._tasks.spawn(self._introduce(claimed), f"recording {claimed}")
        peer = self.peer(claimed)
        now = self._reactor.seconds()
        if peer.seen is None or peer.seen == certificate.fingerprint or now - peer.seen_at > STRANGER:
            peer.seen, peer.name = certificate.fingerprint, hello.cluster_name
            sentence = f"compare the words {told} with the peer's admin and say 'liqodctl trust {claimed}'"
            self._doubt(peer, Doubt("TrustPending", sentence, about_key=True))
        return bye

    def _farewell(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye | None:
        """Return what a peer is told that was away when the peering ended: proven by the key it had then."""
        tombstone = self._tombstones.get(claimed)
        if tombstone is None or tombstone.by != "us" or tombstone.fingerprint != certificate.fingerprint:
            return None
        self._tasks.spawn(self._tombstones.told(claimed), f"noting that {claimed} was told")
        return Bye("Unpeered", f"this cluster ended the peering at {tombstone.at}")

    async def _introduce(self, claimed: ClusterID) -> None:
        await self.records.ensure(claimed, None)
        self.records.poke(claimed)

    def _duplicate(self, connection: PeerConnection, claimed: ClusterID) -> Bye | None:
        """Refuse a session early that would not stay; the one that does stay is asked whether it is alive."""
        peer = self.peer(claimed)
        existing = peer.session
        if existing is None or newcomer_stays(self._opened(existing), self._opened(connection), self.me, claimed):
            return None
        existing.probe()
        return Bye("Duplicate", "there is a session between us already", 1.0)

    def _opened(self, connection: PeerConnection) -> Opened:
        hello = connection.peer_hello
        since = connection.established_at
        return Opened(
            by_us=connection.role == "dialer",
            peer_epoch=hello.epoch if hello is not None else 0,
            age=self._reactor.seconds() - since if since is not None else 0.0,
            suspect=connection.pulse.missed > 0,
        )

    def established(self, connection: PeerConnection) -> None:
        hello, certificate = connection.peer_hello, connection.certificate
        if hello is None or certificate is None or self._stopped is not None:
            connection.end(Bye("Stopping", "the daemon is stopping", 1.0))
            return
        peer = self.peer(ClusterID(hello.cluster_id))
        # The pin may have gone while Welcome was under way.
        if self.records.pins.get(peer.id) != certificate.fingerprint:
            connection.end(Bye("TrustPending", "the key is not trusted any more"))
            return
        bye = self._duplicate(connection, peer.id)
        if bye is not None:
            connection.end(bye)
            return
        existing, peer.session = peer.session, connection
        peer.name, peer.seen = hello.cluster_name, certificate.fingerprint
        peer.met, peer.suspect, peer.doubt = True, False, None
        # Our own attempt goes on only if its session would stay: then both sides decide alike.
        if connection.role == "listener" and not self.me < peer.id:
            peer.dialer.abandon()
        peer.dialer.established()
        if existing is not None:
            self._followers.replaced(peer, existing)
            existing.end(Bye("Duplicate", "another session between us takes its place"))
        if self._invitations.of(peer.id) is not None:
            self._tasks.spawn(self._invitations.drop(peer.id), f"forgetting the invitation of {peer.id}")
        self._log.info("session with {peer} at {address}", peer=peer.id, address=connection.address)
        self._followers.up(peer)
        self.records.poke(peer.id)

    def received(self, connection: PeerConnection, event: Event) -> None:
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is not None and peer.session is connection:
            self._followers.heard(peer, connection, event)

    def closed(self, connection: PeerConnection) -> None:
        self.admission.closed(connection)
        self._connections.discard(connection)
        ending = connection.ending or Bye("ConnectionLost")
        if connection.established_at is None and ending.reason != "NotNeeded":
            self._not_established(connection, ending)
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is not None and peer.session is connection:
            self._lost(peer, connection, ending)
        elif ending.reason != "NotNeeded" and connection.role == "dialer":
            self._dialer_of(connection, ending)
        if self._stopped is not None and not self._connections and not self._stopped.called:
            self._stopped.callback(None)

    def _not_established(self, connection: PeerConnection, ending: Bye) -> None:
        peer = self.peers.get(connection.expected) if connection.expected is not None else None
        if ending.reason == "UnexpectedKey" and peer is not None and peer.session is None:
            sentence = f"{ending.message}: not who issued the token, or somebody stands in between; nothing was sent"
            self._doubt(peer, Doubt("UnexpectedKey", sentence, about_key=True))
        if connection.ended_by_peer:
            self._turned_away(connection, ending)
        elif connection.role == "listener" or ending.reason not in ("ConnectionLost", "HandshakeFailed"):
            self._refusals.note(ending.reason, connection.address.rpartition(":")[0], ending.message)

    def _turned_away(self, connection: PeerConnection, ending: Bye) -> None:
        """The peer said no to us: for the user it matters when we would have said yes."""
        certificate = connection.certificate
        peer = self.peers.get(connection.peer_id) if connection.peer_id is not None else None
        if peer is None or certificate is None or peer.session is not None:
            return
        if self.records.pins.get(peer.id) != certificate.fingerprint:
            return
        if ending.reason == REFUSED:
            self._tasks.spawn(self._invitations.drop(peer.id), f"forgetting the invitation of {peer.id}")
        if ending.reason == "Unpeered":
            self._followers.unpeered(peer)
        elif ending.reason == "TrustPending":
            own = words(self._tls.keypair.fingerprint)
            order = f"compare the words {own} and say 'liqodctl trust {self.me}'"
            sentence = f"the peer does not trust our key yet: its admin is to {order}"
            self._doubt(peer, Doubt("WaitingForPeerTrust", sentence, about_key=True))
        elif ending.reason not in ("Duplicate", "Starting", "Stopping"):
            about_key = ending.reason in ("ClusterIDRepetition", REFUSED)
            self._doubt(peer, Doubt(ending.reason, f"the peer says: {ending.message}", about_key))

    def _lost(self, peer: Peer, connection: PeerConnection, ending: Bye) -> None:
        peer.session = None
        peer.broken_at = self._reactor.seconds()
        peer.suspect = ending.reason == "Unresponsive" and not connection.ended_by_peer
        self._log.info("session with {peer} ended: {reason}", peer=peer.id, reason=ending.reason)
        if ending.reason == "Unpeered" and connection.ended_by_peer:
            self._followers.unpeered(peer)
        if peer.doubt is None:
            peer.doubt = Doubt(ending.reason, ending.message or "the session ended")
        self._followers.down(peer, connection)
        self.records.poke(peer.id)
        peer.dialer.ended(connection)

    def _dialer_of(self, connection: PeerConnection, ending: Bye) -> None:
        """Tell whoever dialled how it ended."""
        stray = self._strays.get(connection.address)
        if stray is not None and ending.reason == "UnexpectedIdentity":
            stray.leads_to = None  # somebody else lives there now
            stray.dialer.link.retry(1.0)
        peer = self.peers.get(connection.expected or connection.peer_id or ClusterID(""))
        if peer is not None and (connection.expected is not None or (stray is not None and stray.leads_to == peer.id)):
            if peer.session is None:
                peer.dialer.ended(connection)
        elif stray is not None:
            stray.dialer.ended(connection)

    def _lead(self, connection: PeerConnection, claimed: ClusterID) -> None:
        """An address without a name led to a cluster: from now on that cluster is dialled there."""
        stray = self._strays.get(connection.address)
        if stray is not None and connection.role == "dialer" and stray.leads_to != claimed:
            stray.leads_to = claimed
            stray.dialer.link.connected()
            endpoints = (*self.peer(claimed).sightings, stray.endpoint)
            self.peer(claimed).sightings = tuple(dict.fromkeys(endpoints))

    # The end.

    def stop(self) -> Deferred[None]:
        """Dial no more, tell every peer, and fire when all connections are closed."""
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        for dialer in [stray.dialer for stray in self._strays.values()] + [p.dialer for p in self.peers.values()]:
            dialer.link.stop()
        for connection in list(self._connections):
            connection.end(Bye("Stopping", "the daemon is stopping; its records stay", 1.0))
        if not self._connections and not stopped.called:
            stopped.callback(None)
        return stopped
