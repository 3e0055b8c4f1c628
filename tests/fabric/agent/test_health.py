"""Probes: what crosses, how much is lost, and how large a packet may be."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.probing.health import INTERVAL, MIN_SIZE, MTU_STEP, Health
from liqod.fabric.agent.tunnel_status import loss_range, rtt_range
from liqod.fabric.state.report import DEAD_AFTER

DEVICE = 1420


def run(health: Health, seconds: int, largest: int, start: float = 0.0) -> float:
    """Probe for a while over a path that carries packets up to a size (0: none); returns the time."""
    now = start
    for token in range(int(start) * 1000, int(start) * 1000 + seconds):
        size = health.next_size()
        health.sent(token, size, now)
        if size <= largest:
            health.answered(token, now + 0.004)
        now += INTERVAL
    return now


class HealthTests(SynchronousTestCase):
    """One peer's probes."""

    def test_a_whole_path(self) -> None:
        """A path that carries all has the device's MTU after two answers, no loss, and a round trip."""
        health = Health(DEVICE, 0.0)
        now = run(health, 2, DEVICE)
        self.assertEqual((health.mtu, health.loss), (DEVICE, 0.0))
        self.assertTrue(health.result.is_reachable(now))
        self.assertEqual(rtt_range(health.rtt), "under 5 ms")

    def test_a_cut_path_is_seen_in_time(self) -> None:
        """Less than ten seconds after the last answer nothing crosses any more; the first answer heals."""
        health = Health(DEVICE, 0.0)
        now = run(health, 10, DEVICE)
        later = run(health, 8, 0, now)
        self.assertFalse(health.result.is_reachable(later))
        self.assertFalse(health.result.is_undecided(later))
        run(health, 2, DEVICE, later)
        self.assertTrue(health.result.is_reachable(later + 2))

    def test_a_path_that_never_worked_is_undecided_for_a_while(self) -> None:
        """Nothing is said about a peer that was only just configured."""
        health = Health(DEVICE, 0.0)
        self.assertTrue(health.result.is_undecided(DEAD_AFTER))
        self.assertFalse(health.result.is_undecided(3 * DEAD_AFTER))

    @given(st.integers(MIN_SIZE, DEVICE - 1))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_path_mtu_is_found(self, largest: int) -> None:
        """Whatever the path carries is found to the step within a minute, and never exceeded."""
        health = Health(DEVICE, 0.0)
        run(health, 60, largest)
        self.assertLessEqual(health.mtu, largest)
        self.assertGreater(health.mtu, largest - MTU_STEP)

    def test_a_path_that_shrinks_and_grows(self) -> None:
        """A shorter path is measured again; when it carries all again, that is seen too."""
        health = Health(DEVICE, 0.0)
        now = run(health, 10, DEVICE)
        now = run(health, 90, 1300, now)
        self.assertTrue(1300 - MTU_STEP < health.mtu <= 1300, health.mtu)
        run(health, 90, DEVICE, now)
        self.assertEqual(health.mtu, DEVICE)

    def test_loss_of_all_does_not_look_like_a_short_path(self) -> None:
        """While nothing crosses, sizes say nothing."""
        health = Health(DEVICE, 0.0)
        now = run(health, 10, DEVICE)
        run(health, 60, 0, now)
        self.assertEqual(health.mtu, DEVICE)

    def test_unknown_answers_are_not_believed(self) -> None:
        """An answer to no probe, or a second one, changes nothing."""
        health = Health(DEVICE, 0.0)
        self.assertFalse(health.answered(7, 1.0))
        health.sent(1, 64, 0.0)
        self.assertTrue(health.answered(1, 0.1))
        self.assertFalse(health.answered(1, 0.2))

    def test_words(self) -> None:
        """Numbers are shown in steps."""
        self.assertEqual(
            [loss_range(one) for one in (0.0, 0.05, 0.3, 0.9)], ["0 %", "under 10 %", "under 50 %", "over 50 %"]
        )
        self.assertEqual(
            [rtt_range(one) for one in (None, 0.0004, 0.02, 3.0)], ["", "under 1 ms", "under 50 ms", "over 500 ms"]
        )
