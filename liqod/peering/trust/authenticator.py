"""Authenticates peers by key, before anything but Hello, Join and Bye is exchanged.

A new pin is on record before the peer is trusted: while it is written, other connections that claim the ID or show the
key wait for the answer. Strangers get a ForeignCluster for the user, up to a limit.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.config.schema import Settings
from liqod.flow.connections.admission import source_of
from liqod.flow.tasks import Tasks
from liqod.identity.fingerprint_words import words
from liqod.identity.pins import Mismatch, Trusted, judge
from liqod.identity.tls import PeerCertificate
from liqod.model.host_port import host_of
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.offer import Refusal
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.model.records.views import ForeignCluster
from liqod.peering.ports import OwnCluster
from liqod.peering.records.foreignclusters import STRANGER_WRITE_INTERVAL, ForeignClusters, PendingPin
from liqod.peering.records.status import REPEATED_ID
from liqod.peering.records.stranger_places import NAMED
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.session.lifecycle import UntrustedKeyShown
from liqod.peering.session.peer import ConnectionProblem, Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.peering.session.refusal_log import RefusalLog
from liqod.peering.trust.pairing import JOIN_REFUSED, PairingTokens, token_object
from liqod.wire.events import Bye, Hello, Join


class KeySubscriber(Protocol):
    """Subscribes to mismatches and rotations of keys."""

    def key_mismatch(self, peer: ClusterID, seen: Fingerprint) -> None:
        """A certificate with another key than the pinned one claims the peer's ID."""

    def key_rotated(self, peer: ClusterID, new: Fingerprint) -> None:
        """The peer uses the key that it announced; the previous one is no longer valid."""


class PeerDirectory(Protocol):
    """The known peers: ``sessions.Sessions``."""

    def peer(self, cluster_id: ClusterID) -> Peer:
        """Return a peer; creates an unknown one."""

    def set_problem(self, peer: Peer, problem: ConnectionProblem) -> None:
        """Record why there is no session with a peer."""


class Authenticator:
    """Decides which keys are trusted."""

    _log = Logger()

    def __init__(
        self,
        *,
        cluster: OwnCluster,
        clock: IReactorTime,
        settings: Settings,
        records: ForeignClusters,
        tombstones: Tombstones,
        tokens: PairingTokens,
        refusals: RefusalLog,
        tasks: Tasks,
        directory: PeerDirectory,
        subscriber: KeySubscriber,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._me = cluster.id
        self._tls = cluster.tls
        self._clock = clock
        self._settings = settings.peering
        self._records = records
        self._tombstones = tombstones
        self._tokens = tokens
        self._refusals = refusals
        self._tasks = tasks
        self._directory = directory
        self._subscriber = subscriber
        self._audit = audit
        self._redeemed: dict[PeerConnection, str] = {}
        self._named = {peer.address for peer in settings.discovery.peers}
        self._by_hand = {peer.fingerprint for peer in settings.discovery.peers if peer.fingerprint}

    def check_identity(
        self, connection: PeerConnection, claimed: ClusterID, certificate: PeerCertificate
    ) -> Bye | None:
        """Return the Bye for a peer whose claimed ID is impossible or not the dialled one, else None."""
        if claimed == self._me:
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

    async def authenticate(
        self,
        connection: PeerConnection,
        hello: Hello,
        claimed: ClusterID,
        certificate: PeerCertificate,
        join: Join | None,
    ) -> Bye | None:
        """Return None for a key that is trusted and pinned now, else the Bye for its holder."""
        await self._pins_settled(claimed, certificate)
        # A peer whose peering ended is trusted again only by a user: not by a CA, the settings, or an earlier token.
        dismissed = self._is_dismissed(claimed, certificate)
        vouched = self._settings.autojoin and certificate.vouches_for(claimed) and not dismissed
        judgement = judge(
            claimed,
            certificate.fingerprint,
            self._records.pins,
            chains_to_ca=vouched,
            announced=self._records.next_key(claimed),
        )
        if isinstance(judgement, Mismatch):
            return self._refuse_key(claimed, certificate)
        if join is not None and isinstance(judgement, Trusted):
            # Later it would let in another key, which nobody here knows to be the same cluster's.
            work = self._spend_unneeded(connection, claimed, certificate, join)
            self._tasks.spawn(work, f"spending {token_object(join.token)}")
        if judgement == Trusted("announcement"):
            return await self._on_record(claimed, certificate, self._pin_next_key(claimed, certificate))
        if join is not None and not isinstance(judgement, Trusted):
            if dismissed:
                return self._refuse_dismissed_guest(connection, hello, claimed, certificate)
            bye = await self._redeem(connection, claimed, certificate, join)
            if bye is not None:
                return bye
        elif not isinstance(judgement, Trusted) and (dismissed or not self._is_pinned_unasked(certificate)):
            return self._refuse_stranger(connection, hello, claimed, certificate)
        if claimed in self._records.pins:
            return None
        reason = "Token" if join is not None else "Certificate" if vouched else "Configuration"
        granted = AuditEvent(
            "TrustGranted",
            reason,
            peer=claimed,
            fingerprint=certificate.fingerprint,
            address=connection.address,
        )
        return await self._on_record(claimed, certificate, self._pin(claimed, certificate, granted))

    async def _pins_settled(self, claimed: ClusterID, certificate: PeerCertificate) -> None:
        """Wait while a pin of this ID or this key is written: only what is on record says whose the key is."""
        key, pinning = certificate.fingerprint, self._records.pinning
        while waits := [one for peer, one in pinning.items() if peer == claimed or one.key == key]:
            await waits[0].answered.wait()

    def _is_dismissed(self, claimed: ClusterID, certificate: PeerCertificate) -> bool:
        record = self._records.get(claimed)
        withdrawn = record is not None and is_trust_withdrawn(record)
        return withdrawn or self._tombstones.refuses(claimed, certificate.fingerprint)

    def established(self, connection: PeerConnection) -> None:
        """Spend the pairing token of an established session."""
        token = self._redeemed.pop(connection, "")
        if token:
            self._tasks.spawn(self._tokens.spend(token), f"spending token {token}")

    def closed(self, connection: PeerConnection) -> None:
        """Drop the pending pairing token of a connection that ended without a session."""
        self._redeemed.pop(connection, None)

    def _is_pinned_unasked(self, certificate: PeerCertificate) -> bool:
        """Return whether an unknown key is pinned automatically; not one that is pinned for another cluster."""
        if certificate.fingerprint in self._records.pins.values():
            return False
        return self._settings.autojoin_untrusted or certificate.fingerprint in self._by_hand

    async def _redeem(
        self, connection: PeerConnection, claimed: ClusterID, certificate: PeerCertificate, join: Join
    ) -> Bye | None:
        if (bye := self._refuse_pinned(claimed, certificate)) is not None:
            return bye
        try:
            await self._tokens.redeem(join, connection.binding(), certificate.fingerprint, claimed)
        except Refusal as refusal:
            self._record_token(connection, claimed, certificate, join, refusal.reason)
            return Bye(refusal.reason, refusal.message)
        # Another connection may have redeemed a token at the same moment.
        await self._pins_settled(claimed, certificate)
        if self._is_dismissed(claimed, certificate):
            return Bye("TrustPending", "the key was distrusted meanwhile")
        if (bye := self._refuse_pinned(claimed, certificate)) is not None:
            return bye
        self._redeemed[connection] = join.token
        self._record_token(connection, claimed, certificate, join)
        return None

    def _refuse_pinned(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye | None:
        """Return the Bye for a key that is another cluster's, or an ID that has another key; else None."""
        pins = self._records.pins
        if pins.get(claimed, certificate.fingerprint) != certificate.fingerprint:
            return self._refuse_key(claimed, certificate)
        if any(pin == certificate.fingerprint and peer != claimed for peer, pin in pins.items()):
            return Bye("KeyInUse", "this key is trusted as another cluster's already")
        return None

    async def _spend_unneeded(
        self, connection: PeerConnection, claimed: ClusterID, certificate: PeerCertificate, join: Join
    ) -> None:
        """Spend the token of a key that is trusted without one; raises KubeError."""
        try:
            await self._tokens.redeem(join, connection.binding(), certificate.fingerprint, claimed)
        except Refusal:
            return
        self._record_token(connection, claimed, certificate, join)
        await self._tokens.spend(join.token)

    def _record_token(
        self,
        connection: PeerConnection,
        claimed: ClusterID,
        certificate: PeerCertificate,
        join: Join,
        refused: str = "",
    ) -> None:
        self._audit.record(
            AuditEvent(
                "TokenRefused" if refused else "TokenUsed",
                refused or "Proven",
                peer=claimed,
                fingerprint=certificate.fingerprint,
                address=connection.address,
                object=token_object(join.token),
            )
        )

    async def _pin(self, claimed: ClusterID, certificate: PeerCertificate, granted: AuditEvent) -> Bye | None:
        by_settings = granted.reason != "Token"
        write = self._records.ensure(claimed, certificate.fingerprint, by_settings=by_settings)
        pinned = await self._written(claimed, certificate, write)
        if not pinned:
            return Bye("TrustPending", "the key was distrusted meanwhile")
        self._records.pins[claimed] = pinned
        if pinned != certificate.fingerprint:
            return self._refuse_key(claimed, certificate)
        self._log.info("pinned the key of {peer}: {words}", peer=claimed, words=words(pinned))
        self._audit.record(granted)
        return None

    async def _pin_next_key(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye | None:
        """Pin the announced key: the previous key is invalid from then on."""
        key = certificate.fingerprint
        if await self._written(claimed, certificate, self._records.promote_next_key(claimed, key)) != key:
            return self._refuse_key(claimed, certificate)
        self._records.pins[claimed] = key
        self._log.info("{peer} has a new key: {words}", peer=claimed, words=words(key))
        self._audit.record(AuditEvent("KeyChanged", "Announced", peer=claimed, fingerprint=key))
        self._subscriber.key_rotated(claimed, key)
        return None

    async def _written(
        self, claimed: ClusterID, certificate: PeerCertificate, write: Coroutine[Any, Any, ForeignCluster | None]
    ) -> Fingerprint:
        """Return the key that is on record after a write, empty for none."""
        try:
            record = await write
        except Exception:
            if self._records.pins.get(claimed) != certificate.fingerprint:
                raise
            return certificate.fingerprint  # the answer was lost, but the watch has shown what was written
        return Fingerprint(record.spec.fingerprint if record is not None else "")

    def _on_record(
        self, claimed: ClusterID, certificate: PeerCertificate, work: Coroutine[Any, Any, Bye | None]
    ) -> Deferred[Bye | None]:
        """Run work that pins a key: it is not cancelled when its connection ends, and others wait for it."""
        outcome: Deferred[Bye | None] = Deferred()

        async def run() -> None:
            pending = self._records.pinning[claimed] = PendingPin(certificate.fingerprint)
            try:
                bye = await work
            except Exception as error:
                answer = partial(outcome.errback, error)
            else:
                answer = partial(outcome.callback, bye)
            del self._records.pinning[claimed]
            if not outcome.called:
                answer()
            pending.answered.open()

        self._tasks.spawn(run(), f"pinning {claimed}")
        return outcome

    def _refuse_key(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye:
        sentence = (
            f"another key is pinned for {claimed}: an impostor, or a cluster with a new key; if its administrator says "
            f"that it is right: 'liqodctl trust {claimed} --fingerprint {certificate.fingerprint}'"
        )
        peer, now = self._directory.peer(claimed), self._clock.seconds()
        # Anybody can claim the ID, each time with another key: that must not cause writes at the same rate.
        due = now >= peer.impostor_shown_at + STRANGER_WRITE_INTERVAL
        shown = peer.problem is not None and peer.problem.reason == REPEATED_ID
        if peer.session is None and (due or not shown):
            self._directory.set_problem(peer, ConnectionProblem(REPEATED_ID, sentence, about_key=True))
        if due:
            peer.impostor_shown_at = now
            self._subscriber.key_mismatch(claimed, certificate.fingerprint)
        return Bye(REPEATED_ID, sentence)

    def _refuse_stranger(
        self, connection: PeerConnection, hello: Hello, claimed: ClusterID, certificate: PeerCertificate
    ) -> Bye:
        """Record the stranger for the user, unless the limit of strangers is reached."""
        key_words = words(certificate.fingerprint)
        bye = self._farewell(claimed, certificate) or Bye(
            "TrustPending", f"your key is not trusted here yet; your words are {key_words}", 0.0
        )
        record = self._records.get(claimed)
        network = NAMED if connection.address in self._named else source_of(host_of(connection.address))
        if record is None:
            if not self._records.has_room_for(claimed, network):
                self._refusals.record("TooManyUntrusted", connection.address, f"no room to show {claimed} to the user")
                if not self._records.is_sighted(claimed):
                    return bye
            self._directory.peer(claimed).advance(UntrustedKeyShown())
            self._records.enqueue(claimed)
        peer = self._directory.peer(claimed)
        peer.network = network
        now = peer.called_at = self._clock.seconds()
        if (
            peer.seen is None
            or peer.seen == certificate.fingerprint
            or now - peer.status_written_at > STRANGER_WRITE_INTERVAL
        ):
            peer.seen, peer.name = certificate.fingerprint, hello.cluster_name
            sentence = f"compare the words {key_words} with the peer's admin and say 'liqodctl trust {claimed}'"
            self._directory.set_problem(peer, ConnectionProblem("TrustPending", sentence, about_key=True))
        return bye

    def _refuse_dismissed_guest(
        self, connection: PeerConnection, hello: Hello, claimed: ClusterID, certificate: PeerCertificate
    ) -> Bye:
        """Record who joins after the peering ended as a stranger: its token is older, or another cluster's."""
        bye = self._refuse_stranger(connection, hello, claimed, certificate)
        if bye.reason != "TrustPending":
            return bye
        return Bye(
            JOIN_REFUSED, f"this cluster ended the peering before; its admin is to say 'liqodctl trust {claimed}'"
        )

    def _farewell(self, claimed: ClusterID, certificate: PeerCertificate) -> Bye | None:
        """Return the Bye for a peer that was unreachable when the peering ended, if it has the key of that time."""
        tombstone = self._tombstones.get(claimed)
        if tombstone is None or tombstone.distrusted or tombstone.by != "us":
            return None
        if tombstone.fingerprint != certificate.fingerprint:
            return None
        self._tasks.spawn(self._tombstones.mark_notified(claimed), f"recording that {claimed} was notified")
        return Bye("Unpeered", f"this cluster ended the peering at {tombstone.at}")
