"""Decides whether a pod that ended at a lender is complete, or was disrupted and is created again.

The lender re-creates a disrupted pod; the borrower must not report it as finished. Both use this module.
"""

from __future__ import annotations

from typing import Final

FINISHED: Final = ("Succeeded", "Failed")
"""Phases in which all containers of a pod have ended, and none is started again (Kubernetes API: PodPhase)."""

_OVERSTEPPED: Final = frozenset(("DeadlineExceeded", "Evicted"))
_TAKEN_AWAY: Final = frozenset(
    (
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Terminated",
        "Preempting",
        "Preempted",
        "NodeAffinity",
        "UnexpectedAdmissionError",
    )
)


def is_to_return(restart_policy: str, phase: str, reason: str, *, disrupted: bool, deleting: bool) -> bool:
    """Return whether a pod whose phase is Succeeded or Failed must be created again.

    That holds for pods that failed because the cluster evicted, preempted or did not admit them. A pod that runs
    permanently (``restart_policy`` Always, or empty) is also created again when it was deleted there, with any exit
    codes. ``disrupted``: it has the condition DisruptionTarget.

    The kubelet sets that condition when it evicts a pod under node pressure; a pod that is Evicted without it exceeded
    its own storage limits, and would do so again. Source: pkg/kubelet/eviction/eviction_manager.go,
    localStorageEviction.
    """
    taken_away = phase == "Failed" and (disrupted or reason in _TAKEN_AWAY or reason.startswith("OutOf"))
    if (restart_policy or "Always") != "Always":
        return taken_away
    # The kubelet terminates the containers of a deleted pod first: its phase Failed or Succeeded then has no meaning.
    if deleting:
        return disrupted or reason not in _OVERSTEPPED
    return taken_away
