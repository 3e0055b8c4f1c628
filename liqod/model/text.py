"""Cleans text that came from elsewhere: fit to be stored, sent on, logged and printed on a terminal."""

from __future__ import annotations

from typing import Final

ELLIPSIS: Final = "…"


def clean_text(text: str, limit: int, *, newlines: bool = False, ellipsis: bool = False, replacement: str = " ") -> str:
    """Return a text of at most ``limit`` characters without anything that a terminal or a log would obey.

    Control characters (terminal escapes among them), bidirectional overrides and other invisible formatting, lone
    surrogates and unassigned code points each become ``replacement``. ``newlines`` keeps line feeds. ``ellipsis`` lets
    a text that was cut end in "…".
    """
    is_cut = len(text) > limit
    kept = text[: max(0, limit - 1 if is_cut and ellipsis else limit)]
    # isprintable is false for Cc, Cf (bidi overrides, U+202A to U+202E and U+2066 to U+2069), Cs, Co, Cn, Zl and Zp.
    if not kept.isprintable():
        kept = "".join(
            character if character.isprintable() or (newlines and character == "\n") else replacement
            for character in kept
        )
    return kept + ELLIPSIS if is_cut and ellipsis and limit > 0 else kept


def clip_utf8(text: str, limit: int) -> str:
    """Return the beginning of a text that takes at most ``limit`` bytes in UTF-8; lone surrogates become "?"."""
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
