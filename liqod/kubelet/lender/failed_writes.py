"""Acts on failed writes at the lender: one policy for ShadowPods, reflected objects and tokens.

What a failure means is decided in ``common.refusals``; here it is applied: the health of the lender is probed, the
attempt is counted, and what the owner of the object reads is made.
"""

from __future__ import annotations

from typing import Final, TypeVar

from attrs import frozen

from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from liqod.kube.resources import Resource
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.refusals import (
    Attempts,
    Meaning,
    is_namespace_missing,
    meaning_of,
    refusal_reason,
)
from liqod.kubelet.lender.health import LenderHealth
from liqod.model.objects.meta import Object

T = TypeVar("T", bound=Object)

NO_ANSWER_RETRY: Final = 5.0
"""Seconds after which a write of a reflected object, or the patch of a ShadowPod, that had no answer is repeated."""


@frozen(kw_only=True)
class FailedWrite:
    """A failed write: what it means, the seconds until the next attempt, and the reason and message of a refusal."""

    meaning: Meaning
    delay: float
    reason: str = ""
    message: str = ""
    namespace_missing: bool = False
    """The lender has no such namespace any more: it must be requested again."""
    namespace_terminating: bool = False
    """Refused because the namespace is being deleted, which is no fault of the object."""

    @property
    def is_refused(self) -> bool:
        """Whether the lender refuses the object, which its owner must be informed of."""
        return self.meaning is Meaning.REFUSED


async def existing(
    client: Client, kind: Resource, name: str, namespace: str, *, view: type[T], conflict: AlreadyExists
) -> T:
    """Return the object for which a create was answered 409; raises that answer again if the object is gone by now.

    The cache does not have it: it lacks our labels, by which watches select, or the watch is behind. A GET without
    resourceVersion is a quorum read of etcd and decides which.
    """
    try:
        return await client.get(kind, name, namespace, view=view)
    except NotFound:
        raise conflict from None


def failed_write(
    error: ApiError | Unreachable,
    attempts: Attempts,
    health: LenderHealth,
    *,
    granted_for: float,
    creating: bool,
) -> FailedWrite:
    """Count a failed write, and probe the lender if it did not answer. Raises the error itself for 429 and 5xx.

    ``granted_for``: seconds since the namespace was granted.
    """
    meaning = meaning_of(error, granted_for=granted_for, creating=creating)
    if meaning is Meaning.NO_ANSWER:
        health.recheck()
        return FailedWrite(meaning=meaning, delay=NO_ANSWER_RETRY)
    if meaning is Meaning.OVERLOADED or not isinstance(error, ApiError):
        raise error
    delay = attempts.delay(meaning)
    if meaning is not Meaning.REFUSED:
        return FailedWrite(meaning=meaning, delay=delay)
    return FailedWrite(
        meaning=meaning,
        delay=delay,
        reason=refusal_reason(error),
        message=clean_message(error.message),
        namespace_missing=isinstance(error, NotFound) and is_namespace_missing(error),
        namespace_terminating=error.is_namespace_terminating,
    )
