"""Maps API server rejections of a pod to a reason and a message that the borrower can act on.

They are distinguished by code and reason where Kubernetes gives them. Admission plugins answer 403 without a
machine-readable reason, so the reason here is derived from their fixed messages; an unknown message is still a refusal,
with the server's message.
"""

from __future__ import annotations

from liqod.hosting.shadowpods.admission import Refuse
from liqod.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError


def refusal(error: ApiError) -> Refuse | None:
    """Return the refusal to show to the borrower; None for what is retried (conflicts, overload, a terminating
    namespace).
    """
    text = error.message
    if isinstance(error, ServerError):
        # A webhook with failurePolicy Fail that cannot be called is a 500 (Kubernetes: "Dynamic Admission Control").
        return Refuse("AdmissionUnavailable", text) if "failed calling webhook" in text else None
    if "admission webhook" in text and not isinstance(error, NotFound):
        return Refuse("AdmissionDenied", text)
    if isinstance(error, Invalid):
        return Refuse("InvalidPod", text)
    if isinstance(error, Forbidden):
        return _forbidden(error, text)
    return None


def _forbidden(error: ApiError, text: str) -> Refuse | None:
    if error.is_namespace_terminating:
        return None
    # The service account controller creates the default account of a namespace a moment after the namespace.
    if "error looking up service account" in text or "no API token found for service account" in text:
        return None
    # A new quota admits nothing until the controller manager has counted what is there (plugin ResourceQuota).
    if "status unknown for quota" in text:
        return None
    if "violates PodSecurity" in text:
        return Refuse("PodSecurity", text)
    if "exceeded quota" in text or "failed quota" in text:
        return Refuse("ResourceQuota", text)
    return Refuse("Forbidden", text)
