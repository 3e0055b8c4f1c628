"""Bounds how many lines of one cause the log takes; what is left out is counted, and the count is written."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel
from zope.interface import implementer

from liqod.audit.events import LOGGER as AUDIT_LOG
from liqod.audit.limits import LineLimits
from liqod.flow.connections.admission import source_of
from liqod.model.host_port import host_of

PER_CAUSE: Final = (1.0, 100)
"""Lines of one cause, per second and in a burst. A cause is a logger's sentence with its values of ``SAME``, the
network of its source, the type of its exception, and its reason where it names no peer, which may invent reasons."""
PER_COMPONENT: Final = (10.0, 1000)
"""Lines of one logger, per second and in a burst."""
SAME: Final = ("controller", "peer", "kind", "log_text", "log_io")
"""Fields that tell causes apart; Twisted's older log, and what is printed, have their text in the last two."""
REPORT: Final = 60.0
"""Seconds between two reports of what was left out and has had no later line."""


@implementer(ILogObserver)
class LimitedLog:
    """Passes events on to an observer, as long as they are not too many of one cause.

    Security events have limits of their own (``audit.limits``), and debug lines none: they are asked for.
    """

    def __init__(self, clock: IReactorTime, observer: ILogObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._limits: LineLimits[str] = LineLimits(PER_CAUSE, PER_COMPONENT)

    def __call__(self, event: LogEvent) -> None:
        component, format_ = str(event.get("log_namespace")), event.get("log_format")
        if component == AUDIT_LOG or event.get("log_level") is LogLevel.debug or not isinstance(format_, str):
            self._observer(event)
            return
        omitted = self._limits.admit(component, _cause(event), self._clock.seconds())
        if omitted is None:
            return
        if omitted:
            more = " (lines like this that were left out before it: {omitted})"
            event = {**event, "log_format": format_ + more, "omitted": omitted}
        self._observer(event)

    def report(self) -> None:
        """Write how many lines of each logger were left out and not reported yet."""
        for component, omitted in self._limits.pending().items():
            Logger(component, observer=self._observer).warn(
                "lines that were left out, as they were too many of one cause: {omitted}", omitted=omitted
            )


def _cause(event: LogEvent) -> int:
    """Return a number for the cause of an event: texts, which may be long, are not kept."""
    place = source_of(host_of(str(event.get("source", ""))))
    error = type(getattr(event.get("log_failure"), "value", None))
    reason = "" if event.get("peer") else str(event.get("reason"))
    return hash((event.get("log_format"), error, place, reason, *(str(event.get(name)) for name in SAME)))
