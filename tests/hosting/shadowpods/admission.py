"""Evaluates admission policies as an API server does: constraints, conditions and validations, with a CEL library.

Source: Kubernetes, "Validating Admission Policy". That real API servers agree is shown by the tests on real clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

import celpy
from attrs import field, frozen
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

_CEL = celpy.Environment()
_COMPARED = {"oldObject": "created", "request.options": "plain"}
"""What may be null in an expression, and the name of that in an evaluation here."""


@frozen
class Request:
    """What somebody asks of an API server; ``namespace_labels`` are those of the namespace of the object."""

    user: str
    operation: str
    resource: str
    new: Mapping[str, Any] | None = None
    old: Mapping[str, Any] | None = None
    group: str = ""
    namespace: str = "shop"
    namespace_labels: Mapping[str, str] = {}
    rights: frozenset[str] = frozenset()
    """What the user has the right to, across the cluster: ``verb resource.group``."""
    options: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """Those of the operation, such as DeleteOptions; an API server has null where there are none."""
    name: str = field(default="", kw_only=True)
    """The object's; an API server has none where the object is yet to be created."""
    version: str = field(default="", kw_only=True)
    """The version of the kind that is asked for; empty for the one that liqod knows."""

    @property
    def versions(self) -> tuple[str, str]:
        """How rules name the version."""
        return self.version or ("v1beta1" if self.group == "offloading.liqo.io" else "v1"), "*"


def refusals(policies: Iterable[Mapping[str, Any]], request: Request) -> list[str]:
    """Return the messages of the validations that refuse a request.

    Raises AssertionError for one that cannot be evaluated: an API server refuses then as well, but with the expression
    in place of its message.
    """
    found = refusals_by_policy(policies, request).values()
    return [message for messages in found for message in messages]


def refusals_by_policy(policies: Iterable[Mapping[str, Any]], request: Request) -> dict[str, list[str]]:
    """Return the same for each policy that refuses, by its name."""
    found = {}
    names: dict[str, Any] = {}
    for policy in policies:
        spec = policy["spec"]
        if not _is_constrained(spec["matchConstraints"], request):
            continue
        names = names or _names(request)
        conditions = [_said(condition["expression"], names) for condition in spec["matchConditions"]]
        if False in conditions:
            continue
        # "failurePolicy=Fail: reject the request" where one cannot be evaluated and none is false (MatchCondition).
        messages = ["a condition cannot be evaluated"] if None in conditions else []
        for rule in spec["validations"]:
            said = _said(rule["expression"], names)
            assert said is not None, rule
            if not said:
                messages.append(rule["message"])
        if messages:
            found[policy["metadata"]["name"]] = messages
    return found


def _is_constrained(constraints: Mapping[str, Any], request: Request) -> bool:
    labels = request.namespace_labels
    if request.resource == "namespaces":
        labels = ((request.new or request.old or {}).get("metadata") or {}).get("labels") or {}
    if not _selects(constraints.get("namespaceSelector"), labels):
        return False
    # "matches if either the object or the old one is selected" (API reference, MatchResources).
    both = [((one.get("metadata") or {}).get("labels") or {}) for one in (request.new, request.old) if one is not None]
    if not any(_selects(constraints.get("objectSelector"), one) for one in both):
        return False
    return any(
        request.group in rule["apiGroups"]
        and request.operation in rule["operations"]
        and request.resource in rule["resources"]
        and any(one in rule["apiVersions"] for one in request.versions)
        for rule in constraints["resourceRules"]
    )


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    for term in (selector or {}).get("matchExpressions", ()):
        key, values = term["key"], term.get("values", ())
        match term["operator"]:
            case "DoesNotExist":
                selected = key not in labels
            case "Exists":
                selected = key in labels
            case "In":
                selected = labels.get(key) in values
            case "NotIn":
                selected = labels.get(key) not in values
            case operator:
                raise AssertionError(f"no policy selects by {operator}")
        if not selected:
            return False
    return True


def _names(request: Request) -> dict[str, Any]:
    """Return the variables of expressions about a request."""
    names = {
        "object": request.new,
        "oldObject": request.old,
        "created": request.old is None,
        "plain": request.options is None,
        "namespaceObject": {"metadata": {"name": request.namespace, "labels": request.namespace_labels}},
        "request": {
            "operation": request.operation,
            "namespace": request.namespace,
            "name": request.name,
            "userInfo": {"username": request.user},
            "resource": {
                "group": request.group,
                "version": request.versions[0],
                "resource": request.resource.partition("/")[0],
            },
            "options": request.options,
            **({"subResource": request.resource.partition("/")[2]} if "/" in request.resource else {}),
        },
        "authorizer": {"rights": sorted(request.rights)},
    }
    return {name: json_to_cel(cast(Any, value)) for name, value in names.items()}


def _said(expression: str, names: dict[str, Any]) -> bool | None:
    """Return what an expression says; None if it cannot be evaluated, which refuses (``failurePolicy: Fail``)."""
    try:
        return bool(_program(expression).evaluate(names))
    except CELEvalError:
        return None


@cache
def _program(expression: str) -> celpy.Runner:
    # The library does not compare a map with null.
    for compared, instead in _COMPARED.items():
        expression = expression.replace(f"{compared} == null", instead).replace(f"{compared} != null", f"!{instead}")
    return _CEL.program(_CEL.compile(expression), functions=_FUNCTIONS)


def _with(field: str) -> Any:
    """Return a step of the builder of a check (Kubernetes, "CEL in Kubernetes", authorizer library)."""

    def step(check: Any, value: Any) -> Any:
        return celtypes.MapType({**check, celtypes.StringType(field): value})

    return step


def _allowed(check: Any) -> Any:
    asked = celtypes.StringType(f"{check['check']} {check['resource']}.{check['group']}")
    return celtypes.BoolType(asked in list(check["rights"]))


def _sum(numbers: Any) -> Any:
    """Return the sum of a list (Kubernetes, "CEL in Kubernetes", list library)."""
    return celtypes.IntType(sum(numbers))


_FUNCTIONS: Any = {
    "sum": _sum,
    **{name: _with(name) for name in ("group", "resource", "check")},
    "allowed": _allowed,
}
