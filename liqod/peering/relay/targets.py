"""Parses the path of a request into a ``RequestAttributes``; only the forms that a borrower needs are accepted. Pure.

A rejection here is never "not found", which would reveal whether an object exists.

Percent-encoding in a path is rejected: names of all kinds that borrowers use are DNS names. So nothing can be decoded
twice, and ``..`` is not a name. The lender decides whether the ``RequestAttributes`` is permitted.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

from liqod.model.objects.api_request import RequestAttributes
from liqod.peering.relay.rejection import Rejected

PAGES: Final = frozenset(("/readyz", "/livez", "/healthz", "/version"))
"""Non-resource paths that are accepted: health checks and the version of the API server."""

_SEGMENT: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MUTATED: Final = {"GET": "get", **_VERBS}
# apimachinery, pkg/runtime/conversion.go, Convert_Slice_string_To_bool: all else is true, an empty value as well.
_FALSE: Final = ("0", "false")


def ask_of(method: bytes, target: bytes) -> RequestAttributes:
    """Parse method and path of a request; raises Rejected for a path of another form."""
    path, _, query = target.decode("ascii").partition("?")
    verb = method.decode("ascii")
    if path in PAGES:
        if verb != "GET":
            raise Rejected(405, "RelayBadRequest", f"{path} is read and nothing else")
        return RequestAttributes("get", path=path)
    parts = path[1:].split("/")
    if not all(_SEGMENT.fullmatch(part) and ".." not in part for part in parts):
        raise Rejected(400, "RelayBadRequest", "a path is made of DNS names; nothing in it is encoded")
    if parts[0] == "api" and parts[1:2] == ["v1"]:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        raise Rejected(
            403, "RelayBadRequest", "the relay leads to objects in namespaces, /api/v1/... or /apis/GROUP/VERSION/..."
        )
    namespace = ""
    if rest[0:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3 or rest[0] == "watch":
        raise Rejected(403, "RelayBadRequest", "a path names a kind, an object, or one subresource of an object")
    resource, name, subresource = (*rest, "", "")[:3]
    return RequestAttributes(_verb(verb, name, query), group, resource, subresource, namespace, name=name)


def _verb(method: str, name: str, query: str) -> str:
    """Return the verb as authorization names it (Kubernetes: "Determine the request verb")."""
    if name:
        # A watch on one object is a collection request with a field selector (metadata.name=NAME); ``watch`` on a
        # named object is not a verb here.
        return _MUTATED[method]
    if method == "GET":
        return "watch" if _is_watch(query) else "list"
    # RBAC has a verb of its own for DELETE on a collection.
    return "deletecollection" if method == "DELETE" else _VERBS[method]


def _is_watch(query: str) -> bool:
    values = [pair.partition("=")[2] for pair in query.split("&") if pair.partition("=")[0] == "watch"]
    # The API server decodes parameter names: a percent-encoded "watch" would be hidden from this check only.
    if any("%" in pair.partition("=")[0] for pair in query.split("&")):
        raise Rejected(400, "RelayBadRequest", "the name of a parameter is not encoded")
    # Of a parameter that is given several times the API server reads the first, decoded.
    return bool(values) and unquote_plus(values[0]).lower() not in _FALSE
