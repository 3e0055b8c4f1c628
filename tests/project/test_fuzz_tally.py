"""The account of a fuzzing campaign: what is read of the fuzzer's lines, what adds up, what is good."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.tally import Finding, Reading, Tally, is_good, merged, parse, read, table

GOOD = """\
INFO: Running with entropic power schedule (0xFF, 100).
#2\tINITED cov: 71 ft: 71 corp: 1/1b exec/s: 0 rss: 60Mb
#65536\tpulse  cov: 402 ft: 911 corp: 80/9Kb lim: 4096 exec/s: 9000 rss: 91Mb
#120034\tDONE   cov: 407 ft: 930 corp: 84/9Kb lim: 4096 exec/s: 10912 rss: 93Mb
Done 120034 runs in 11 second(s)
stat::number_of_executed_units: 120034
stat::average_exec_per_sec:     10912
stat::peak_rss_mb:              94
"""
BROKEN = """\
#2\tINITED cov: 71 ft: 71 corp: 1/1b exec/s: 0 rss: 60Mb
#512\tNEW    cov: 90 ft: 99 corp: 2/9b lim: 4 exec/s: 0 rss: 61Mb L: 8/8 MS: 1 Custom-
 === Uncaught Python exception: ===
TooCostly: 77 bytes take 31 ms
Traceback (most recent call last):
  File "x.py", line 1, in run
==77== ERROR: libFuzzer: fuzz target exited
artifact_prefix='build/fuzz/broken-head-'; Test unit written to build/fuzz/broken-head-crash-0a
"""


class ReadTests(SynchronousTestCase):
    """What a run printed."""

    def test_a_run_without_a_finding(self) -> None:
        """Executions, coverage and memory are those of the last figures."""
        self.assertEqual(read(GOOD, 0), Reading(120034, 407, 94))

    def test_an_exception(self) -> None:
        """The exception is the finding, and the file is named; executions are those that were shown before."""
        found = Finding("TooCostly: 77 bytes take 31 ms", "build/fuzz/broken-head-crash-0a")
        self.assertEqual(read(BROKEN, 77), Reading(512, 90, 61, found))

    def test_other_ends(self) -> None:
        """A run that is out of memory, that ends otherwise or not at all is a finding too."""
        ends = (
            ("#9\tpulse\n==7== ERROR: libFuzzer: out-of-memory (used: 1025Mb)\n", 71, "libFuzzer: out-of-memory"),
            ("#9\tpulse\nkilled\n", -9, "ended with status -9: killed"),
            ("#9\tpulse\n", None, "did not end in time"),
        )
        for output, code, words in ends:
            finding = read(output, code).finding
            assert finding is not None
            self.assertIn(words, finding.text)


class TallyTests(SynchronousTestCase):
    """What adds up."""

    def test_runs_add_up(self) -> None:
        """Seconds and executions are sums; the same error with other numbers is one finding."""
        tally = Tally("head")
        for output, code in ((GOOD, 0), (BROKEN, 77), (BROKEN.replace("77 bytes", "91 bytes"), 77)):
            tally = merged(tally, read(output, code), 10.0)
        self.assertEqual((tally.seconds, tally.executions, tally.runs), (30.0, 121058, 3))
        self.assertEqual([(one.text, one.times) for one in tally.findings], [("TooCostly: 77 bytes take 31 ms", 2)])
        self.assertEqual((tally.covered, tally.peak), (407, 94))
        self.assertEqual(parse(tally.line()), tally)

    def test_what_is_good(self) -> None:
        """Nothing tried is not good, and neither is a finding."""
        tried = Tally("a", 1.0, 10)
        for tallies, good in (
            ([tried], True),
            ([], False),
            ([tried, Tally("b")], False),
            ([tried, Tally("b", 1.0, 10, findings=(Finding("x"),))], False),
        ):
            self.assertEqual(is_good(tallies), good, tallies)

    def test_table(self) -> None:
        """Each target has a row, with a sum at the end, and each finding one."""
        text = table([Tally("b", 3600.0, 7200, 1, 9, 90, (Finding("x|y", "file"),)), Tally("a", 3600.0, 3600)], "Head.")
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        self.assertEqual(rows[2], "| a | 3600 | 1.00 | 1 | 0 | 0 | 0 |")
        self.assertEqual(rows[3], "| b | 7200 | 1.00 | 2 | 9 | 90 | 1 |")
        self.assertEqual(rows[4], "| all | 10800 | 2.00 | 2 |  | 90 | 1 |")
        self.assertEqual(rows[-1], "| b | x\\|y | 1 | file |")
