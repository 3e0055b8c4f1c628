"""Tests of what a wavering network counts as, and of the way to a lender that comes back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.cache.listwatch import SILENCE
from liqod.kube.errors import ServerError, Unauthorized, Unreachable
from liqod.kubelet.common.readiness import READY, Readiness, is_back, not_known, not_ready
from liqod.kubelet.lender.health import IMPATIENT, PROBE_TIMEOUT, Reach
from liqod.kubelet.node.debounce import DOWN, LONGEST, SOON, UP, Steady, follow, wait_for_up
from liqod.kubelet.node.network_condition import Crossing

CUT = not_ready("NetworkDown", "nothing comes back")


class Steadiness(SynchronousTestCase):
    def test_first_readings(self) -> None:
        """What is read first counts at once, and so does the first good reading; what is not known changes nothing."""
        steady, again = follow(Steady(), None, 0)
        self.assertEqual((steady.shown, again), (None, None))
        steady, again = follow(steady, False, 1)
        self.assertEqual((steady.shown, again), (False, None))
        steady, again = follow(steady, True, 2)
        self.assertEqual((steady.shown, again), (True, None))
        self.assertEqual(follow(steady, None, 3), (steady, None))

    def test_a_cut_and_its_end(self) -> None:
        """A network that worked counts as down after some seconds of bad readings, as up after as many good ones."""
        steady, _ = follow(Steady(), True, 0)
        steady, again = follow(steady, False, 10)
        self.assertEqual((steady.shown, again), (True, DOWN))
        steady, again = follow(steady, False, 10 + DOWN)
        self.assertEqual((steady.shown, again), (False, None))
        steady, again = follow(steady, True, 100)
        self.assertEqual((steady.shown, again), (False, UP))
        steady, again = follow(steady, True, 100 + UP)
        self.assertEqual((steady.shown, again), (True, None))

    def test_a_moment_is_nothing(self) -> None:
        """A reading that is taken back before its time changes nothing, and the time begins anew."""
        steady, _ = follow(Steady(), True, 0)
        steady, _ = follow(steady, False, 10)
        steady, again = follow(steady, True, 10 + DOWN / 2)
        self.assertEqual((steady.shown, again), (True, None))
        steady, again = follow(steady, False, 10 + DOWN)
        self.assertEqual((steady.shown, again), (True, DOWN))

    def test_who_wavers_waits_longer(self) -> None:
        """Each turn for the worse soon after another doubles what has to be good before, to a minute at most."""
        self.assertEqual([wait_for_up(turns) for turns in (1, 2, 3, 4, 5, 6, 1000)], [3, 6, 12, 24, 48, 60, LONGEST])

    @given(st.lists(st.tuples(st.floats(0.1, 30), st.sampled_from([True, False, None])), max_size=60))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_turns_are_few(self, readings: list[tuple[float, bool | None]]) -> None:
        """However readings waver, a network turns for the worse at most 13 times in ten minutes."""
        steady, now = follow(Steady(), True, 0.0)[0], 0.0
        turned: list[float] = []
        for pause, reading in readings * 4:
            now += pause
            before = steady.shown
            steady, again = follow(steady, reading, now)
            if again is not None:
                self.assertGreater(again, 0)
            if before and not steady.shown:
                turned.append(now)
        for first in turned:
            self.assertLessEqual(sum(first <= each < first + SOON for each in turned), 13)


class CrossingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.word: Readiness = not_known("no probe yet")
        self.crossing = Crossing(self.clock, lambda: self.word, "milan")
        self.told: list[str] = []
        self.crossing.state.subscribe(lambda state: self.told.append(state.reason))
        self.crossing.startService()

    def say(self, word: Readiness) -> None:
        self.word = word
        self.crossing.look()

    def test_it_turns_by_itself(self) -> None:
        """A word that stays counts when its time is over, without another one; no timer is left at the end."""
        self.say(READY)
        self.say(CUT)
        self.assertEqual(self.told, [READY.reason])
        self.clock.advance(DOWN)
        self.assertEqual(self.told, [READY.reason, "NetworkDown"])
        self.say(READY)
        self.assertEqual(self.told, [READY.reason, "NetworkDown"])
        self.clock.advance(UP)
        self.assertEqual(self.told, [READY.reason, "NetworkDown", READY.reason])
        self.say(CUT)
        self.successResultOf(self.crossing.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_is_not_known_is_told_as_that(self) -> None:
        """Before the first word nothing is known; a fabric that begins anew does not take back what counts."""
        self.assertFalse(self.crossing.state.value.known)
        self.say(READY)
        self.say(not_known("no probe yet"))
        self.clock.advance(600)
        self.assertEqual(self.crossing.state.value, READY)


class FakeClient:
    """Answers what is asked for with whatever ``answer`` says; notes what it is told of the path."""

    class config:
        server = "https://api.test"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answer: Any = b"ok"
        self.asked = 0
        self.told: list[Any] = []
        self.path_since: Latest[float] = Latest(float("-inf"))

    async def raw(self, method: str, path: str) -> bytes:
        self.asked += 1
        if self.answer is None:
            await Deferred()
        if isinstance(self.answer, Exception):
            raise self.answer
        return b"ok"

    def path_is_doubtful(self) -> None:
        self.told.append("doubtful")

    def path_is_new(self, since: float) -> None:
        self.told.append(since)


class ReachTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.client = FakeClient(self.clock)
        self.latest: Latest[Any] = Latest(self.client)
        self.reach = Reach(self.clock, self.latest, 10.0)
        self.reach.startService()
        self.addCleanup(self.reach.stopService)
        self.clock.advance(0)

    def silence(self, seconds: float) -> None:
        """Let the lender be silent for so long, beginning when it is asked next."""
        self.client.answer = None
        self.clock.pump([1.0] * int(seconds))

    def test_the_path_is_new_after_silence(self) -> None:
        """After silence the client hears, before anybody else, that what was connected before the last probe is old."""
        self.assertEqual(self.client.told, [])
        self.silence(40)
        self.assertFalse(self.reach.ok)
        self.assertEqual(set(self.client.told), {"doubtful"})
        order: list[Any] = []
        self.reach.state.subscribe(lambda state: order.append([*self.client.told][-1]))
        self.client.answer = b"ok"
        self.clock.pump([1.0] * int(PROBE_TIMEOUT + IMPATIENT + 1))
        self.assertTrue(self.reach.ok)
        self.assertEqual(len(order), 1)
        last_probe = 10 + 3 * (PROBE_TIMEOUT + IMPATIENT)
        self.assertEqual(order, [last_probe])

    def test_a_refusal_is_no_silence(self) -> None:
        """A lender that answers, whatever it says, has no path to be mended."""
        for answer in (Unauthorized(401, "Unauthorized", "no"), b"ok"):
            self.client.answer = answer
            self.reach.suspect()
            self.clock.advance(0)
        self.assertTrue(self.reach.ok)
        self.assertEqual(self.client.told, [])

    def test_what_was_refused_is_tried_at_once(self) -> None:
        """After refusals what waits to be tried again need wait no longer; watches that live are not touched."""
        told: list[float] = []
        self.client.path_since.subscribe(told.append)
        for refusal in (Unauthorized(401, "Unauthorized", "no"), ServerError(503, "ServiceUnavailable", "later")):
            told.clear()
            self.client.answer = refusal
            self.reach.suspect()
            self.clock.advance(0)
            self.assertFalse(self.reach.ok)
            self.assertEqual(told, [])
            self.client.answer = b"ok"
            self.clock.advance(IMPATIENT)
            self.assertTrue(self.reach.ok)
            self.assertEqual(told, [self.clock.seconds() - SILENCE])
        self.clock.pump([1.0] * 60)
        self.assertEqual(len(told), 1)
        self.assertEqual(self.client.told, [])

    def test_another_client_has_no_old_connections(self) -> None:
        """A client that was made in the silence is told nothing."""
        self.silence(20)
        other = FakeClient(self.clock)
        self.latest.set(other)
        self.clock.pump([1.0] * 10)
        self.assertTrue(self.reach.ok)
        self.assertEqual(other.told, [])

    def test_a_session_that_is_back_has_it_asked_at_once(self) -> None:
        """When the peer is heard of otherwise the API is asked at once, in place of a probe that hangs; not if well."""
        asked = self.client.asked
        self.reach.returned()
        self.clock.advance(0)
        self.assertEqual(self.client.asked, asked)
        self.silence(19)
        asked = self.client.asked
        self.client.answer = b"ok"
        self.reach.returned()
        self.clock.advance(0)
        self.assertEqual(self.client.asked, asked + 1)
        self.assertTrue(self.reach.ok)

    def test_no_connection_is_silence_too(self) -> None:
        """A lender to which no connection comes about is silent."""
        self.client.answer = Unreachable("nobody there")
        self.reach.suspect()
        self.clock.advance(0)
        self.assertEqual(self.reach.state.value.reason, "PeerUnreachable")
        self.assertEqual(self.client.told, ["doubtful"])

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
