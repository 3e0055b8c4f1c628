"""Maps API server rejections of a pod to a reason and a message that the borrower can act on.

They are distinguished by code and reason where Kubernetes gives them. Admission plugins answer 403 without a
machine-readable reason, so the reason here is derived from their fixed messages; an unknown message is still a refusal,
with the server's message.

One rejection has no answer: before Kubernetes 1.34 ``spec.resources``, the requests and limits of a pod as a whole, is
dropped unless the feature gate PodLevelResources is on (KEP-2837). The containers of such a pod have none of their own
here (``tenants.bounds.with_limits``): it would run without any limit, and count as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.hosting.shadowpods.admission import Refuse
from liqod.hosting.views import Pod, Requirements
from liqod.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError

DROPPED: Final = Refuse(
    "InvalidPod",
    "the lender's API server drops spec.resources, what a pod requests and is limited to as a whole (Kubernetes before "
    "1.34); name requests and limits of its containers instead",
)


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


def names_whole(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod spec requests something, or has a limit, as a whole."""
    return any(_of_whole(spec).values())


def is_dropped(spec: Mapping[str, Any], pod: Pod) -> bool:
    """Return whether a created pod lacks something that its spec requests, or is limited to, as a whole."""
    found = pod.spec.resources or Requirements()
    kept = {"requests": found.requests or {}, "limits": found.limits or {}}
    return any(not names <= kept[kind].keys() for kind, names in _of_whole(spec).items())


def _of_whole(spec: Mapping[str, Any]) -> dict[str, set[str]]:
    whole = spec.get("resources") or {}
    return {kind: set(whole.get(kind) or {}) for kind in ("requests", "limits")}
