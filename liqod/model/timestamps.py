"""RFC 3339 timestamps to and from ``datetime``.

A date is always a timezone-aware ``datetime``, never a float: the type distinguishes it from seconds of the reactor's
clock (``flow.clocks``).
"""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a date as ``metav1.Time`` writes it: UTC, whole seconds, rounded down."""
    return _utc(moment).isoformat(timespec="seconds") + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """Return a date as ``metav1.MicroTime`` (leases, events) writes it: UTC, microseconds."""
    return _utc(moment).isoformat(timespec="microseconds") + "Z"


def parse_rfc3339(text: str | None) -> datetime | None:
    """Return the date, in UTC; None for no text, for what is no date, and for a date without a zone."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        # A date without a zone would be read in the host's own, a different one on every node.
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def from_epoch(seconds: float) -> datetime:
    """Return the date of a POSIX timestamp; raises ValueError or OverflowError outside of the years 1 to 9999."""
    return datetime.fromtimestamp(seconds, UTC)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")
    return moment.astimezone(UTC).replace(tzinfo=None)
