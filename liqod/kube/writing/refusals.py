"""What a refused write means for its object, in one policy for all controllers.

Kubernetes' API conventions ("HTTP Status codes") say which refusals a repetition can overcome, and what must happen
first. A controller that treats all alike either hammers the API server with an object that can never pass validation,
or gives up on one that lost a race.
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
    """Another client wrote first: read the object again, decide again."""

    LATER = "later"
    """The cause may pass without a change of the object: rights, quota, load, the network."""

    ON_CHANGE = "on change"
    """The same write will be refused again: wait until the object, or what it is computed from, changes."""


@attrs.frozen
class Refusal:
    """A refused write: when to try again, one CamelCase word, and the server's sentence."""

    retry: Retry
    reason: str
    message: str
    retry_after: float = 0.0


READ_AGAIN: Final = 1.0
"""Seconds after a lost race: the watch brings the other's write, mostly sooner, and then the key comes by itself."""

LATER: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)


def refusal_of(error: KubeError, *, creating: bool = False) -> Refusal:
    """Classify a failed write; ``creating`` where the object did not exist yet.

    ======================================== ==========================================
    Conflict, AlreadyExists, Gone             at once: our knowledge of the object is old
    NotFound, of an object that we change     on change: it is gone, the watch will tell
    NotFound, of an object that we create     later: its namespace or its kind is missing
    Invalid (400, 422)                        on change: validation is a function of the object
    Forbidden, and everything else            later, not before ``Retry-After``
    ======================================== ==========================================

    Forbidden is *later*: rights, quota and a terminating namespace change without a trace in the object.
    """
    if isinstance(error, Conflict | AlreadyExists | Gone):
        retry = Retry.AT_ONCE
    elif isinstance(error, Invalid) or (isinstance(error, NotFound) and not creating):
        retry = Retry.ON_CHANGE
    else:
        retry = Retry.LATER
    reason = type(error).__name__
    message = error.message if isinstance(error, ApiError) else str(error)
    return Refusal(retry, reason, message, float(getattr(error, "retry_after", 0.0)))


class Refusals(Generic[K]):
    """The refusals that hold now, by key: how often, and so how long until the next attempt.

    Bounded by the keys that are refused; the owner calls ``forget`` when a key's object is gone.
    """

    def __init__(self, backoff: Backoff = LATER) -> None:
        self._backoff = backoff
        self._held: dict[K, tuple[Refusal, int]] = {}

    def __len__(self) -> int:
        """The number of keys that are refused."""
        return len(self._held)

    def get(self, key: K) -> Refusal | None:
        """Return the refusal that holds for a key, or None."""
        held = self._held.get(key)
        return held[0] if held is not None else None

    def refused(self, key: K, refusal: Refusal) -> float | None:
        """Note a refusal; return the seconds until the next attempt, None for "not before the object changes"."""
        _, attempts = self._held.get(key, (refusal, 0))
        if refusal.retry is Retry.AT_ONCE:
            # No count: a race says nothing against the object, and two races in a row are two races.
            return READ_AGAIN
        self._held[key] = (refusal, attempts + 1)
        if refusal.retry is Retry.ON_CHANGE:
            return None
        return max(refusal.retry_after, self._backoff.delay(attempts))

    def forget(self, key: K) -> None:
        """Forget a key: a write was accepted, or the object changed or is gone."""
        self._held.pop(key, None)
