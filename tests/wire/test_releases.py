"""What released versions said, recorded byte for byte, is understood by the protocol as it is now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.tls import PeerTLS
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.peering.sessions import NEWEST_MINOR, OLDEST_MINOR
from liqod.wire.codec import decode, encode
from liqod.wire.events import EVENTS, Bye, Event, Hello, Pong, Unsupported, Welcome, Withdraw
from liqod.wire.framing import HEADER, FrameBuffer, FrameLimits
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState
from tests.peering.clusters import keypair
from tests.peering.session.test_hostile import HostileCase, Raw, Speaker
from tests.wire.pairs import raw

RECORDINGS = Path(__file__).parent / "wire_sessions"
OURS = Hello("here", "here", 1, OLDEST_MINOR, NEWEST_MINOR, ["joining"])


def recording(minor: int) -> list[tuple[str, bytes]]:
    """Return what was said: who, and the bytes."""
    found = json.loads((RECORDINGS / f"1.{minor}.json").read_text())
    assert found["minor"] == minor
    return [(role, bytes.fromhex(data)) for role, data in found["said"]]


class ReleaseTests(SynchronousTestCase):
    """Each release against the present one, in either role."""

    def test_every_minor_is_recorded(self) -> None:
        """There is one recording for every minor version up to the newest that is spoken here."""
        names = sorted(path.name for path in RECORDINGS.iterdir())
        self.assertEqual(names, [f"1.{minor}.json" for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1)])

    def test_every_release_is_understood(self) -> None:
        """All that either party of a release said is decoded and in order; the minor agreed upon is the release's."""
        for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
            for role in ("dialer", "listener"):
                received = self.play(minor, role)
                expected = {event.number for event in EVENTS if event.since <= minor} - {18}
                if role == "dialer":
                    expected = (expected | {18}) - {Bye.number}
                self.assertEqual({event.number for event in received}, expected, (minor, role))

    def play(self, minor: int, role: str) -> list[Event]:
        """Be the other end of a recorded party; returns what it said."""
        session = SessionProtocol("listener" if role == "dialer" else "dialer")
        received: list[Event] = []
        if session.role == "dialer":
            session.send(OURS)
        for data in [data for who, data in recording(minor) if who == role]:
            session.receive_data(data)
            while (event := session.next_event()) is not NEED_DATA:
                assert isinstance(event, Event), event
                received.append(event)
                if isinstance(event, Hello):
                    if session.role == "listener":
                        session.send(OURS)
                    session.send(session.welcome())
                    self.assertEqual(session.minor, minor)
                elif isinstance(event, Welcome):
                    self.assertIs(session.state, SessionState.ESTABLISHED)
        return received

    def test_fields_are_only_appended(self) -> None:
        """What a release said is said today with the same fields in the same places, and perhaps some more after."""
        for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
            for _, data in recording(minor):
                event = decode(data[HEADER:], FrameLimits())
                assert isinstance(event, Event), event
                then, now = (msgpack.unpackb(one) for one in (data[HEADER:], encode(event, FrameLimits())))
                self.assertEqual(now[: len(then)], then, type(event).__name__)


class AdjacentReleaseTests(HostileCase):
    """A daemon of today, and peers from before and after."""

    async def meet(self, hello: Hello, after: list[bytes]) -> tuple[Any, Speaker]:
        side = await self.side("alpha")
        key = keypair(hello.cluster_id)
        body = {
            "metadata": {"name": hello.cluster_id},
            "spec": {"clusterID": hello.cluster_id, "fingerprint": key.fingerprint},
        }
        await side.admin.apply(FOREIGNCLUSTERS, body, manager="liqodctl")

        async def known() -> bool:
            return hello.cluster_id in side.peering._records.pins

        await self.becomes(known, "the peer is trusted")

        def script(speaker: Speaker, event: Event) -> None:
            if isinstance(event, Welcome):
                cast(Any, speaker.transport).write(b"".join(after))

        speaker = Speaker(hello.cluster_id, script)
        await self.connect(side, speaker, PeerTLS(key).client_creator())
        speaker.say(hello)
        return side, speaker

    async def test_a_daemon_works_with_each_release(self) -> None:
        """The bytes that a dialer of each release sent make a session, and its offer is taken in."""
        for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
            # Without Withdraw, which would take the offer back at once.
            spoken = [data for role, data in recording(minor) if role == "dialer" and data[5] != Withdraw.number]
            side, speaker = await self.meet(Hello("turin", "turin", 1, 0, minor, []), spoken[3:])

            async def offered(side: Any = side) -> bool:
                return side.peering._records.offer_of("turin") is not None

            await self.becomes(offered, f"the offer of 1.{minor} is on record")
            self.assertEqual([one.peer for one in side.peering.sessions()], ["turin"])
            self.assertEqual([event.minor for event in speaker.events if isinstance(event, Welcome)], [minor])
            cast(Any, speaker.transport).abortConnection()

    async def test_a_daemon_works_with_releases_to_come(self) -> None:
        """Three minors ahead: unknown events are answered, unknown fields and features ignored, the rest works."""
        later = [raw(500, "what is this"), raw(4, 17, "a field to come", {"more": [1]}), raw(501)]
        hello = Hello("tomorrow", "tomorrow", 1, 0, NEWEST_MINOR + 3, ["teleport"])
        side, speaker = await self.meet(hello, later)

        async def answered() -> bool:
            return [event.unknown for event in speaker.events if isinstance(event, Unsupported)] == [500, 501]

        await self.becomes(answered, "both unknown events are answered")
        self.assertIn(Pong(17), speaker.events)
        welcome = next(event for event in speaker.events if isinstance(event, Welcome))
        self.assertEqual((welcome.minor, welcome.features), (NEWEST_MINOR, []))
        self.assertEqual([one.peer for one in side.peering.sessions()], ["tomorrow"])

    async def test_a_release_too_far_ahead_learns_so(self) -> None:
        """Without a common minor both say which ones they speak, and nothing is believed."""
        side = await self.side("alpha")
        stranger = Raw()
        await self.connect(side, stranger, PeerTLS(keypair("tomorrow")).client_creator())
        hello = Hello("tomorrow", "tomorrow", 1, NEWEST_MINOR + 1, NEWEST_MINOR + 3, [])
        cast(Any, stranger.transport).write(SessionProtocol("dialer").send(hello))
        await stranger.lost
        await self.counted(side, "NoCommonMinor")
        buffer, reported = FrameBuffer(FrameLimits()), []
        buffer.feed(stranger.data)
        while (payload := buffer.take()) is not None:
            reported.append(decode(payload, FrameLimits()))
        self.assertEqual([type(event) for event in reported], [Hello, Bye])
        self.assertEqual(cast(Bye, reported[1]).reason, "NoCommonMinor")
