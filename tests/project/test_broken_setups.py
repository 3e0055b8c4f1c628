"""The broken set-ups are thirty, their expectations can be met, the same seed draws the same, and screens are read."""

from __future__ import annotations

import json
import re

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.real.broken_setups import verdicts
from tests.real.broken_setups.drawing import COUNT, KINDS, LONGEST_WAIT, SEED, drawn, thirty
from tests.real.broken_setups.faults import MAKERS
from tests.real.broken_setups.setups import ACTIVITIES, DAEMONS, HOSTS, NAMED, REPORTED, Setup
from tests.real.broken_setups.verdicts import Row
from tests.real.terminal import ROWS, Shown

HEALTHY = """\
daemon c1-one; standing by: rome-two
PEER   STATE  BORROWING            LENDING              NODE        PODS
milan  Ready  cpu 7.6, mem 10.3Gi  cpu 0.15, mem 0.3Gi  liqo-milan  2
"""
BROKEN = """\
daemon c1-one
PEER   STATE      BORROWING            LENDING              NODE        PODS
milan  Connecting cpu 7.6, mem 10.3Gi  cpu 0.15, mem 0.3Gi  liqo-milan  2
    Unreachable: no answer
✗ peer milan: Unreachable: no address of the peer answers, of those that it
  announced (since 2026-01-01T12:00:00Z)
    firewall, port 5872/tcp, advertise-addresses of the peer
! node liqo-turin: NotReady: something else
"""


def setup(number: int) -> Setup:
    """Return the first set-up with a number."""
    return next(one for one in thirty() if one.number == number)


class ExpectationTests(SynchronousTestCase):
    """What is written down before anything is broken."""

    def test_thirty(self) -> None:
        """There are thirty numbers, ten of each sort, and a name for each set-up."""
        numbers = [sorted({one.number for one in part}) for part in (NAMED, REPORTED, drawn())]
        self.assertEqual(numbers, [list(range(1, 11)), list(range(11, 21)), list(range(21, 31))])
        names = [(one.number, one.name) for one in thirty()]
        self.assertEqual(len(set(names)), len(names))

    def test_reported(self) -> None:
        """Each of what users reported names the project and the number of the report, and no two the same."""
        sources = [one.source for one in REPORTED]
        self.assertEqual([one for one in sources if not re.fullmatch(r"[a-z-]+#\d+", one)], [])
        self.assertEqual(len(set(sources)), len(sources))

    def test_can_be_made(self) -> None:
        """Every fault, also those that other seeds draw, is of a kind that can be made, on a side that there is."""
        every = [*thirty(), *(one for seed in range(50) for one in drawn(seed))]
        self.assertEqual({one.fault.kind for one in every} - MAKERS.keys(), set())
        self.assertEqual({one.fault.side for one in every} | {one.at for one in every}, set(DAEMONS))

    def test_can_be_met(self) -> None:
        """Every expectation is a pattern, and one that a healthy screen does not meet."""
        for one in (*thirty(), *(one for seed in range(50) for one in drawn(seed))):
            re.compile(one.cause)
            re.compile(one.object)
            self.assertNotEqual(verdicts.seen(HEALTHY.splitlines(), one), "both", one)


class DrawingTests(SynchronousTestCase):
    """What is drawn from a seed."""

    def test_same(self) -> None:
        """The same seed draws the same, each of another kind; another seed draws others."""
        self.assertEqual(drawn(SEED), drawn(SEED))
        self.assertNotEqual([one.fault for one in drawn(1)], [one.fault for one in drawn(2)])
        self.assertEqual(len({one.name for one in drawn(3)}), COUNT)

    def test_everything(self) -> None:
        """In many seeds every kind of fault comes, in every activity, at moments within its bounds."""
        many = [one for seed in range(60) for one in drawn(seed)]
        self.assertEqual({one.fault.kind for one in many}, {one.kind for one in KINDS})
        self.assertEqual({one.moment.activity for one in many}, set(ACTIVITIES))
        self.assertTrue(all(0 <= one.moment.after <= LONGEST_WAIT for one in many))
        self.assertTrue(all(one.moment.after == 0 for one in many if one.moment.activity == "rest"))
        self.assertGreater(len({one.moment.after for one in many}), 50)

    def test_who_looks(self) -> None:
        """A daemon is named to the administrator of its own cluster, a peer to that of the other one."""
        for one in (one for seed in range(60) for one in drawn(seed)):
            other = next(name for name in DAEMONS if name != one.at)
            for name in (DAEMONS[other], HOSTS[other]):
                self.assertNotIn(name, one.object, one)
            if one.fault.side != one.at and one.fault.kind != "quota":
                self.assertIn(rf"\b{one.fault.side}\b", one.object)


class ScreenTests(SynchronousTestCase):
    """What is read from a screen."""

    def test_paragraphs(self) -> None:
        """A line that is indented belongs to the one before, in a table as in a list of problems."""
        found = verdicts.paragraphs(BROKEN.splitlines())
        self.assertEqual(len(found), 5)
        self.assertTrue(found[2].endswith("liqo-milan 2 Unreachable: no answer"), found[2])
        self.assertIn("announced (since 2026-01-01T12:00:00Z) firewall, port 5872/tcp", found[3])

    def test_both(self) -> None:
        """Cause and object count in one paragraph, and not where each is in another one."""
        firewall = setup(1)
        self.assertEqual(verdicts.seen(BROKEN.splitlines(), firewall), "both")
        apart = evolve(firewall, object=r"\bturin\b")
        self.assertEqual(verdicts.seen(BROKEN.splitlines(), apart), "cause only")
        self.assertEqual(verdicts.seen(HEALTHY.splitlines(), firewall), "object only")
        self.assertEqual(verdicts.seen([], firewall), "neither")

    def test_first_screen(self) -> None:
        """What a user has to scroll for is not on the first screen, and what takes too long is slow."""
        firewall = setup(1)
        below = "\n".join(["line"] * ROWS) + "\n" + BROKEN
        self.assertEqual(verdicts.judged(Shown(below, 1.0, 0), firewall), "neither")
        for seconds, status, wanted in ((1.0, 0, "both"), (10.0, 0, "slow"), (9.0, None, "slow")):
            self.assertEqual(verdicts.judged(Shown(BROKEN, seconds, status), firewall), wanted)

    def test_better(self) -> None:
        """Of two looks the one that shows more is kept, of equal ones the later."""
        first, second = (Row(setup=setup(1), verdict="cause only", after=after) for after in (1.0, 2.0))
        self.assertEqual(verdicts.better(first, evolve(second, verdict="neither")), first)
        self.assertEqual(verdicts.better(first, second), second)
        self.assertEqual(verdicts.better(first, evolve(second, verdict="both")).verdict, "both")


class TableTests(SynchronousTestCase):
    """What a campaign writes down."""

    def test_count(self) -> None:
        """A number counts when all of its set-ups were shown."""
        rows = [Row(setup=one, verdict="both", healed=True) for one in thirty()]
        self.assertEqual(verdicts.counted(rows), (30, 30))
        self.assertEqual(verdicts.counted([evolve(rows[0], verdict="slow"), *rows[1:]]), (29, 30))

    def test_before_and_after(self) -> None:
        """The table has every expectation before the run, and the screen of what was not shown after it."""
        before = verdicts.table([Row(setup=one) for one in thirty()], "abc")
        for one in thirty():
            self.assertIn(one.cause.replace("|", "\\|"), before)
        self.assertIn("0 of 30 broken set-ups have cause and object on the first screen; 0 did not heal", before)
        row = Row(setup=setup(7), verdict="neither", took=1.26, screen=["daemon c1-one"], healed=True)
        text = verdicts.table([row], "abc")
        self.assertIn("| neither | 0 | 1.3 | yes |", text)
        self.assertIn("\n    daemon c1-one\n", text)

    def test_columns(self) -> None:
        """A pattern that has a bar in it does not divide a cell."""
        lines = verdicts.table([Row(setup=one) for one in thirty()], "abc").splitlines()
        rows = [line for line in lines if line.startswith("| ")]
        self.assertEqual({len(re.findall(r"(?<!\\)\|", line)) for line in rows}, {11})

    def test_goes_on(self) -> None:
        """What was tried is read again as it was; one whose words are others since then was not tried yet."""
        rows = [Row(setup=one) for one in thirty()]
        rows[3] = evolve(rows[3], verdict="both", took=1.5, screen=["daemon c1-one"], healed=True)
        plain = json.loads(json.dumps(verdicts.plain_rows(rows)))
        self.assertEqual(verdicts.read_rows(plain, thirty()), rows)
        other = [evolve(one, cause="another") for one in thirty()]
        self.assertEqual({row.verdict for row in verdicts.read_rows(plain, other)}, {"waiting"})

    def test_page(self) -> None:
        """The page has each set-up once, its newest result with its commit, and what the screen said of it."""
        before = [Row(setup=one) for one in thirty()]
        first = [evolve(before[0], verdict="neither", screen=BROKEN.splitlines()), *before[1:]]
        later = [evolve(before[0], verdict="both", screen=BROKEN.splitlines()), *before[1:]]
        text = verdicts.page(verdicts.newest([("", before), ("old-one", first), ("new-one", later), ("none", before)]))
        rows = [line for line in text.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual(len(rows), len(thirty()))
        self.assertIn("peer milan: Unreachable", rows[0])
        self.assertTrue(rows[0].endswith("| new-one |"), rows[0])
        self.assertTrue(rows[1].endswith("| not run |  |  |  |  |"), rows[1])
        self.assertEqual({len(re.findall(r"(?<!\\)\|", line)) for line in rows}, {10})

    def test_healed(self) -> None:
        """Why something did not heal stands beside what was known of it before."""
        row = verdicts.healed(Row(setup=setup(1), verdict="both", note="late"), "no tunnel")
        self.assertEqual((row.healed, row.note), (False, "late\n\ndid not heal: no tunnel"))
        self.assertTrue(verdicts.healed(row).healed)
