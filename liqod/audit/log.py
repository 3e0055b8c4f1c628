"""Writes security events: to the daemon's log under a namespace of their own, or to a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import LOGGER, AuditEvent, Type
from liqod.audit.file import RotatingFile
from liqod.audit.limits import EventLimits
from liqod.flow.clocks import WallClock
from liqod.flow.timer import Timer

REPORT: Final = 60.0
"""Seconds after which it is written how many events were left out, should no later event of theirs do that."""


class AuditLog:
    """The one writer of security events (``events.Audit``).

    ``file`` None: they go to the log. So they do while the file cannot be written, which is logged once, shown in
    ``problem`` and never raised. ``notify`` is called for each event that is written.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        *,
        file: RotatingFile | None = None,
        notify: Callable[[AuditEvent], None] | None = None,
    ) -> None:
        self.written: Counter[Type] = Counter()
        self.omitted: Counter[Type] = Counter()
        self.problem = ""
        # A Logger that is an attribute of a class has that class for its namespace.
        self._lines = Logger(namespace=LOGGER)
        self._clock = clock
        self._wall = wall
        self._file = file
        self._notify = notify
        self._limits = EventLimits()
        self._report = Timer(clock)

    def record(self, event: AuditEvent) -> None:
        """Write an event, or count it where its type or source has had too many."""
        omitted = self._limits.admit_event(event, self._clock.seconds())
        if omitted is None:
            self.omitted[event.type] += 1
            self._report.start_unless_running(REPORT, self._report_omitted)
            return
        self._write(attrs.evolve(event, omitted=omitted) if omitted else event)
        if self._notify is not None:
            self._notify(event)

    def close(self) -> None:
        """Write what is still to be reported, and close the file."""
        if self._report.running:
            self._report.cancel()
            self._report_omitted()
        if self._file is not None:
            self._file.close()

    def _report_omitted(self) -> None:
        for type_, count in self._limits.pending().items():
            self._write(AuditEvent("Omitted", type_, omitted=count))

    def _write(self, event: AuditEvent) -> None:
        self.written[event.type] += 1
        now = self._wall()
        line = event.line(now)
        if self._file is not None:
            try:
                self._file.write(line.encode("ascii"))
            except OSError as error:
                self._failed(error)
            else:
                self.problem = ""
                return
        fields = event.fields(now)
        # Observers of Twisted's older log take an event's time, in seconds, from this name.
        del fields["time"]
        self._lines.info("{line}", line=line, **fields)

    def _failed(self, error: OSError) -> None:
        problem = str(error.strerror or error)
        if self.problem != problem:
            self.problem = problem
            self._log.error(
                "the file of [audit] cannot be written: {error}; security events are in this log", error=problem
            )
