"""The one view of StorageClasses that all features share, so that there is one watch of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from liqod.model.objects.meta import Object

_IS_DEFAULT: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class StorageClass(Object, frozen=True):
    """A StorageClass (storage.k8s.io/v1), by who provisions its volumes and what becomes of them."""

    provisioner: str = ""
    reclaim_policy: str = "Delete"


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the class of claims that name none: of several default ones the newest, and the first name of those.

    Source: Kubernetes, ``pkg/volume/util/storageclass.go``, GetDefaultClass.
    """
    marked = [each for each in classes if any(each.metadata.annotations.get(key) == "true" for key in _IS_DEFAULT)]
    marked.sort(key=lambda each: each.metadata.name)
    return max(marked, key=lambda each: each.metadata.creation_timestamp or "", default=None)
