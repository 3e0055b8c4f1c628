"""What the path of a request asks for, without I/O: the few forms that a borrower needs, and nothing else.

What is refused here is never answered as "not found": that would say something about an object.

No character of a path is encoded: the names of all kinds that borrowers have are DNS names. So there is nothing to
decode twice, and ``..`` is no name. What is asked for is a value (``model.asks.Ask``); whether it may be had is the
lender's to say.
"""

from __future__ import annotations

import re
from typing import Final

from liqod.model.objects.api_request import Ask
from liqod.peering.relay.rejection import Rejected

PAGES: Final = frozenset(("/readyz", "/livez", "/healthz", "/version"))
"""What is asked for that is no resource: whether the API server answers, and what it is."""

_SEGMENT: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MUTATED: Final = {"GET": "get", **_VERBS}
_FALSE: Final = ("", "0", "f", "false")


def ask_of(method: bytes, target: bytes) -> Ask:
    """Return what a request asks for; raises Rejected for a path of another form."""
    path, _, query = target.decode("ascii").partition("?")
    verb = method.decode("ascii")
    if path in PAGES:
        if verb != "GET":
            raise Rejected(405, "RelayBadRequest", f"{path} is read and nothing else")
        return Ask("get", path=path)
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
    return Ask(_verb(verb, name, query), group, resource, subresource, namespace, name)


def _verb(method: str, name: str, query: str) -> str:
    """Return the verb as authorization names it (Kubernetes: "Determine the request verb")."""
    if name:
        # A watch on one object is asked for by a field selector on its collection; by name it does not exist.
        return _MUTATED[method]
    if method == "GET":
        return "watch" if _is_watch(query) else "list"
    return "deletecollection" if method == "DELETE" else _VERBS[method]


def _is_watch(query: str) -> bool:
    values = [pair.partition("=")[2] for pair in query.split("&") if pair.partition("=")[0] == "watch"]
    # An encoded name of the parameter could hide it from us and not from the API server.
    if any("%" in pair.partition("=")[0] for pair in query.split("&")):
        raise Rejected(400, "RelayBadRequest", "the name of a parameter is not encoded")
    return any(value.lower() not in _FALSE for value in values)
