"""The driver of the tests counts what trial says, and believes nothing that trial did not say."""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.run import AGAIN, Outcome, Progress, Step, execute, judge

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
