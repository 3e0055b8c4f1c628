"""The MutatingAdmissionPolicies that let pods onto virtual nodes while no daemon serves the webhook (pure).

The API server evaluates them itself (admissionregistration.k8s.io/v1, from Kubernetes 1.36). Two are needed for new
pods, because a policy can act where there is a NamespaceOffloading (its parameter), and not where there is none:

    offloadable     adds a toleration to pods of every enabled namespace
    refined         takes it away where a NamespaceOffloading refines the label: what holds there the webhook alone says
    kept            adds the toleration, the webhook's too, to an update that leaves it out

The API server runs policies in no order that is promised, before the webhook. ``refined`` is invoked for every pod and
invoked again after a change (``reinvocationPolicy`` IfNeeded), ``offloadable`` once, so that either order gives the
same. A policy whose ``matchConditions`` do not hold is not invoked again: ``refined`` has none.

The toleration differs in form from the webhook's, by which ``refined`` knows it, and not in meaning. The webhook, where
it answers, begins with the pod as if there were no policies (``withdrawn``), so that its answer is the same with them.

An update of a pod must repeat all its tolerations, or is refused (ValidatePodUpdate). Who writes the whole list does
not know ours, as nobody knows those of DefaultTolerationSeconds, which that plugin adds to updates likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.model.names import ENABLED_LABEL, TAINT_EFFECT, TAINT_KEY
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.webhook.placement import TOLERATION as OF_WEBHOOK

OFFLOADABLE: Final = "liqod-offloadable"
REFINED: Final = "liqod-offloadable-refined"
KEPT: Final = "liqod-offloadable-kept"
TOLERATION: Final = {"key": TAINT_KEY, "operator": "Equal", "value": "true", "effect": TAINT_EFFECT}

_API: Final = "admissionregistration.k8s.io/v1"
# The same as ``placement.tolerates``.
_TOLERATES: Final = (
    "!has(t.tolerationSeconds) && "
    f"(!has(t.effect) || t.effect == '' || t.effect == '{TAINT_EFFECT}') && "
    "(has(t.operator) && t.operator == 'Exists' ? "
    f"(!has(t.key) || t.key == '' || t.key == '{TAINT_KEY}') : "
    "(!has(t.operator) || t.operator == '' || t.operator == 'Equal') && "
    f"has(t.key) && t.key == '{TAINT_KEY}' && has(t.value) && t.value == 'true')"
)
_IS_TOLERANT: Final = f"has(object.spec.tolerations) && object.spec.tolerations.exists(t, {_TOLERATES})"


def _equals(toleration: Mapping[str, str]) -> str:
    """Return the condition that ``t`` is this toleration."""
    fields = [f"has(t.{name}) && t.{name} == '{value}'" for name, value in toleration.items()]
    return " && ".join(["!has(t.tolerationSeconds)", *fields])


def _value(toleration: Mapping[str, str]) -> str:
    return f"Object.spec.tolerations{{{', '.join(f'{name}: {value!r}' for name, value in toleration.items())}}}"


def _is_lost(toleration: Mapping[str, str]) -> str:
    """Return the condition that an update leaves this toleration out."""
    has = "has({0}.spec.tolerations) && {0}.spec.tolerations.exists(t, {1})"
    return f"({has.format('oldObject', _equals(toleration))}) && !({has.format('object', _equals(toleration))})"


_IS_OURS: Final = _equals(TOLERATION)
_VALUE: Final = _value(TOLERATION)
_EITHER: Final = (TOLERATION, OF_WEBHOOK)
_KEEP: Final = " + ".join(
    [
        "(has(object.spec.tolerations) ? [] : [JSONPatch{op: 'add', path: '/spec/tolerations', value: []}])",
        *(
            f"({_is_lost(one)} ? [JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {_value(one)}}}] : [])"
            for one in _EITHER
        ),
    ]
)
_ADD: Final = (
    "has(object.spec.tolerations) ? "
    f"[JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {_VALUE}}}] : "
    f"[JSONPatch{{op: 'add', path: '/spec/tolerations', value: [{_VALUE}]}}]"
)
_REMOVE: Final = (
    f"has(object.spec.tolerations) && object.spec.tolerations.exists(t, {_IS_OURS}) ? "
    "[JSONPatch{op: 'remove', path: '/spec/tolerations/' + "
    f"string(object.spec.tolerations.map(t, {_IS_OURS}).indexOf(true))}}] : []"
)


def withdrawn(pod: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Return the JSON patch that takes the policy's toleration from a pod, and the pod without it."""
    spec = pod.get("spec")
    tolerations = spec.get("tolerations") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(tolerations, list):
        return [], pod
    # From the last one on: each removal moves those behind it.
    places = [place for place, one in enumerate(tolerations) if one == TOLERATION][::-1]
    kept = [one for one in tolerations if one != TOLERATION]
    patch = [{"op": "remove", "path": f"/spec/tolerations/{place}"} for place in places]
    return patch, {**pod, "spec": {**spec, "tolerations": kept}}


def policies() -> list[dict[str, Any]]:
    """Return the policies; each is bound by a binding of its name."""
    refined = _policy(REFINED, _REMOVE, "IfNeeded")
    refined["spec"]["paramKind"] = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceOffloading"}
    added = _policy(OFFLOADABLE, _ADD, "Never")
    added["spec"]["matchConditions"] = [{"name": "is-not-tolerant", "expression": f"!({_IS_TOLERANT})"}]
    kept = _policy(KEPT, _KEEP, "Never", "UPDATE")
    lost = " || ".join(f"({_is_lost(one)})" for one in _EITHER)
    kept["spec"]["matchConditions"] = [{"name": "is-left-out", "expression": lost}]
    return [refined, added, kept]


def bindings() -> list[dict[str, Any]]:
    """Return the bindings that put the policies in force."""
    # Without a namespace the parameter is looked up in that of the pod.
    parameter = {"paramRef": {"name": OFFLOADING, "parameterNotFoundAction": "Allow"}}
    return [_binding(REFINED, parameter), _binding(OFFLOADABLE, {}), _binding(KEPT, {})]


def _policy(name: str, expression: str, reinvocation: str, operation: str = "CREATE") -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}
    return {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            # Like the webhook's: no pod is refused for what concerns virtual nodes.
            "failurePolicy": "Ignore",
            "reinvocationPolicy": reinvocation,
            "matchConstraints": {
                "resourceRules": [rule],
                "namespaceSelector": {"matchLabels": {ENABLED_LABEL: "true"}},
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }


def _binding(name: str, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, **more},
    }
