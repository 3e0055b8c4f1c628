"""The verdict on a flood, by a table, what is sent in it, and the table of it."""

from __future__ import annotations

import datetime
import json
from itertools import islice
from typing import Any

from attrs import evolve
from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from liqod.names import question
from liqod.webhook.review import MAX_BODY
from liqod.wire.check import check
from tests.attack import shapes
from tests.attack.flood_figures import (
    FEWEST,
    ITEM,
    SHORT_AT_TIMES,
    TIMES,
    TURN,
    Flood,
    judge,
    lag,
    parse,
    slower,
    slower_at_times,
    table,
)
from tests.attack.flooder import KINDS
from tests.attack.floods import FLOODS

GOOD = Flood(
    kind="handshakes",
    shape="costly",
    items=1000,
    seconds=20.0,
    cpu=3.0,
    rest=1.0,
    turns=(0.002, 0.05, 0.003),
    lag=0.05,
    before=(0.004, 0.006, 0.010),
    during=(0.008, 0.009, 0.030),
    lost=0,
    ready=True,
    leading=True,
    refused={"TooManyHandshakes": 900.0},
)


class VerdictTests(SynchronousTestCase):
    """What is wrong after a flood."""

    def test_good(self) -> None:
        """A flood that was one, and that nobody else noticed, is good."""
        self.assertEqual(list(judge(GOOD)), [])

    def test_each(self) -> None:
        """Each thing alone is said."""
        findings: tuple[tuple[dict[str, Any], str], ...] = (
            ({"items": FEWEST - 1, "cpu": 1.0}, "only 49 items"),
            ({"cpu": 1.0 + 1000 * ITEM * 1.1}, "an item takes 33 ms"),
            ({"turns": (0.001, TURN * 1.5)}, "1.5 s without a turn"),
            ({"turns": ()}, "without a turn"),
            ({"lag": 5.0}, "up to 5 s late"),
            ({"during": (0.020, 0.020)}, "3.3 times longer"),
            ({"during": ()}, "inf times longer"),
            ({"during": (0.008, 0.009, 0.300)}, "15.0 times longer in one request of a hundred"),
            ({"lost": 2}, "lost 2 requests"),
            ({"leading": False}, "the lead"),
            ({"ready": False}, "not ready"),
        )
        for changes, words in findings:
            (said,) = judge(evolve(GOOD, **changes))
            self.assertIn(words, said)

    def test_short_waits(self) -> None:
        """Waits of less than five milliseconds are alike."""
        self.assertEqual(slower([0.0002], [0.0049]), 1.0)
        self.assertLess(slower([0.0002], [0.0099]), TIMES)
        self.assertGreater(slower([0.0002], [0.0101]), TIMES)

    def test_waits_now_and_then(self) -> None:
        """What half of the requests do not see counts, if it is more than the turn of an event loop."""
        quiet = [0.004] * 200
        held = [*([0.004] * 102), *([0.040] * 98)]
        self.assertEqual(slower(quiet, held), 1.0)
        self.assertEqual(slower_at_times(quiet, held), 0.040 / SHORT_AT_TIMES)
        self.assertEqual(slower_at_times(quiet, [*quiet, 9.0]), 1.0)
        (said,) = judge(evolve(GOOD, before=tuple(quiet), during=(*held[:102], *([0.050] * 98))))
        self.assertIn("2.5 times longer in one request of a hundred", said)

    def test_lag(self) -> None:
        """It is the smallest bound of the histogram under which all timers of the time in between are."""

        def shown(*counts: int) -> str:
            bounds = ("0.01", "1.0", "+Inf")
            return "".join(
                f'liqod_reactor_lag_seconds_bucket{{le="{bound}"}} {count}.0\n'
                for bound, count in zip(bounds, counts, strict=True)
            )

        before = shown(10, 12, 13)
        for after, bound in (
            (shown(10, 12, 13), 0.0),
            (shown(15, 17, 18), 0.01),
            (shown(15, 18, 19), 1.0),
            (shown(15, 18, 20), float("inf")),
        ):
            self.assertEqual(lag(before, after), bound)
        self.assertEqual(lag("", ""), 0.0)

    def test_text(self) -> None:
        """What is written is read again, and has a row."""
        self.assertEqual(parse(GOOD.text()), GOOD)
        row = table([GOOD], "Head.").splitlines()[-1]
        self.assertIn("| handshakes (costly) | 1000 | 50 | 2.00 | 50.0 | 50.0 | 6.0 | 9.0 | 10.0 | 30.0 |", row)
        self.assertIn("| TooManyHandshakes 900 | good |", row)


class ShapeTests(SynchronousTestCase):
    """What is sent is within what a caller may send, else its first check would be all that is measured."""

    def test_all_kinds(self) -> None:
        """Each kind of flood has a program."""
        self.assertEqual({kind for kind, _ in FLOODS}, set(KINDS))

    def test_reviews(self) -> None:
        """Reviews are JSON, and as large as they may be."""
        for shape in (shape for kind, shape in FLOODS if str(kind) == "reviews"):
            body = shapes.review(shape)
            self.assertLess(len(body), MAX_BODY)
            self.assertGreater(len(body), MAX_BODY * 0.8)
            self.assertIn("spec", json.loads(body)["request"]["object"])

    def test_offers(self) -> None:
        """Offers and withdrawals take turns, and each passes the checks of its form."""
        found = list(islice(shapes.offers(7), 4))
        self.assertEqual([type(one).__name__ for one in found], ["Advertise", "Withdraw", "Advertise", "Withdraw"])
        for one in found:
            check(one)

    def test_questions(self) -> None:
        """Questions are read as such."""
        for shape in ("new", "deep"):
            self.assertNotIsInstance(question.read(shapes.question(5, shape)), question.RejectedQuestion)

    def test_identities(self) -> None:
        """A stranger shows one certificate, or a chain."""
        now = datetime.datetime(2030, 6, 1, tzinfo=datetime.UTC)
        for shape, count in (("ordinary", 1), ("costly", 6)):
            self.assertEqual(len(x509.load_pem_x509_certificates(shapes.identity(shape, now))), count)
