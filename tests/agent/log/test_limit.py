"""Lines of one cause are bounded, and what is left out is counted."""

from __future__ import annotations

from typing import cast

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
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
