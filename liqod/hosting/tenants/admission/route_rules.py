"""What a borrower's routes may be, as rules of an admission policy (CEL): HTTPRoute and GRPCRoute of the Gateway API.

A route joins a gateway that others use too. It takes hosts there, so that those are granted as for ingresses; it may
name gateways of other namespaces, so that those are granted by name; and it may lead anywhere, by backends and by
filters, so that it leads to services of its own namespace alone, past filters that change its own requests only. What
gateways write into a configuration is of few characters.

Sources: Gateway API v1 (``apis/v1/httproute_types.go``, ``grpcroute_types.go``, ``shared_types.go``).
"""

from __future__ import annotations

from typing import Final

from liqod.hosting.tenants.admission.expressions import host_is_granted, only, only_fields
from liqod.hosting.tenants.admission.metadata_rules import cel_list
from liqod.hosting.tenants.contract import Contract
from liqod.kube.resources import HTTPROUTES
from liqod.model.ingress_path import (
    GATEWAY_GROUP,
    MAX_MATCHES,
    MAX_ROUTE_RULES,
    NOT_A_NAME,
    NOT_A_VALUE,
    NOT_PLAIN,
    ROUTE_FILTERS,
    ROUTE_PATH_TYPES,
)

_SPEC: Final = ("hostnames", "parentRefs", "rules")
_RULE: Final = ("backendRefs", "filters", "matches")
_PARENT: Final = ("group", "kind", "name", "namespace")
_BACKEND: Final = ("group", "kind", "name", "namespace", "port", "weight")
_MATCH: Final = ("headers", "method", "path", "queryParams")
_MODIFIED: Final = ("add", "remove", "set")
_FILTERS: Final = {
    "requestHeaderModifier": _MODIFIED,
    "responseHeaderModifier": _MODIFIED,
    "requestRedirect": ("hostname", "path", "port", "scheme", "statusCode"),
    "urlRewrite": ("hostname", "path"),
}
"""The fields of filters, by the field that holds them."""
_PATHS: Final = ("replaceFullPath", "replacePrefixMatch")


def route_rules(contract: Contract) -> list[tuple[str, str]]:
    """Return the rules about routes: expressions, with the messages of refusals."""
    hosts, gateways = contract.granted.ingress_hosts, contract.granted.gateways
    if not gateways or not hosts:
        return [
            (
                "false",
                "routes of borrowers are not granted here ([hosting] gateways names the gateways, ingress-hosts the "
                "hosts)",
            )
        ]
    return [
        (
            f"request.resource.version == '{HTTPROUTES.version}'",
            f"a borrower's route is of the version {HTTPROUTES.version}: what fields of others do nobody has judged",
        ),
        only_fields("route", "object.spec", _SPEC),
        (
            _each_rule(only("r", _RULE)),
            "a rule of a borrower's route has a field that this release of liqod does not know",
        ),
        (
            "has(object.spec.parentRefs) && object.spec.parentRefs.size() > 0 && object.spec.parentRefs.all(p, "
            f"{only('p', _PARENT)} && (!has(p.group) || p.group == '{GATEWAY_GROUP}') && "
            "(!has(p.kind) || p.kind == 'Gateway') && has(p.namespace) && "
            f"(p.namespace + '/' + p.name) in {cel_list(gateways)})",
            f"a borrower's route is of the gateways {', '.join(gateways)} only, named with their namespaces "
            "([hosting] gateways)",
        ),
        # A gateway merges the routes of all namespaces: one without a host takes what no other one takes.
        (
            "has(object.spec.hostnames) && object.spec.hostnames.size() > 0 && "
            f"object.spec.hostnames.all(h, {host_is_granted(hosts)})",
            f"a borrower's route is for hosts under {', '.join(hosts)} only, and names them",
        ),
        (
            f"!has(object.spec.rules) || (object.spec.rules.size() <= {MAX_ROUTE_RULES} && "
            f"object.spec.rules.all(r, !has(r.matches) || r.matches.size() <= {MAX_MATCHES}))",
            f"a borrower's route has {MAX_ROUTE_RULES} rules at most, each with {MAX_MATCHES} matches at most: a "
            "gateway goes through those of all routes",
        ),
        # What a ReferenceGrant of this cluster lets through is for its own routes.
        (
            _each_rule(
                f"!has(r.backendRefs) || r.backendRefs.all(b, {only('b', _BACKEND)} && "
                "(!has(b.group) || b.group == '') && (!has(b.kind) || b.kind == 'Service') && "
                "(!has(b.namespace) || b.namespace == object.metadata.namespace))"
            ),
            "a borrower's route leads to services of its own namespace only, without filters of their own",
        ),
        (
            _each_filter(
                f"x.type in {cel_list(ROUTE_FILTERS)} && {only('x', ('type', *_FILTERS))}",
                *(f"(!has(x.{name}) || {only(f'x.{name}', known)})" for name, known in _FILTERS.items()),
            ),
            f"a borrower's route has the filters {', '.join(ROUTE_FILTERS)} only: others lead requests elsewhere",
        ),
        (
            _each_filter(
                *(_modifier(f"x.{name}") for name, known in _FILTERS.items() if known is _MODIFIED),
                *(_replaced(f"x.{name}") for name, known in _FILTERS.items() if known is not _MODIFIED),
            ),
            "a filter of a borrower's route has headers of letters, digits and -_. only, with values and paths "
            "without quotes, $, % and braces: gateways write them into their configuration",
        ),
        *_match_rules(),
    ]


def _match_rules() -> list[tuple[str, str]]:
    types = cel_list(ROUTE_PATH_TYPES)
    exact = (
        f"(!has(v.type) || v.type == 'Exact') && !v.name.matches('{NOT_A_NAME}') && !v.value.matches('{NOT_A_VALUE}')"
    )
    return [
        (
            _each_match(only("m", _MATCH)),
            "a match of a borrower's route has a field that this release of liqod does not know",
        ),
        # The method of an HTTPRoute is a text, and one of a list that the definition has.
        (
            "request.resource.resource != 'httproutes' || "
            + _each_match(
                f"!has(m.path) || ((!has(m.path.type) || m.path.type in {types}) && (!has(m.path.value) || "
                f"(m.path.value.startsWith('/') && !m.path.value.matches('{NOT_PLAIN}'))))"
            ),
            "a borrower's route has paths of letters, digits and /_.~- only, of the types PathPrefix and Exact: "
            "gateways write others into their configuration",
        ),
        (
            "request.resource.resource != 'grpcroutes' || "
            + _each_match(
                f"!has(m.method) || ({only('m.method', ('method', 'service', 'type'))} && "
                "(!has(m.method.type) || m.method.type == 'Exact') && "
                + " && ".join(
                    f"(!has(m.method.{part}) || !m.method.{part}.matches('{NOT_PLAIN}'))"
                    for part in ("service", "method")
                )
                + ")"
            ),
            "a borrower's route has methods and services of letters, digits and /_.~- only, of the type Exact",
        ),
        (
            _each_match(
                f"(!has(m.headers) || m.headers.all(v, {exact})) && "
                f"(!has(m.queryParams) || m.queryParams.all(v, {exact}))"
            ),
            "a borrower's route compares headers and parameters as they are, without quotes, $, % and braces: what a "
            "regular expression costs, and means, is up to the gateway",
        ),
    ]


def _each_rule(expression: str) -> str:
    """Return the expression that something holds of each rule ``r``."""
    return f"(!has(object.spec.rules) || object.spec.rules.all(r, {expression}))"


def _each_match(expression: str) -> str:
    """Return the expression that something holds of each match ``m``."""
    return _each_rule(f"!has(r.matches) || r.matches.all(m, {expression})")


def _each_filter(*expressions: str) -> str:
    """Return the expression that all of this holds of each filter ``x``."""
    return _each_rule(f"!has(r.filters) || r.filters.all(x, {' && '.join(expressions)})")


def _modifier(path: str) -> str:
    """Return the expression that headers that are set or taken away are plain ones, if there are any."""
    named = [
        f"(!has({path}.{field}) || {path}.{field}.all(v, !v.name.matches('{NOT_A_NAME}') && "
        f"!v.value.matches('{NOT_A_VALUE}')))"
        for field in ("add", "set")
    ]
    removed = f"(!has({path}.remove) || {path}.remove.all(v, !v.matches('{NOT_A_NAME}')))"
    return f"(!has({path}) || ({' && '.join([*named, removed])}))"


def _replaced(path: str) -> str:
    """Return the expression that a path, and a host, that takes the place of a request's is plain, if there is any."""
    paths = [f"(!has({path}.path.{one}) || !{path}.path.{one}.matches('{NOT_PLAIN}'))" for one in _PATHS]
    host = f"(!has({path}.hostname) || !{path}.hostname.matches('{NOT_A_NAME}'))"
    return f"(!has({path}) || ({host} && (!has({path}.path) || ({' && '.join(paths)}))))"
