"""Peers that are broken or mean: each is refused with a reason and counted, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import CertificateOptions
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from liqod.flow.connections.admission import PER_ADDRESS
from liqod.identity.tls import PeerTLS
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.records.offer import Offer
from liqod.model.records.views import ForeignClusterStatus
from liqod.peering.session.protocol import CLOSING
from liqod.wire.events import Advertise, Bye, Event, Hello, Ping, Welcome
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState
from tests.peering.clusters import FakeSighting, PairCase, PeerCluster, keypair, settings


class Raw(Protocol):
    """Keeps what comes in; ``lost`` fires when the connection is over."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class Speaker(Raw):
    """Speaks the protocol properly, up to a point: ``script`` is called with each event."""

    def __init__(self, name: str, script: Callable[[Speaker, Event], None] | None = None, epoch: int = 1) -> None:
        super().__init__()
        self.session = SessionProtocol("dialer")
        self.name = name
        self.epoch = epoch
        self.script = script
        self.events: list[Event] = []

    def hello(self) -> None:
        self.say(Hello(self.name, self.name, self.epoch, 0, 0, []))

    def say(self, event: Event) -> None:
        cast(Any, self.transport).write(self.session.send(event))

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        self.session.receive_data(data)
        while (event := self.session.next_event()) is not NEED_DATA:
            assert isinstance(event, Event)
            self.events.append(event)
            if isinstance(event, Welcome):
                self.say(self.session.welcome())
            if self.script is not None:
                self.script(self, event)


class HostileCase(PairCase):
    """One daemon, and whatever connects to it."""

    async def connect(self, side: PeerCluster, made: Raw, tls: Any = None) -> Any:
        async def ready() -> bool:
            return side.peering._sessions.ready

        await self.becomes(ready, "the records are known")
        endpoint: Any = HostnameEndpoint(side.reactor, b"127.0.0.1", side.peering.port)
        if tls is not None:
            endpoint = wrapClientTLS(tls, endpoint)
        return await endpoint.connect(Factory.forProtocol(lambda: made))

    async def counted(self, side: PeerCluster, reason: str, at_least: int = 1) -> None:
        async def check() -> bool:
            return side.peering.refusals[reason] >= at_least

        try:
            await self.becomes(check, f"{reason} is counted")
        finally:
            self.seen = dict(side.peering.refusals)


class HandshakeTests(HostileCase):
    """Those who do not get as far as a session."""

    async def test_what_is_not_tls_is_refused(self) -> None:
        """Garbage on the port ends the connection."""
        side = await self.side("alpha")
        raw = Raw()
        await self.connect(side, raw)
        cast(Any, raw.transport).write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await raw.lost
        await self.counted(side, "HandshakeFailed")

    async def test_another_protocol_is_refused(self) -> None:
        """TLS with a certificate but without our ALPN name is refused as such."""
        from tests.identity.tls_pair import Authority

        side = await self.side("alpha")
        pair = Authority().issue("stranger")
        options = CertificateOptions(privateKey=_pkey(pair.key), certificate=_x509(pair.certificate))

        class Creator:
            def clientConnectionForTLS(self, protocol: Any) -> Any:
                from OpenSSL import SSL

                return SSL.Connection(options.getContext(), None)

        from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
        from zope.interface import directlyProvides

        creator = Creator()
        directlyProvides(creator, IOpenSSLClientConnectionCreator)
        raw = Raw()
        await self.connect(side, raw, creator)
        await self.counted(side, "NoCommonProtocol")
        await raw.lost
        self.assertEqual(raw.data, b"")

    async def test_silence_is_not_waited_for(self) -> None:
        """A caller that does not get on with the handshake is cut off, before TLS and after it."""
        side = await self.side("alpha", settings(handshake_timeout=0.3))
        silent, mute = Raw(), Raw()
        await self.connect(side, silent)
        await self.connect(side, mute, PeerTLS(keypair("mute")).client_creator())
        await silent.lost
        await mute.lost
        await self.counted(side, "HandshakeTimeout", 2)
        self.assertEqual(mute.data, b"")

    async def test_garbage_in_place_of_a_greeting_is_refused(self) -> None:
        """Frames that are no events, too long, or out of order end the connection with the reason."""
        side = await self.side("alpha")
        for data in (b"\x00\x00\x00\x03abc", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x91\x02"):
            raw = Raw()
            await self.connect(side, raw, PeerTLS(keypair("mean")).client_creator())
            cast(Any, raw.transport).write(data)
            await raw.lost

        async def all_counted() -> bool:
            return sum(side.peering.refusals.values()) == 3

        await self.becomes(all_counted, "each is counted")
        self.assertEqual(set(side.peering.refusals) & {"HandshakeFailed", "HandshakeTimeout", "ConnectionLost"}, set())

    async def test_a_stranger_learns_nothing(self) -> None:
        """Before the key is trusted only Hello and Bye are said, and the stranger's own events are not taken."""
        side = await self.side("alpha")
        stranger = Speaker("stranger")
        await self.connect(side, stranger, PeerTLS(keypair("stranger")).client_creator())
        stranger.hello()
        await stranger.lost
        self.assertEqual([type(event) for event in stranger.events], [Hello, Bye])
        self.assertEqual(cast(Bye, stranger.events[1]).reason, "TrustPending")
        self.assertIs(stranger.session.state, SessionState.CLOSED)

    async def test_a_key_is_one_cluster(self) -> None:
        """With autojoin a key takes one ID: under any other one its holder is a stranger, and is not pinned."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        key = keypair("first")
        speakers = [Speaker(name) for name in ("first", "second", "third")]
        for speaker in speakers:
            await self.connect(side, speaker, PeerTLS(key).client_creator())
            speaker.hello()

            async def answered(speaker: Speaker = speaker) -> bool:
                return len(speaker.events) > 1

            await self.becomes(answered, f"{speaker.name} is answered")
        self.assertEqual([type(speaker.events[1]) for speaker in speakers], [Welcome, Bye, Bye])
        self.assertEqual({cast(Bye, speaker.events[1]).reason for speaker in speakers[1:]}, {"TrustPending"})
        pinned = {
            record["metadata"]["name"]: record["spec"].get("fingerprint", "")
            for record in (await side.admin.list(FOREIGNCLUSTERS)).items
        }
        self.assertEqual({name for name, fingerprint in pinned.items() if fingerprint}, {"first"})
        self.assertEqual([session.peer for session in side.peering.sessions()], ["first"])

    async def test_one_address_cannot_take_all_places(self) -> None:
        """Connections without a session are limited per address; those refused cost no handshake."""
        side = await self.side("alpha")
        raws = [Raw() for _ in range(PER_ADDRESS + 3)]
        for raw in raws:
            await self.connect(side, raw)
        await self.counted(side, "TooManyFromAddress", 3)
        for raw in raws:
            cast(Any, raw.transport).abortConnection()

    async def test_the_log_is_not_filled(self) -> None:
        """However often one source is refused, it is logged once a minute."""
        side = await self.side("alpha")
        with capturedLogs() as logs:
            for _ in range(5):
                raw = Raw()
                await self.connect(side, raw)
                cast(Any, raw.transport).write(b"nonsense" * 10)
                await raw.lost
            await self.counted(side, "HandshakeFailed", 5)
        refused = [event for event in logs if "refused {source}" in str(event.get("log_format"))]
        self.assertEqual(len(refused), 1)


class StopTests(HostileCase):
    """Those who do not let a daemon stop, so that it no longer leads."""

    async def held(self) -> PeerCluster:
        """Return a side that is connected with somebody who does not notice the end of the connection."""
        side = await self.side("alpha")
        deaf = Raw()
        await self.connect(side, deaf, PeerTLS(keypair("deaf")).client_creator())

        async def handshaked() -> bool:
            return any(one.certificate is not None for one in side.peering._sessions._connections)

        await self.becomes(handshaked, "the handshake is complete")
        cast(Any, deaf.transport).pauseProducing()
        self.addCleanup(cast(Any, deaf.transport).abortConnection)
        return side

    async def test_who_connects_during_the_stop_does_not_delay_it(self) -> None:
        """No connection is accepted any more while the others are closed."""
        side = await self.held()
        begun, port = side.reactor.seconds(), side.peering.port
        stopped = Deferred.fromCoroutine(side.stop())
        endpoint: Any = HostnameEndpoint(side.reactor, b"127.0.0.1", port)
        late = endpoint.connect(Factory.forProtocol(Raw))
        with self.assertRaises(ConnectionRefusedError):
            self.addCleanup((await late).transport.abortConnection)
        await stopped
        self.assertLess(side.reactor.seconds() - begun, 2 * CLOSING)

    async def test_a_stop_that_is_cut_short_stops_every_part(self) -> None:
        """Nothing of a daemon that no longer leads goes on, whatever connection did not end in time."""
        side = await self.held()
        parts = list(side.peering)
        stopped = side.peering.stopService()
        stopped.cancel()
        with self.assertRaises(CancelledError):
            await stopped
        await side.informers.stopService()
        await side.daemon.close()
        self.assertEqual([part for part in parts if cast(Any, part).running], [])
        self.assertEqual(side.peering.port, 0)


class SessionTests(HostileCase):
    """Those who are trusted and misbehave all the same."""

    async def session(
        self, side: PeerCluster, name: str, script: Any = None, epoch: int = 1, key: Any = None
    ) -> Speaker:
        speaker = Speaker(name, script, epoch)
        await self.connect(side, speaker, PeerTLS(key or keypair(name)).client_creator())
        speaker.hello()

        async def established() -> bool:
            return speaker.session.state is SessionState.ESTABLISHED

        await self.becomes(established, "the session is established")
        return speaker

    async def test_a_flood_of_events_ends_the_session(self) -> None:
        """More events than any peer needs: TooFast."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        speaker = await self.session(side, "flood")
        for _ in range(3000):
            speaker.say(Ping(1))
        await speaker.lost
        self.assertEqual(cast(Bye, speaker.events[-1]).reason, "TooFast")

    async def test_a_bad_offer_is_refused_by_field(self) -> None:
        """An offer with a negative quantity is recorded as Refused, and the lender learns which field is wrong."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        speaker = await self.session(side, "lender")
        speaker.say(Advertise(1, 1, 1800, Offer(resources={"cpu": "-1"})))

        async def refused() -> bool:
            lines = [event for event in speaker.events if getattr(event, "decision", "") == "Refused"]
            return bool(lines) and cast(Any, lines[0]).message.startswith("resources.cpu:")

        await self.becomes(refused, "the lender is sent")
        self.assertEqual(side.peering.refusals["InvalidOffer"], 1)

    async def test_an_invalid_update_leaves_the_valid_offer_in_force(self) -> None:
        """What was accepted stays while what comes after it is nonsense."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        speaker = await self.session(side, "lender")
        speaker.say(Advertise(1, 1, 1800, Offer(resources={"cpu": "1"})))

        async def said(decision: str) -> bool:
            return any(getattr(event, "decision", "") == decision for event in speaker.events)

        await self.becomes(lambda: said("Accepted"), "accepted")
        speaker.say(Advertise(1, 2, 1800, Offer(resources={"cpu": "nonsense"})))
        await self.becomes(lambda: said("Refused"), "refused")
        record = await side.offer_record(PeerCluster("lender"))
        self.assertEqual((record.status.phase, record.spec.offer.resources), ("Accepted", {"cpu": "1"}))

    async def test_offers_of_an_earlier_life_are_dropped(self) -> None:
        """An offer that names another epoch than the session's Hello changes nothing."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        speaker = await self.session(side, "lender", epoch=7)
        speaker.say(Advertise(6, 9, 1800, Offer(resources={"cpu": "1"})))
        await self.counted(side, "StaleOffer")

    async def test_a_peer_that_dials_again_replaces_its_dead_session(self) -> None:
        """A restarted peer need not wait for its old connection to time out."""
        side = await self.side("alpha", settings(autojoin_untrusted=True))
        key = keypair("peer")
        first = await self.session(side, "peer", epoch=1, key=key)
        await self.session(side, "peer", epoch=2, key=key)
        await first.lost
        self.assertEqual(cast(Bye, first.events[-1]).reason, "Duplicate")
        self.assertEqual([session.peer for session in side.peering.sessions()], ["peer"])

    async def test_silence_makes_a_peer_suspect(self) -> None:
        """Three pings without any answer end the session: Suspect for that reason, also with nothing to dial."""
        side = await self.side("alpha", settings(autojoin_untrusted=True, ping_interval=0.1))
        speaker = await self.session(side, "mute", script=None)
        cast(Any, speaker.transport).pauseProducing()
        other = PeerCluster("mute")
        record = await self.phase(side, other, "Suspect")
        self.assertEqual(record.status.reason, "Unresponsive")

        async def at_rest() -> ForeignClusterStatus | None:
            status = (await side.cluster_record(other)).status
            return status if status.message.endswith("dialled again when something changes") else None

        status = await self.becomes(at_rest, "the peer is dialled no more")
        self.assertEqual((status.phase, status.reason), ("Suspect", "Unresponsive"))
        self.assertEqual(len((await side.admin.list(FOREIGNCLUSTERS)).items), 1)
        cast(Any, speaker.transport).abortConnection()

    async def test_a_silent_peer_stays_unresponsive_when_it_is_dialled_in_vain(self) -> None:
        """That nobody answers at its address is a consequence of the silence: named, and not the reason."""
        side = await self.side("alpha", settings(autojoin_untrusted=True, ping_interval=0.1))
        speaker = await self.session(side, "mute", script=None)
        cast(Any, speaker.transport).pauseProducing()
        side.peering.update_candidates([FakeSighting("127.0.0.1", 1, "mute")])

        async def dialled() -> ForeignClusterStatus | None:
            status = (await side.cluster_record(PeerCluster("mute"))).status
            return status if "cannot connect to 127.0.0.1:1" in status.message else None

        status = await self.becomes(dialled, "it was dialled in vain")
        self.assertEqual((status.phase, status.reason), ("Suspect", "Unresponsive"))
        self.assertIn("answered none of three pings", status.message)
        cast(Any, speaker.transport).abortConnection()


def _pkey(key: Any) -> Any:
    from OpenSSL import crypto

    return crypto.PKey.from_cryptography_key(key)


def _x509(certificate: Any) -> Any:
    from OpenSSL import crypto

    return crypto.X509.from_cryptography(certificate)
