"""The one view of StorageClasses that all features share, and which class Kubernetes takes by default. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from liqod.model.objects.meta import Object

_DEFAULT_STORAGE: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
DEFAULT_INGRESS: Final = ("ingressclass.kubernetes.io/is-default-class",)
C = TypeVar("C", bound=Object)


class StorageClass(Object, frozen=True):
    """A StorageClass (storage.k8s.io/v1), by who provisions its volumes and what becomes of them."""

    provisioner: str = ""
    reclaim_policy: str = "Delete"


def default_class(classes: Iterable[C], marks: Collection[str] = _DEFAULT_STORAGE) -> C | None:
    """Return the class of objects that name none: of several default ones the newest, and the first name of those.

    ``marks`` are the annotations of which one says that a class is a default one; for an IngressClass
    ``DEFAULT_INGRESS``. Source: Kubernetes, ``pkg/volume/util/storageclass.go``, GetDefaultClass, and
    ``plugin/pkg/admission/network/defaultingressclass``, getDefaultClass.
    """
    marked = [each for each in classes if any(each.metadata.annotations.get(key) == "true" for key in marks)]
    marked.sort(key=lambda each: each.metadata.name)
    return max(marked, key=lambda each: each.metadata.creation_timestamp or "", default=None)
