"""Classifies refused writes: one retry policy for controllers that write in their own cluster.

What a lender answers means more than that: ``kubelet.common.refusals``.

Source: Kubernetes API conventions, "HTTP Status codes". A controller that treats all refusals alike either repeats an
object that can never pass validation, or gives up on one that lost a race.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

from liqod.flow.backoff import Backoff
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, Gone, Invalid, KubeError, NotFound

K = TypeVar("K", bound=Hashable)


class Retry(enum.Enum):
    """When a refused write is worth another attempt."""

    AT_ONCE = "at once"
    """Another client wrote first: read the object and decide again."""

    LATER = "later"
    """The cause may pass without a change of the object: rights, quota, load, the network."""

    ON_CHANGE = "on change"
    """The same write will be refused again: wait until the object or its inputs change."""


@attrs.frozen
class RefusedWrite:
    """A refused write: when to retry, a CamelCase reason, the server's message, and ``Retry-After`` in seconds."""

    retry: Retry
    reason: str
    message: str
    retry_after: float = 0.0


READ_AGAIN: Final = 1.0
"""Seconds until the retry after a conflict; the watch event of the other write usually enqueues the key earlier."""

LATER: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)


def refused_write(error: KubeError, *, creating: bool = False) -> RefusedWrite:
    """Classify a failed write; ``creating`` where the object did not exist yet.

    ======================================== ==========================================
    Conflict, AlreadyExists, Gone             at once: our state of the object is outdated
    NotFound, for an update                   on change: it was deleted, the watch will report it
    NotFound, for a create                    later: its namespace or its kind is missing
    Invalid (400, 422)                        on change: validation is a function of the object
    Forbidden, and everything else            later, not before ``Retry-After``
    ======================================== ==========================================

    Forbidden is *later*: RBAC, ResourceQuota and a terminating namespace change without a change of the object.
    """
    if isinstance(error, Conflict | AlreadyExists | Gone):
        retry = Retry.AT_ONCE
    elif isinstance(error, Invalid) or (isinstance(error, NotFound) and not creating):
        retry = Retry.ON_CHANGE
    else:
        retry = Retry.LATER
    reason = type(error).__name__
    message = error.message if isinstance(error, ApiError) else str(error)
    return RefusedWrite(retry, reason, message, float(getattr(error, "retry_after", 0.0)))


class RefusedWrites(Generic[K]):
    """The current refusals by key, with attempts and back-off.

    Bounded by the number of refused keys; the owner calls ``forget`` when a key's object is deleted.
    """

    def __init__(self, backoff: Backoff = LATER) -> None:
        self._backoff = backoff
        self._held: dict[K, tuple[RefusedWrite, int]] = {}

    def __len__(self) -> int:
        """The number of refused keys."""
        return len(self._held)

    def get(self, key: K) -> RefusedWrite | None:
        """Return the current refusal of a key, or None."""
        held = self._held.get(key)
        return held[0] if held is not None else None

    def refused(self, key: K, refusal: RefusedWrite) -> float | None:
        """Record a refusal; return the seconds until the next attempt, None for "not before the object changes"."""
        _, attempts = self._held.get(key, (refusal, 0))
        if refusal.retry is Retry.AT_ONCE:
            # Not counted: a conflict is no fault of the object, and two in a row are unrelated.
            return READ_AGAIN
        self._held[key] = (refusal, attempts + 1)
        if refusal.retry is Retry.ON_CHANGE:
            return None
        return max(refusal.retry_after, self._backoff.delay(attempts))

    def forget(self, key: K) -> None:
        """Drop a key's refusal: a write was accepted, or the object changed or was deleted."""
        self._held.pop(key, None)
