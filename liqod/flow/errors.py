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
