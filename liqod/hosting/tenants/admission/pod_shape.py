"""The fields of a pod that a tenant may use, at every depth: an allow list. Pure.

The daemon applies it where it makes a pod (``shadowpods.pod_contract``), the API server where the ShadowPod is written
(``pod_rules``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_CONTAINERS: Final = 256
"""Containers of a pod, of all kinds together."""
MAX_TOLERATIONS: Final = 512
"""Those of an update are compared with those of the pod, each with each."""
TOKENS: Final = ("serviceAccountToken", "podCertificate")
"""Sources of a projected volume that are this cluster's own; the first is one that a granted account may have."""
DEFAULT_ACCOUNT: Final = "default"
"""The service account of pods that name none."""
DROPPED: Final = (
    # A pod with a node's name is not scheduled: no taint, affinity or resource of the node is considered.
    "nodeName",
    # Admission computes it from the class, and refuses another value (plugin Priority).
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "serviceAccount",
    "serviceAccountName",
    "ephemeralContainers",
)
"""Fields that this cluster decides about, or that are applied to a running pod only."""

# A shape is None (any value), a mapping of allowed fields to shapes, or a list of one shape for each item. Source:
# Kubernetes 1.36, api/core/v1/types.go. What a later release adds is refused until it is listed here.
_ACTION: Final = {
    "exec": {"command": None},
    # Not ``host``: the kubelet sends these from the host's network, so that 127.0.0.1 is the node's own.
    "httpGet": {"path": None, "port": None, "scheme": None, "httpHeaders": [{"name": None, "value": None}]},
    "tcpSocket": {"port": None},
}
_PROBE: Final = {
    **_ACTION,
    "grpc": {"port": None, "service": None},
    **dict.fromkeys(
        (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
            "terminationGracePeriodSeconds",
        )
    ),
}
_HOOK: Final = {**_ACTION, "sleep": {"seconds": None}}
_NAMED: Final = {"name": None, "optional": None}
_KEY: Final = {**_NAMED, "key": None}
_FIELD: Final = {"fieldPath": None, "apiVersion": None}
_RESOURCE_FIELD: Final = {"containerName": None, "resource": None, "divisor": None}
_ITEM: Final = {"key": None, "path": None, "mode": None}
_FILE: Final = {"path": None, "fieldRef": _FIELD, "resourceFieldRef": _RESOURCE_FIELD, "mode": None}
# Pod Security judges the values of these fields; of windowsOptions it knows hostProcess alone, and the credentials of
# group managed service accounts (gmsaCredentialSpec) are the lender's.
_SECURITY: Final = {
    **dict.fromkeys(("seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile")),
    "windowsOptions": {"runAsUserName": None, "hostProcess": None},
}
_RESOURCES: Final = {"limits": None, "requests": None}
CONTAINER: Final = {
    **dict.fromkeys(
        (
            "name",
            "image",
            "command",
            "args",
            "workingDir",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "volumeDevices",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "imagePullPolicy",
            "stdin",
            "stdinOnce",
            "tty",
            "targetContainerName",
        )
    ),
    "ports": [dict.fromkeys(("name", "hostPort", "containerPort", "protocol", "hostIP"))],
    "envFrom": [{"prefix": None, "configMapRef": _NAMED, "secretRef": _NAMED}],
    "env": [
        {
            "name": None,
            "value": None,
            "valueFrom": {
                "fieldRef": _FIELD,
                "resourceFieldRef": _RESOURCE_FIELD,
                "configMapKeyRef": _KEY,
                "secretKeyRef": _KEY,
                "fileKeyRef": {"volumeName": None, "path": None, "key": None, "optional": None},
            },
        }
    ],
    "resources": _RESOURCES,
    "volumeMounts": [
        dict.fromkeys(
            ("name", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "mountPropagation", "subPathExpr")
        )
    ],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _HOOK, "preStop": _HOOK, "stopSignal": None},
    "securityContext": {
        **_SECURITY,
        **dict.fromkeys(
            ("capabilities", "privileged", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount")
        ),
    },
}
_CONFIG: Final = {"name": None, "items": [_ITEM], "defaultMode": None, "optional": None}
_CLAIM: Final = {
    "accessModes": None,
    "resources": _RESOURCES,
    "storageClassName": None,
    "volumeMode": None,
    "volumeName": None,
    "dataSource": {"apiGroup": None, "kind": None, "name": None},
    "dataSourceRef": {"apiGroup": None, "kind": None, "name": None, "namespace": None},
}
_SOURCES: Final = {
    "configMap": {"name": None, "items": [_ITEM], "optional": None},
    "secret": {"name": None, "items": [_ITEM], "optional": None},
    "downwardAPI": {"items": [_FILE]},
    # Judged by pod_restrictions, in a sentence that says what to do.
    "serviceAccountToken": None,
    "podCertificate": None,
}
VOLUMES: Final[Mapping[str, Any]] = {
    "configMap": _CONFIG,
    "secret": {"secretName": None, "items": [_ITEM], "defaultMode": None, "optional": None},
    "emptyDir": {"medium": None, "sizeLimit": None},
    "downwardAPI": {"items": [_FILE], "defaultMode": None},
    "projected": {"sources": [_SOURCES], "defaultMode": None},
    "persistentVolumeClaim": {"claimName": None, "readOnly": None},
    "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": None, "annotations": None}, "spec": _CLAIM}},
    "image": {"reference": None, "pullPolicy": None},
}
_NODE_TERM: Final = {"matchExpressions": None, "matchFields": None}
_NODE_AFFINITY: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]},
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": None, "preference": _NODE_TERM}],
}
_POD_TERM: Final = dict.fromkeys(
    ("labelSelector", "namespaces", "namespaceSelector", "topologyKey", "matchLabelKeys", "mismatchLabelKeys")
)
_POD_AFFINITY: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": None, "podAffinityTerm": _POD_TERM}],
}
POD: Final = {
    **dict.fromkeys(DROPPED),
    **dict.fromkeys(
        (
            "restartPolicy",
            "terminationGracePeriodSeconds",
            "activeDeadlineSeconds",
            "dnsPolicy",
            "nodeSelector",
            "automountServiceAccountToken",
            "hostNetwork",
            "hostPID",
            "hostIPC",
            "shareProcessNamespace",
            "hostname",
            "hostnameOverride",
            "subdomain",
            "runtimeClassName",
            "enableServiceLinks",
            "overhead",
            "topologySpreadConstraints",
            "setHostnameAsFQDN",
            "hostUsers",
        )
    ),
    "os": {"name": None},
    "tolerations": None,
    "imagePullSecrets": [{"name": None}],
    "affinity": {"nodeAffinity": _NODE_AFFINITY, "podAffinity": _POD_AFFINITY, "podAntiAffinity": _POD_AFFINITY},
    "hostAliases": [{"ip": None, "hostnames": None}],
    "dnsConfig": {"nameservers": None, "searches": None, "options": None},
    "readinessGates": [{"conditionType": None}],
    "resources": _RESOURCES,
    "securityContext": {
        **_SECURITY,
        **dict.fromkeys(
            (
                "supplementalGroups",
                "supplementalGroupsPolicy",
                "fsGroup",
                "fsGroupChangePolicy",
                "sysctls",
                "seLinuxChangePolicy",
            )
        ),
    },
    "volumes": None,
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "ephemeralContainers": [CONTAINER],
}
