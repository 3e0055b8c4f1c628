"""The real metrics-server in a pod of each cluster, as its own manifest has it, and what has its API server ask it."""

from __future__ import annotations

from typing import Any, Final

from tests.testbed.cluster import Cluster

PROGRAM: Final = "metrics-server"
IMAGE: Final = "localhost/metrics-server:1"
GROUP: Final = "metrics.k8s.io"
PORT: Final = 10250
RESOLUTION: Final = 10
"""Seconds between two looks at each node, the fewest that it takes."""
_SPACE: Final = "kube-system"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def start(cluster: Cluster) -> None:
    """Have metrics-server run on the cluster's own node, and the API server pass requests for metrics on to it."""
    cluster.apply(*_rights(), *_place(), _deployment(cluster.node_name))


def _meta(name: str = PROGRAM) -> dict[str, Any]:
    return {"name": name, "namespace": _SPACE, "labels": {"k8s-app": PROGRAM}}


def _rights() -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": PROGRAM, "namespace": _SPACE}
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    bound = {"system:metrics-server": "system:metrics-server", "metrics-server:delegator": "system:auth-delegator"}
    reader = {"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta()},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:metrics-server"},
            "rules": rules,
        },
        *(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            }
            for name, role in bound.items()
        ),
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": _meta("metrics-server-auth-reader"),
            "roleRef": reader,
            "subjects": [subject],
        },
    ]


def _place() -> list[dict[str, Any]]:
    ports = [{"name": "https", "port": 443, "targetPort": PORT}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta(),
            "spec": {"selector": {"k8s-app": PROGRAM}, "ports": ports},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1beta1",
                "service": {"name": PROGRAM, "namespace": _SPACE},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


def _deployment(node: str) -> dict[str, Any]:
    arguments = [
        f"--secure-port={PORT}",
        "--cert-dir=/tmp",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        # The port that a node names: that of a virtual node is the daemon's.
        "--kubelet-use-node-status-port",
        f"--kubelet-certificate-authority={_ACCOUNT}/ca.crt",
        f"--metric-resolution={RESOLUTION}s",
    ]
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [PROGRAM, *arguments],
        "ports": [{"name": "https", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    spec = {
        "serviceAccountName": PROGRAM,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [main],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(),
        "spec": {
            "selector": {"matchLabels": {"k8s-app": PROGRAM}},
            "template": {"metadata": {"labels": {"k8s-app": PROGRAM}}, "spec": spec},
        },
    }
