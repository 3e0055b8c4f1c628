"""The driver of the tests counts what trial says, and believes nothing that trial did not say."""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.run import (
    AGAIN,
    REAL,
    REAL_AT_A_TIME,
    REAL_LIMIT,
    UNIT_LIMIT,
    Outcome,
    Progress,
    Step,
    Turns,
    execute,
    judge,
    run_all,
    trial,
)

TRIAL = Step("tests.test_x", [], 10.0)
CHECK = Step("check", [sys.executable, "-c", "print(1)"], 10.0, is_trial=False)

MIXED = """
[SKIPPED]
no root here
and no kernel

tests.test_x.A.test_b
tests.test_x.A.test_c
===============================================================================
[FAIL]
PASSED (successes=99) was said by a test
-------------------------------------------------------------------------------
Ran 9 tests in 0.088s

FAILED (skips=2, expectedFailures=1, failures=1, errors=2, successes=3)
"""


class Judging(SynchronousTestCase):
    """The counts of one step."""

    def test_all_passed(self) -> None:
        """Successes are counted."""
        self.assertEqual(judge(TRIAL, 0, "Ran 3 tests in 1s\n\nPASSED (successes=3)\n"), (3, 0, 0))

    def test_mixed(self) -> None:
        """Errors are failures, expected failures have passed, and only the summary counts."""
        self.assertEqual(judge(TRIAL, 1, MIXED), (4, 3, 2))

    def test_crashed(self) -> None:
        """A process that ends before its summary has failed."""
        self.assertEqual(judge(TRIAL, -9, "tests.test_x ... [OK]\n"), (0, 1, 0))
        self.assertEqual(judge(TRIAL, 0, ""), (0, 1, 0))

    def test_failed_after_the_summary(self) -> None:
        """A process that fails although all of its tests passed has failed."""
        self.assertEqual(judge(TRIAL, 1, "PASSED (successes=3)\n"), (3, 1, 0))

    def test_skips(self) -> None:
        """Every skipped test is named with its reason."""
        outcome = Outcome(TRIAL, 1.0, MIXED, 4, 3, 2)
        reason = "no root here\nand no kernel"
        self.assertEqual(outcome.skips, [("tests.test_x.A.test_b", reason), ("tests.test_x.A.test_c", reason)])


class Limits(SynchronousTestCase):
    """How long a module may take."""

    def test_what_waits_for_others_has_longer(self) -> None:
        """Modules on real clusters, hosts and servers may take longer than those that need this process alone."""
        limits = {name: trial(f"tests.{name}").limit for name in ("test_run", "real.test_x", "netns.test_x")}
        self.assertEqual(limits, {"test_run": UNIT_LIMIT, "real.test_x": REAL_LIMIT, "netns.test_x": REAL_LIMIT})


class Repeating(SynchronousTestCase):
    """Modules that failed get one more chance, and no more."""

    def progress(self, script: str, count: int = 1) -> Progress:
        """Return what came of steps of which each runs a script and failed."""
        argv = [sys.executable, "-c", script, "--temp-directory=unused"]
        step = Step("tests.test_x", argv, 10.0)
        progress = Progress(count)
        progress.outcomes = [Outcome(step, 1.0, "", 0, 1, 0) for _ in range(count)]
        return progress

    def test_chance(self) -> None:
        """What passes alone counts as passed, and is named."""
        progress = self.progress("print('PASSED (successes=2)')")
        progress.repeat()
        self.assertEqual([(one.passed, one.failed) for one in progress.outcomes], [(2, 0)])
        self.assertEqual(progress.unsteady, ["tests.test_x"])

    def test_broken(self) -> None:
        """What fails twice has failed."""
        mark = Path(self.mktemp()).absolute()
        progress = self.progress(f"open({str(mark)!r}, 'a').write('x'); print('FAILED (failures=1)')")
        progress.repeat()
        self.assertEqual([one.failed for one in progress.outcomes], [1])
        self.assertEqual(mark.read_text(), "x")
        self.assertEqual(progress.unsteady, [])

    def test_many(self) -> None:
        """When many failed it is no chance: none of them runs again."""
        progress = self.progress("print('PASSED (successes=2)')", AGAIN + 1)
        progress.repeat()
        self.assertEqual([one.failed for one in progress.outcomes], [1] * (AGAIN + 1))


class Ordering(SynchronousTestCase):
    """What runs at the same time."""

    def setUp(self) -> None:
        """Have more steps on real clusters than may run at a time, and two others after them."""
        self.real = [Step(f"{REAL}test_{number}", [], 10.0) for number in range(REAL_AT_A_TIME + 1)]
        self.others = [Step(f"tests.test_{name}", [], 10.0) for name in "ab"]
        self.turns = Turns([*self.real, *self.others])

    def test_others_beside_real_clusters(self) -> None:
        """While as many run on real clusters as may, the next to begin is one that needs none."""
        self.assertEqual([self.turns.take() for _ in self.real], [*self.real[:-1], self.others[0]])

    def test_a_place_is_free_again(self) -> None:
        """When a step on real clusters ends, the next of its kind begins, before all others."""
        for _ in range(REAL_AT_A_TIME):
            self.turns.take()
        self.turns.done(self.real[0])
        self.assertEqual([self.turns.take() for _ in "123"], [self.real[-1], *self.others][:3])
        self.assertIsNone(self.turns.take())

    def test_nothing_more(self) -> None:
        """After an interrupt no step begins any more."""
        self.turns.drop()
        self.assertIsNone(self.turns.take())

    def test_every_step_runs_once(self) -> None:
        """With more at a time than may be on real clusters, and with fewer, each step runs to its end, once."""
        for parallel in (1, REAL_AT_A_TIME + 2):
            argv = [sys.executable, "-c", "print('PASSED (successes=1)')", "unused"]
            steps = [Step(step.title, argv, 30.0) for step in (*self.real, *self.others)]
            progress = Progress(len(steps))
            run_all(progress, steps, parallel)
            self.assertEqual(sorted(one.step.title for one in progress.outcomes), sorted(step.title for step in steps))
            self.assertEqual({(one.passed, one.failed) for one in progress.outcomes}, {(1, 0)})


class Executing(SynchronousTestCase):
    """The life of one step."""

    def test_success(self) -> None:
        """A check that ends well has passed."""
        outcome = execute(CHECK)
        self.assertEqual((outcome.passed, outcome.failed, outcome.output), (1, 0, "1\n"))

    def test_too_long(self) -> None:
        """A step that takes too long is ended, with what it had said."""
        script = "import time; print('begun', flush=True); time.sleep(60)"
        outcome = execute(Step("slow", [sys.executable, "-c", script], 1.0, is_trial=False))
        self.assertEqual((outcome.passed, outcome.failed), (0, 1))
        self.assertIn("begun", outcome.output)
        self.assertLess(outcome.seconds, 20)
