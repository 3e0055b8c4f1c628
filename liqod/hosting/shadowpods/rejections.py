"""The API server's no to a pod, as a reason and a sentence that the borrower can act on.

Told apart by code and reason where Kubernetes gives them. Admission plugins answer 403 without a machine-readable
reason, so their own fixed words choose the reason here; an unknown wording still yields a refusal with the server's
sentence.
"""

from __future__ import annotations

from liqod.hosting.shadowpods.admission import Refuse
from liqod.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError


def refusal(error: ApiError) -> Refuse | None:
    """Return what to tell the borrower; None for what passes by itself (conflicts, overload, a namespace that is
    ending).
    """
    text = error.message
    if isinstance(error, ServerError):
        return Refuse("AdmissionUnavailable", text) if "failed calling webhook" in text else None
    if "admission webhook" in text and not isinstance(error, NotFound):
        return Refuse("AdmissionDenied", text)
    if isinstance(error, Invalid):
        return Refuse("InvalidPod", text)
    if isinstance(error, Forbidden):
        return _forbidden(error, text)
    return None


def _forbidden(error: ApiError, text: str) -> Refuse | None:
    causes = error.details.get("causes")
    if isinstance(causes, list) and any(
        isinstance(c, dict) and c.get("reason") == "NamespaceTerminating" for c in causes
    ):
        return None
    # A namespace is given its default service account a moment after it was made.
    if "error looking up service account" in text or "no API token found for service account" in text:
        return None
    if "violates PodSecurity" in text:
        return Refuse("PodSecurity", text)
    if "exceeded quota" in text or "failed quota" in text:
        return Refuse("ResourceQuota", text)
    return Refuse("Forbidden", text)
