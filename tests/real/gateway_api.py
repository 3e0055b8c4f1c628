"""The definitions of HTTPRoute and GRPCRoute (Gateway API v1), as far as an API server judges and fills in routes.

They have the fields, limits and defaults of the standard channel, whose files are thirty times as long: without
descriptions and rules in CEL, and with a status that may be anything. What is in no field is dropped, as with those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from liqod.kube.resources import GRPCROUTES, HTTPROUTES
from liqod.model.ingress_path import GATEWAY_GROUP
from tests.variations import kinds

_Schema = dict[str, Any]


def _text(most: int, **more: Any) -> _Schema:
    return {"type": "string", "maxLength": most, **more}


def _choice(*values: str, **more: Any) -> _Schema:
    return {"type": "string", "enum": list(values), **more}


def _number(least: int, most: int, **more: Any) -> _Schema:
    return {"type": "integer", "format": "int32", "minimum": least, "maximum": most, **more}


def _fields(needed: Sequence[str] = (), **fields: _Schema) -> _Schema:
    found: _Schema = {"type": "object", "properties": fields}
    return {**found, "required": list(needed)} if needed else found


def _many(most: int, items: _Schema, **more: Any) -> _Schema:
    return {"type": "array", "maxItems": most, "items": items, **more}


_PORT: Final = _number(1, 65535)
_HOST: Final = _text(253, minLength=1)
_PATH: Final[_Schema] = {"type": "PathPrefix", "value": "/"}
_ANY: Final[_Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_HEADER: Final = _fields(("name", "value"), name=_text(256, minLength=1), value=_text(4096, minLength=1))
_COMPARED: Final = _fields(
    ("name", "value"),
    type=_choice("Exact", "RegularExpression", default="Exact"),
    name=_text(256, minLength=1),
    value=_text(4096, minLength=1),
)
_MODIFIED: Final = _fields(set=_many(16, _HEADER), add=_many(16, _HEADER), remove=_many(16, {"type": "string"}))
_REPLACED: Final = _fields(
    ("type",),
    type=_choice("ReplaceFullPath", "ReplacePrefixMatch"),
    replaceFullPath=_text(1024),
    replacePrefixMatch=_text(1024),
)
_SERVICE: Final[dict[str, _Schema]] = {
    "group": _text(253, default=""),
    "kind": _text(63, minLength=1, default="Service"),
    "name": _text(253, minLength=1),
    "namespace": _text(63, minLength=1),
    "port": _PORT,
}
_MIRROR: Final = _fields(("backendRef",), backendRef=_fields(("name",), **_SERVICE))
_EXTENSION: Final = _fields(("group", "kind", "name"), group=_text(253), kind=_text(63), name=_text(253))
_PARENTS: Final = _many(
    32,
    _fields(
        ("name",),
        group=_text(253, default=GATEWAY_GROUP),
        kind=_text(63, minLength=1, default="Gateway"),
        namespace=_text(63, minLength=1),
        name=_text(253, minLength=1),
        sectionName=_text(253, minLength=1),
        port=_PORT,
    ),
)
_OF_EVERY_ROUTE: Final[dict[str, _Schema]] = {
    "requestHeaderModifier": _MODIFIED,
    "responseHeaderModifier": _MODIFIED,
    "requestMirror": _MIRROR,
    "extensionRef": _EXTENSION,
}
_MODIFIERS: Final = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef")
_HTTP_FILTER: Final = _fields(
    ("type",),
    type=_choice(*_MODIFIERS, "RequestRedirect", "URLRewrite"),
    requestRedirect=_fields(
        scheme=_choice("http", "https"),
        hostname=_HOST,
        path=_REPLACED,
        port=_PORT,
        statusCode={"type": "integer", "enum": [301, 302], "default": 302},
    ),
    urlRewrite=_fields(hostname=_HOST, path=_REPLACED),
    **_OF_EVERY_ROUTE,
)
_GRPC_FILTER: Final = _fields(("type",), type=_choice(*_MODIFIERS), **_OF_EVERY_ROUTE)
_HTTP_MATCH: Final = _fields(
    path=_fields(
        type=_choice("Exact", "PathPrefix", "RegularExpression", default="PathPrefix"),
        value=_text(1024, default="/"),
    )
    | {"default": _PATH},
    headers=_many(16, _COMPARED),
    queryParams=_many(16, _COMPARED),
    method=_choice("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"),
)
_GRPC_MATCH: Final = _fields(
    method=_fields(
        type=_choice("Exact", "RegularExpression", default="Exact"), service=_text(1024), method=_text(1024)
    ),
    headers=_many(16, _COMPARED),
)


def _rule(matches: _Schema, one: _Schema, **more: _Schema) -> _Schema:
    backend = _fields(("name",), weight=_number(0, 1_000_000, default=1), filters=_many(16, one), **_SERVICE)
    own = {"name": _text(253, minLength=1), "matches": matches, "filters": _many(16, one)}
    return _fields((), **own, backendRefs=_many(16, backend), **more)


_LIMITS: Final = _fields(request=_text(20), backendRequest=_text(20))
_HTTP_RULES: Final = _many(
    16,
    _rule(_many(64, _HTTP_MATCH, default=[{"path": _PATH}]), _HTTP_FILTER, timeouts=_LIMITS),
    default=[{"matches": [{"path": _PATH}]}],
)
_GRPC_RULES: Final = _many(16, _rule(_many(64, _GRPC_MATCH), _GRPC_FILTER))


def definitions() -> Iterator[dict[str, Any]]:
    """Yield the definitions of both kinds."""
    for body, rules in zip(kinds.definitions((HTTPROUTES, GRPCROUTES)), (_HTTP_RULES, _GRPC_RULES), strict=True):
        spec = _fields(parentRefs=_PARENTS, hostnames=_many(16, _HOST), rules=rules)
        whole = _fields(
            ("spec",),
            apiVersion={"type": "string"},
            kind={"type": "string"},
            metadata={"type": "object"},
            spec=spec,
            status=_ANY,
        )
        (version,) = body["spec"]["versions"]
        version |= {"schema": {"openAPIV3Schema": whole}, "subresources": {"status": {}}}
        yield body
