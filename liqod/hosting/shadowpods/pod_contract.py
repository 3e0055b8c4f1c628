"""Applies the contract of tenants to a ShadowPod, before a pod is forged from it. Pure.

Annotations and tolerations that are not granted are dropped: without them a pod runs all the same. So are labels of
domains that Kubernetes keeps to itself, and all that are not granted of an ephemeral volume's claim. Everything else
that is not on the allow list, other labels of the pod among it, is refused, with the path of the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from liqod.hosting.shadowpods import pod_restrictions
from liqod.hosting.shadowpods.admission import raw_spec
from liqod.hosting.shadowpods.forge import account_of
from liqod.hosting.shadowpods.validation import items_in, mapping_in
from liqod.hosting.tenants.admission import pod_shape
from liqod.hosting.tenants.contract import Contract
from liqod.model.objects.meta import from_json
from liqod.model.objects.portable_metadata import is_allowed, is_of_cluster, portable
from liqod.model.objects.tenant_nodes import CONTROL_PLANE
from liqod.model.records.views import ShadowPod

MAX_DEPTH: Final = 32
"""Levels of a pod's spec: in Kubernetes a selector of a preferred affinity is the deepest, with eleven."""
_NESTED: Final = (dict, list)
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_OFF_CONTROL_PLANE: Final = [{"key": key, "operator": "DoesNotExist"} for key in CONTROL_PLANE]


def restrict(shadow: ShadowPod, contract: Contract, *, off_control_plane: bool = True) -> ShadowPod:
    """Return a ShadowPod within the contract; restricting is idempotent.

    ``off_control_plane``: whether nodes of the control plane are excluded (``TenantNodes.avoids_control_plane``).
    Raises ValueError, with a sentence for the borrower, for what is not granted and for a field of the wrong type.
    """
    raw = raw_spec(shadow)
    try:
        wanted = from_json(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not a pod spec: {error}") from None
    _check_depth(wanted)
    spec = restrict_spec(mapping_in(wanted, "spec"), contract, off_control_plane=off_control_plane)
    metadata = msgspec.structs.replace(
        shadow.metadata,
        labels=_labels(shadow.metadata.labels, contract),
        annotations=portable(shadow.metadata.annotations, contract.annotations),
    )
    pod = msgspec.structs.replace(shadow.spec, pod=msgspec.Raw(msgspec.json.encode(spec)))
    return msgspec.structs.replace(shadow, metadata=metadata, spec=pod)


def restrict_spec(wanted: Mapping[str, Any], contract: Contract, *, off_control_plane: bool = True) -> dict[str, Any]:
    """Return a pod spec within the contract; raises ValueError like ``restrict``."""
    _check(wanted, pod_shape.POD, "spec")
    spec = dict(wanted)
    runtime_class = spec.get("runtimeClassName")
    if runtime_class and runtime_class not in contract.granted.runtime_classes:
        raise ValueError(
            f"spec.runtimeClassName {_shown(runtime_class)} is not granted here ([hosting] runtime-classes of the "
            "lender)"
        )
    if (account := account_of(spec)) and account not in contract.granted.service_accounts:
        raise ValueError(
            f"it asks for a token of this cluster's service account {_shown(account)}, which is not granted here "
            "([hosting] service-accounts of the lender)"
        )
    if "volumes" in spec:
        spec["volumes"] = [_volume(one, contract) for one in items_in(spec["volumes"], "spec.volumes")]
    if "tolerations" in spec:
        tolerations = items_in(spec["tolerations"], "spec.tolerations")
        if not all(isinstance(one.get("key"), str | None) for one in tolerations):
            raise ValueError("spec.tolerations has a key that is not a text")
        spec["tolerations"] = [one for one in tolerations if one.get("key") in contract.tolerations]
    if contract.granted.image_pull_policy == "Always":
        # An image on the node's disk may have been pulled with somebody else's credentials (Kubernetes: "Images",
        # AlwaysPullImages).
        for kind in _CONTAINERS:
            if kind in spec:
                spec[kind] = [{**one, "imagePullPolicy": "Always"} for one in items_in(spec[kind], f"spec.{kind}")]
    if off_control_plane:
        affinity = mapping_in(spec.get("affinity"), "spec.affinity")
        node = mapping_in(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity")
        spec["affinity"] = {**affinity, "nodeAffinity": pod_restrictions.only_nodes(node, _OFF_CONTROL_PLANE)}
    return spec


def _volume(volume: Mapping[str, Any], contract: Contract) -> dict[str, Any]:
    where = f"spec.volumes[{_shown(volume.get('name', ''))}]"
    for kind, content in volume.items():
        if kind == "name" or content is None:
            continue
        if kind not in contract.volumes:
            raise ValueError(f"{where} is of the kind {_shown(kind)}, which is not granted here ([hosting] volumes)")
        _check(content, pod_shape.VOLUMES.get(kind), f"{where}.{kind}")
    made = dict(volume)
    always = contract.granted.image_pull_policy == "Always"
    if made.get("image") is not None and always:
        made["image"] = {**mapping_in(made["image"], f"{where}.image"), "pullPolicy": "Always"}
    if made.get("ephemeral") is not None:
        made["ephemeral"] = _ephemeral(made["ephemeral"], contract, f"{where}.ephemeral")
    return made


def _ephemeral(ephemeral: Any, contract: Contract, where: str) -> dict[str, Any]:
    """Return an ephemeral volume: the controller manager, not the borrower, creates its claim from the template."""
    template = mapping_in(mapping_in(ephemeral, where).get("volumeClaimTemplate"), where)
    where += ".volumeClaimTemplate"
    spec = mapping_in(template.get("spec"), where)
    classes = contract.granted.storage_classes
    name = spec.get("storageClassName")
    if not isinstance(name, str | None):
        raise ValueError(f"{where}.spec.storageClassName is not a text")
    if name and classes and name not in classes:
        raise ValueError(f"{where} is of the storage class {_shown(name)}, which is not lent: one of {classes}")
    if name and name == contract.own_storage_class:
        raise ValueError(f"{where} is of the storage class {_shown(name)}, which is for the lender's own pods")
    made = dict(template)
    if metadata := mapping_in(template.get("metadata"), where):
        labels = mapping_in(metadata.get("labels"), f"{where}.metadata.labels")
        annotations = mapping_in(metadata.get("annotations"), f"{where}.metadata.annotations")
        made["metadata"] = {
            "labels": portable(labels, contract.labels),
            "annotations": portable(annotations, contract.annotations),
        }
    return {"volumeClaimTemplate": made}


def _labels(labels: Mapping[str, str], contract: Contract) -> dict[str, str]:
    """Return a pod's labels; raises ValueError for one that its services or policies may select but is not granted."""
    kept = {}
    for key, value in labels.items():
        if is_allowed(key, contract.labels):
            kept[key] = value
        elif not is_of_cluster(key):
            domain, slash, _ = key.partition("/")
            raise ValueError(
                f"the label {_shown(key)} is not granted here; leave it out, or have the lender's administrator grant "
                f"{_shown(domain)}{slash} ([hosting] labels)"
            )
    return kept


def _check_depth(value: Any) -> None:
    """Raise ValueError for what could be decoded here, but not be encoded where the stack is higher."""
    # Of each level only what has a next one: nearly all of a spec are texts and numbers.
    level = [value] if isinstance(value, _NESTED) else []
    for _ in range(MAX_DEPTH - 1):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, _NESTED) and inner
        ]
        if not level:
            return
    raise ValueError(f"it is nested in more than {MAX_DEPTH} levels")


def _check(value: Any, shape: Any, where: str) -> None:
    """Raise ValueError for a field that a shape does not have; null is no field."""
    if shape is None or value is None:
        return
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list of mappings")
        for position, item in enumerate(value):
            _check(item, shape[0], f"{where}[{position}]")
        return
    fields = mapping_in(value, where)
    if not fields.keys() <= shape.keys():
        unknown: Iterable[str] = fields.keys() - shape.keys()
        if found := sorted(name for name in unknown if value[name] is not None):
            raise ValueError(f"{where}.{_shown(found[0])} is not among the fields that borrowers may use here")
    for name, content in fields.items():
        # Most have no shape: what they are called is put together for the others only.
        inner = shape.get(name)
        if inner is not None and content is not None:
            _check(content, inner, f"{where}.{name}")


def _shown(text: Any) -> str:
    return str(text)[:63]
