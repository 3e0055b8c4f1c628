"""The rights of borrowers, in the namespaces granted to them and nowhere else: RBAC objects, and the relay's requests.

A request over the relay is judged by the same rules as the roles have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from liqod.hosting.tenants.contract import PRIORITY_CLASS
from liqod.model.ingress_path import GATEWAY_GROUP
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace
from liqod.model.objects.api_request import RequestAttributes

BORROWER_ROLE: Final = "liqod-borrower"
TENANT_ROLE: Final = "liqod-tenant"
SERVICE_ACCOUNT: Final = "borrower"

_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ["get", "list", "watch"]
_ALL: Final = [*_READ, "create", "update", "patch", "delete"]
ROUTES: Final = ("httproutes", "grpcroutes")
"""The routes of the Gateway API that borrowers may have, where it is served."""


def borrower_role(*, services: bool) -> dict[str, Any]:
    """Return the ClusterRole that is bound in each granted namespace.

    The status of ShadowPods is written by the lender alone, and so are endpoint slices: a borrower creates
    ShadowEndpointSlices. Services, ingresses and routes are in it only where admission policies are enforced
    (``policies``): with ``externalIPs``, or with another's host, a tenant could take over traffic of other namespaces.
    """
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": BORROWER_ROLE},
        "rules": [
            _rule("offloading.liqo.io", ["shadowpods"], _ALL),
            _rule("", ["pods", "events"], _READ),
            _rule("", ["pods/log"], ["get"]),
            # Usage of its pods; the group exists only where a metrics server runs.
            _rule("metrics.k8s.io", ["pods"], ["get", "list"]),
            # A WebSocket upgrade is a GET, a SPDY upgrade a POST; RBAC maps the method to the verb.
            _rule("", ["pods/exec", "pods/attach", "pods/portforward"], ["create", "get"]),
            _rule("", ["configmaps", "secrets", "persistentvolumeclaims"], _ALL),
            _rule("offloading.liqo.io", ["shadowendpointslices", "shadownetworkpolicysets"], _ALL),
            *(_published() if services else []),
        ],
    }


def _published() -> list[dict[str, Any]]:
    """Return the rules about what takes traffic from elsewhere."""
    return [
        _rule("", ["services"], _ALL),
        _rule("networking.k8s.io", ["ingresses"], _ALL),
        _rule(GATEWAY_GROUP, list(ROUTES), _ALL),
    ]


def priority_class() -> dict[str, Any]:
    """Return the priority class of tenants' pods: they make way for every pod of this cluster, and none for them.

    Pods without a class have priority 0. The cluster autoscaler takes no account of pods below -10 by default
    (expendable-pods-priority-cutoff).
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS},
        "value": -1,
        "preemptionPolicy": "Never",
        "description": "Pods of clusters that borrow from this one: preempted by any pod of this cluster.",
    }


def tenant_role(peer: str) -> dict[str, Any]:
    """Return the Role in the tenant namespace: the borrower may read its own account, to check that its token works.

    Nothing more, since the same namespace may hold credentials for the peer's own cluster.
    """
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": TENANT_ROLE, "namespace": tenant_namespace(peer)},
        # ``resourceNames`` restricts ``get`` to one object; it cannot restrict ``create`` (Kubernetes: "RBAC").
        "rules": [{**_rule("", ["serviceaccounts"], ["get"]), "resourceNames": [SERVICE_ACCOUNT]}],
    }


def binding(peer: str, namespace: str, role: str, kind: str) -> dict[str, Any]:
    """Return the RoleBinding, named after the role, that gives a borrower a role in one namespace."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace, "labels": {REMOTE_CLUSTER_LABEL: peer}},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": tenant_namespace(peer)}],
    }


def tenant_object(api_version: str, kind: str, name: str, namespace: str, peer: str) -> dict[str, Any]:
    """Return the head of an object that is made for a tenant in a namespace of its own."""
    metadata = {"name": name, "namespace": namespace, "labels": {REMOTE_CLUSTER_LABEL: peer}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def tenant_labels(peer: str) -> dict[str, str]:
    """Return the labels that make a namespace the tenant namespace of a peer."""
    return {TENANT_NAMESPACE_LABEL: "true", REMOTE_CLUSTER_LABEL: peer}


def service_account(peer: str) -> dict[str, Any]:
    """Return the account whose tokens the borrower gets; nothing in this cluster mounts them."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": SERVICE_ACCOUNT,
            "namespace": tenant_namespace(peer),
            "labels": {REMOTE_CLUSTER_LABEL: peer},
        },
        # Otherwise a pod in this namespace that names the account would get its token mounted.
        "automountServiceAccountToken": False,
    }


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def user_of(peer: str) -> str:
    """Return the user name of a borrower's service account (Kubernetes: "Service account tokens")."""
    return f"system:serviceaccount:{tenant_namespace(peer)}:{SERVICE_ACCOUNT}"


def permits(peer: str, ask: RequestAttributes, tenant: str) -> bool:
    """Return whether a borrower may send a request; ``tenant`` is the cluster ID that the namespace was granted to.

    In its tenant namespace a borrower may read its own service account and nothing else.
    """
    if not ask.namespace or ask.path:
        return False
    if ask.namespace == tenant_namespace(peer):
        return _covered(tenant_role(peer)["rules"], ask)
    return tenant == peer and _covered(_BORROWER, ask)


def _covered(rules: Iterable[Mapping[str, Any]], ask: RequestAttributes) -> bool:
    return any(
        ask.group in rule["apiGroups"]
        and ask.what in rule["resources"]
        and ask.verb in rule["verbs"]
        and ask.name in rule.get("resourceNames", [ask.name])
        for rule in rules
    )


_BORROWER: Final[list[dict[str, Any]]] = borrower_role(services=True)["rules"]
"""With services: where this API server grants borrowers none, its RBAC refuses them."""
