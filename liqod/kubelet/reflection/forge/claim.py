"""Forges claims and volumes whose data stays in one cluster (spec 004, "Persistent storage").

A claim of a class with our provisioner gets a volume when its first pod was scheduled (WaitForFirstConsumer). On a
virtual node that is a placeholder volume whose node affinity binds pods with this claim to the lender; the claim is
reflected to the lender, where a real class provisions the data. On any other node the volume is that of a real claim of
this cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import HOME_CLAIM_UID
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted, with_class
from liqod.kubelet.reflection.views import Reflectable, WithSpec
from liqod.model.names import (
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    ORIGIN_LABEL,
    PROVISIONER,
    REMOTE_CLUSTER_LABEL,
    TYPE_LABEL,
)
from liqod.model.objects.meta import Object, View
from liqod.model.objects.storage_class import StorageClass

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
REMOTE_CLASS: Final = "liqo.io/remote-storage-class"
CLASS: Final = "storageClassName"
REMOTE_MODES: Final = "liqo.io/remote-access-modes"
VIRTUAL_NAMESPACE: Final = "storage.liqo.io/virtual-pvc-namespace"
VIRTUAL_NAME: Final = "storage.liqo.io/virtual-pvc-name"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PLACEHOLDER: Final = "/var/lib/liqod/volume-at-another-cluster"
"""The hostPath of a placeholder volume: it does not exist, and node affinity keeps real nodes from mounting it."""

MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
# Written by this cluster's scheduler, provisioner and binder; the lender's write their own.
_OF_THIS_CLUSTER: Final = frozenset(
    {
        SELECTED_NODE,
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/storage-provisioner",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/storage-resizer",
    }
)
_SOURCES_APART: Final = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)


class Resources(View, frozen=True):
    """The resources that a claim requests."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ClaimSpec(View, frozen=True):
    """The part of a claim's spec that decisions need."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] = []
    volume_mode: str = "Filesystem"
    resources: Resources = Resources()


class Phase(View, frozen=True):
    """The status of a claim or a volume."""

    phase: str = ""


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimReference(View, frozen=True):
    """The claim that a volume is bound to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(View, frozen=True):
    """The part of a volume's spec that decisions need."""

    claim_ref: ClaimReference = ClaimReference()
    persistent_volume_reclaim_policy: str = ""


class Volume(Object, frozen=True):
    """A PersistentVolume that liqod created."""

    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


# Steps for a claim that waits for its volume


@frozen
class AtLender:
    """Create the placeholder volume for data at this lender."""

    lender: str


@frozen
class AtHome:
    """Create a real claim of this cluster and bind the claim to its data."""


@frozen
class Unselect:
    """Remove the selected-node annotation, so that the scheduler chooses again; ``reason`` and ``message`` say why."""

    reason: str
    message: str


@frozen
class Nothing:
    """Do nothing (yet)."""


Step = AtLender | AtHome | Unselect | Nothing


def plan(
    claim: Claim | None,
    classes: Mapping[str, StorageClass],
    lenders: Mapping[str, str],
    offered: Mapping[str, Sequence[str]],
    *,
    offloaded: bool,
) -> Step:
    """Return the next step for a claim.

    ``lenders``: the cluster IDs by virtual node. ``offered``: the storage classes by cluster ID. ``offloaded``: whether
    the claim's namespace is offloaded.
    """
    if claim is None or claim.metadata.deleting or claim.spec.volume_name:
        return Nothing()
    found = classes.get(claim.spec.storage_class_name or "")
    node = claim.metadata.annotations.get(SELECTED_NODE, "")
    if found is None or found.provisioner != PROVISIONER or not node:
        return Nothing()
    lender = lenders.get(node)
    if lender is None:
        return AtHome()
    if not offloaded:
        return Unselect(
            "NamespaceNotOffloaded",
            f"the pod was scheduled on {node}, but its namespace is not offloaded: the volume is not made there; "
            "label the namespace liqo.io/enabled=true, or keep the pod off virtual nodes",
        )
    if not offered.get(lender) and not claim.metadata.annotations.get(REMOTE_CLASS):
        return Unselect(
            "StorageNotOffered",
            f"the cluster {lender} behind {node} offers no storage class: the pod is to be scheduled elsewhere",
        )
    return AtLender(lender)


def volume_name(claim: Claim) -> str:
    """Return the name of the volume of a claim, which is unique by its UID (as of external-provisioner)."""
    return f"pvc-{claim.metadata.uid}"


def lender_of(volume: Volume) -> str:
    """Return the ID of the cluster that holds the data of a volume; empty for this one."""
    return volume.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")


def is_to_go(volume: Volume) -> bool:
    """Return whether a volume's data must be deleted: its claim is gone, and its reclaim policy is Delete."""
    spec = volume.spec
    return volume.status.phase == "Released" and spec.persistent_volume_reclaim_policy == "Delete"


def forge_volume_there(claim: Claim, found: StorageClass, lender: str) -> dict[str, Any]:
    """Return the placeholder volume of a claim whose data is at a lender."""
    on_lender = {"key": REMOTE_CLUSTER_LABEL, "operator": "In", "values": [lender]}
    spec = {
        "hostPath": {"path": PLACEHOLDER},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_lender]}]}},
    }
    return _volume(claim, found, {REMOTE_CLUSTER_LABEL: lender}, spec, claim.spec.resources.requests)


def forge_volume_here(claim: Claim, found: StorageClass, real: Mapping[str, Any]) -> dict[str, Any]:
    """Return the volume of a claim with data in this cluster: the real volume's source, excluded from virtual nodes."""
    spec = {key: value for key, value in real.items() if key not in _SOURCES_APART}
    if real.get("mountOptions"):
        spec["mountOptions"] = real["mountOptions"]
    off_virtual_nodes = {"key": TYPE_LABEL, "operator": "DoesNotExist"}
    terms = ((real.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or [{}]
    spec["nodeAffinity"] = {
        "required": {
            "nodeSelectorTerms": [
                {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), off_virtual_nodes]}
                for term in terms
            ]
        }
    }
    return _volume(claim, found, {}, spec, real.get("capacity") or {})


def _volume(
    claim: Claim, found: StorageClass, labels: dict[str, str], spec: dict[str, Any], capacity: Mapping[str, str]
) -> dict[str, Any]:
    meta = claim.metadata
    return {
        "metadata": {
            "name": volume_name(claim),
            "labels": {MANAGED_BY_LABEL: FIELD_MANAGER, **labels},
            "annotations": {PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            **spec,
            "capacity": {"storage": capacity.get("storage", "0")},
            "accessModes": claim.spec.access_modes,
            "volumeMode": claim.spec.volume_mode,
            "persistentVolumeReclaimPolicy": found.reclaim_policy,
            "storageClassName": found.metadata.name,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
        },
    }


def forge_real_claim(claim: Claim, storage_class: str) -> dict[str, Any]:
    """Return the real claim of this cluster for one of a virtual class, with the same selected node."""
    meta = claim.metadata
    spec: dict[str, Any] = {
        "accessModes": claim.spec.access_modes,
        "volumeMode": claim.spec.volume_mode,
        "resources": {"requests": claim.spec.resources.requests},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "metadata": {
            "name": volume_name(claim),
            "labels": {MANAGED_BY_LABEL: FIELD_MANAGER},
            "annotations": {
                SELECTED_NODE: meta.annotations.get(SELECTED_NODE, ""),
                VIRTUAL_NAMESPACE: meta.namespace,
                VIRTUAL_NAME: meta.name,
            },
        },
        "spec": spec,
    }


def forge_class(name: str) -> dict[str, Any]:
    """Return the StorageClass for claims that follow their pods."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: FIELD_MANAGER}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }


# The claim at the lender


def forge(home: WithSpec, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the claim for the lender; withheld unless its data is there."""
    spec = home.content().get("spec") or {}
    if not spec.get("volumeName") or not inputs.home.holds(str(spec["volumeName"])):
        return Withheld("its data is not at this lender")
    annotations = home.metadata.annotations
    modes = [mode.strip() for mode in annotations.get(REMOTE_MODES, "").split(",") if mode.strip() in MODES]
    content: dict[str, Any] = {
        "accessModes": modes or spec.get("accessModes") or [],
        "volumeMode": spec.get("volumeMode") or "Filesystem",
        "resources": {"requests": (spec.get("resources") or {}).get("requests") or {}},
    }
    if named := annotations.get(REMOTE_CLASS):
        content[CLASS] = named
    desired = wanted(home.metadata, {"spec": content}, inputs.context, left_out=_OF_THIS_CLUSTER)
    if not named:
        desired = with_class(desired, inputs.home.storage_classes(), CLASS)
    return evolve(desired, annotations={**desired.annotations, HOME_CLAIM_UID: home.metadata.uid})


def observe(there: WithSpec, desired: DesiredObject) -> dict[str, Any]:
    """Return the claim at the lender; except for the requests its spec is taken as desired.

    Only resources.requests of a bound claim can be changed (Kubernetes API, PersistentVolumeClaim validation).
    """
    spec = there.content().get("spec") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    return {"spec": {**desired.content["spec"], "resources": {"requests": requests}}}


def objection(there: Reflectable, desired: DesiredObject) -> str:
    """Return why the claim at the lender may not be updated: it holds the data of another claim; empty if it may."""
    if there.metadata.annotations.get(HOME_CLAIM_UID) == desired.annotations[HOME_CLAIM_UID]:
        return ""
    return (
        f"the claim {there.metadata.name} at the lender holds the data of an earlier claim of that name, which is kept"
    )


def is_of(there: Object, volume: Volume, context: Context) -> bool:
    """Return whether a claim at the lender holds the data of a placeholder volume."""
    from_here = there.metadata.labels.get(ORIGIN_LABEL) == str(context.home)
    return from_here and there.metadata.annotations.get(HOME_CLAIM_UID) == volume.spec.claim_ref.uid
