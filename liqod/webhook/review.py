"""Answers an AdmissionReview (admission.k8s.io/v1) with a JSON patch (pure)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from liqod.model.names import WEBHOOK_PROBE
from liqod.model.objects.meta import View
from liqod.model.records.offloading import OffloadingPolicy
from liqod.webhook.mutating_policies import withdrawn
from liqod.webhook.placement import TooManyTerms, check_size, hold_tolerations, mutations
from liqod.webhook.pod_view import TooManyParts, read_pod
from liqod.webhook.preference import prefer_home

MAX_BODY = 2 << 20
"""Bytes of a review: the created object has 1.5 MiB at most (etcd's request limit); a CREATE has no old object."""
UNKNOWN = 256 << 10
"""Bytes of a pod beyond which it is not read for a namespace that is not known to be enabled."""
ANSWERED: Final = "answered"
"""The value by which a pod that is only tried shows that the webhook was asked (annotation ``WEBHOOK_PROBE``)."""


class MalformedReview(Exception):
    """The body is not a review that can be answered; the message is for its sender."""


class GroupVersionKind(View, frozen=True):
    """The kind of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(View, frozen=True):
    """The request of a review; the answer must have its ``uid``."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class Review(View, frozen=True):
    """An AdmissionReview as the API server sends it."""

    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


Policies = Callable[[str], OffloadingPolicy]
"""Returns the offloading policy of an enabled namespace."""


def _label_alone(_: str) -> OffloadingPolicy:
    return OffloadingPolicy()


def _anywhere(_: str) -> bool:
    return True


def answer(
    body: bytes,
    policies: Policies = _label_alone,
    evict_after: float = 0.0,
    is_enabled: Callable[[str], bool] = _anywhere,
) -> bytes:
    """Return the answer to a review: allowed, with a patch for pods being created.

    Only a pod whose affinity would become too large is denied. ``evict_after`` is that of ``hold_tolerations``. Raises
    MalformedReview for what is not an AdmissionReview of a supported version.
    """
    if len(body) > MAX_BODY:
        raise MalformedReview(f"the review has {len(body)} bytes, more than the {MAX_BODY} that are accepted")
    try:
        review = msgspec.json.decode(body, type=Review)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"the body is not an AdmissionReview: {str(error)[:200]}") from None
    if review.kind != "AdmissionReview" or review.api_version != "admission.k8s.io/v1":
        found = f"{review.api_version[:60]} {review.kind[:60]}".strip() or "nothing of that"
        raise MalformedReview(f"an admission.k8s.io/v1 AdmissionReview is expected, and the body is {found}")
    if review.request is None or not review.request.uid:
        raise MalformedReview("the AdmissionReview has no request with a uid")
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    try:
        patch = _patch(review.request, policies, evict_after, is_enabled)
    except (TooManyParts, TooManyTerms) as error:
        status = {"code": 422, "reason": "Invalid", "message": f"{type(error).__name__}: {error}"}
        response, patch = {**response, "allowed": False, "status": status}, []
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode("ascii")
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": review.kind, "response": response})


def _patch(
    request: AdmissionRequest, policies: Policies, evict_after: float, is_enabled: Callable[[str], bool]
) -> list[dict[str, Any]]:
    of_pod = request.kind.group == "" and request.kind.kind == "Pod"
    if request.operation != "CREATE" or not of_pod or request.sub_resource:
        return []
    if len(request.object) > UNKNOWN and not is_enabled(request.namespace):
        return []  # the namespaceSelector limits requests to enabled namespaces: this is another client
    try:
        pod = read_pod(request.object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"the object is not a pod: {str(error)[:200]}") from None
    if pod is None:
        return []
    check_size(pod)
    policy = policies(request.namespace)
    without, bare = withdrawn(pod)
    placed = mutations(bare, policy)
    held, preferred = hold_tolerations(bare, policy, evict_after), prefer_home(bare, policy, placed)
    return [*without, *placed, *held, *preferred, *_to_a_trial(pod)]


def _to_a_trial(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the patch that answers somebody who asks whether the API server gets through."""
    if WEBHOOK_PROBE not in (pod.get("metadata") or {}).get("annotations", {}):
        return []
    place = WEBHOOK_PROBE.replace("/", "~1")  # RFC 6901, section 3
    return [{"op": "add", "path": f"/metadata/annotations/{place}", "value": ANSWERED}]
