"""Sentences that travel to peers (pure)."""

from __future__ import annotations


def told(message: str) -> str:
    """Return a sentence as it may travel."""
    return "".join(character if character.isprintable() else " " for character in message[:1024])
