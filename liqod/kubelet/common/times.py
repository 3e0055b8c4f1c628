"""Seconds since the epoch to and from RFC 3339 (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor


def rfc3339(seconds: float) -> str:
    """Return a time as Kubernetes writes it, to the second."""
    return _of_second(floor(seconds))


@lru_cache(maxsize=16)
def _of_second(second: int) -> str:
    # Asked for at every look at every pod, and hundreds of those are within one second.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Return a time as leases want it, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def epoch(text: str) -> float | None:
    """Return the seconds of an RFC 3339 time, or None if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
