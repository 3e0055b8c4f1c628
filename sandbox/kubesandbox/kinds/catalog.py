"""The served kinds: the built-in ones and those of CRDs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubesandbox.kinds.kinds import BUILTIN, Column, GroupResource, Json, Kind
from kubesandbox.kinds.merge_schema import Shape, core, from_schema


class Catalog:
    """Kinds by group, version and plural. ``define`` and ``forget`` follow the custom resource definitions."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {
            (kind.group, kind.version, kind.plural): kind for kind in BUILTIN
        }
        self._by_resource: dict[GroupResource, Kind] = {kind.resource: kind for kind in BUILTIN}
        self._shapes: dict[tuple[str, str, str], Shape] = {}
        self.revision = 0

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def stored(self, resource: GroupResource) -> Kind | None:
        """Return a resource in its storage version."""
        return self._by_resource.get(resource)

    def builtin(self, resource: GroupResource) -> Kind:
        """Return a resource that every cluster has."""
        return self._by_resource[resource]

    def kinds(self) -> Iterable[Kind]:
        return tuple(self._kinds.values())

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each named group, the preferred one first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            if group and version not in found.setdefault(group, []):
                found[group].append(version)
        return {group: sorted(versions, key=_rank) for group, versions in sorted(found.items())}

    def shape(self, kind: Kind) -> Shape:
        """Return how the lists and maps of a kind merge."""
        if not kind.custom:
            return core(kind.kind)
        at = (kind.group, kind.version, kind.plural)
        if at not in self._shapes:
            self._shapes[at] = from_schema(kind.schema)
        return self._shapes[at]

    def define(self, definition: Mapping[str, Any]) -> None:
        """Serve the versions of a CRD, in place of its previous ones."""
        self._drop(definition)
        spec = definition["spec"]
        names = spec["names"]
        storage = next((each["name"] for each in spec["versions"] if each.get("storage")), "")
        for version in spec["versions"]:
            if not version.get("served"):
                continue
            subresources = version.get("subresources") or {}
            kind = Kind(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec.get("scope") == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                subresources=tuple(name for name in ("status", "scale") if name in subresources),
                categories=tuple(names.get("categories") or ()),
                singular_name=names.get("singular", ""),
                custom=True,
                schema=version["schema"]["openAPIV3Schema"],
                columns=_columns(version.get("additionalPrinterColumns") or ()),
                stored_version=storage,
            )
            self._kinds[kind.group, kind.version, kind.plural] = kind
            if kind.version == storage or kind.resource not in self._by_resource:
                self._by_resource[kind.resource] = kind
        self.revision += 1

    def forget(self, definition: Mapping[str, Any]) -> None:
        """Stop serving the kind of a CRD."""
        self._drop(definition)
        self.revision += 1

    def _drop(self, definition: Mapping[str, Any]) -> None:
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        for at in [at for at in self._kinds if at[0] == group and at[2] == plural and self._kinds[at].custom]:
            del self._kinds[at]
            self._shapes.pop(at, None)
        kind = self._by_resource.get(GroupResource(group, plural))
        if kind is not None and kind.custom:
            del self._by_resource[kind.resource]


def _columns(columns: Iterable[Json]) -> tuple[Column, ...] | None:
    found = tuple(
        Column(
            each["name"],
            each.get("type", "string"),
            each.get("format", ""),
            description=each.get("description", ""),
            priority=each.get("priority", 0),
            path=each.get("jsonPath", ""),
        )
        for each in columns
    )
    return found or None


def _rank(version: str) -> tuple[int, int, int, str]:
    """Order versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, then others."""
    for stage, word in enumerate(("", "beta", "alpha")):
        head, _, tail = version[1:].partition(word) if word else (version[1:], "", "")
        if version.startswith("v") and head.isdigit() and (not word or (word in version and tail.isdigit())):
            return (stage, -int(head), -int(tail or 0), "")
    return (3, 0, 0, version)
