"""Keeps what may be sent to somebody: fields on an allow list, and no text that looks like a secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REMOVED: Final = "<removed>"
MAX_TEXT: Final = 2000
"""Characters of one text that are kept."""

_CONDITION: Final = {"type": True, "status": True, "reason": True, "message": True, "lastTransitionTime": True}
_SUBNETS: Final = {
    "podCIDRs": True,
    "externalCIDR": True,
    "externalCIDR6": True,
    "serviceCIDRs": True,
    "reason": True,
    "message": True,
}
_ENDED: Final = {"reason": True, "exitCode": True, "finishedAt": True}
_CONTAINER: Final = {
    "name": True,
    "ready": True,
    "restartCount": True,
    "state": {"waiting": {"reason": True}, "terminated": _ENDED},
    "lastState": {"terminated": _ENDED},
}
METADATA: Final = {
    "name": True,
    "namespace": True,
    "uid": True,
    "generation": True,
    "creationTimestamp": True,
    "deletionTimestamp": True,
    "finalizers": True,
}
_STATUS: Final = {"phase": True, "reason": True, "message": True, "conditions": _CONDITION}

Allowed = Mapping[str, Any]
"""Which fields are kept: by name, True or the fields inside; ``*`` stands for every name."""

FIELDS: Final[Mapping[str, Allowed]] = {
    "ForeignCluster": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "outgoingPeering": True, "incomingPeering": True, "endpoints": {"source": True}},
        "status": {
            **_STATUS,
            "clusterName": True,
            "api": True,
            "lent": {"verdict": True, "reason": True, "epoch": True},
        },
    },
    "Advertisement": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "epoch": True, "seq": True, "timeToLive": True, "decision": True},
        "status": {**_STATUS, "receivedAt": True},
    },
    "VirtualNode": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "nodeName": True},
        "status": {**_STATUS, "api": True},
    },
    "ResourceSlice": {
        "metadata": METADATA,
        "spec": {"providerClusterID": True, "class": True, "resources": {"*": True}},
        "status": {**_STATUS, "resources": {"*": True}, "observedGeneration": True},
    },
    "NamespaceNattingTable": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "nattingTable": {"*": True}},
        "status": {"phase": True, "message": True, "mappings": {"*": {"phase": True, "reason": True, "message": True}}},
    },
    "NamespaceOffloading": {
        "metadata": METADATA,
        "spec": {"namespaceMappingStrategy": True, "podOffloadingStrategy": True, "remoteNamespaceName": True},
        "status": {"observedGeneration": True, "offloadingPhase": True, "message": True},
    },
    "NetworkConfig": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "local": {**_SUBNETS, "mtu": True}, "remap": _SUBNETS},
        "status": {**_STATUS, "remote": {**_SUBNETS, "mtu": True}, "ack": _SUBNETS},
    },
    "TunnelEndpoint": {
        "metadata": METADATA,
        "spec": {"clusterID": True, "allowedIPs": True},
        "status": {
            **_STATUS,
            "cut": True,
            "device": True,
            "implementation": True,
            "handshake": True,
            "rtt": True,
            "loss": True,
            "pathMTU": True,
        },
    },
    "NetworkGateway": {
        "metadata": METADATA,
        "status": {"mtu": True, "ready": True, "message": True, "lacking": True},
    },
    "ClusterFacts": {
        "metadata": METADATA,
        "status": {"facts": {"name": True, "state": True, "source": True, "message": True}},
    },
    "ShadowEndpointSlice": {
        "metadata": METADATA,
        "spec": {
            "template": {
                "addressType": True,
                "ports": {"name": True, "port": True, "protocol": True},
                "endpoints": {"conditions": {"ready": True, "serving": True, "terminating": True}},
            }
        },
    },
    "ShadowNetworkPolicySet": {
        "metadata": METADATA,
        "spec": {"policies": {"name": True}, "namespaces": {"name": True}},
    },
    "SearchDomain": {"metadata": METADATA, "status": _STATUS},
    "ShadowPod": {"metadata": METADATA, "status": {"phase": True, "reason": True, "message": True}},
    "Node": {
        "metadata": METADATA,
        "spec": {"unschedulable": True, "taints": {"key": True, "effect": True}},
        "status": {"conditions": _CONDITION, "allocatable": {"*": True}, "nodeInfo": {"kubeletVersion": True}},
    },
    "Pod": {
        "metadata": METADATA,
        "spec": {"nodeName": True},
        "status": {"phase": True, "reason": True, "conditions": _CONDITION, "containerStatuses": _CONTAINER},
    },
    "Lease": {
        "metadata": METADATA,
        "spec": {"holderIdentity": True, "renewTime": True, "leaseDurationSeconds": True, "leaseTransitions": True},
    },
    "Event": {
        "metadata": {"namespace": True, "creationTimestamp": True},
        "involvedObject": {"kind": True, "name": True, "namespace": True},
        "reason": True,
        "message": True,
        "type": True,
        "count": True,
        "lastTimestamp": True,
        "reportingComponent": True,
    },
}
"""The fields of each kind that are kept; a kind that is not named is not gathered."""

_SECRETS: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|\Z)"  # PEM
    r"|eyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+(\.[A-Za-z0-9_.+/=-]*)?"  # JWT
    r"|liqo1\.[A-Za-z0-9_=.-]+"  # pairing tokens
    r"|(?i:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|(?i:password|passwd|token|secret|api[-_]?key|credential)s?[\"']?\s*[=:]\s*[\"']?[^\s\"',;]{4,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user information of a URL
    r"|(?<![A-Za-z0-9+/])(?=[A-Za-z0-9+/]*[0-9])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+/]{40,}={0,2}(?![A-Za-z0-9+/])",
    re.DOTALL,
)


def scrubbed(text: str) -> str:
    """Return a text without what looks like a key, token or password."""
    return _SECRETS.sub(REMOVED, text)


def allowed(body: Mapping[str, Any], fields: Allowed) -> dict[str, Any]:
    """Return the fields of an object that are on a list, scrubbed; all others are left out."""
    kept: dict[str, Any] = {}
    for name, value in body.items():
        inside = fields.get(name, fields.get("*"))
        if inside is not None:
            kept[scrubbed(str(name))] = _kept(value, inside)
    return kept


def _kept(value: Any, fields: Any) -> Any:
    if isinstance(value, list):
        return [_kept(one, fields) for one in value[:200]]
    if isinstance(value, Mapping):
        return allowed(value, fields) if isinstance(fields, Mapping) else REMOVED
    if isinstance(fields, Mapping):
        return REMOVED
    return scrubbed(value[:MAX_TEXT]) if isinstance(value, str) else value


def left_out(body: Mapping[str, Any], fields: Allowed, path: str = "") -> set[str]:
    """Return the paths of fields of an object that are not on a list; names of unknown fields inside are not given."""
    paths: set[str] = set()
    for name, value in body.items():
        inside = fields.get(name, fields.get("*"))
        at = f"{path}.{name}" if path else str(name)
        if inside is None:
            paths.add(scrubbed(at[:200]))
        elif isinstance(inside, Mapping):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Mapping) and "*" not in inside:
                    paths |= left_out(one, inside, at)
    return paths
