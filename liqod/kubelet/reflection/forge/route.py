"""Forges HTTPRoutes and GRPCRoutes (Gateway API): of the first gateway that the lender offers, for the same hosts.

The gateways at home mean nothing elsewhere. A route is another one without one of its matches, filters or backends, so
that it stays at home as a whole, with an event, where it has what no lender takes (``hosting.tenants.admission``):
backends that are no services of its namespace, filters and matches that are not the same everywhere.

Defaults are written out, as an API server does: definitions of another release have others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from liqod.kubelet.reflection.forge.classes import Classes
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted
from liqod.kubelet.reflection.views import WithSpec
from liqod.model.ingress_path import (
    GATEWAY_GROUP,
    MAX_MATCHES,
    MAX_ROUTE_RULES,
    ROUTE_FILTERS,
    ROUTE_PATH_TYPES,
    is_plain,
    is_plain_name,
    is_plain_text,
    is_plain_value,
)
from liqod.model.text import clean_text

NO_GATEWAY: Final = "the lender offers no gateway for routes ([hosting] gateways there)"
_OF_RULES: Final = frozenset({"backendRefs", "filters", "matches", "name"})
_OF_BACKENDS: Final = frozenset({"group", "kind", "name", "namespace", "port", "weight"})
_OF_FILTERS: Final = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
}
"""The field that holds what a filter of a type does."""
_REPLACED: Final = ("replaceFullPath", "replacePrefixMatch")
_Json = dict[str, Any]
_Match = Callable[[Mapping[str, Any]], _Json]


class _StaysAtHome(Exception):
    """The route has what no lender takes."""


def forge_http(home: WithSpec, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the HTTPRoute for the lender."""
    return _forge(home, inputs, _http_match)


def forge_grpc(home: WithSpec, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the GRPCRoute for the lender."""
    return _forge(home, inputs, _grpc_match)


def observe_http(there: WithSpec, desired: DesiredObject) -> _Json:
    """Return the reflected part of the HTTPRoute at the lender."""
    return _observe(there, desired, _http_match)


def observe_grpc(there: WithSpec, desired: DesiredObject) -> _Json:
    """Return the reflected part of the GRPCRoute at the lender."""
    return _observe(there, desired, _grpc_match)


def _forge(home: WithSpec, inputs: ForgeInputs, match: _Match) -> DesiredObject | Withheld:
    if why := inputs.objection(home.metadata.annotations):
        return Withheld(why)
    spec = home.content().get("spec") or {}
    try:
        if not any(_is_gateway(parent) for parent in spec.get("parentRefs") or ()):
            raise _StaysAtHome("it is of no gateway")
        forged = _spec(spec, home.metadata.namespace, match)
    except _StaysAtHome as reason:
        return Withheld(str(reason), True)
    gateways = inputs.home.gateways()
    if gateways:
        forged["parentRefs"] = [_parent(gateways[0])]
    desired = wanted(
        home.metadata,
        {"spec": forged},
        inputs.context,
        idle=not gateways,
        incomplete=gateways is None,
        objections=(NO_GATEWAY,) if gateways is not None and not gateways else (),
    )
    return evolve(desired, classes=Classes(gateways))


def _observe(there: WithSpec, desired: DesiredObject, match: _Match) -> _Json:
    """Return the reflected part of a route; a gateway that it has there and that is offered is taken as desired."""
    spec = there.content().get("spec") or {}
    try:
        seen = _spec(spec, there.metadata.namespace, match)
    except _StaysAtHome:
        seen = {field: value for field, value in spec.items() if field != "parentRefs"}
    parents = desired.content["spec"].get("parentRefs")
    if parents is None:
        return {"spec": seen}
    offered = () if desired.classes is None else desired.classes.offered or ()
    present = spec.get("parentRefs") or []
    is_offered = len(present) == 1 and any({**_parent(name), **present[0]} == _parent(name) for name in offered)
    return {"spec": {**seen, "parentRefs": parents if is_offered else present}}


def _parent(gateway: str) -> _Json:
    namespace, _, name = gateway.partition("/")
    return {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": namespace, "name": name}


def _is_gateway(parent: Mapping[str, Any]) -> bool:
    return (parent.get("group", GATEWAY_GROUP), parent.get("kind", "Gateway")) == (GATEWAY_GROUP, "Gateway")


def _spec(spec: Mapping[str, Any], namespace: str, match: _Match) -> _Json:
    """Return the reflected part of a spec, without its gateways. Raises _StaysAtHome."""
    hosts = spec.get("hostnames")
    if not hosts:
        raise _StaysAtHome("it names no host, and would take what no other route takes")
    rules = spec.get("rules") or [{}]
    if len(rules) > MAX_ROUTE_RULES:
        raise _StaysAtHome(f"it has {len(rules)} rules, more than {MAX_ROUTE_RULES}")
    return {"hostnames": list(hosts), "rules": [_rule(rule, namespace, match) for rule in rules]}


def _rule(rule: Mapping[str, Any], namespace: str, match: _Match) -> _Json:
    if unknown := sorted(set(rule) - _OF_RULES):
        raise _StaysAtHome(f"a rule of it has {_shown(unknown[0])}, which not every gateway has")
    matches = rule.get("matches") or ([match({})] if match({}) else [])
    if len(matches) > MAX_MATCHES:
        raise _StaysAtHome(f"a rule of it has {len(matches)} matches, more than {MAX_MATCHES}")
    parts = {
        "matches": [match(one) for one in matches],
        "filters": [_filter(one) for one in rule.get("filters") or ()],
        "backendRefs": [_backend(one, namespace) for one in rule.get("backendRefs") or ()],
    }
    return {name: part for name, part in parts.items() if part}


def _backend(ref: Mapping[str, Any], namespace: str) -> _Json:
    if ref.get("group") or ref.get("kind", "Service") != "Service":
        raise _StaysAtHome(f"it leads to {_shown(ref.get('kind'))} {_shown(ref.get('name'))}, which is no Service")
    if ref.get("namespace", namespace) != namespace:
        raise _StaysAtHome(f"it leads to a Service of the namespace {_shown(ref['namespace'])}")
    if unknown := sorted(set(ref) - _OF_BACKENDS):
        raise _StaysAtHome(f"a backend of it has {_shown(unknown[0])}")
    made = {"group": "", "kind": "Service", "name": ref.get("name"), "weight": ref.get("weight", 1)}
    return {**made, "port": ref["port"]} if "port" in ref else made


def _filter(one: Mapping[str, Any]) -> _Json:
    kind = one.get("type")
    if kind not in ROUTE_FILTERS:
        raise _StaysAtHome(f"it has a filter {_shown(kind)}, which lenders do not take")
    field = _OF_FILTERS[str(kind)]
    what = one.get(field) or {}
    for name, value in _headers(what):
        if not (is_plain_name(name) and is_plain_value(value)):
            raise _StaysAtHome(f"a filter of it has a header {_shown(name)} with characters that gateways may read")
    host, path = what.get("hostname") or "", what.get("path") or {}
    odd = [text for text in (path.get(name) or "" for name in _REPLACED) if not is_plain_text(text)]
    if odd := [*odd, *([] if is_plain_name(host) else [host])]:
        raise _StaysAtHome(f"a filter of it has {_shown(odd[0])}, with other characters than letters, digits and /_.~-")
    return {"type": kind, field: dict(what)}


def _headers(what: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in ("add", "set"):
        for header in what.get(field) or ():
            yield header.get("name", ""), header.get("value", "")
    for name in what.get("remove") or ():
        yield name, ""


def _http_match(match: Mapping[str, Any]) -> _Json:
    given = match.get("path") or {}
    path = {"type": given.get("type") or "PathPrefix", "value": given.get("value") or "/"}
    if path["type"] not in ROUTE_PATH_TYPES:
        raise _StaysAtHome(f"its path {_shown(path['value'])} is of the type {_shown(path['type'])}")
    if not is_plain(path["value"]):
        raise _StaysAtHome(f"its path {_shown(path['value'])} has other characters than letters, digits and /_.~-")
    made = {"path": path, "headers": _exact(match, "headers"), "queryParams": _exact(match, "queryParams")}
    if match.get("method"):
        made["method"] = match["method"]
    return {name: part for name, part in made.items() if part}


def _grpc_match(match: Mapping[str, Any]) -> _Json:
    made: _Json = {"headers": _exact(match, "headers")}
    given = match.get("method") or {}
    if given:
        names = {part: given[part] for part in ("service", "method") if given.get(part)}
        if given.get("type", "Exact") != "Exact" or not all(map(is_plain_text, names.values())):
            raise _StaysAtHome(f"its method {_shown(names)} is a pattern, which is not the same everywhere")
        made["method"] = {"type": "Exact", **names}
    return {name: part for name, part in made.items() if part}


def _exact(match: Mapping[str, Any], field: str) -> list[_Json]:
    """Return what requests are compared with as it is written. Raises _StaysAtHome for patterns."""
    found = []
    for one in match.get(field) or ():
        name, value = one.get("name", ""), one.get("value", "")
        if one.get("type", "Exact") != "Exact":
            raise _StaysAtHome(f"it compares {_shown(name)} with a pattern, which is not the same everywhere")
        if not (is_plain_name(name) and is_plain_value(value)):
            raise _StaysAtHome(f"it compares {_shown(name)} with characters that gateways may read")
        found.append({"type": "Exact", "name": name, "value": value})
    return found


def _shown(value: object) -> str:
    return repr(clean_text(str(value), 100))
