"""The test runner counts what trial reported, believes nothing else, and its exit status tells the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from attrs import asdict
from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import PARTS
from tests.runner.execute import Outcome, execute
from tests.runner.machine import memory_share, processor_times
from tests.runner.report import report, write_junit
from tests.runner.results import END, Result, count, judge, merge
from tests.runner.schedule import AGAIN, FREE, IDLE, REAL_AT_A_TIME, SPARE, Progress, Turns, failed_names, run_all
from tests.runner.steps import (
    CHECKOUT,
    LONG,
    NIGHTLY,
    ON_LOOPBACK,
    REAL,
    REAL_LIMIT,
    TOGETHER,
    UNIT_LIMIT,
    Step,
    is_unit,
    modules,
    steps_of,
    trial,
)

SAMPLE = """
import os, sys
from pathlib import Path
from twisted.trial.unittest import SkipTest, SynchronousTestCase

class Sample(SynchronousTestCase):
    def test_passes(self):
        print("PASSED (successes=99)")
    def test_fails(self):
        self.addCleanup(lambda: 1 / 0)
        self.fail("no")
    def test_is_left_out(self):
        raise SkipTest("no root here")
    def test_expected(self):
        self.fail("known")
    test_expected.todo = "later"
    def test_unexpected(self):
        pass
    test_unexpected.todo = "later"
    def test_sometimes(self):
        mark = Path(os.environ["SAMPLE_MARK"])
        if not mark.exists():
            mark.write_text("x")
            self.fail("at first")

class Death(SynchronousTestCase):
    def test_alive(self):
        pass
    def test_dies(self):
        os._exit(0)

class Empty(SynchronousTestCase):
    pass
"""


def record(*results: Result, ended: bool = True) -> str:
    """Return what a process wrote that had these results."""
    lines = [json.dumps(asdict(result)) for result in results]
    return "".join(f"{line}\n" for line in [*lines, *([json.dumps(END)] if ended else [])])


def passed(test: str) -> Result:
    """Return the result of a test that passed."""
    return Result(test, "passed")


def failed(test: str) -> Result:
    """Return the result of a test that failed."""
    return Result(test, "failed", 0.0, "no")


def outcome(*results: Result) -> Outcome:
    """Return an outcome of a step of one module."""
    return Outcome(trial("tests.test_x"), 1.0, "", results)


class JudgingTests(SynchronousTestCase):
    """What a process of tests counts for."""

    def test_all_passed(self) -> None:
        """Results are taken as they were written."""
        self.assertEqual(judge("x", 0, record(passed("a"), passed("b"))), [passed("a"), passed("b")])

    def test_one_result_for_each_test(self) -> None:
        """A test that passed, and failed when it was cleaned up, has failed, once."""
        self.assertEqual(judge("x", 1, record(passed("a"), failed("a"))), [failed("a")])

    def test_crashed(self) -> None:
        """A process that ends before its tests are done has failed, whatever its exit status and what passed before."""
        for code in (-9, 0):
            results = judge("x", code, record(passed("a"), ended=False) + '{"test": "b", "verd')
            self.assertEqual([one.verdict for one in results], ["passed", "failed"])

    def test_failed_after_its_tests(self) -> None:
        """A process that fails although all of its tests passed has failed."""
        self.assertEqual(count(judge("x", 1, record(passed("a"))))["failed"], 1)

    def test_nothing_ran(self) -> None:
        """A module without a test has failed."""
        self.assertEqual(count(judge("x", 0, record()))["failed"], 1)

    def test_a_process_that_fails_twice(self) -> None:
        """A process that fails again has failed, once, although its tests ran in other processes the second time."""
        merged = merge([failed("a and 1 more [process]")], [passed("a.t"), failed("b [process]")])
        self.assertEqual([one.verdict for one in merged], ["failed", "passed"])

    def test_a_second_run(self) -> None:
        """What failed in one of two runs is unsteady, in both it failed; what ran once is as it was."""
        first = [failed("m.a"), failed("m.b"), passed("m.c"), passed("m.d"), failed("n.e"), failed("m [process]")]
        again = [passed("m.a"), failed("m.b"), failed("m.c"), passed("m.d")]
        verdicts = {one.test: one.verdict for one in merge(first, again)}
        self.assertEqual(
            verdicts,
            {
                "m.a": "unsteady",
                "m.b": "failed",
                "m.c": "unsteady",
                "m.d": "passed",
                "n.e": "failed",
                "m [process]": "unsteady",
            },
        )


class ReportTests(SynchronousTestCase):
    """The last lines of a run and its exit status."""

    def test_good(self) -> None:
        """Where all passed the count is all, and the run passes."""
        self.assertEqual(report([passed("a")], on_ci=True), (["1 passed, 0 failed, 0 skipped, 0 unsteady"], 0))

    def test_failed(self) -> None:
        """A failure fails the run and is named."""
        lines, status = report([passed("a"), failed("b")], on_ci=False)
        self.assertEqual((lines, status), (["failed: b", "1 passed, 1 failed, 0 skipped, 0 unsteady"], 1))

    def test_skipped(self) -> None:
        """What was left out is listed with the reason; the run passes, except on continuous integration."""
        results = [passed("a"), Result("m.C.test_b", "skipped", 0.0, "no\nroot")]
        lines, status = report(results, on_ci=False)
        self.assertEqual(status, 0)
        self.assertEqual(lines, ["left out: m.C.test_b because no root", "1 passed, 0 failed, 1 skipped, 0 unsteady"])
        self.assertEqual(report(results, on_ci=True)[1], 1)

    def test_many_skipped(self) -> None:
        """Many tests with one reason are one line, with the names of their modules."""
        results = [Result(f"m.C.test_{number}", "skipped", 0.0, "no root") for number in range(20)]
        lines, _ = report([passed("a"), *results], on_ci=False)
        self.assertEqual(lines[0], "left out: 20 tests of m because no root")

    def test_unsteady(self) -> None:
        """What is unsteady is not counted as passed, and fails the run on continuous integration only."""
        results = [passed("a"), Result("b", "unsteady", 0.0, "no")]
        for on_ci in (False, True):
            lines, status = report(results, on_ci=on_ci)
            self.assertEqual((lines[-1], status), ("1 passed, 0 failed, 0 skipped, 1 unsteady", int(on_ci)))

    def test_nothing(self) -> None:
        """A run in which nothing passed has not passed, be it that everything was skipped."""
        self.assertEqual(report([], on_ci=False)[1], 1)
        self.assertEqual(report([Result("a", "skipped")], on_ci=False)[1], 1)

    def test_junit(self) -> None:
        """Every test is in the XML with its verdict, also where a program printed what XML cannot hold."""
        path = Path(self.mktemp()) / "results.xml"
        results = (
            passed("m.C.a"),
            Result("m.C.b", "failed", 1.5, "bad \x1b[31m\ud800 output"),
            Result("m.C.c", "skipped", 0.0, "no root"),
            Result("m.C.d", "unsteady", 0.0, "once"),
        )
        write_junit(path, [outcome(*results)])
        suite = ElementTree.parse(path).getroot()[0]
        self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("skipped")), ("4", "2", "1"))
        kinds = {case.get("name"): [(child.tag, child.get("type")) for child in case] for case in suite}
        self.assertEqual(
            kinds,
            {"a": [], "b": [("failure", "failed")], "c": [("skipped", None)], "d": [("failure", "unsteady")]},
        )


class StepsTests(SynchronousTestCase):
    """Which processes there are."""

    def test_every_module_once(self) -> None:
        """Each module of the tests, in whatever folder, is in exactly one step; none with many is too large."""
        steps = steps_of(modules())
        names = [name for step in steps for name in step.names]
        self.assertEqual(sorted(names), sorted(modules()))
        self.assertIn(__name__, names)
        self.assertLessEqual(max(len(step.names) for step in steps), TOGETHER)

    def test_what_is_long_is_there(self) -> None:
        """Every module that is said to take long exists, and has a process to itself."""
        self.assertEqual(set(LONG) - set(modules()), set())
        self.assertEqual({step.names for step in steps_of(LONG)}, {(name,) for name in LONG})

    def test_what_announces_on_loopback(self) -> None:
        """Modules whose daemons would find each other run one after the other, in one process of their own."""
        steps = steps_of(modules())
        self.assertEqual([step.names for step in steps if set(step.names) & set(ON_LOOPBACK)], [ON_LOOPBACK])

    def test_what_is_left_to_the_night(self) -> None:
        """Every module that CI leaves out exists, needs clusters or hosts, and is in exactly one part of the night."""
        words = [word for part in PARTS for word in part.words if word in NIGHTLY]
        self.assertEqual(sorted(words), sorted(NIGHTLY))
        self.assertEqual(NIGHTLY - set(modules()), set())
        self.assertEqual([name for name in NIGHTLY if is_unit(name)], [])

    def test_unit(self) -> None:
        """What needs root, clusters or built programs is known by its folder, for a package, a module or a test."""
        names = ("real", "real.test_x", "netns.test_x.C.test_a", "contract.test_real", "scenario.test_x", "test_real")
        self.assertEqual(
            [is_unit(f"tests.{name}") for name in names],
            [False, False, False, False, True, True],
        )

    def test_what_waits_for_others_has_longer(self) -> None:
        """Modules on real clusters, hosts and servers may take longer than those that need this process alone."""
        limits = {name: trial(f"tests.{name}").limit for name in ("test_run", "real.test_x", "netns.test_x")}
        self.assertEqual(limits, {"test_run": UNIT_LIMIT, "real.test_x": REAL_LIMIT, "netns.test_x": REAL_LIMIT})

    def test_patience(self) -> None:
        """A run that is asked to be patient gives each step so many times longer."""
        self.assertEqual([step.limit for step in steps_of(["tests.project.test_run"], 10.0)], [UNIT_LIMIT * 10])


class ProcessTests(SynchronousTestCase):
    """Whole processes, from trial's test to the count."""

    def run_sample(self, *names: str, count: int = 1) -> Progress:
        """Return what came of processes that each run tests of the sample, and of a second run of what failed."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        (place / "sample.py").write_text(SAMPLE)
        self.patch_environment(PYTHONPATH=str(place), SAMPLE_MARK=str(place / "mark"))
        steps = [Step(f"sample {number}", 60.0, names=names) for number in range(count)]
        progress = Progress(len(steps))
        run_all(progress, steps, 2)
        progress.repeat()
        return progress

    def patch_environment(self, **variables: str) -> None:
        """Have environment variables until the test ends."""
        import os

        for name, value in variables.items():
            before = os.environ.get(name)
            os.environ[name] = value
            if before is None:
                self.addCleanup(os.environ.pop, name, None)
            else:
                self.addCleanup(os.environ.__setitem__, name, before)

    def verdicts(self, progress: Progress) -> dict[str, str]:
        """Return the verdict of each test by its own name."""
        results: Sequence[Result] = [result for one in progress.outcomes for result in one.results]
        return {result.test.rpartition(".")[2]: result.verdict for result in results}

    def test_each_kind(self) -> None:
        """Each way in which a test can end counts for what it is, also after a second run."""
        progress = self.run_sample("sample.Sample")
        self.assertEqual(
            self.verdicts(progress),
            {
                "test_passes": "passed",
                "test_fails": "failed",
                "test_is_left_out": "skipped",
                "test_expected": "passed",
                "test_unexpected": "failed",
                "test_sometimes": "unsteady",
            },
        )
        skipped = [one for one in progress.outcomes[0].results if one.verdict == "skipped"]
        self.assertEqual([one.detail for one in skipped], ["no root here"])

    def test_death(self) -> None:
        """A process that dies in a test with exit status 0 has failed, and what it wrote before counts."""
        verdicts = self.verdicts(self.run_sample("sample.Death"))
        self.assertEqual(verdicts.pop("test_alive"), "passed")
        self.assertEqual(list(verdicts.values()), ["failed"])

    def test_nothing(self) -> None:
        """A name without a test, and a name of nothing, have failed."""
        for name in ("sample.Empty", "sample.Nobody", "nowhere"):
            self.assertEqual(list(self.verdicts(self.run_sample(name)).values()), ["failed"], name)

    def test_many_failures_are_no_chance(self) -> None:
        """When many modules failed, none of them runs again: nothing is unsteady, although it would pass now."""
        progress = self.run_sample("sample.Sample.test_fails", count=AGAIN + 1)
        self.assertEqual([one.counts["failed"] for one in progress.outcomes], [1] * (AGAIN + 1))

    def test_what_is_repeated(self) -> None:
        """Only the modules in which something failed run again; all of them, when their process failed."""
        step = Step("x", 1.0, names=("m.a", "m.b", "m.bc"))
        self.assertEqual(failed_names(Outcome(step, 1.0, "", [passed("m.a.C.t"), failed("m.b.C.t")])), ["m.b"])
        self.assertEqual(failed_names(Outcome(step, 1.0, "", [failed("x [process]")])), ["m.a", "m.b", "m.bc"])
        self.assertEqual(failed_names(Outcome(Step("ruff", 1.0), 1.0, "", [failed("ruff")])), [])

    def test_check(self) -> None:
        """A check passes by its exit status."""
        good = execute(Step("check", 10.0, argv=[sys.executable, "-c", "print(1)"]))
        self.assertEqual((good.counts["passed"], good.output), (1, "1\n"))
        self.assertEqual(execute(Step("check", 10.0, argv=[sys.executable, "-c", "1 / 0"])).counts["failed"], 1)

    def test_too_long(self) -> None:
        """A step that takes too long is ended and has failed, with what it had printed."""
        script = "import time; print('begun', flush=True); time.sleep(60)"
        ended = execute(Step("slow", 1.0, argv=[sys.executable, "-c", script]))
        self.assertEqual(ended.counts["failed"], 1)
        self.assertIn("begun", ended.output)
        self.assertLess(ended.seconds, 20)

    def test_the_user_decides_about_ci(self) -> None:
        """A step has ``CI`` in its environment only where the run has: nobody else turns skips into failures."""
        script = [sys.executable, "-c", "import os; print(os.environ.get('CI', 'unset'))"]
        for value in ("true", "false"):
            self.patch_environment(CI=value)
            self.assertEqual(execute(Step("check", 10.0, argv=script)).output, f"{value}\n")


class OrderTests(SynchronousTestCase):
    """What runs at the same time."""

    def setUp(self) -> None:
        """Have more steps on real clusters than may run at a time, and two others after them."""
        self.real = [Step(f"{REAL}test_{number}", 10.0) for number in range(REAL_AT_A_TIME + 1)]
        self.others = [Step(f"tests.test_{name}", 10.0) for name in "ab"]
        self.turns = Turns([*self.real, *self.others], len(self.real) + len(self.others))

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

    def test_one_more_on_an_idle_machine(self) -> None:
        """Where the processors were idle one step more begins, on real clusters too; the next after another look."""
        real = [Step(f"{REAL}test_{number}", 10.0) for number in range(REAL_AT_A_TIME + SPARE + 1)]
        turns = Turns([*real, *self.others], REAL_AT_A_TIME)
        for _ in range(REAL_AT_A_TIME):
            turns.take()
        self.assertIsNone(turns.ready())
        for idle, free in ((IDLE - 0.01, 1.0), (1.0, FREE - 0.01)):
            turns.use(idle, free)
            self.assertIsNone(turns.ready())
        turns.use(IDLE, FREE)
        for step in real[REAL_AT_A_TIME : REAL_AT_A_TIME + SPARE]:
            self.assertEqual(turns.take(), step)
            self.assertIsNone(turns.ready(), "not measured again yet")
            turns.use(1.0, 1.0)
        self.assertIsNone(turns.ready(), "at most SPARE besides")

    def test_idle_processors(self) -> None:
        """What a hypervisor takes away is not idle, and waiting for a disk is."""
        columns = "cpu  100 10 40 30 20 5 5 90 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
        self.assertEqual(processor_times(columns), (50, 300))

    def test_free_memory(self) -> None:
        """What only caches hold is free."""
        self.assertEqual(
            memory_share("MemTotal: 200 kB\nMemFree: 10 kB\nMemAvailable: 50 kB\nHugePages_Free: 0\n"), 0.25
        )

    def test_nothing_more(self) -> None:
        """After an interrupt no step begins any more."""
        self.turns.drop()
        self.assertIsNone(self.turns.take())

    def test_an_interrupt_ends_the_steps(self) -> None:
        """They have sessions of their own and would go on alone, and the run with them."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        program = f"import os, time; open({str(place / 'pid')!r}, 'w').write(str(os.getpid()) + ' '); time.sleep(3600)"
        steps = f"[Step('one', 3600.0, argv=[sys.executable, '-c', {program!r}])]"
        text = "import sys\nfrom tests.runner.schedule import Progress, run_all\nfrom tests.runner.steps import Step\n"
        with subprocess.Popen([sys.executable, "-c", f"{text}run_all(Progress(1), {steps}, 2)"], cwd=CHECKOUT) as run:
            while not (place / "pid").exists() or not (place / "pid").read_text().endswith(" "):
                self.assertIsNone(run.poll())
                time.sleep(0.05)
            run.send_signal(signal.SIGINT)
            self.assertNotEqual(run.wait(600), 0)
        self.assertRaises(ProcessLookupError, os.kill, int((place / "pid").read_text()), 0)

    def test_every_step_runs_once(self) -> None:
        """With more at a time than may be on real clusters, and with fewer, each step runs to its end, once."""
        for parallel in (1, REAL_AT_A_TIME + 2):
            argv = [sys.executable, "-c", "print(1)"]
            steps = [Step(step.title, 30.0, argv=argv) for step in (*self.real, *self.others)]
            progress = Progress(len(steps))
            run_all(progress, steps, parallel)
            self.assertEqual(sorted(one.step.title for one in progress.outcomes), sorted(step.title for step in steps))
            self.assertEqual({one.counts["passed"] for one in progress.outcomes}, {1})
