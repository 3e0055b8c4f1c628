"""Kubernetes Events about a ForeignCluster: which changes of phase are worth one. Pure."""

from __future__ import annotations

from typing import Final

from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.objects.meta import reference_to
from liqod.model.records.views import ForeignCluster, ForeignClusterStatus

WORSE: Final = ("Suspect", "Lost", "Refused")
"""Phases that somebody may have to do something about."""
QUIET: Final = ("", "Discovered", "Connecting", "Withdrawing")
"""Phases that say nothing that was not known."""


def reference(record: ForeignCluster) -> dict[str, str]:
    """Return the reference that an event about a record carries."""
    return reference_to(FOREIGNCLUSTERS.api_version, FOREIGNCLUSTERS.kind, record.metadata)


def transition(before: ForeignClusterStatus, after: ForeignClusterStatus) -> tuple[str, str, str] | None:
    """Return (type, reason, sentence) of the event about a change of phase, None where there is nothing to tell."""
    if before.phase == after.phase or after.phase in QUIET:
        return None
    kind = "Warning" if after.phase in WORSE else "Normal"
    came = f"{before.phase} -> {after.phase}" if before.phase else after.phase
    return kind, after.reason or after.phase, f"{came}: {after.message}"
