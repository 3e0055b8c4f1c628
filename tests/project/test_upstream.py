"""The page of Liqo's end-to-end tests has every one of them, and names tests that exist."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.project.test_conformance import missing
from tests.runner.results import Verdict
from tests.upstream_results import NAMED, NONE, NOT_RUN, PAGE, cells, filled

SUITE: Final = (42, "1454531409c1d3b1")
"""How many tests Liqo's suite has, and the digest of their files and names, taken when they were compared with it."""
LACKING: Final[frozenset[str]] = frozenset()
"""Tests without a counterpart here."""


def rows() -> list[list[str]]:
    """Return the rows of the page."""
    return [row for row in map(cells, PAGE.read_text().splitlines()) if row]


class UpstreamPageTests(SynchronousTestCase):
    """What ``docs/upstream-tests.md`` says can be checked."""

    def test_every_test_of_the_suite_is_there(self) -> None:
        """None is left out, changed or twice on the page."""
        names = sorted(f"{file} {test}" for file, test, _, _ in rows())
        self.assertEqual(len(set(names)), len(names))
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        self.assertEqual((len(names), digest), SUITE)

    def test_every_row_has_tests_that_exist(self) -> None:
        """On real clusters; only those known to have none are without, and they say what is missing."""
        wrong = []
        for _, test, here, result in rows():
            named = NAMED.findall(here)
            wrong += [f"{test}: {why}" for why in map(missing, named) if why]
            if result == NONE:
                wrong += [] if test in LACKING and not here.startswith("`") else [f"{test}: has none"]
            elif not named or here != ", ".join(f"`{one}`" for one in named):
                wrong.append(f"{test}: names no tests, or something else beside them")
        self.assertEqual(wrong, [])

    def test_every_result_is_one(self) -> None:
        """Passed or failed at a commit, not run, or none."""
        good = re.compile(rf"(passed|failed) \([0-9a-f]{{7,12}}\)|{NOT_RUN}|{NONE}")
        self.assertEqual([row for row in rows() if not good.fullmatch(row[3])], [])

    def test_results_are_filled_in(self) -> None:
        """A row gets a result when all of its tests were run; one that failed makes it failed; others keep theirs."""
        first, second, lacking = "test_a.A.test_1", "test_b.B.test_2", "test_c.C.test_3"
        lines = [
            "A text with | in it.",
            f"| `one` | x | `{first}`, `{second}` | not run |",
            f"| `two` | y | `{second}` | passed (1234567) |",
            f"| `three` | z | nodes; `{lacking}` | none |",
        ]
        text = "\n".join(lines) + "\n"
        passed: dict[str, Verdict] = {first: "passed", lacking: "passed"}
        self.assertEqual(filled(text, passed, "abcdef0"), text)
        both: dict[str, Verdict] = {**passed, second: "unsteady"}
        found = filled(text, both, "abcdef0").splitlines()
        failed = "failed (abcdef0) |"
        self.assertEqual([line.rpartition("| ")[2] for line in found[1:]], [failed, failed, "none |"])
        both[second] = "passed"
        found = filled(text, both, "abcdef0").splitlines()
        self.assertEqual([line.rpartition("| ")[2] for line in found[1:3]], ["passed (abcdef0) |"] * 2)
        self.assertEqual(found[0], lines[0])
