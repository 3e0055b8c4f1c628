"""Tests of liqod.kubelet.node.debounce and network_condition: a flapping network."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import READY, Readiness, not_known, not_ready
from liqod.kubelet.node.debounce import DOWN_HOLD, FLAP_WINDOW, MAX_HOLD, UP_HOLD, Debounced, debounce, recovery_hold
from liqod.kubelet.node.network_condition import NetworkCondition

CUT = not_ready("NetworkDown", "nothing comes back")


class DebounceTests(SynchronousTestCase):
    def test_first_readings(self) -> None:
        """What is read first counts at once, and so does the first good reading; what is not known changes nothing."""
        debounced, again = debounce(Debounced(), None, 0)
        self.assertEqual((debounced.value, again), (None, None))
        debounced, again = debounce(debounced, False, 1)
        self.assertEqual((debounced.value, again), (False, None))
        debounced, again = debounce(debounced, True, 2)
        self.assertEqual((debounced.value, again), (True, None))
        self.assertEqual(debounce(debounced, None, 3), (debounced, None))

    def test_a_cut_and_its_end(self) -> None:
        """A network that worked counts as down after some seconds of bad readings, as up after as many good ones."""
        debounced, _ = debounce(Debounced(), True, 0)
        debounced, again = debounce(debounced, False, 10)
        self.assertEqual((debounced.value, again), (True, DOWN_HOLD))
        debounced, again = debounce(debounced, False, 10 + DOWN_HOLD)
        self.assertEqual((debounced.value, again), (False, None))
        debounced, again = debounce(debounced, True, 100)
        self.assertEqual((debounced.value, again), (False, UP_HOLD))
        debounced, again = debounce(debounced, True, 100 + UP_HOLD)
        self.assertEqual((debounced.value, again), (True, None))

    def test_a_moment_is_nothing(self) -> None:
        """A reading that is taken back before its time changes nothing, and the time begins again."""
        debounced, _ = debounce(Debounced(), True, 0)
        debounced, _ = debounce(debounced, False, 10)
        debounced, again = debounce(debounced, True, 10 + DOWN_HOLD / 2)
        self.assertEqual((debounced.value, again), (True, None))
        debounced, again = debounce(debounced, False, 10 + DOWN_HOLD)
        self.assertEqual((debounced.value, again), (True, DOWN_HOLD))

    def test_who_wavers_waits_longer(self) -> None:
        """Each turn for the worse soon after another doubles what has to be good before, to a minute at most."""
        self.assertEqual([recovery_hold(turns) for turns in (1, 2, 3, 4, 5, 6, 1000)], [3, 6, 12, 24, 48, 60, MAX_HOLD])

    @given(st.lists(st.tuples(st.floats(0.1, 30), st.sampled_from([True, False, None])), max_size=60))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_turns_are_few(self, readings: list[tuple[float, bool | None]]) -> None:
        """However readings waver, a network turns for the worse at most 13 times in ten minutes."""
        debounced, now = debounce(Debounced(), True, 0.0)[0], 0.0
        turned: list[float] = []
        for pause, reading in readings * 4:
            now += pause
            before = debounced.value
            debounced, again = debounce(debounced, reading, now)
            if again is not None:
                self.assertGreater(again, 0)
            if before and not debounced.value:
                turned.append(now)
        for first in turned:
            self.assertLessEqual(sum(first <= each < first + FLAP_WINDOW for each in turned), 13)


class NetworkConditionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.status: Latest[Readiness] = Latest(not_known("no probe yet"))
        self.managed = True
        self.condition = NetworkCondition(self.clock, self.status, "milan", lambda: self.managed)
        self.reported: list[str] = []
        self.condition.state.subscribe(lambda state: self.reported.append(state.reason))
        self.condition.startService()

    def say(self, status: Readiness) -> None:
        self.status.set(status)

    def test_it_turns_by_itself(self) -> None:
        """A word that stays counts when its time is over, without another one; no timer is left at the end."""
        self.say(READY)
        self.say(CUT)
        self.assertEqual(self.reported, [READY.reason])
        self.clock.advance(DOWN_HOLD)
        self.assertEqual(self.reported, [READY.reason, "NetworkDown"])
        self.say(READY)
        self.assertEqual(self.reported, [READY.reason, "NetworkDown"])
        self.clock.advance(UP_HOLD)
        self.assertEqual(self.reported, [READY.reason, "NetworkDown", READY.reason])
        self.say(CUT)
        self.successResultOf(self.condition.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_is_not_known_is_reported_as_that(self) -> None:
        """Before the first status nothing is known; a fabric that begins again does not take back what counts."""
        self.assertFalse(self.condition.state.value.known)
        self.say(READY)
        self.say(not_known("no probe yet"))
        self.clock.advance(600)
        self.assertEqual(self.condition.state.value, READY)

    def test_another_decision(self) -> None:
        """Whether there is a tunnel may be decided later: what held before does not count, nor how often it changed."""
        self.managed = False
        none = Readiness(ready=True, reason="NetworkReady", message="there is no tunnel")
        self.say(none)
        self.assertEqual(self.condition.state.value, none)
        self.managed = True
        self.say(not_known("no probe yet"))
        self.assertFalse(self.condition.state.value.known)
        for _ in range(3):
            self.say(READY)
            self.clock.advance(UP_HOLD * 100)
            self.say(CUT)
            self.clock.advance(DOWN_HOLD)
        self.assertEqual(self.condition.state.value, CUT)
        self.managed = False
        self.say(none)
        self.assertEqual(self.condition.state.value, none)
