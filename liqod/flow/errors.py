"""The base of expected failures: they are logged as one sentence, never with a traceback."""

from __future__ import annotations

from liqod.model.records.offer import PeerUnreachable, Refusal


class ExpectedError(Exception):
    """An expected failure; its text is a full sentence for the operator."""


EXPECTED = (ExpectedError, Refusal, PeerUnreachable)
"""Exceptions that are logged as one sentence; all others are defects and are logged with a traceback."""


def is_expected(error: BaseException) -> bool:
    """Return whether a failure is logged as one sentence rather than with a traceback."""
    return isinstance(error, EXPECTED)


def is_contention(error: BaseException) -> bool:
    """Return whether a failure says no more than that somebody else wrote first: the next attempt reads what that was.

    Such errors have the attribute ``is_contention``.
    """
    return bool(getattr(error, "is_contention", False))


def retry_after(error: BaseException) -> float:
    """Return the error's minimum seconds before the next attempt (``Retry-After``); 0 without one."""
    seconds = getattr(error, "retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
