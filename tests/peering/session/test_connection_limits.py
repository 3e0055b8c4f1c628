"""Who may come in while hundreds only hold places: limits for each place and in all, and peers that notice nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

from twisted.internet.endpoints import TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock, LoopingCall
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.connections.admission import GRACE, HALF_OPEN, PER_ADDRESS, source_of
from liqod.identity.tls import PeerTLS
from liqod.peering.session.connection_limits import ConnectionLimits
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import Bye, Hello, Ping, Pong
from tests.peering.clusters import keypair, settings
from tests.peering.session.test_hostile import HostileCase, Raw, Speaker

CROWD = 500
PINGS = 60
DRIPS = 10
"""Turns in a second that the bytes of a crowd are spread over."""
FLOOR = 0.05
"""Seconds below which twice as long says more about the machine than about the daemon: it is one turn of a reactor."""
HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)
"""How a TLS handshake begins that is never complete."""


class FakeConnection:
    """Stands for a connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ending: Bye | None = None

    def evict(self, reason: str, message: str) -> None:
        self.ending = Bye(reason, message)


class ConnectionLimitsTests(SynchronousTestCase):
    """The limits, by themselves."""

    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.refused: list[str] = []
        self.made: list[FakeConnection] = []

    def admission(self, maximum: int = 512) -> ConnectionLimits:
        def make(address: str) -> PeerConnection:
            self.made.append(FakeConnection(address))
            return cast(PeerConnection, self.made[-1])

        return ConnectionLimits(make, maximum, lambda reason, source, message: self.refused.append(reason), self.clock)

    def come(self, admission: ConnectionLimits, host: str, *, settle: bool = False) -> bool:
        if not admission.has_room(host):
            return False
        connection = admission.connection(host, 1)
        if settle:
            admission.served(connection)
        return True

    def test_one_place_has_its_share(self) -> None:
        """A place may have so many connections without a session; those with one do not count; others come in."""
        admission = self.admission()
        for _ in range(PER_ADDRESS):
            self.assertTrue(self.come(admission, "192.0.2.1"))
        self.assertFalse(self.come(admission, "192.0.2.1"))
        self.assertFalse(self.come(admission, "::ffff:192.0.2.1"))
        self.assertTrue(self.come(admission, "192.0.2.2"))
        admission.served(cast(PeerConnection, self.made[0]))
        self.assertTrue(self.come(admission, "192.0.2.1"))
        admission.closed(cast(PeerConnection, self.made[1]))
        self.assertTrue(self.come(admission, "192.0.2.1"))
        self.assertEqual(set(self.refused), {"TooManyFromAddress"})

    def test_one_that_waits_longest_at_an_address_makes_room_there(self) -> None:
        """Silent ones keep nobody of their own address out for longer than a handshake takes."""
        admission = self.admission()
        for _ in range(PER_ADDRESS):
            self.assertTrue(self.come(admission, "192.0.2.1"))
        self.clock.advance(GRACE)
        self.assertTrue(self.come(admission, "192.0.2.1"))
        self.assertEqual([place.ending is not None for place in self.made], [True, *[False] * PER_ADDRESS])
        self.assertEqual((admission.waiting, self.refused), (PER_ADDRESS, []))

    def test_a_network_of_ipv6_is_one_place(self) -> None:
        """Another address out of the same 64 bits is nobody else; a zone makes no difference."""
        self.assertEqual(source_of("2001:db8::1"), source_of("2001:db8::ffff:1"))
        self.assertNotEqual(source_of("2001:db8::1"), source_of("2001:db8:0:1::1"))
        self.assertEqual(source_of("fe80::1%eth0"), source_of("fe80::2%eth0"))
        self.assertEqual(source_of("a local socket"), "a local socket")

    def test_one_that_waits_longest_makes_room(self) -> None:
        """From many places at once, the oldest without a session goes: the newest always gets its chance."""
        admission = self.admission()
        for number in range(HALF_OPEN + 10):
            self.assertTrue(self.come(admission, f"10.0.{number // 256}.{number % 256}"))
        self.assertEqual(admission.waiting, HALF_OPEN)
        gone = [place.address for place in self.made if place.ending is not None]
        self.assertEqual(gone, [f"10.0.0.{number}:1" for number in range(10)])
        self.assertEqual(self.refused, [])

    def test_sessions_are_never_pushed_out(self) -> None:
        """When all places are sessions, nobody comes in; while somebody only waits, it makes room."""
        admission = self.admission(3)
        self.assertTrue(self.come(admission, "10.0.0.1", settle=True))
        self.assertTrue(self.come(admission, "10.0.0.2", settle=True))
        self.assertTrue(self.come(admission, "10.0.0.3"))
        self.assertTrue(self.come(admission, "10.0.0.4", settle=True))
        self.assertEqual([place.ending is not None for place in self.made], [False, False, True, False])
        self.assertFalse(self.come(admission, "10.0.0.5"))
        self.assertEqual(self.refused, ["TooManySessions"])

    def test_nothing_is_left_of_those_who_went(self) -> None:
        """Counts come back to nothing, in whichever order connections settle and close."""
        admission = self.admission()
        for number in range(100):
            self.come(admission, f"10.0.0.{number % 7}", settle=number % 3 == 0)
        for place in self.made:
            admission.closed(cast(PeerConnection, place))
            admission.served(cast(PeerConnection, place))
        self.assertEqual((admission.waiting, len(admission), dict(admission._sources)), (0, 0, {}))


class ManyConnectionsTests(HostileCase):
    """Five hundred who come and say nothing, or a byte a second."""

    timeout = 120

    async def come(self, side: Any, number: int) -> Raw:
        """Connect from an address of one's own; every other one gets as far as TLS."""
        made = Raw()
        source = (f"127.0.{1 + number // 50}.{1 + number % 50}", 0)
        endpoint: Any = TCP4ClientEndpoint(side.reactor, "127.0.0.1", side.peering.port, bindAddress=source)
        if number % 2:
            endpoint = wrapClientTLS(self.strangers.client_creator(), endpoint)
        await endpoint.connect(Factory.forProtocol(lambda: made))
        return made

    def drip(self, crowd: Sequence[Raw]) -> LoopingCall:
        """Have each that is connected say a byte a second, some of them at any time; the result ends it."""
        turn = count()

        def some() -> None:
            position, part = divmod(next(turn), DRIPS)
            for number, raw in enumerate(crowd):
                if number % DRIPS == part and not raw.lost.called:
                    # Below TLS the beginning of a handshake, within it that of a frame; neither is ever complete.
                    said = b"\x00\x00" if number % 2 else HANDSHAKE
                    cast(Any, raw.transport).write(said[position % len(said) : position % len(said) + 1])
                    self.dripped.add(number)

        beat = LoopingCall(some)
        beat.start(1.0 / DRIPS, now=True).addErrback(self.failed.append)
        return beat

    async def pings(self, speaker: Speaker, times: int) -> list[float]:
        """Return how long each of so many pings took, one every twentieth of a second."""
        took = []
        for number in range(times):
            speaker.say(Ping(number + 1000))
            began = self.clock.seconds()
            while not any(event == Pong(number + 1000) for event in speaker.events):
                await self.pause(0.0005)
            took.append(self.clock.seconds() - began)
            speaker.events.clear()
            await self.pause(0.05)
        return took

    async def greeted(self, side: Any, name: str) -> Speaker:
        """Return a peer with a session."""

        speaker = Speaker(name)
        await self.connect(side, speaker, PeerTLS(keypair(name)).client_creator())
        speaker.say(Hello(name, name, 1, 0, 0, []))

        async def welcome() -> bool:
            return name in [one.peer for one in side.peering.sessions()]

        await self.becomes(welcome, f"{name} is welcome")
        return speaker

    async def test_peers_do_not_notice_a_crowd(self) -> None:
        """Places without a session stay bounded, silent or a byte a second; a peer's pings take less than twice as long
        as usual; a new peer comes in.
        """
        from twisted.internet import reactor

        self.clock = cast(Any, reactor)
        self.strangers = PeerTLS(keypair("stranger"))
        self.dripped: set[int] = set()
        self.failed: list[Failure] = []
        side = await self.side("alpha", settings(autojoin_untrusted=True, handshake_timeout=60.0, ping_interval=60.0))
        peer = await self.greeted(side, "peer")
        before = await self.pings(peer, PINGS)
        crowd = [await self.come(side, number) for number in range(CROWD)]
        idle = await self.pings(peer, PINGS)
        beat = self.drip(crowd)
        during = await self.pings(peer, PINGS)
        beat.stop()
        sessions = side.peering._sessions
        self.assertEqual(self.failed, [])
        self.assertGreaterEqual(len(self.dripped), HALF_OPEN)
        self.assertLessEqual(sessions.admission.waiting, HALF_OPEN)
        self.assertLessEqual(len(sessions._connections), HALF_OPEN + 1)
        newcomer = await self.greeted(side, "newcomer")
        self.assertGreater(side.peering.refusals["TooManyHalfOpen"], CROWD - HALF_OPEN - 10)
        self.assertEqual([one.peer for one in side.peering.sessions()], ["newcomer", "peer"])
        for raw in crowd:
            if not raw.lost.called:
                cast(Any, raw.transport).abortConnection()
        usual = statistics.median([*before, *await self.pings(peer, PINGS)])
        for what, took in (("idle", idle), ("one-byte-a-second", during)):
            median = statistics.median(took)
            print(f"\nping: usually {usual * 1000:.2f} ms, with {CROWD} {what} connections {median * 1000:.2f} ms")
            self.assertLess(median, max(2 * usual, FLOOR), what)
        for speaker in (peer, newcomer):
            cast(Any, speaker.transport).abortConnection()

    async def test_a_byte_now_and_then_buys_no_time(self) -> None:
        """The time for a handshake is counted from its beginning: the one that drips is cut like the one that is
        silent.
        """
        side = await self.side("alpha", settings(handshake_timeout=1.0))
        raws = [Raw() for _ in range(5)]
        for raw in raws:
            await self.connect(side, raw)
        dripping = HANDSHAKE
        for position in range(60):
            for raw in raws:
                if not raw.lost.called:
                    cast(Any, raw.transport).write(dripping[position : position + 1])
            await self.pause(0.05)
        await self.counted(side, "HandshakeTimeout", len(raws))
        for raw in raws:
            await raw.lost
        self.assertEqual(side.peering._sessions.admission.waiting, 0)
