"""Which observer the settings and the stream ask for, and what it writes."""

from __future__ import annotations

import json
import logging
import os
from io import StringIO
from pathlib import Path

from constantly import NamedConstant
from twisted.logger import LogEvent, LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.log.observers import (
    Forward,
    goes_to_standard_output,
    is_journal,
    journal_observer,
    json_observer,
    log_filter,
    log_writer,
)
from liqod.config.schema import LogSettings


def event(text: str, level: NamedConstant = LogLevel.info, namespace: str = "liqod.n") -> LogEvent:
    """Return an event as a Logger makes it."""
    return {"log_format": "{text}", "text": text, "log_level": level, "log_namespace": namespace, "log_time": 1.0}


class SettingsTests(SynchronousTestCase):
    """[log], and twistd's own options."""

    def written(self, settings: LogSettings, *events: LogEvent) -> list[str]:
        stream = StringIO()
        observer = log_filter(settings.level, log_writer(settings.format, stream, {}))
        for one in events:
            observer(one)
        return stream.getvalue().splitlines()

    def test_format(self) -> None:
        """Text has the logger in brackets, JSON is one object a line."""
        (text,) = self.written(LogSettings(), event("all\nis well").copy() | {"log_format": "well"})
        self.assertTrue(text.endswith(" [liqod.n#info] well"), text)
        (line,) = self.written(LogSettings(format="json"), event("all\nis well"))
        self.assertEqual(json.loads(line)["message"], "all\nis well")

    def test_level(self) -> None:
        """Less important lines are left out in both forms, security events never."""
        for form in ("text", "json"):
            settings = LogSettings(level="warn", format=form)
            lines = self.written(
                settings, event("no"), event("yes", LogLevel.warn), event("audit", namespace="liqod.audit")
            )
            self.assertEqual(len(lines), 2, lines)

    def test_noise(self) -> None:
        """That twistd cannot write its cache, and that Twisted opens and closes sockets, is no line."""
        for text in (
            "Unable to write to plugin cache /x: error number 13",
            "LimitedFactory starting on 5875",
            "_Burst (UDP) starting on 54321",
            "(UDP Port 54321 Closed)",
            "(TCP Port 5875 Closed)",
        ):
            self.assertEqual(self.written(LogSettings(), {**event(text), "log_text": text}), [], text)
        self.assertEqual(len(self.written(LogSettings(), event("a lender is starting on its own"))), 1)

    def test_options_of_twistd(self) -> None:
        """Where twistd's own options name a log, it is theirs."""
        self.assertTrue(goes_to_standard_output({"nodaemon": 1, "logfile": "-"}))
        self.assertTrue(goes_to_standard_output({"nodaemon": 1}))
        for options in (
            {},
            {"nodaemon": 1, "logfile": "x"},
            {"nodaemon": 1, "syslog": 1},
            {"nodaemon": 1, "logger": "x"},
        ):
            self.assertFalse(goes_to_standard_output(options), options)


class JournalTests(SynchronousTestCase):
    """What the daemon writes where the journal reads it."""

    def lines(self, *events: LogEvent) -> list[str]:
        stream = StringIO()
        observer = journal_observer(stream)
        for one in events:
            observer(one)
        return stream.getvalue().splitlines()

    def test_no_time(self) -> None:
        """A line begins with its priority, and has no date: the journal has both."""
        self.assertEqual(self.lines(event("all is well")), ["<6>[liqod.n#info] all is well"])

    def test_levels(self) -> None:
        """Each level of Twisted has a priority of syslog."""
        levels = [LogLevel.debug, LogLevel.info, LogLevel.warn, LogLevel.error, LogLevel.critical]
        lines = self.lines(*(event("x", level) for level in levels))
        self.assertEqual([line[:3] for line in lines], ["<7>", "<6>", "<4>", "<3>", "<2>"])

    def test_each_line_has_its_priority(self) -> None:
        """A text of several lines, as from a traceback or a peer, cannot claim another priority for its second line."""
        lines = self.lines(event("one\n<0>two\rthree", LogLevel.error))
        self.assertEqual(lines, ["<3>[liqod.n#error] one", "<3><0>two", "<3>three"])

    def test_json(self) -> None:
        """JSON has a priority before it, which the journal takes away: what remains is the object."""
        stream = StringIO()
        json_observer(stream, journal=True)(event("<0>x\n<0>y", LogLevel.warn))
        (line,) = stream.getvalue().splitlines()
        self.assertTrue(line.startswith("<4>{"), line)
        self.assertEqual(json.loads(line[3:])["message"], "<0>x\n<0>y")

    def test_journal_is_recognized(self) -> None:
        """Only the very stream that JOURNAL_STREAM names is the journal."""
        with Path(self.mktemp()).open("w") as stream:
            found = os.fstat(stream.fileno())
            there = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
            self.assertTrue(is_journal(stream, there))
            self.assertFalse(is_journal(stream, {}))
            self.assertFalse(is_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}))
        self.assertFalse(is_journal(StringIO(), there))


class ForwardTests(SynchronousTestCase):
    """Lines of Python's own log."""

    def logger(self) -> logging.Logger:
        found = logging.Logger("asyncio")
        found.addHandler(Forward())
        return found

    def test_a_traceback_is_one_event(self) -> None:
        """The error goes along with its line, under the logger's name."""
        with capturedLogs() as events:
            try:
                raise KeyError("x")
            except KeyError:
                self.logger().exception("Task %s failed", "a {brace}")
        self.assertEqual(
            [(one["log_namespace"], one["log_level"], one["log_text"]) for one in events],
            [("asyncio", LogLevel.error, "Task a {brace} failed")],
        )
        self.assertEqual(events[0]["log_failure"].type, KeyError)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_levels(self) -> None:
        """Warnings are warnings; what is less is left out."""
        with capturedLogs() as events:
            self.logger().warning("slow")
            self.logger().info("no")
        self.assertEqual([(one["log_level"], one["log_text"]) for one in events], [(LogLevel.warn, "slow")])
