"""Whether a pod that ended at a lender ended for good, or was only taken away there and comes back.

The lender re-creates what was taken away; the borrower must not take it for the end of its pod. Both read it from here.
"""

from __future__ import annotations

from typing import Final

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
    """Return whether a pod whose phase is Succeeded or Failed is to be made again.

    That is so for pods that failed because a cluster evicted, preempted or did not admit them: the work was taken away,
    it did not end. A pod that was to run for ever (``restart_policy`` Always, or empty) also comes back when it was
    deleted there, whatever its containers said to that. ``disrupted``: it has the condition DisruptionTarget.

    A pod that a kubelet evicts for the sake of its node has that condition; one that is Evicted without it used more
    storage than its own limits allow, and would do so again. Source: kubelet, pkg/kubelet/eviction/eviction_manager.go,
    localStorageEviction.
    """
    taken_away = phase == "Failed" and (disrupted or reason in _TAKEN_AWAY or reason.startswith("OutOf"))
    if (restart_policy or "Always") != "Always":
        return taken_away
    # A kubelet that is told to delete a pod first ends it: Failed or Succeeded says nothing about the work then.
    if deleting:
        return disrupted or reason not in _OVERSTEPPED
    return taken_away
