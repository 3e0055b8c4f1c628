"""Lines of JSON: their members, their bounds, and that no event breaks them."""

from __future__ import annotations

import ipaddress
import json
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel
from twisted.python import log as older_log
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.log.json_lines import MAX_LINE, RESERVED, json_line, plain
from liqod.audit.events import AuditEvent
from liqod.audit.log import AuditLog
from liqod.model.ids import Key
from tests.clocks import HostClock


class Colour(Enum):
    RED = "red"


class Plain:
    """A class with no text of its own."""


class Broken:
    """A value that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@attrs.frozen
class Values:
    secret: str = "x"


def line_of(level: str, text: str, **fields: object) -> dict[str, Any]:
    """Return what a logger of ours writes, read again."""
    events: list[LogEvent] = []
    getattr(Logger("liqod.kubelet.pods.controller", observer=cast(ILogObserver, events.append)), level)(text, **fields)
    events[0]["log_time"] = 1893553445.000678
    return read(events[0])


def read(event: LogEvent) -> dict[str, Any]:
    """Return the members of an event's line, and check what holds for each line."""
    line = json_line(event)
    assert line.isascii() and line.endswith("\n") and line.count("\n") == 1 and len(line) <= MAX_LINE, line
    found: dict[str, Any] = json.loads(line)
    assert list(found)[:1] == ["time"] or found["level"] == "error", line
    return found


class LineTests(SynchronousTestCase):
    """What an event becomes."""

    def test_the_documented_line(self) -> None:
        """Time, level, component and message come first, then the fields."""
        found = line_of("info", "evicting {pod}: {reason}", pod=str(Key("shop", "web")), reason="LenderLost")
        self.assertEqual(
            list(found.items()),
            [
                ("time", "2030-01-02T03:04:05.000678Z"),
                ("level", "info"),
                ("component", "liqod.kubelet.pods.controller"),
                ("message", "evicting shop/web: LenderLost"),
                ("pod", "shop/web"),
                ("reason", "LenderLost"),
            ],
        )

    def test_failure(self) -> None:
        """A traceback is one field, and the error's text another one."""
        try:
            raise ValueError("no\nroom")
        except ValueError:
            found = line_of("failure", "planning failed")
        self.assertEqual(
            (found["level"], found["message"], found["error"]), ("critical", "planning failed", "no\nroom")
        )
        self.assertTrue(found["traceback"].startswith("Traceback"))

    def test_long_traceback(self) -> None:
        """Of a traceback that is too long the end is kept, which has the error."""

        def deep(left: int) -> None:
            if not left:
                raise ValueError("é" * 3000)
            deep(left - 1)

        try:
            deep(300)
        except ValueError:
            found = line_of("failure", "{detail}", detail="\x00" * 9000, peer="milan")
        self.assertTrue(found["traceback"].startswith("…"))
        self.assertTrue(found["traceback"].rstrip().endswith("é"))
        self.assertEqual(found["peer"], "milan")

    def test_a_time_that_is_none(self) -> None:
        """A line has a time, whatever the event says, and also where the event cannot be written."""
        for event in ({"log_time": 1e300, "log_format": "a"}, {"log_time": "x", "log_level": 5, "log_format": 7}):
            self.assertTrue(json.loads(json_line(event))["time"].startswith("1970-"), event)

    def test_empty_fields(self) -> None:
        """A field without a value, and one that is the whole message, are left out."""
        found = line_of("info", "{detail}", detail="the lender is away", peer="", node=None, count=0)
        self.assertEqual(sorted(set(found) - set(RESERVED)), ["count"])

    def test_no_field_takes_a_member(self) -> None:
        """A field with the name of a member changes nothing."""
        found = line_of("info", "x", time="never", level_="x", component="y", traceback="z", log_source="s")
        self.assertEqual((found["component"], found["time"][:4]), ("liqod.kubelet.pods.controller", "2030"))
        self.assertNotIn("traceback", found)
        self.assertNotIn("log_source", found)

    def test_others(self) -> None:
        """Events of other loggers are their text: what else they hold is theirs."""
        found = read({"log_namespace": "twisted.web", "log_format": "{a} {factory}", "a": 1, "factory": Plain()})
        self.assertEqual(sorted(found), ["component", "level", "message", "time"])
        self.assertNotIn("0x", found["message"])

    def test_older_log(self) -> None:
        """Twisted's older log comes in the same form, its tracebacks too."""
        events: list[Any] = []
        publisher = older_log.LogPublisher(publishPublisher=events.append)
        publisher.msg("Starting", "up", system="HTTPChannel,1,192.0.2.1")
        publisher.msg(isError=1, failure=Failure(ValueError("bad")), why=None)
        first, second = map(read, events)
        self.assertEqual((first["component"], first["message"], first["level"]), ("twisted", "Starting up", "info"))
        self.assertEqual((second["message"], second["error"]), ("Unhandled Error", "bad"))
        self.assertEqual(second["traceback"].count("ValueError"), 1)

    def test_security_event(self) -> None:
        """A security event is its type, and its fields are fields."""
        events: list[LogEvent] = []
        clock = HostClock()
        writer = AuditLog(clock, lambda: datetime(2030, 1, 2, tzinfo=UTC))
        writer._lines = Logger("liqod.audit", observer=cast(ILogObserver, events.append))
        writer.record(AuditEvent("TokenRefused", "TokenRefused", peer="milan", object="token/0a1b"))
        found = read(events[0])
        self.assertEqual(
            [found[name] for name in ("component", "message", "schema", "type", "peer", "object")],
            ["liqod.audit", "TokenRefused", 1, "TokenRefused", "milan", "token/0a1b"],
        )
        self.assertNotIn("line", found)


class PlainTests(SynchronousTestCase):
    """Values that JSON has not."""

    def test_values(self) -> None:
        """Each is its plain text, never what repr shows."""
        for value, text in (
            (3, 3),
            (True, True),
            (0.5, 0.5),
            (float("nan"), "nan"),
            (b"/logs/\xff", "/logs/\ufffd"),
            (Colour.RED, "red"),
            (Key("shop", "web"), "shop/web"),
            (ipaddress.ip_address("192.0.2.1"), "192.0.2.1"),
            (datetime(2030, 1, 2, tzinfo=UTC), "2030-01-02T00:00:00.000000Z"),
            (("a", 1, Colour.RED), "a, 1, red"),
            (ValueError("bad"), "bad"),
            (TimeoutError(), "TimeoutError"),
            (Failure(KeyError("k")), "'k'"),
            (Plain(), "Plain"),
            (Values(), "Values"),
            (Broken(), "Broken"),
            (IPv4Address("TCP", "192.0.2.1", 1), "IPv4Address"),
            ("\ud800x", "?x"),
            ("<Site object at 0x7f00aa>", "<Site>"),
        ):
            self.assertEqual(plain(value), text)


anything = st.one_of(
    st.text(st.characters(), max_size=3000),
    st.binary(max_size=3000),
    st.integers(),
    st.floats(),
    st.none(),
    st.builds(Plain),
    st.builds(Broken),
    st.builds(lambda text: Failure(ValueError(text)), st.text()),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.integers()),
)


class AnyEventTests(SynchronousTestCase):
    """No event breaks the log."""

    @given(
        fields=st.dictionaries(st.text(max_size=20), anything, max_size=30),
        time=anything,
        format_=anything,
        failure=anything,
        namespace=st.one_of(anything, st.just("liqod.x"), st.just("log_legacy"), st.just("liqod.audit")),
    )
    def test_any_event_is_one_bounded_line(
        self, fields: dict[str, Any], *, time: object, format_: object, failure: object, namespace: object
    ) -> None:
        """One line of ASCII that a strict reader takes, whatever an event holds."""
        event: LogEvent = {
            **fields,
            "log_level": LogLevel.warn,
            "log_time": time,
            "log_format": format_,
            "log_failure": failure,
            "log_namespace": namespace,
        }
        line = json_line(event)
        json.loads(line).values()
        self.assertTrue(line.isascii() and line[:-1].isprintable() and len(line) <= MAX_LINE, line)
        json.dumps(json.loads(line), ensure_ascii=False).encode()  # raises for a lone surrogate
