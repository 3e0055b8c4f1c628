"""What the pod controller remembers about one pod between two steps; a restart rebuilds it from what is seen."""

from __future__ import annotations

from typing import Final

from attrs import Factory, define, frozen

from liqod.kubelet.common.refusals import Attempts
from liqod.kubelet.pods.restarts import Tally

DELETION_TIMEOUT: Final = 10.0
"""Seconds after which a deletion that the watch does not show is requested again."""


@frozen
class Deletion:
    """A deletion that was requested: of which UID, and when (seconds of the reactor's clock)."""

    uid: str
    requested_at: float

    def is_pending(self, uid: str, now: float) -> bool:
        """Tell whether this UID was requested to be deleted so recently that the watch may not show it yet."""
        return self.uid == uid and now - self.requested_at < DELETION_TIMEOUT


@define
class TrackedPod:
    """One pod of the virtual node; times are seconds of the reactor's clock."""

    home_uid: str = ""
    tally: Tally | None = None
    """Restart counts of the remote pods that came before."""
    status_due: float | None = None
    """When a status that differs is to be written; None: none does."""
    grace_sent_at: float | None = None
    """Since when the lender has known with which grace period the pod is to end."""
    postponed: bool = False
    """Waits until the lender answers, and shows what it has now."""
    catching_up: bool = False
    """Its status has been old since the last outage of the lender."""
    attempts: Attempts = Factory(Attempts)
    """Failed writes at the lender."""
    retry_at: float = 0.0
    """Until then no ShadowPod is created: the lender refused it."""
    shadow_deletion: Deletion | None = None
    home_deletion: Deletion | None = None

    def succeeded(self) -> None:
        """Note that the lender accepted a write."""
        self.attempts = Attempts()
        self.retry_at = 0.0
