"""Which failed writes at a lender are counted, and as what."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from liqod.kubelet.common.reflection_counts import LAGS, ReflectionCounts
from liqod.kubelet.common.refusals import SETTLING_TIME, counted_reason

LATER = SETTLING_TIME + 1


class CountedTests(SynchronousTestCase):
    """``counted_reason``, and what is made of it."""

    def test_what_somebody_has_to_mend(self) -> None:
        """A refusal, an overload, and no answer each have a reason that the page for operators explains."""
        for error, reason in (
            (Forbidden(403, "Forbidden", "quota"), "RemoteForbidden"),
            (Invalid(422, "Invalid", "no"), "RemoteInvalid"),
            (NotFound(404, "NotFound", "gone", {"kind": "namespaces"}), "RemoteNotFound"),
            (ApiError(418, "Teapot", "no"), "RemoteApiError"),
            (Throttled(429, "TooManyRequests", "later"), "RemoteApiError"),
            (ServerError(500, "InternalError", "later"), "RemoteApiError"),
            (Unauthorized(401, "Unauthorized", "who?"), "CredentialRejected"),
            (Unreachable("no answer"), "PeerUnreachable"),
        ):
            self.assertEqual(counted_reason(error, granted_for=LATER, creating=True), reason, error)

    def test_what_mends_itself(self) -> None:
        """A cache that is behind, and a grant that has not taken effect yet, are no failures."""
        for error, granted_for in (
            (Conflict(409, "Conflict", "changed"), LATER),
            (NotFound(404, "NotFound", "gone"), LATER),
            (Forbidden(403, "Forbidden", "not yet"), 1.0),
        ):
            self.assertEqual(counted_reason(error, granted_for=granted_for), "", error)
        taken = AlreadyExists(409, "AlreadyExists", "taken")
        self.assertEqual(counted_reason(taken, granted_for=LATER), "")
        counts = ReflectionCounts()
        counts.failed("Secret", "")
        self.assertEqual(counts.failures, {})

    def test_few_series(self) -> None:
        """A kind has one histogram of few buckets, however many changes there are."""
        counts = ReflectionCounts()
        for number in range(1000):
            counts.arrived("Secret", number)
        (lags,) = counts.lags.values()
        self.assertEqual(len(list(lags.cumulative())), len(LAGS) + 1)
        self.assertLess(len(LAGS), 10)
