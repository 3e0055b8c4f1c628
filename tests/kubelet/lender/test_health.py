"""Tests of liqod.kubelet.lender.health: what requests and probes tell about a lender."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.cache.listwatch import SILENCE
from liqod.kube.errors import ServerError, Unauthorized, Unreachable
from liqod.kubelet.common.readiness import is_back
from liqod.kubelet.lender.health import PROBE_TIMEOUT, RETRY_INTERVAL, LenderHealth


class FakeClient:
    """Answers what is asked for with whatever ``answer`` says; notes what it learns of the path."""

    class config:
        server = "https://api.test"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answer: Any = b"ok"
        self.asked = 0
        self.reported: list[Any] = []
        self.path_since: Latest[float] = Latest(float("-inf"))

    async def raw(self, method: str, path: str) -> bytes:
        self.asked += 1
        if self.answer is None:
            await Deferred()
        if isinstance(self.answer, Exception):
            raise self.answer
        return b"ok"

    def path_is_doubtful(self) -> None:
        self.reported.append("doubtful")

    def path_is_new(self, since: float) -> None:
        self.reported.append(since)


class LenderHealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.client = FakeClient(self.clock)
        self.latest: Latest[Any] = Latest(self.client)
        self.health = LenderHealth(self.clock, self.latest, 10.0)
        self.health.startService()
        self.addCleanup(self.health.stopService)
        self.clock.advance(0)

    def silence(self, seconds: float) -> None:
        """Let the lender be silent for so long, beginning when it is asked next."""
        self.client.answer = None
        self.clock.pump([1.0] * int(seconds))

    def test_the_path_is_new_after_silence(self) -> None:
        """After silence the client hears, before anybody else, that what was connected before the last probe is old."""
        self.assertEqual(self.client.reported, [])
        self.silence(40)
        self.assertFalse(self.health.ok)
        self.assertEqual(set(self.client.reported), {"doubtful"})
        order: list[Any] = []
        self.health.state.subscribe(lambda state: order.append([*self.client.reported][-1]))
        self.client.answer = b"ok"
        self.clock.pump([1.0] * int(PROBE_TIMEOUT + RETRY_INTERVAL + 1))
        self.assertTrue(self.health.ok)
        self.assertEqual(len(order), 1)
        last_probe = 10 + 3 * (PROBE_TIMEOUT + RETRY_INTERVAL)
        self.assertEqual(order, [last_probe])

    def test_a_refusal_is_no_silence(self) -> None:
        """A lender that answers, whatever it says, has no path to be mended."""
        for answer in (Unauthorized(401, "Unauthorized", "no"), b"ok"):
            self.client.answer = answer
            self.health.recheck()
            self.clock.advance(0)
        self.assertTrue(self.health.ok)
        self.assertEqual(self.client.reported, [])

    def test_what_was_refused_is_tried_at_once(self) -> None:
        """After refusals what waits to be tried again need wait no longer; watches that live are not touched."""
        reported: list[float] = []
        self.client.path_since.subscribe(reported.append)
        for refusal in (Unauthorized(401, "Unauthorized", "no"), ServerError(503, "ServiceUnavailable", "later")):
            reported.clear()
            self.client.answer = refusal
            self.health.recheck()
            self.clock.advance(0)
            self.assertFalse(self.health.ok)
            self.assertEqual(reported, [])
            self.client.answer = b"ok"
            self.clock.advance(RETRY_INTERVAL)
            self.assertTrue(self.health.ok)
            self.assertEqual(reported, [self.clock.seconds() - SILENCE])
        self.clock.pump([1.0] * 60)
        self.assertEqual(len(reported), 1)
        self.assertEqual(self.client.reported, [])

    def test_another_client_has_no_old_connections(self) -> None:
        """A client that was made in the silence learns nothing."""
        self.silence(20)
        other = FakeClient(self.clock)
        self.latest.set(other)
        self.clock.pump([1.0] * 10)
        self.assertTrue(self.health.ok)
        self.assertEqual(other.reported, [])

    def test_a_session_that_is_back_has_it_asked_at_once(self) -> None:
        """When the peer is known to answer otherwise the API is asked at once, in place of a probe that hangs; not if
        well.
        """
        asked = self.client.asked
        self.health.session_resumed()
        self.clock.advance(0)
        self.assertEqual(self.client.asked, asked)
        self.silence(19)
        asked = self.client.asked
        self.client.answer = b"ok"
        self.health.session_resumed()
        self.clock.advance(0)
        self.assertEqual(self.client.asked, asked + 1)
        self.assertTrue(self.health.ok)

    def test_no_connection_is_silence_too(self) -> None:
        """A lender to which no connection comes about is silent."""
        self.client.answer = Unreachable("nobody there")
        self.health.recheck()
        self.clock.advance(0)
        self.assertEqual(self.health.state.value.reason, "PeerUnreachable")
        self.assertEqual(self.client.reported, ["doubtful"])

    def test_what_a_refusal_says(self) -> None:
        """Of the lender's own words as many are shown as a status has room for."""
        self.client.answer = Unauthorized(401, "Unauthorized", "z" * 1000)
        self.health.recheck()
        self.clock.advance(0)
        self.assertEqual(self.health.state.value.message.count("z"), 200)

    def test_phases(self) -> None:
        """A session is back when its phase leaves Suspect or Lost for one that needs a session."""
        for before, now, expected in (
            ("Suspect", "Ready", True),
            ("Lost", "Accepted", True),
            ("Ready", "Accepted", False),
            ("Suspect", "Lost", False),
            ("Connecting", "Ready", False),
        ):
            self.assertEqual(is_back(before, now), expected, (before, now))
