"""Decides whether an object is reflected, by the list type of its kind and its annotations (spec 004)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from liqod.model.names import ALLOW_REFLECTION, SKIP_REFLECTION

Listing = Literal["DenyList", "AllowList"]

BOTH: Final = f"it is annotated with both {SKIP_REFLECTION} and {ALLOW_REFLECTION}: remove one of them"
SKIPPED: Final = f"it is annotated {SKIP_REFLECTION}"
NOT_LISTED: Final = f"only objects annotated {ALLOW_REFLECTION} are reflected"


def is_set(annotations: Mapping[str, str], name: str) -> bool:
    """Return whether an annotation is present and not "false" (in any case)."""
    return annotations.get(name, "false").lower() != "false"


def objection(annotations: Mapping[str, str], listing: Listing) -> str:
    """Return why an object is not reflected; empty when it is."""
    if listing == "DenyList":
        return SKIPPED if is_set(annotations, SKIP_REFLECTION) else ""
    return "" if is_set(annotations, ALLOW_REFLECTION) else NOT_LISTED


def explicit(annotations: Mapping[str, str]) -> str | None:
    """Return the objection by an object's own annotations, independent of the list type of its kind.

    Empty if they allow reflection, None without such an annotation.
    """
    skip, allow = is_set(annotations, SKIP_REFLECTION), is_set(annotations, ALLOW_REFLECTION)
    if skip and allow:
        return BOTH
    if skip:
        return SKIPPED
    return "" if allow else None
