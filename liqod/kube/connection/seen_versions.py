"""The newest resource versions that were seen of an API server: lower ones later mean that its etcd was restored.

A resource version is etcd's revision (Kubernetes API concepts, "Resource versions"; comparable since KEP-5504). What a
list or a streaming list shows is read consistently, so it is never older than what was seen before it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liqod.kube.resources import Resource


class SeenVersions:
    """By kind; an informer begins with what an earlier one of its kind, of another term or process, has seen."""

    def __init__(self, kept: Mapping[str, Any] | None = None) -> None:
        self._newest: dict[str, int] = {
            str(kind): version for kind, version in (kept or {}).items() if _is_version(version)
        }

    def newest(self, resource: Resource) -> int:
        """Return the newest version that was seen of a kind; 0 where none is known."""
        return self._newest.get(str(resource), 0)

    def is_before(self, resource: Resource, version: str) -> bool:
        """Return whether the version of a list of a kind is lower than one that was seen."""
        return 0 < revision(version) < self.newest(resource)

    def note(self, resource: Resource, version: int, *, went_back: bool = False) -> None:
        """Note what an informer that stops has seen; ``went_back``: it has seen the lower state in force now."""
        if version > 0:
            self._newest[str(resource)] = version if went_back else max(version, self.newest(resource))

    def forget(self) -> None:
        """Drop all that was seen: the server's state went back, so that versions of before say nothing any more."""
        self._newest.clear()

    def as_dict(self) -> dict[str, int]:
        """Return what to keep for the next process."""
        return dict(self._newest)


def revision(resource_version: str) -> int:
    """Return a resource version as etcd's revision, which only a restored etcd ever lowers; 0 for other ones."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdecimal() else 0


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63
