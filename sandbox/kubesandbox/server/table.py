"""Tables, as ``kubectl get`` shows them: columns and cells of each kind. Pure.

Source: kubernetes/pkg/printers/internalversion; custom kinds bring their printer columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubesandbox.kinds.kinds import Column, Json, Kind

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


def _columns(text: str) -> tuple[Column, ...]:
    """Parse ``Name Ready *Node``: a star marks a column for wide output, ``#`` a number, ``_`` a space."""
    found = [Column("Name", "string", "name")]
    for word in text.split():
        name = word.lstrip("*#").replace("_", " ")
        found.append(Column(name, "integer" if "#" in word[:2] else "string", priority=int("*" in word[:2])))
    return tuple(found)


def age(text: str | None, now: float) -> str:
    """Return how long ago a time was, as kubectl prints it."""
    if not text:
        return _UNKNOWN
    return duration(now - datetime.fromisoformat(text).timestamp())


def duration(seconds: float) -> str:
    """Return a duration for people: two units at most (k8s.io/apimachinery ``HumanDuration``)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


Cells = Callable[[Json, float], list[Any]]


def _pod(body: Json, now: float) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in containers)
    restarts = sum(each.get("restartCount", 0) for each in containers)
    gates = spec.get("readinessGates")
    return [
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_reason(body, containers),
        str(restarts),
        age(body["metadata"].get("creationTimestamp"), now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"0/{len(gates)}" if gates else _NONE,
    ]


def _pod_reason(body: Json, containers: Sequence[Json]) -> str:
    status = body.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for each in reversed(containers):
        state = each.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            ended = state["terminated"]
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if reason == "Completed" and any("running" in (each.get("state") or {}) for each in containers):
        reason = "Running"
    if body["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _node(body: Json, now: float) -> list[Any]:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in metadata.get("labels") or {} if key.startswith(prefix))
    addresses = {each.get("type"): each.get("address") for each in reversed(status.get("addresses") or ())}
    return [
        state,
        ",".join(roles) or _NONE,
        age(metadata.get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _created(body: Json, now: float) -> str:
    return age(body["metadata"].get("creationTimestamp"), now)


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _images(spec: Json) -> list[Any]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        _labels((spec.get("selector") or {}).get("matchLabels")),
    ]


def _deployment(body: Json, now: float) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [
        ready,
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _created(body, now),
        *_images(spec),
    ]


def _replica_set(body: Json, now: float) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [*counts, _created(body, now), *_images(spec)]


def _service(body: Json, now: float) -> list[Any]:
    spec = body.get("spec") or {}
    ports = [
        f"{each.get('port')}{':' + str(each['nodePort']) if each.get('nodePort') else ''}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports") or ()
    ]
    kind = spec.get("type", "ClusterIP")
    external = {"ClusterIP": _NONE, "NodePort": _NONE, "ExternalName": spec.get("externalName", "")}.get(
        kind, "<pending>"
    )
    return [kind, spec.get("clusterIP") or _NONE, external, ",".join(ports) or _NONE, _created(body, now),
            _labels(spec.get("selector"))]  # fmt: skip


def _event(body: Json, now: float) -> list[Any]:
    involved = body.get("involvedObject") or {}
    source = body.get("source") or {}
    first = body.get("firstTimestamp") or body.get("eventTime") or body["metadata"].get("creationTimestamp")
    where = ", ".join(
        part for part in (source.get("component") or body.get("reportingComponent"), source.get("host")) if part
    )
    return [
        age(body.get("lastTimestamp") or first, now),
        body.get("type", ""),
        body.get("reason", ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""),
        where,
        str(body.get("message", "")).strip(),
        age(first, now),
        body.get("count", 1),
        body["metadata"]["name"],
    ]


def _endpoint_slice(body: Json, now: float) -> list[Any]:
    ports = ",".join(str(each.get("port", "")) for each in body.get("ports") or ())
    addresses = [address for each in body.get("endpoints") or () for address in each.get("addresses") or ()]
    shown = ",".join(addresses[:3]) + (f" + {len(addresses) - 3} more..." if len(addresses) > 3 else "")
    return [body.get("addressType", ""), ports or "<unset>", shown or "<unset>", _created(body, now)]


def _binding(body: Json, now: float) -> list[Any]:
    role = body.get("roleRef") or {}
    subjects = body.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(each.get("name", "") for each in subjects if each.get("kind") == kind)

    accounts = ", ".join(
        f"{each.get('namespace')}/{each.get('name')}" for each in subjects if each.get("kind") == "ServiceAccount"
    )
    return [f"{role.get('kind')}/{role.get('name')}", _created(body, now), named("User"), named("Group"), accounts]


_BY_KIND: Final[Mapping[str, tuple[tuple[Column, ...], Cells]]] = {
    "Pod": (_columns("Ready Status Restarts Age *IP *Node *Nominated_Node *Readiness_Gates"), _pod),
    "Node": (
        _columns("Status Roles Age Version *Internal-IP *External-IP *OS-Image *Kernel-Version *Container-Runtime"),
        _node,
    ),
    "Namespace": (
        _columns("Status Age"),
        lambda body, now: [(body.get("status") or {}).get("phase", ""), _created(body, now)],
    ),
    "Deployment": (_columns("Ready Up-to-date Available Age *Containers *Images *Selector"), _deployment),
    "ReplicaSet": (_columns("#Desired #Current #Ready Age *Containers *Images *Selector"), _replica_set),
    "Service": (_columns("Type Cluster-IP External-IP Port(s) Age *Selector"), _service),
    "Event": (
        (*_columns("Last_Seen Type Reason Object *Subobject *Source Message *First_Seen *Count")[1:],
         Column("Name", "string", "name", priority=1)),
        _event,
    ),
    "ConfigMap": (
        _columns("Data Age"),
        lambda body, now: [len(body.get("data") or ()) + len(body.get("binaryData") or ()), _created(body, now)],
    ),
    "Secret": (
        _columns("Type Data Age"),
        lambda body, now: [body.get("type", ""), len(body.get("data") or ()), _created(body, now)],
    ),
    "ServiceAccount": (_columns("Age"), lambda body, now: [_created(body, now)]),
    "Lease": (
        _columns("Holder Age"),
        lambda body, now: [(body.get("spec") or {}).get("holderIdentity", ""), _created(body, now)],
    ),
    "EndpointSlice": (_columns("AddressType Ports Endpoints Age"), _endpoint_slice),
    "RoleBinding": (_columns("Role Age *Users *Groups *ServiceAccounts"), _binding),
    "ClusterRoleBinding": (_columns("Role Age *Users *Groups *ServiceAccounts"), _binding),
    "MutatingWebhookConfiguration": (
        _columns("#Webhooks Age"),
        lambda body, now: [len(body.get("webhooks") or ()), _created(body, now)],
    ),
    "ValidatingWebhookConfiguration": (
        _columns("#Webhooks Age"),
        lambda body, now: [len(body.get("webhooks") or ()), _created(body, now)],
    ),
    "StorageClass": (
        _columns("Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"),
        lambda body, now: [
            body.get("provisioner", ""),
            body.get("reclaimPolicy", ""),
            body.get("volumeBindingMode", ""),
            "true" if body.get("allowVolumeExpansion") else "false",
            _created(body, now),
        ],
    ),
}  # fmt: skip
_PLAIN: Final = (Column("Name", "string", "name"), Column("Created At", "date"))
_AGE: Final = Column("Age", "date", path=".metadata.creationTimestamp")


def render(kind: Kind, bodies: Sequence[Json], metadata: Json, include: str, now: float) -> Json:
    """Return a ``Table``; ``include`` is None, Metadata or Object."""
    columns, cells = _for(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": [{"cells": cells(body, now), "object": _included(body, include)} for body in bodies],
    }


def _for(kind: Kind) -> tuple[tuple[Column, ...], Cells]:
    if not kind.custom and kind.kind in _BY_KIND:
        columns, rest = _BY_KIND[kind.kind]
        if kind.kind == "Event":
            return columns, rest
        return columns, lambda body, now: [body["metadata"]["name"], *rest(body, now)]
    if not kind.custom:
        return _PLAIN, lambda body, now: [body["metadata"]["name"], body["metadata"].get("creationTimestamp")]
    own = kind.columns if kind.columns is not None else (_AGE,)
    return (
        (Column("Name", "string", "name"), *own),
        lambda body, now: [body["metadata"]["name"], *(_cell(column, body, now) for column in own)],
    )


def _included(body: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return body
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}


_STEP: Final = re.compile(
    r"\.([A-Za-z0-9_\0-]+)|\[\?\(@\.([\w.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]|\[(\d+|\*)\]|\['([^']+)'\]"
)


def _cell(column: Column, body: Json, now: float) -> Any:
    found = json_path(body, column.path)
    if not found:
        return None
    value = found[0]
    if column.type == "date" and isinstance(value, str):
        try:
            return age(value, now)
        except ValueError:
            return "<invalid>"
    if isinstance(value, (dict, list)):
        return str(value)
    return value


def json_path(body: Any, path: str) -> list[Any]:
    """Return what a simple JSONPath selects: fields, indices, ``[*]``, ``[?(@.key=="value")]``."""
    found = [body]
    at = 0
    text = path.strip("{}").replace("\\.", "\0")
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return []
        field, key, wanted, index, quoted = step.groups()
        following: list[Any] = []
        for value in found:
            if field or quoted:
                name = (field or quoted).replace("\0", ".")
                if isinstance(value, dict) and name in value:
                    following.append(value[name])
            elif isinstance(value, list):
                if key:
                    following.extend(each for each in value if json_path(each, f".{key}") == [wanted])
                elif index == "*":
                    following.extend(value)
                elif int(index) < len(value):
                    following.append(value[int(index)])
        found = following
        at = step.end()
    return found
