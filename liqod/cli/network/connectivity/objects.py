"""The objects that ``test`` makes: one namespace, and in it pods, services, a policy, ingresses. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liqod.cli.network.connectivity import scripts
from liqod.cli.network.connectivity.cases import ALLOWED_HERE, CLOSED_HERE, HOME, Case
from liqod.model.names import (
    CONNECTIVITY_TEST_BY,
    CONNECTIVITY_TEST_LABEL,
    ENABLED_LABEL,
    FORCE_NODE_PORT,
    REMOTE_CLUSTER_LABEL,
    SKIP_REFLECTION,
    TAINT_EFFECT,
    TAINT_KEY,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)

_SHUT: Final = {"reach": "closed"}
_ADMITTED: Final = {"may": "reach-closed"}


def namespace(name: str, origin: str) -> dict[str, Any]:
    """Return a namespace whose pods may be offloaded, and that a later run knows as one of a test."""
    labels = {ENABLED_LABEL: "true", CONNECTIVITY_TEST_LABEL: "true"}
    return {"metadata": {"name": name, "labels": labels, "annotations": {CONNECTIVITY_TEST_BY: origin}}}


def services(name: str) -> list[dict[str, Any]]:
    """Return the services of a server: with an address, one by one, and with a node's port."""
    return [
        _service(name, name),
        _service(f"{name}-each", name, clusterIP="None"),
        _service(f"{name}-node", name, annotations={FORCE_NODE_PORT: "true"}, type="NodePort"),
    ]


def _service(name: str, server: str, *, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": scripts.PORT, "targetPort": scripts.PORT}]
    meta = {"name": name, "labels": _labels(server), "annotations": dict(annotations or {})}
    return {"metadata": meta, "spec": {"selector": {"app": server}, "ports": ports, **spec}}


def policy() -> dict[str, Any]:
    """Return the NetworkPolicy that lets the admitted pods alone reach the closed servers."""
    allowed = [{"from": [{"podSelector": {"matchLabels": _ADMITTED}}]}]
    spec = {"podSelector": {"matchLabels": _SHUT}, "policyTypes": ["Ingress"], "ingress": allowed}
    return {"metadata": {"name": "closed", "labels": _labels("closed")}, "spec": spec}


def ingress(server: str, space: str, class_name: str) -> dict[str, Any]:
    """Return an ingress of this cluster, which no lender gets, in front of a server's service."""
    backend = {"service": {"name": server, "port": {"number": scripts.PORT}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    meta = {"name": server, "labels": _labels(server), "annotations": {SKIP_REFLECTION: "true"}}
    rules = [{"host": f"{server}.{space}.example", "http": {"paths": paths}}]
    return {"metadata": meta, "spec": {"ingressClassName": class_name, "rules": rules}}


def server(name: str, image: str, where: str, identity: str) -> dict[str, Any]:
    """Return a server; ``where`` is the cluster ID of a peer, or ``HOME``."""
    closed = name.startswith("closed")
    body = _pod(name, where, _SHUT if closed else {})
    script = scripts.server(identity, large=not closed)
    body["spec"] |= {"containers": [_container("server", image, script)], "restartPolicy": "Always"}
    return body


def client(name: str, image: str, wanted: Sequence[Case], written: Mapping[str, str], seconds: int) -> dict[str, Any]:
    """Return a client with a container for each of its cases; it is ended after ``seconds``.

    ``written`` has the script of each case by its container's name.
    """
    where = wanted[0].source
    admitted = name.startswith(ALLOWED_HERE.partition("-")[0])
    body = _pod(name, where, _ADMITTED if admitted else {})
    body["spec"] |= {
        "containers": [_container(one.name, image, written[one.name]) for one in wanted],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": seconds,
        # A token without any rights, of an account that goes with the namespace.
        "automountServiceAccountToken": any(one.by == "api" for one in wanted),
    }
    return body


def _labels(app: str) -> dict[str, str]:
    return {"app": app, CONNECTIVITY_TEST_LABEL: "true"}


def _container(name: str, image: str, script: str) -> dict[str, Any]:
    host = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "env": [host],
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _pod(name: str, where: str, labels: Mapping[str, str]) -> dict[str, Any]:
    rule = {"key": REMOTE_CLUSTER_LABEL, "operator": "In", "values": [where]}
    if where == HOME:
        rule = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    spec = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"key": TAINT_KEY, "operator": "Exists", "effect": TAINT_EFFECT}] if where else [],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        # What the strictest of Kubernetes' Pod Security Standards asks for.
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"metadata": {"name": name, "labels": {**_labels(name), **labels}}, "spec": spec}


def policies(wanted: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the policies that cases need."""
    return [policy()] if any(one.server.startswith(CLOSED_HERE.partition("-")[0]) for one in wanted) else []
