"""Keeps a pod from data that is not its claim's (spec 004, "Persistent storage"); pure.

A claim at the lender has the name of the one at home, and outlives it: its data is kept, or about to be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from liqod.kubelet.common.meta import HOME_CLAIM_UID
from liqod.model.objects.meta import ObjectMeta

CLAIM_TAKEN: Final = "ClaimTaken"


def claims_in(shadow: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a ShadowPod mounts, sorted."""
    volumes = ((shadow.get("spec") or {}).get("pod") or {}).get("volumes") or []
    names = {(volume.get("persistentVolumeClaim") or {}).get("claimName") or "" for volume in volumes}
    return sorted(names - {""})


def obstacle(there: ObjectMeta, home: Collection[str]) -> str:
    """Return why a claim of ours at the lender must not be mounted now; empty if it may be.

    ``home``: the UID of the claim of that name at home; nothing without one.
    """
    owner = there.annotations.get(HOME_CLAIM_UID, "")
    if owner not in home:
        return (
            f"the claim {there.name} at the lender holds the data of an earlier claim of that name: the pod waits "
            "until it is gone there; give the claim another name, or have the data deleted, by the reclaim policy "
            f"Delete of the volume pvc-{owner} of this cluster"
        )
    if there.deleting:
        return f"the claim {there.name} is being deleted at the lender: the pod waits until it is gone and made again"
    return ""
