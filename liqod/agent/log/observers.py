"""Writes the events of the log to a stream: which ones, and as JSON, as text, or as text for systemd's journal."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Final, TextIO

from constantly import NamedConstant
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    eventAsText,
    textFileLogObserver,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.agent.log.json_lines import json_line
from liqod.audit.events import LOGGER as AUDIT_LOG

SYSLOG_LEVELS: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}
"""What systemd reads as the priority of a line, see sd-daemon(3), for each level of Twisted."""
_NOISE: Final = re.compile(r"Unable to write to plugin cache|\S+( \(UDP\))? starting on \S+$|\(\w* ?Port \S+ Closed\)$")


def goes_to_standard_output(twistd: Mapping[str, object]) -> bool:
    """Return whether twistd's own options leave the log to us: --logfile, --logger, --syslog, or a background process
    do not.
    """
    if not twistd.get("nodaemon") or twistd.get("logger") or twistd.get("syslog"):
        return False
    return twistd.get("logfile") in (None, "-")


def log_writer(form: str, stream: TextIO, environ: Mapping[str, str]) -> ILogObserver:
    """Return the observer that writes every event to a stream, in the form that ``[log] format`` names."""
    journal = is_journal(stream, environ)
    if form == "json":
        return json_observer(stream, journal=journal)
    return journal_observer(stream) if journal else textFileLogObserver(stream)


def log_filter(level: str, observer: ILogObserver) -> ILogObserver:
    """Return an observer that passes on what is of a level or above, and no noise; security events always."""
    predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
    predicate.setLogLevelForNamespace(AUDIT_LOG, LogLevel.info)
    return FilteringLogObserver(observer, [predicate, WithoutNoise()])


@implementer(ILogFilterPredicate)
class WithoutNoise:
    """Leaves out what Twisted writes and nobody acts on.

    That twistd's cache of plugins, which saves milliseconds, cannot be written: at every start where the package
    belongs to root and the daemon does not run as root. That a socket was opened or closed: a measurement of a path
    opens one, and ours that stay open have lines of their own.
    """

    def __call__(self, event: LogEvent) -> NamedConstant:
        # Events of Twisted's older log have their text in log_text, and log_format names only that.
        text = str(event.get("log_text") or event.get("log_format") or event.get("format") or "")
        return PredicateResult.no if _NOISE.match(text) else PredicateResult.maybe


class Forward(logging.Handler):
    """Passes what libraries write to Python's own log (asyncio, zeroconf) on to Twisted's, a traceback with its line.

    Without a handler Python prints it on standard error, where each line of a traceback is an event of its own.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # arguments that do not fit the text, in another's code
            self.handleError(record)
            return
        error = record.exc_info[1] if record.exc_info else None
        failed = {"log_failure": Failure(error)} if error is not None else {}
        level = LogLevel.error if record.levelno >= logging.ERROR else LogLevel.warn
        Logger(record.name).emit(level, "{log_text}", log_text=text, **failed)


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether systemd's journal reads a stream: JOURNAL_STREAM names its device and inode, systemd.exec(5)."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def json_observer(stream: TextIO, *, journal: bool) -> ILogObserver:
    """Return an observer that writes a JSON object for each event, for the journal after the priority of the line."""

    def line(event: LogEvent) -> str:
        return f"<{_priority(event)}>{json_line(event)}" if journal else json_line(event)

    return FileLogObserver(stream, line)


def journal_observer(stream: TextIO) -> ILogObserver:
    """Return an observer for the journal, which has the time of each line: lines begin with their priority instead."""

    def line(event: LogEvent) -> str | None:
        text = eventAsText(event, includeTimestamp=False, includeSystem=True)
        lines = text.splitlines() or [""]
        return "".join(f"<{_priority(event)}>{one}\n" for one in lines) if text else None

    return FileLogObserver(stream, line)


def _priority(event: LogEvent) -> int:
    return SYSLOG_LEVELS.get(getattr(event.get("log_level"), "name", "info"), 6)
