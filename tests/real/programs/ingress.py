"""Skipper, an ingress controller, in a pod of home, with the rights that its documentation asks for.

Of the controllers for Kubernetes it is the one that builds as it is: a single program of Go, whose module replaces no
other one. Traefik's module does, and holds a page that is built with other tools; Contour and the controllers around
nginx and HAProxy need a server beside them, Contour one that Debian has not.
"""

from __future__ import annotations

from typing import Any, Final

from tests.real.path import NAMESPACE
from tests.real.programs.workloads import container, pod_spec, workload

NAME: Final = "skipper"
CLASS: Final = "skipper"
PORT: Final = 9999
METRICS: Final = 9911
_ARGUMENTS: Final = (
    "-kubernetes",
    "-kubernetes-in-cluster",
    f"-kubernetes-ingress-class={CLASS}",
    "-kubernetes-https-redirect=false",
    "-enable-kubernetes-endpointslices",
    "-proxy-preserve-host",
    "-serve-host-metrics",
    "-metrics-flavour=prometheus",
    "-source-poll-timeout=1000",
    f"-address=:{PORT}",
    f"-support-listener=:{METRICS}",
    "-application-log-level=INFO",
    "-access-log-disabled",
)
_READ: Final = ("get", "list", "watch")


def rights() -> list[dict[str, Any]]:
    """Return the account of the controller, and what it may read."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["namespaces", "services", "endpoints", "pods"], "verbs": list(_READ)},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": list(_READ)},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": list(_READ)},
        {"apiGroups": ["zalando.org"], "resources": ["routegroups"], "verbs": list(_READ)},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {"name": CLASS},
            "spec": {"controller": "zalando.org/skipper"},
        },
    ]


def controller(selector: dict[str, str]) -> dict[str, Any]:
    """Return the controller's Deployment."""
    main = container("", port=PORT)
    main["command"] = ["skipper", *_ARGUMENTS]
    return workload("Deployment", NAME, pod_spec(main, selector, serviceAccountName=NAME))


def ingress(name: str, host: str, service: str, port: int) -> dict[str, Any]:
    """Return an Ingress that leads one name to a service."""
    backend = {"service": {"name": service, "port": {"number": port}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            # The controller reads the older annotation, and not the field.
            "annotations": {"kubernetes.io/ingress.class": CLASS},
        },
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    }
