"""Classifies failed writes at the lender: one policy for ShadowPods, reflected objects and tokens.

Built on the classes of ``kube.writing.refusals``. A lender adds two cases: it may not answer at all, and a namespace
that it granted a moment ago may not be usable yet, because the RBAC authorizer reads RoleBindings from a watch cache
that lags behind the write.
"""

from __future__ import annotations

import enum
from typing import Final

from attrs import define

from liqod.flow.backoff import Backoff
from liqod.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError, Throttled, Unauthorized, Unreachable
from liqod.kube.writing.refusals import LATER, READ_AGAIN, Retry, refused_write
from liqod.model.objects.portable_metadata import POD_POLICY

SETTLING_TIME: Final = 10.0
"""Seconds after a grant in which 403 and 404 can mean that the grant has not taken effect yet."""
SETTLING: Final = Backoff(initial=0.1, factor=2.0, cap=2.0)
NAME_TAKEN_RETRY: Final = 60.0
"""Seconds after which a name that another object has is tried again. The watch selects by label and does not report
the deletion of that object."""


class Meaning(enum.Enum):
    """Why a write at the lender failed.

    ============================== ========== =====================================================
    answer                         meaning    what follows
    ============================== ========== =====================================================
    none, 401                      NO_ANSWER  ``lender.health`` probes it; again after some seconds
    409, 404 of the object         OUTDATED   read again, or the watch brings the present object
    403, 404 of the namespace      SETTLING   within ``SETTLING_TIME`` of a grant: soon again
    403, 404, 400, 422 otherwise   REFUSED    with growing delays, at once where home changes it
    429, 5xx                       OVERLOADED the controller's back-off, not before ``Retry-After``
    410                            OUTDATED   of a write; of a watch: ``kube.cache.listwatch`` lists
    ============================== ========== =====================================================

    A write that creates and whose name is taken (409 AlreadyExists) reads the object first: its own is used, another's
    is tried again after ``NAME_TAKEN_RETRY``. A delete that is answered 404 or 409 is done or decided again; any other
    answer goes to the controller's back-off. Where the lender answers ``lender.health`` itself with 429 or 5xx it is
    not ready, and no write is tried before it is. Before all of these the client has repeated what may be repeated
    (``kube.client``): it was tried three times at most.
    """

    NO_ANSWER = "no answer"
    """No answer, or 401: wait until the lender answers and accepts the credential."""
    OVERLOADED = "overloaded"
    """429 or 5xx: raise the error, so that the controller backs off and respects Retry-After."""
    OUTDATED = "outdated"
    """409, or 404 of the object itself: the cache is behind; the watch brings the current object."""
    SETTLING = "settling"
    """403, or 404 of the namespace, soon after the grant."""
    REFUSED = "refused"
    """403, 404, 400 or 422 otherwise: refused by the lender's policy, quota or validation. Retried with back-off,
    because quota and policy can change without an event of our object."""


def meaning_of(error: ApiError | Unreachable, *, granted_for: float, creating: bool = False) -> Meaning:
    """Return the meaning of a failed write; the namespace was granted ``granted_for`` seconds ago."""
    if isinstance(error, Unreachable | Unauthorized):
        return Meaning.NO_ANSWER
    if isinstance(error, Throttled | ServerError):
        return Meaning.OVERLOADED
    if isinstance(error, NotFound) and not creating and not is_namespace_missing(error):
        return Meaning.OUTDATED
    if isinstance(error, Forbidden | NotFound) and not is_invalid_pod(error):
        return Meaning.SETTLING if granted_for < SETTLING_TIME else Meaning.REFUSED
    if is_invalid_pod(error):
        return Meaning.REFUSED
    return Meaning.OUTDATED if refused_write(error, creating=creating).retry is Retry.AT_ONCE else Meaning.REFUSED


_REASONS: Final[dict[type[ApiError], str]] = {
    Forbidden: "RemoteForbidden",
    Invalid: "RemoteInvalid",
    NotFound: "RemoteNotFound",
}


def refusal_reason(error: ApiError) -> str:
    """Return the reason of a refused write for conditions and events (docs/operations.md).

    What the lender's policy says of a pod its daemon would say as well, where its API server has no policies.
    """
    if is_invalid_pod(error):
        return "InvalidPod"
    return _REASONS.get(type(error), "RemoteApiError")


def counted_reason(error: ApiError | Unreachable, *, granted_for: float, creating: bool = False) -> str:
    """Return the reason by which a failed write is counted; empty where the cache, or the grant, is only behind."""
    meaning = meaning_of(error, granted_for=granted_for, creating=creating)
    if meaning in (Meaning.OUTDATED, Meaning.SETTLING):
        return ""
    if isinstance(error, Unauthorized):
        return "CredentialRejected"
    return refusal_reason(error) if isinstance(error, ApiError) else "PeerUnreachable"


def is_invalid_pod(error: ApiError) -> bool:
    """Return whether the lender's contract refuses a pod; no other time and no other credential changes that."""
    return isinstance(error, Forbidden) and f"'{POD_POLICY}'" in error.message


def is_namespace_missing(error: NotFound) -> bool:
    """Return whether 404 is about the namespace rather than about an object in it."""
    return error.details.get("kind") == "namespaces"


@define
class Attempts:
    """The failed writes of one object since its last successful one."""

    settling: int = 0
    refused: int = 0

    def delay(self, meaning: Meaning) -> float:
        """Count a failure; return the seconds until the next attempt."""
        if meaning is Meaning.SETTLING:
            self.settling += 1
            return SETTLING.delay(self.settling - 1)
        if meaning is Meaning.OUTDATED:
            return READ_AGAIN
        self.refused += 1
        return LATER.delay(self.refused - 1)
