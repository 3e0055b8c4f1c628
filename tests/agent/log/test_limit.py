"""Lines of one cause are bounded, and what is left out is counted."""

from __future__ import annotations

import tracemalloc
from typing import cast

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.log.limit import PER_CAUSE, PER_COMPONENT, LimitedLog

BURST = PER_CAUSE[1]


class LimitedLogTests(SynchronousTestCase):
    """A log that is written to too often."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.written: list[LogEvent] = []
        self.limited = LimitedLog(self.clock, cast(ILogObserver, self.written.append))
        self.part = Logger("liqod.part", observer=self.limited)

    def flood(self, count: int = BURST + 30, peer: str = "milan") -> None:
        for number in range(count):
            self.part.warn("{pod} of {peer} fails", pod=f"shop/web-{number}", peer=peer)

    def texts(self) -> list[str]:
        return [str(formatEvent(one)) for one in self.written]

    def test_one_cause(self) -> None:
        """Of many pods with one trouble a burst is written, and with the next line how many were not."""
        self.flood()
        self.assertEqual(len(self.written), BURST)
        self.clock.advance(2)
        self.flood(1)
        self.assertEqual(
            self.texts()[-1],
            "shop/web-0 of milan fails (lines like this that were left out before it: 30)",
        )
        self.assertEqual(self.written[-1]["omitted"], 30)

    def test_other_causes(self) -> None:
        """Another sentence, another peer, and another logger lose nothing."""
        self.flood()
        self.written.clear()
        self.flood(1, peer="paris")
        self.part.info("leading as {identity}", identity="x")
        Logger("liqod.other", observer=self.limited).warn("{pod} of {peer} fails", pod="a/b", peer="milan")
        self.assertEqual(len(self.written), 3)

    def test_other_defects(self) -> None:
        """Another type of exception of one controller, another kind, and another reason are other causes."""
        for number in range(BURST + 5):
            self.part.failure("{controller}: {key} failed", Failure(KeyError(number)), controller="pods", key=number)
            self.part.warn("watching {kind} failed: {error}", kind="pods", error=number)
            self.part.info("connections are refused: {reason}", reason="Full")
        self.written.clear()
        self.part.failure("{controller}: {key} failed", Failure(TypeError("new")), controller="pods", key="a")
        self.part.warn("watching {kind} failed: {error}", kind="nodes", error="gone")
        self.part.info("connections are refused: {reason}", reason="Slow")
        self.assertEqual(len(self.written), 3)
        self.assertIn("TypeError: new", self.written[0]["log_failure"].getTraceback())

    def test_reasons_of_a_peer(self) -> None:
        """A peer that ends each session for another reason has the share of one cause."""
        for number in range(BURST + 5):
            self.part.info("session with {peer} ended: {reason}", peer="milan", reason=f"Reason{number}")
        self.assertEqual(len(self.written), BURST)

    def test_strangers(self) -> None:
        """A flood of one stranger, from many ports and many addresses of its network, hides no other's refusal."""
        said = "refused {source}: {reason}: {detail}"
        for number in range(1, BURST + 31):
            self.part.warn(said, source=f"192.0.2.7:{number}", reason="Refused", detail=number)
            self.part.warn(said, source=f"[2001:db8::{number:x}]:{number}", reason="Refused", detail=number)
        self.assertEqual(len(self.written), 2 * BURST)
        self.part.warn(said, source="192.0.2.8:1", reason="Refused", detail="")
        self.part.warn(said, source="[2001:db8:0:1::1]:1", reason="Refused", detail="")
        self.assertEqual(len(self.written), 2 * BURST + 2)

    def test_many_strangers(self) -> None:
        """All together have the burst of their logger."""
        for number in range(PER_COMPONENT[1] + 50):
            self.part.warn("refused {source}", source=f"10.0.{number >> 8}.{number & 255}:1")
        self.assertEqual(len(self.written), PER_COMPONENT[1])

    def test_long_texts(self) -> None:
        """No text of a line is held by its cause, and two long texts that begin alike are two causes."""
        before = "x" * 2_000_000
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(10):
            self.limited({"log_namespace": "n", "log_format": "{log_text}", "log_text": f"{before}{number}"})
        self.assertEqual(len(self.written), 10)
        self.written.clear()
        self.assertLess(tracemalloc.get_traced_memory()[0], len(before))

    def test_report(self) -> None:
        """What no later line reports is reported by itself, once."""
        self.flood()
        self.written.clear()
        self.limited.report()
        self.limited.report()
        self.assertEqual(self.texts(), ["lines that were left out, as they were too many of one cause: 30"])
        self.assertEqual((self.written[0]["log_namespace"], self.written[0]["omitted"]), ("liqod.part", 30))

    def test_many_causes(self) -> None:
        """A logger with a new cause in each line is bounded as well."""
        for number in range(PER_COMPONENT[1] + 50):
            self.part.warn("{peer} fails", peer=f"peer-{number}")
        self.assertEqual(len(self.written), PER_COMPONENT[1])
        self.limited.report()
        self.assertEqual(self.written[-1]["omitted"], 50)

    def test_older_log(self) -> None:
        """Texts of Twisted's older log and of what is printed are causes by their text."""
        for number in range(BURST + 20):
            self.limited({"log_namespace": "log_legacy", "log_format": "{log_text}", "log_text": f"port {number}"})
        self.assertEqual(len(self.written), BURST + 20)

    def test_what_has_no_limit(self) -> None:
        """Debug lines, which are asked for, and security events, which have a limit of their own."""
        for _ in range(BURST + 5):
            self.part.debug("x")
            Logger("liqod.audit", observer=self.limited).info("y")
        self.assertEqual(len(self.written), 2 * BURST + 10)
        self.assertIs(self.written[0]["log_level"], LogLevel.debug)
