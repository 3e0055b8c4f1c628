"""Sanitizes text from a lender for conditions, events and log lines (pure)."""

from __future__ import annotations

import re

from liqod.model.objects.meta import MAX_MESSAGE
from liqod.model.text import clean_text

_REASON = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def clean_reason(text: str, otherwise: str) -> str:
    """Return a peer's reason if it is a valid identifier of at most 64 characters, else ``otherwise``."""
    return text if _REASON.fullmatch(text) else otherwise


def clean_message(text: str) -> str:
    """Return a peer's message as printable text of at most ``MAX_MESSAGE`` characters."""
    return clean_text(text, MAX_MESSAGE).strip()
