"""Resolves URL paths to a resource, an object or a subresource. Pure."""

from __future__ import annotations

import attrs

from kubesandbox.auth.rbac import Access
from kubesandbox.kinds import statuses
from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import Kind


@attrs.frozen
class Target:
    """What a path names; ``rest`` is what follows a proxied subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def access(self, verb: str, selected: str = "") -> Access:
        """Return the authorization attributes of a verb on this target.

        A list or watch that a field selector restricts to one name is a request for that name (RequestInfoFactory).
        """
        what = (self.kind.group, self.kind.plural, self.subresource)
        only = [part for part in selected.split(",") if part.startswith("metadata.name=")]
        named = only[0].removeprefix("metadata.name=").removeprefix("=") if only else ""
        return Access(verb, *what, namespace=self.namespace, name=self.name or named)


def resolve(catalog: Catalog, parts: list[str]) -> Target:
    """Return what the segments of an API path name; raises ApiStatus when there is no such thing."""
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = catalog.find(group, version, rest[0])
    if kind is None or len(rest) > 3:
        raise statuses.unknown_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        raise statuses.unknown_resource()
    if kind.namespaced != bool(namespace) and (name or not kind.namespaced):
        raise statuses.unknown_resource()
    if not kind.namespaced and kind.plural == "namespaces":
        # For authorization a Namespace is in its own namespace (k8s.io/apiserver RequestInfoFactory).
        namespace = name
    return Target(kind, namespace, name, subresource)


def verb_of(method: str, target: Target, *, watching: bool) -> str:
    """Return the verb of a request, as roles name them; raises ApiStatus."""
    match method:
        case "GET":
            if target.name:
                return "get"
            return "watch" if watching else "list"
        case "POST":
            return "create"
        case "PUT" if target.name:
            return "update"
        case "PATCH" if target.name:
            return "patch"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    raise statuses.not_allowed()
