"""Whether an object is reflected at all: by the type set for its kind, and by its annotations (spec 004)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from liqod.model.names import ALLOW_REFLECTION, SKIP_REFLECTION

Listing = Literal["DenyList", "AllowList"]

BOTH: Final = f"it is annotated with both {SKIP_REFLECTION} and {ALLOW_REFLECTION}: remove one of them"
SKIPPED: Final = f"it is annotated {SKIP_REFLECTION}"
NOT_LISTED: Final = f"only objects annotated {ALLOW_REFLECTION} are reflected"


def is_set(annotations: Mapping[str, str], name: str) -> bool:
    """Tell whether an annotation is there and does not say false."""
    return annotations.get(name, "false").lower() != "false"


def objection(annotations: Mapping[str, str], listing: Listing) -> str:
    """Return why an object is not reflected; empty when it is."""
    if listing == "DenyList":
        return SKIPPED if is_set(annotations, SKIP_REFLECTION) else ""
    return "" if is_set(annotations, ALLOW_REFLECTION) else NOT_LISTED


def explicit(annotations: Mapping[str, str]) -> str | None:
    """Return what an object's own annotations say, whatever is set for its kind: an objection, or empty for none.

    None when they say nothing.
    """
    skip, allow = is_set(annotations, SKIP_REFLECTION), is_set(annotations, ALLOW_REFLECTION)
    if skip and allow:
        return BOTH
    if skip:
        return SKIPPED
    return "" if allow else None
