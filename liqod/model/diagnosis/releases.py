"""Which release of liqod may follow which in a cluster. Pure."""

from __future__ import annotations

import re
from typing import Final

VERSION_LABEL: Final = "app.kubernetes.io/version"
"""On the daemon's account and on definitions: the release that wrote them last."""
_RELEASE: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")


def parse(text: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a release; None for what is none, such as a checkout."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def is_newer(one: str, other: str) -> bool:
    """Return whether a release is newer than another one; False where one of them is none."""
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first > second


def serves(other: str, own: str) -> bool:
    """Return whether what another release wrote serves this one: it is an earlier one, or the next minor one.

    A release knows the records of the next minor one, and of no later one.
    """
    theirs, ours = parse(other), parse(own)
    if theirs is None or ours is None:
        return False
    return theirs <= ours or (theirs[0] == ours[0] and theirs[1] <= ours[1] + 1)


def downgrade_refusal(installed: str, own: str) -> str:
    """Return why a release must not take over from the one that is installed; empty where it may."""
    if not is_newer(installed, own) or serves(installed, own):
        return ""
    return (
        f"release {installed} of liqod is installed in this cluster, and this is {own}: a rollback goes one minor "
        "release at a time, since a release knows the records of the next one and of no later one"
    )
