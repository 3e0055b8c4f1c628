"""The one view of StorageClasses that all features share, so that there is one watch of them. Pure."""

from __future__ import annotations

from liqod.model.objects.meta import Object


class StorageClass(Object, frozen=True):
    """A StorageClass (storage.k8s.io/v1), by who provisions its volumes and what becomes of them."""

    provisioner: str = ""
    reclaim_policy: str = "Delete"
