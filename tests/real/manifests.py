"""Objects for tests on real clusters, made of the one image that those clusters have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.testbed.image import BUSYBOX


def pod(
    name: str, command: Sequence[str], *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a pod with one container that runs a command of busybox."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def service(name: str, selector: dict[str, str], port: int, *, namespace: str = "default") -> dict[str, Any]:
    """Return a service in front of the pods with some labels; it and they use the same port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, "ports": [{"port": port, "targetPort": port}]},
    }


def slice_of(name: str, address: str, port: int, *, namespace: str) -> dict[str, Any]:
    """Return a slice that somebody wrote by hand, with one endpoint."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "somebody"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    }
