"""Admission webhooks without I/O: matching, AdmissionReview requests and responses. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from kubesandbox.kinds.kinds import Json
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.server.requests import Review
from kubesandbox.store import patch
from kubesandbox.store.selectors import from_object, labels_match


@attrs.frozen(kw_only=True)
class Hook:
    """One webhook of a configuration."""

    name: str
    url: str
    ca_pem: bytes
    timeout: float
    fail_closed: bool
    body: Mapping[str, Any] = attrs.field(eq=False, repr=False)

    def concerns(self, review: Review) -> bool:
        """Return whether this webhook matches a write."""
        if not any(_rule_matches(rule, review) for rule in self.body.get("rules") or ()):
            return False
        labels = (review.namespace or {}).get("metadata", {}).get("labels")
        if (review.namespace is not None or review.kind.namespaced) and not labels_match(
            from_object(self.body.get("namespaceSelector")), labels
        ):
            return False
        wanted = from_object(self.body.get("objectSelector"))
        bodies = [body for body in (review.new, review.old) if body is not None]
        return any(labels_match(wanted, body["metadata"].get("labels")) for body in bodies)


def read(configuration: Json) -> list[Hook]:
    """Return the webhooks of a configuration object, in their order."""
    found = []
    for each in configuration.get("webhooks") or ():
        where = each.get("clientConfig") or {}
        try:
            ca_pem = base64.b64decode(where.get("caBundle") or "")
        except ValueError:
            ca_pem = b""
        found.append(
            Hook(
                name=each.get("name", ""),
                url=where.get("url", ""),
                ca_pem=ca_pem,
                timeout=float(each.get("timeoutSeconds", 10)),
                fail_closed=each.get("failurePolicy", "Fail") == "Fail",
                body=each,
            )
        )
    return found


def _rule_matches(rule: Mapping[str, Any], review: Review) -> bool:
    kind = review.kind

    def named(field: str, value: str) -> bool:
        words = rule.get(field) or ()
        return "*" in words or value in words

    if not (
        named("operations", review.operation) and named("apiGroups", kind.group) and named("apiVersions", kind.version)
    ):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != kind.namespaced:
        return False
    resources = rule.get("resources") or ()
    if review.subresource:
        path = f"{kind.plural}/{review.subresource}"
        return any(each in (path, "*/*", f"{kind.plural}/*", f"*/{review.subresource}") for each in resources)
    return any(each in (kind.plural, "*", "*/*") for each in resources)


def question(review: Review, uid: str) -> bytes:
    """Return the ``AdmissionReview`` that a webhook is sent."""
    kind = review.kind
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    user = review.caller.user
    request: Json = {
        "uid": uid,
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "name": review.key.name,
        "namespace": review.key.namespace if kind.namespaced else (review.key.name if kind.kind == "Namespace" else ""),
        "operation": review.operation,
        "userInfo": {"username": user.name, "groups": list(user.groups)},
        "object": review.new,
        "oldObject": review.old,
        "dryRun": review.caller.dry_run,
        "options": {"kind": f"{review.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    if review.subresource:
        request["subResource"] = request["requestSubResource"] = review.subresource
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return msgspec.json.encode(body)


class BadAnswer(ValueError):
    """The webhook's response is not a valid AdmissionReview for the request."""


def answered(hook: Hook, data: bytes, uid: str, body: Json | None) -> Json | None:
    """Return the object after a webhook's response; raise ApiStatus if it refuses, BadAnswer if it is invalid."""
    try:
        response: Any = msgspec.json.decode(data)["response"]
        if response["uid"] != uid:
            raise BadAnswer(f'expected response.uid="{uid}", got "{response["uid"]}"')
        allowed = bool(response["allowed"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadAnswer(f"expected an AdmissionReview with a response: {error}") from error
    if not allowed:
        raise _refusal(hook, response.get("status") or {})
    if not response.get("patch") or body is None:
        return body
    if response.get("patchType") != "JSONPatch":
        raise BadAnswer(f"unsupported patch type {response.get('patchType')!r}")
    try:
        result: Json = patch.json_patch(body, msgspec.json.decode(base64.b64decode(response["patch"])))
    except ValueError as error:
        raise BadAnswer(str(error)) from error
    return result


def _refusal(hook: Hook, status: Mapping[str, Any]) -> ApiStatus:
    text = f'admission webhook "{hook.name}" denied the request'
    message = status.get("message")
    reason = status.get("reason")
    if message:
        text += f": {message}"
    elif reason:
        text += f": {reason}"
    else:
        text += " without explanation"
    return ApiStatus(max(int(status.get("code") or 0), 400), reason or "", text)
