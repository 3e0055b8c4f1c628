"""Which namespaces earlier runs of ``test`` and ``bench`` left, because they were killed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from liqod.model.names import CONNECTIVITY_TEST_BY
from liqod.model.timestamps import parse_rfc3339

PREFIX: Final = "liqod-test-"
LONGEST: Final = 3600.0
"""Seconds after which a namespace is left over, by any process: no run takes as long, by its own limits."""
MOST: Final = 50
"""Namespaces that one run removes."""


def left_over(
    namespaces: Iterable[Mapping[str, Any]], me: str, created: str, is_running: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return names and UIDs of the namespaces that are left over, at most ``MOST``.

    ``me`` is the origin of this run, ``created`` the time at which the API server made its namespace: both times are
    the server's, whatever the clocks of the machines say. Of a process elsewhere only the age says that it is gone.
    """
    now = parse_rfc3339(created)
    found = []
    for one in namespaces:
        meta = one.get("metadata") or {}
        name, origin = str(meta.get("name", "")), (meta.get("annotations") or {}).get(CONNECTIVITY_TEST_BY, "")
        if not name.startswith(PREFIX) or origin == me or meta.get("deletionTimestamp"):
            continue
        born = parse_rfc3339(meta.get("creationTimestamp"))
        old = now is not None and born is not None and (now - born).total_seconds() > LONGEST
        here = origin.partition(" ")[0] == me.partition(" ")[0]
        if old or (here and not is_running(origin)):
            found.append((name, str(meta.get("uid", ""))))
    return sorted(found)[:MOST]
