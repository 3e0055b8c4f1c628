"""Prepares bodies for the store: immutable metadata, normalization, detection of changes. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import NAMESPACES, NODES, PODS, SERVICES, Json, Key, Kind
from kubesandbox.kinds.statuses import ApiStatus, Cause
from kubesandbox.store import apply as ssa

STATUS_KEEPS_LABELS: Final = frozenset({PODS, NODES, NAMESPACES})
"""Kinds whose status path also takes labels and annotations."""


def _in_part(old: Json, new: Json, subresource: str) -> Json:
    """Return a pod's specification with what a subresource changes from another one, and nothing else."""
    result = dict(old)
    if subresource == "ephemeralcontainers":
        result.pop("ephemeralContainers", None)
        wanted = new.get("ephemeralContainers")
        return result | ({"ephemeralContainers": wanted} if wanted else {})
    for group in ("containers", "initContainers"):
        asked = {each.get("name"): each.get("resources") for each in new.get(group) or ()}
        if old.get(group):
            resources = ({"resources": asked.get(each["name"]) or {}} for each in old[group])
            result[group] = [each | new for each, new in zip(old[group], resources, strict=True)]
    return result


def _no_new_finalizers(kind: Kind, present: Json, metadata: Json) -> None:
    if not present.get("deletionTimestamp"):
        return
    added = [each for each in metadata.get("finalizers") or () if each not in (present.get("finalizers") or ())]
    if added:
        listed = ", ".join(f'"{each}"' for each in added)
        rule = "no new finalizers can be added if the object is being deleted"
        why = f"{rule}, found new finalizers []string{{{listed}}}"
        raise statuses.invalid(kind.group, kind.kind, present["name"], [Cause.forbidden("metadata.finalizers", why)])


def prepared_to_update(kind: Kind, old: Json, body: Json, subresource: str) -> Json:
    kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
            "name", "namespace", "resourceVersion", "generateName")  # fmt: skip
    given, present = body["metadata"], old["metadata"]
    if given.get("uid", present["uid"]) != present["uid"]:
        why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {present['uid']}"
        raise statuses.conflict(kind.resource, present["name"], why)
    metadata = {name: value for name, value in given.items() if name not in kept}
    metadata |= {name: present[name] for name in kept if name in present}
    if "managedFields" in present:
        metadata["managedFields"] = present["managedFields"]
    _no_new_finalizers(kind, present, metadata)
    if subresource == "status":
        if kind.resource not in STATUS_KEEPS_LABELS:
            metadata = present
        else:
            metadata["ownerReferences"] = present.get("ownerReferences")
            metadata["finalizers"] = present.get("finalizers")
            metadata = {name: value for name, value in metadata.items() if value is not None}
        result = old | {"metadata": metadata, "apiVersion": kind.api_version}
        result.pop("status", None)
        return result | ({"status": body["status"]} if "status" in body else {})
    if subresource == "finalize":
        spec = {**(old.get("spec") or {}), "finalizers": (body.get("spec") or {}).get("finalizers") or []}
        return old | {"spec": spec}
    if subresource in ("ephemeralcontainers", "resize"):
        return old | {"spec": _in_part(old["spec"], body.get("spec") or {}, subresource)}
    result = body | {"metadata": metadata}
    if kind.has_status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    if kind.resource == NAMESPACES:
        result["spec"] = old["spec"]
    if kind.resource == SERVICES:
        result["spec"] = {
            **{name: old["spec"][name] for name in ("clusterIP", "clusterIPs") if name in old["spec"]},
            **{name: value for name, value in (body.get("spec") or {}).items() if value not in ("", [])},
        }
    return result


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as Kubernetes writes times: RFC 3339, UTC, whole seconds."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(time: str) -> int:
    """Return a time as ``timestamp`` writes it in seconds since 1970."""
    return int(datetime.datetime.fromisoformat(time).timestamp())


def without_nulls(value: Any) -> Any:
    """Return a body without null fields, which typed kinds take as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def check_place(metadata: Mapping[str, Any], key: Key) -> None:
    """Refuse a body whose name or namespace is not that of the URL."""
    name, namespace = metadata.get("name", key.name), metadata.get("namespace", key.namespace)
    if name != key.name:
        raise statuses.bad_request(f"the name of the object ({name}) does not match the name on the URL ({key.name})")
    if namespace != key.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def with_not_ready_taint(spec: Json) -> Json:
    """Return a new node's specification as the TaintNodesByCondition plug-in leaves it."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = spec.get("taints") or []
    return spec if any(taint.items() <= each.items() for each in taints) else spec | {"taints": [*taints, taint]}


def tidy(metadata: Mapping[str, Any]) -> Json:
    empty = (
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "resourceVersion",
        "generateName",
        "namespace",
        "uid",
    )
    return {name: value for name, value in metadata.items() if value is not None and (value or name not in empty)}


def content(body: Json, kind: Kind) -> Json:
    """Return the part of an object whose changes increment ``metadata.generation``."""
    if not kind.custom and "spec" in body:
        return {"spec": body["spec"]}
    hidden = ("metadata", "status", "apiVersion") if kind.has_status else ("metadata", "apiVersion")
    return {name: value for name, value in body.items() if name not in hidden}


def same_but_times(new: Json, old: Json) -> bool:
    """Return whether only managedFields times differ: such a write is a no-op and gets no new resource version."""

    def plain(body: Json) -> Json:
        owners = [
            {name: value for name, value in entry.items() if name != "time"}
            for entry in body["metadata"].get("managedFields") or ()
        ]
        return body | {"metadata": body["metadata"] | {"managedFields": owners}}

    return plain(new) == plain(old)


def finally_gone(body: Json) -> bool:
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if body.get("kind") == "Namespace" and body.get("apiVersion") == "v1":
        return not (body.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def owned(body: Json, owners: ssa.Owners) -> Json:
    return body | {"metadata": body["metadata"] | {"managedFields": ssa.write_owners(owners)}}


def no_uid(uid: str) -> str:
    return f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"


def apply_conflict(clash: ssa.ApplyConflict) -> ApiStatus:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {named(owner)}",
            "field": ssa.path_text(path),
        }
        for owner, path in clash.fields
    ]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        by_owner: dict[str, list[str]] = {}
        for cause in causes:
            by_owner.setdefault(f"{cause['message'].replace('conflict', 'conflicts', 1)}", []).append(
                f"- {cause['field']}"
            )
        parts = [f"{who}:\n" + "\n".join(fields) for who, fields in by_owner.items()]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(parts)
    return ApiStatus(409, "Conflict", text, {"causes": causes})


def named(owner: ssa.Owner) -> str:
    """Return an owner as a conflict names it: appliers by their name alone."""
    subresource = f' with subresource "{owner.subresource}"' if owner.subresource else ""
    version = f" using {owner.version}" if owner.operation == "Update" else ""
    return f'"{owner.name}"{subresource}{version}'
