"""Lines of security events: their form, their bounds, and where they go when a disk is full."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from liqod.audit.events import INVALID, MAX_LINE, AuditEvent, Type
from liqod.audit.file import RotatingFile
from liqod.audit.limits import MAX_SOURCES, PER_SOURCE, PER_TYPE, EventLimits, LineLimits
from liqod.audit.log import REPORT, AuditLog

AT = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
KEY = "sha256:" + "a" * 64
FIELDS = ("peer", "fingerprint", "address", "object")
CHECKOUT = Path(__file__).resolve().parents[2]


class LineTests(SynchronousTestCase):
    """One event, one line."""

    def test_the_documented_line(self) -> None:
        """The example of the page is what an event becomes, field by field and in this order."""
        event = AuditEvent(
            "TokenRefused",
            "TokenRefused",
            peer="milan",
            fingerprint=KEY,
            address="192.0.2.7:40312",
            object="token/0a1b",
        )
        line = event.line(AT)
        self.assertEqual(
            line,
            '{"schema":1,"time":"2030-01-02T03:04:05.000678Z","type":"TokenRefused","reason":"TokenRefused",'
            f'"peer":"milan","fingerprint":"{KEY}","address":"192.0.2.7:40312","object":"token/0a1b"}}',
        )

    @given(
        fields=st.fixed_dictionaries({name: st.text() for name in FIELDS}),
        reason=st.text(),
        omitted=st.integers(0, 10**18),
    )
    @settings(deadline=None)
    def test_any_text_is_one_line_within_its_size(self, fields: dict[str, str], reason: str, omitted: int) -> None:
        """No value makes a second line, a character that a terminal obeys, a longer line, or another field."""
        event = AuditEvent("Refused", reason, **fields, omitted=omitted)
        line = event.line(AT)
        self.assertTrue(line.isascii() and line.isprintable(), line)
        self.assertLessEqual(len(line), MAX_LINE)
        read = json.loads(line)
        for name in ("peer", "fingerprint", "object"):
            self.assertIn(read.get(name, ""), (fields[name], INVALID))

    def test_the_longest_line_fits(self) -> None:
        """With every field as long as its form allows."""
        longest = AuditEvent(
            "TrustWithdrawn",
            "R" * 64,
            peer="p" * 63,
            fingerprint=KEY,
            address="a" * 128,
            object="o" * 63 + ("/" + "n" * 253) * 2,
            omitted=10**15,
        )
        self.assertNotIn(INVALID, longest.line(AT))
        self.assertLessEqual(len(longest.line(AT)), MAX_LINE)

    def test_every_type_is_documented(self) -> None:
        """The page has a row for each type, and no other."""
        page = (CHECKOUT / "docs/audit.md").read_text()
        rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
        self.assertEqual(rows, set(get_args(Type)))


class LimitTests(SynchronousTestCase):
    """How many lines one source and one type may cause."""

    def test_a_source_is_limited_and_counted(self) -> None:
        """After the burst of one address the rest is left out, and its next line has their number."""
        limits = EventLimits()
        event = AuditEvent("Refused", "HandshakeFailed", address="192.0.2.7:1")
        admitted = [limits.admit_event(event, 0.0) for _ in range(PER_SOURCE[1] + 30)]
        self.assertEqual(admitted, [0] * PER_SOURCE[1] + [None] * 30)
        self.assertEqual(limits.admit_event(AuditEvent("Refused", "HandshakeFailed", address="192.0.2.8:1"), 0.0), 0)
        self.assertEqual(limits.admit_event(event, 11.0), 30)
        self.assertEqual(limits.pending(), {})

    def test_claimed_names_are_no_way_around(self) -> None:
        """An address that claims another cluster ID, or uses another port, each time has one share."""
        limits = EventLimits()
        events = [AuditEvent("Refused", "X", peer=f"p{n}", address=f"192.0.2.7:{n}") for n in range(1, 101)]
        self.assertEqual([limits.admit_event(event, 0.0) for event in events].count(0), 1 + PER_SOURCE[1] - 1)

    def test_many_sources_are_limited_together(self) -> None:
        """A type has a share of its own, and what floods it takes nothing from the others; memory is bounded."""
        limits = EventLimits()
        addresses = [f"10.{n >> 8}.{n & 255}.1:5" for n in range(3 * MAX_SOURCES)]
        written = [limits.admit_event(AuditEvent("Refused", "X", address=one), 0.0) for one in addresses]
        self.assertEqual(written.count(0), PER_TYPE[1])
        self.assertEqual(limits.admit_event(AuditEvent("TrustGranted", "Administrator", peer="milan"), 0.0), 0)
        self.assertLessEqual(len(limits._sources), MAX_SOURCES)
        self.assertEqual(limits.pending(), {"Refused": 3 * MAX_SOURCES - PER_TYPE[1]})

    def test_lines_during_a_report(self) -> None:
        """A line that another thread writes while the counts are taken is no error, and is counted later."""
        limits: LineLimits[Interrupted] = LineLimits((0.1, 1), (1.0, 100))
        group = Interrupted("liqod.part")
        for source in ("one", "one", "two", "two"):
            limits.admit(group, source, 0.0)
        group.meanwhile = lambda: limits.admit(group, "three", 0.0)
        self.assertEqual(limits.pending(), {group: 2})


class Interrupted(str):
    """A group during whose look-up something else happens once."""

    meanwhile: Callable[[], object] | None = None

    def __hash__(self) -> int:
        call, self.meanwhile = self.meanwhile, None
        if call is not None:
            call()
        return super().__hash__()


class FullDisk(RotatingFile):
    """A file on a disk that has no room while ``full``."""

    full = True

    def write(self, line: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(line)


class WriterTests(SynchronousTestCase):
    """Where the lines go."""

    def setUp(self) -> None:
        self.clock, self.seen = Clock(), list[LogEvent]()
        observer = cast(ILogObserver, self.seen.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def writer(self, **options: Any) -> AuditLog:
        writer = AuditLog(self.clock, lambda: AT, **options)
        self.addCleanup(writer.close)
        return writer

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(one["line"]) for one in self.seen if one.get("log_namespace") == "liqod.audit"]

    def test_the_log_is_the_default(self) -> None:
        """Without a file the lines are in the daemon's log, under a namespace of their own."""
        self.writer().record(AuditEvent("TrustGranted", "Token", peer="milan"))
        self.assertEqual([one["type"] for one in self.lines()], ["TrustGranted"])

    def test_what_was_left_out_is_reported_without_a_further_event(self) -> None:
        """A minute later, once."""
        writer = self.writer()
        for _ in range(PER_SOURCE[1] + 5):
            writer.record(AuditEvent("Refused", "X", address="192.0.2.7:1"))
        self.clock.advance(REPORT)
        self.clock.advance(REPORT)
        reports = [one for one in self.lines() if one["type"] == "Omitted"]
        self.assertEqual([(one["reason"], one["omitted"]) for one in reports], [("Refused", 5)])
        self.assertEqual(writer.omitted["Refused"], 5)

    def test_a_full_disk_stops_nothing(self) -> None:
        """The lines are in the log instead, that is said once, and the file is used again when there is room."""
        path = self.mktemp()
        file = FullDisk(path, 1 << 20, 2)
        writer = self.writer(file=file)
        for number in range(3):
            writer.record(AuditEvent("TokenCreated", "Created", object=f"token/{number}"))
        self.assertEqual(len(self.lines()), 3)
        said = [one for one in self.seen if one.get("error") and one["log_namespace"] != "liqod.audit"]
        self.assertEqual(len(said), 1)
        self.assertTrue(writer.problem)
        file.full = False
        writer.record(AuditEvent("TokenCreated", "Created", object="token/4"))
        self.assertEqual(writer.problem, "")
        self.assertEqual(json.loads(Path(path).read_text())["object"], "token/4")

    def test_a_real_full_disk(self) -> None:
        """/dev/full answers as a disk without room does."""
        writer = self.writer(file=RotatingFile("/dev/full", 1 << 20, 2))
        writer.record(AuditEvent("KeyChanged", "OwnKey", peer="rome"))
        self.assertEqual(len(self.lines()), 1)

    def test_files_are_bounded_in_size_and_number(self) -> None:
        """However much is written; nobody but the daemon reads them, and no line is torn by a rotation."""
        path = Path(self.mktemp())
        file = RotatingFile(str(path), 1000, 2)
        for number in range(600):
            file.write(b'{"n":%d}' % number)
        file.close()
        files = sorted(path.parent.glob(path.name + "*"))
        self.assertEqual([one.name for one in files], [path.name, path.name + ".1", path.name + ".2"])
        for one in files:
            self.assertLessEqual(one.stat().st_size, 1000)
            self.assertEqual(one.stat().st_mode & 0o777, 0o600)
            for line in one.read_text().splitlines():
                json.loads(line)
        self.assertIn('"n":599}', path.read_text())

    def test_a_file_that_was_moved_or_removed(self) -> None:
        """The next line is in a file of the name, whatever became of the one before."""
        path = Path(self.mktemp())
        file = RotatingFile(str(path), 1 << 20, 2)
        self.addCleanup(file.close)
        file.write(b"1")
        path.rename(f"{path}.old")
        file.write(b"2")
        path.unlink()
        file.write(b"3")
        self.assertEqual(path.read_text(), "3\n")

    def test_a_line_that_a_crash_cut_short(self) -> None:
        """The first line of the next daemon is one of its own."""
        path = Path(self.mktemp())
        path.write_text('{"n":1}\n{"n":')
        file = RotatingFile(str(path), 1 << 20, 2)
        self.addCleanup(file.close)
        file.write(b"2")
        file.write(b"3")
        self.assertEqual(path.read_text(), '{"n":1}\n{"n":\n2\n3\n')

    def test_a_disk_that_was_full_after_a_part(self) -> None:
        """What follows a part of a line begins a line."""
        path, write = Path(self.mktemp()), os.write
        file = RotatingFile(str(path), 1 << 20, 2)
        self.addCleanup(file.close)
        patch = self.patch(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
        self.assertRaises(OSError, file.write, b"first")
        patch.restore()
        file.write(b"second")
        self.assertEqual(path.read_text(), "fi\nsecond\n")

    def test_a_link_is_not_followed(self) -> None:
        """A file that somebody put in place as a link is not written through."""
        target, link = Path(self.mktemp()), Path(self.mktemp())
        target.touch()
        link.symlink_to(target)
        self.writer(file=RotatingFile(str(link), 1 << 20, 2)).record(AuditEvent("Refused", "X"))
        self.assertEqual(target.read_text(), "")
        self.assertEqual(len(self.lines()), 1)
