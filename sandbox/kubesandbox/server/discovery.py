"""API discovery: groups, versions and resources, in the legacy and the aggregated form. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import SUBRESOURCE_KINDS, Json, Kind

VERSION: Final[Json] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.1-sandbox",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_STREAMS: Final = ("attach", "exec", "portforward", "proxy")
_POSTED: Final = ("binding", "eviction", "token")


def _subresource_verbs(name: str) -> list[str]:
    if name == "log":
        return ["get"]
    if name == "finalize":
        return ["update"]
    if name in _POSTED:
        return ["create"]
    return ["create", "get"] if name in _STREAMS else ["get", "patch", "update"]


def resource_list(kinds: Iterable[Kind]) -> list[Json]:
    """Return the ``resources`` of an APIResourceList."""
    found: list[Json] = []
    for kind in kinds:
        entry: Json = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        found.append(entry)
        for name in kind.subresources:
            part: Json = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": _subresource_verbs(name),
            }
            if name in SUBRESOURCE_KINDS:
                part["group"], part["version"], part["kind"] = SUBRESOURCE_KINDS[name]
            found.append(part)
    return found


def in_version(catalog: Catalog, group: str, version: str) -> list[Kind]:
    """Return the kinds of a group version, by name."""
    kinds = (kind for kind in catalog.kinds() if kind.group == group and kind.version == version)
    return sorted(kinds, key=lambda kind: kind.plural)


def group(name: str, versions: list[str]) -> Json:
    """Return an APIGroup."""
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def aggregated(catalog: Catalog, core: bool) -> Json:
    """Return an APIGroupDiscoveryList (apidiscovery.k8s.io/v2): of the core group, or of all named groups."""
    groups = {"": ["v1"]} if core else catalog.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {
                        "version": version,
                        "resources": [_discovered(kind) for kind in in_version(catalog, name, version)],
                        "freshness": "Current",
                    }
                    for version in versions
                ],
            }
            for name, versions in groups.items()
        ],
    }


def _discovered(kind: Kind) -> Json:
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    entry: Json = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    parts: list[Any] = []
    for name in kind.subresources:
        answer = own
        if name in SUBRESOURCE_KINDS:
            answer = dict(zip(("group", "version", "kind"), SUBRESOURCE_KINDS[name], strict=True))
        parts.append({"subresource": name, "responseKind": answer, "verbs": _subresource_verbs(name)})
    if parts:
        entry["subresources"] = parts
    return entry
