"""Kubernetes Events about a ForeignCluster: which phase changes are recorded as events. Pure."""

from __future__ import annotations

from typing import Final

from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.objects.meta import reference_to
from liqod.model.records.views import ForeignCluster, ForeignClusterStatus

WORSE: Final = ("Suspect", "Lost", "Refused")
"""Phases that may need an administrator's action: events of type Warning."""
QUIET: Final = ("", "Discovered", "Connecting", "Withdrawing")
"""Phases without news for a user: no event."""


def reference(record: ForeignCluster) -> dict[str, str]:
    """Return the ``involvedObject`` of an event about a record."""
    return reference_to(FOREIGNCLUSTERS.api_version, FOREIGNCLUSTERS.kind, record.metadata)


def transition(before: ForeignClusterStatus, after: ForeignClusterStatus) -> tuple[str, str, str] | None:
    """Return (type, reason, message) of the event about a phase change, None where none is recorded."""
    if before.phase == after.phase or after.phase in QUIET:
        return None
    kind = "Warning" if after.phase in WORSE else "Normal"
    came = f"{before.phase} -> {after.phase}" if before.phase else after.phase
    return kind, after.reason or after.phase, f"{came}: {after.message}"
