"""What the lender's contract refuses of a pod at admission: its reason at home, and when it is asked for again."""

from __future__ import annotations

from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import ApiError, Forbidden, Invalid
from liqod.kubelet.common.refusals import Attempts, Meaning, meaning_of, refusal_reason

DENIED: Final = Forbidden(
    403,
    "Forbidden",
    "shadowpods.offloading.liqo.io \"web\" is forbidden: ValidatingAdmissionPolicy 'liqod-borrower-pods' with binding "
    "'liqod-borrower-pods' denied request: spec.pod cannot be run: spec.hostNetworks is not among the fields",
)


class InvalidPodTests(SynchronousTestCase):
    """One reason, whether the lender's API server or its daemon refuses a pod."""

    def test_reason(self) -> None:
        """That of the daemon; another policy's refusal, or another error with such words, is none of a pod."""
        others: list[ApiError] = [
            Forbidden(403, "Forbidden", DENIED.message.replace("-pods'", "-records'")),
            Forbidden(403, "Forbidden", "quota"),
            Invalid(422, "Invalid", DENIED.message),
        ]
        self.assertEqual(refusal_reason(DENIED), "InvalidPod")
        self.assertNotIn("InvalidPod", [refusal_reason(one) for one in others])

    def test_no_wait_for_the_grant(self) -> None:
        """It is no grant that has not taken effect yet: a refusal at once, and then ever longer pauses."""
        for granted_for in (0.0, 1.0, 1000.0):
            for creating in (True, False):
                found = meaning_of(DENIED, granted_for=granted_for, creating=creating)
                self.assertIs(found, Meaning.REFUSED)
        self.assertIs(meaning_of(Forbidden(403, "Forbidden", "no"), granted_for=1.0), Meaning.SETTLING)
        attempts = Attempts()
        delays = [attempts.delay(Meaning.REFUSED) for _ in range(10)]
        self.assertGreaterEqual(min(delays), 2.5)
        self.assertGreater(delays[-1], 100.0)
