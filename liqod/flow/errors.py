"""The base of failures that are part of life: they are told in one sentence, never with a traceback."""

from __future__ import annotations

from liqod.model.records.offer import PeerUnreachable, Refusal


class Foreseen(Exception):
    """A failure that the program expects to meet: its text is a full sentence for the operator."""


FORESEEN = (Foreseen, Refusal, PeerUnreachable)
"""What loops log as a sentence; everything else is a defect and is logged with its traceback."""


def is_foreseen(error: BaseException) -> bool:
    """Tell whether a failure is told in one sentence rather than with a traceback."""
    return isinstance(error, FORESEEN)


def retry_after(error: BaseException) -> float:
    """Return the seconds that an error asks to wait before the next attempt (``Retry-After``); 0 where it does not."""
    seconds = getattr(error, "retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0
