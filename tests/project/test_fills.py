"""The verdict on attempts to fill another cluster, by a table, and what is sent in them."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.attack.fill_figures import MEMORY, SPARE, TIMES, Fill, judge, parse, table
from tests.attack.filler import content
from tests.attack.fills import STORED

GOOD = Fill(
    who="a borrower",
    what="secrets",
    count=40,
    kept=33.0,
    bound=32.0,
    stopped=True,
    said="no room | tenant-contents",
    taken=70.0,
    memory=3.0,
    seconds=12.0,
    well=True,
)


class VerdictTests(SynchronousTestCase):
    """What is wrong after an attempt."""

    def test_good(self) -> None:
        """One that was refused in words is good; so is one that was slowed down."""
        self.assertEqual(list(judge(GOOD)), [])
        self.assertEqual(list(judge(evolve(GOOD, stopped=False, said="", paced=True))), [])

    def test_each(self) -> None:
        """Each thing alone is said."""
        findings: tuple[tuple[dict[str, Any], str], ...] = (
            ({"stopped": False}, "nothing stopped it"),
            ({"said": ""}, "nothing says so"),
            ({"kept": 65.0}, "65 MiB were kept, 32 are the bound"),
            ({"taken": TIMES * 32 + SPARE + 1}, "it took 177 MiB"),
            ({"memory": MEMORY + 1}, "the daemon grew by 129 MiB"),
            ({"well": False}, "did not work"),
        )
        for changes, words in findings:
            (said,) = judge(evolve(GOOD, **changes))
            self.assertIn(words, said)

    def test_text(self) -> None:
        """What is written is read again, and has a row."""
        self.assertEqual(parse(GOOD.text()), GOOD)
        row = table([GOOD], "Head.").splitlines()[-1]
        self.assertIn("| a borrower | secrets | 40 | 33.0 | 32.0 | 70.0 | 3.0 | 12 |", row)
        self.assertIn("| no room \\| tenant-contents | good |", row)


class ContentTests(SynchronousTestCase):
    """What is sent has about the size that was asked for."""

    def test_sizes(self) -> None:
        """Each kind that is stored, but for events, which an API server bounds itself."""
        for what in STORED:
            size = len(json.dumps(content(what.kind, 200_000, {}, 7)))
            self.assertTrue(120_000 < size < 320_000, f"{what.kind}: {size}")
        self.assertLess(len(json.dumps(content("events", 200_000, {}, 7))), 4096)
        self.assertEqual(list(content("status", 1000, {}, 7)), ["status"])
