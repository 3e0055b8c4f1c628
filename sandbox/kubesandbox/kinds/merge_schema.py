"""How lists and maps of a kind merge: by key, as a set, or as one value. Pure.

The core kinds' shapes are the ``+listType`` and ``patchStrategy`` markers of k8s.io/api; custom kinds bring theirs in
``x-kubernetes-list-type`` and ``x-kubernetes-map-type``. Default for other fields: maps merge, lists are atomic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs


@attrs.frozen(eq=False)
class Shape:
    """``fields`` and ``item`` describe what is inside; ``keys`` make a list a map, the first is the patch merge key."""

    fields: Mapping[str, Shape] = attrs.field(factory=dict)
    item: Shape | None = None
    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False

    def of(self, name: str) -> Shape:
        """Return the shape of a field."""
        return self.fields.get(name) or self.item or ANY

    @property
    def element(self) -> Shape:
        return self.item or ANY


ANY: Final = Shape()
ATOMIC: Final = Shape(atomic=True)
_SET: Final = Shape(is_set=True)
KEY_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}


def _by(*keys: str, **fields: Shape) -> Shape:
    return Shape(item=Shape(fields), keys=keys)


_METADATA: Final = Shape({"ownerReferences": _by("uid"), "finalizers": _SET})
_CONDITIONS: Final = _by("type")
_SELECTOR: Final = ATOMIC
_CONTAINERS: Final = _by(
    "name",
    env=_by("name", valueFrom=Shape({"fieldRef": ATOMIC, "secretKeyRef": ATOMIC, "configMapKeyRef": ATOMIC})),
    ports=_by("containerPort", "protocol"),
    volumeMounts=_by("mountPath"),
    volumeDevices=_by("devicePath"),
    resources=Shape({"claims": _by("name")}),
)
_POD_SPEC: Final = Shape(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "volumes": _by("name"),
        "imagePullSecrets": _by("name"),
        "hostAliases": _by("ip"),
        "topologySpreadConstraints": _by("topologyKey", "whenUnsatisfiable"),
        "nodeSelector": ATOMIC,
        "schedulingGates": _by("name"),
        "resourceClaims": _by("name"),
    }
)
_TEMPLATE: Final = Shape({"metadata": _METADATA, "spec": _POD_SPEC})
_WORKLOAD: Final = Shape(
    {
        "metadata": _METADATA,
        "spec": Shape({"template": _TEMPLATE, "selector": _SELECTOR}),
        "status": Shape({"conditions": _CONDITIONS}),
    }
)
_PLAIN: Final = Shape({"metadata": _METADATA})
_WITH_CONDITIONS: Final = Shape({"metadata": _METADATA, "status": Shape({"conditions": _CONDITIONS})})
_WEBHOOKS: Final = Shape({"metadata": _METADATA, "webhooks": _by("name")})

_SHAPES: Final[Mapping[str, Shape]] = {
    "Pod": Shape(
        {
            "metadata": _METADATA,
            "spec": _POD_SPEC,
            "status": Shape({"conditions": _CONDITIONS, "podIPs": _by("ip"), "hostIPs": _by("ip")}),
        }
    ),
    "Node": Shape(
        {
            "metadata": _METADATA,
            "spec": Shape({"podCIDRs": _SET}),
            "status": Shape({"conditions": _CONDITIONS, "addresses": _by("type")}),
        }
    ),
    "Service": Shape(
        {
            "metadata": _METADATA,
            "spec": Shape({"ports": _by("port", "protocol"), "selector": ATOMIC}),
            "status": Shape({"conditions": _CONDITIONS}),
        }
    ),
    "ServiceAccount": Shape({"metadata": _METADATA, "secrets": _by("name")}),
    "Secret": _PLAIN,
    "CronJob": Shape({"metadata": _METADATA, "spec": Shape({"jobTemplate": Shape({"spec": _WORKLOAD.of("spec")})})}),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "EndpointSlice": Shape({"metadata": _METADATA}),
    **dict.fromkeys(("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job"), _WORKLOAD),
    **dict.fromkeys(("Namespace", "PodDisruptionBudget", "CustomResourceDefinition"), _WITH_CONDITIONS),
}


def core(kind: str) -> Shape:
    """Return the shape of a built-in kind."""
    return _SHAPES.get(kind, _PLAIN)


def from_schema(schema: Mapping[str, Any] | None) -> Shape:
    """Return the shape of a custom kind from its structural schema."""
    body = _from_schema(schema or {})
    return Shape({**body.fields, "metadata": _METADATA}, body.item)


def _from_schema(schema: Mapping[str, Any]) -> Shape:
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    fields = {name: _from_schema(inner) for name, inner in (schema.get("properties") or {}).items()}
    inner = schema.get("items") if schema.get("type") == "array" else schema.get("additionalProperties")
    item = _from_schema(inner) if isinstance(inner, Mapping) else None
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return Shape(fields, item, keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()))
        case "set":
            return _SET
    return Shape(fields, item)
