"""The base of expected failures: they are logged as one sentence, never with a traceback."""

from __future__ import annotations

from liqod.model.records.offer import PeerUnreachable, Refusal


class ExpectedError(Exception):
    """A failure that the program expects to meet; its text is a full sentence for the operator."""


EXPECTED = (ExpectedError, Refusal, PeerUnreachable)
"""What loops log as a sentence; everything else is a defect and is logged with its traceback."""


def is_expected(error: BaseException) -> bool:
    """Return whether a failure is logged as one sentence rather than with a traceback."""
    return isinstance(error, EXPECTED)


def retry_after(error: BaseException) -> float:
    """Return the seconds that an error asks to wait before the next attempt (``Retry-After``); 0 where it does not."""
    seconds = getattr(error, "retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
