"""The initial objects of a cluster: namespaces, default roles and bindings, the ``kubernetes`` service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubesandbox.kinds.kinds import CLUSTERROLEBINDINGS, CLUSTERROLES, NAMESPACES, SERVICES, GroupResource, Json

NAMESPACE_NAMES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_RBAC: Final = "rbac.authorization.k8s.io"


def _rule(verbs: Sequence[str], groups: Sequence[str], resources: str) -> Json:
    return {"verbs": list(verbs), "apiGroups": list(groups), "resources": resources.split()}


def _urls(*paths: str) -> Json:
    return {"verbs": ["get"], "nonResourceURLs": list(paths)}


_APP_RESOURCES: Final = (
    "pods pods/status pods/log pods/exec pods/attach pods/portforward services endpoints configmaps events "
    "serviceaccounts persistentvolumeclaims replicationcontrollers"
)
_VIEW: Final = [
    _rule(
        _READ,
        [""],
        _APP_RESOURCES.replace("pods/exec pods/attach pods/portforward ", "")
        + " namespaces limitranges resourcequotas",
    ),
    _rule(_READ, ["apps", "batch", "discovery.k8s.io", "networking.k8s.io", "policy"], "*"),
]
_EDIT: Final = [
    *_VIEW,
    _rule((*_READ, *_WRITE), [""], f"{_APP_RESOURCES} secrets pods/eviction"),
    _rule(_WRITE, ["apps", "batch", "networking.k8s.io", "policy"], "*"),
    _rule((*_READ, *_WRITE), ["coordination.k8s.io"], "leases"),
]
_ADMIN: Final = [*_EDIT, _rule((*_READ, *_WRITE), [_RBAC], "roles rolebindings")]
_DISCOVERY: Final = _urls(
    *("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"),
    *("/healthz", "/livez", "/readyz", "/version", "/version/"),
)
_ROLES: Final[dict[str, list[Json]]] = {
    "cluster-admin": [_rule(["*"], ["*"], "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "admin": _ADMIN,
    "edit": _EDIT,
    "view": _VIEW,
    "system:discovery": [_DISCOVERY],
    "system:public-info-viewer": [_urls("/healthz", "/livez", "/readyz", "/version", "/version/")],
    "system:basic-user": [
        _rule(["create"], ["authorization.k8s.io"], "selfsubjectaccessreviews selfsubjectrulesreviews"),
        _rule(["create"], ["authentication.k8s.io"], "selfsubjectreviews"),
    ],
}
_BOUND: Final[dict[str, tuple[str, ...]]] = {
    "cluster-admin": ("system:masters",),
    "system:discovery": ("system:authenticated",),
    "system:basic-user": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}


def objects() -> Iterator[tuple[GroupResource, str, Json]]:
    """Yield (resource, namespace, body) in order of creation."""
    for name in NAMESPACE_NAMES:
        yield NAMESPACES, "", {"metadata": {"name": name}}
    for name, rules in _ROLES.items():
        labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
        yield CLUSTERROLES, "", {"metadata": {"name": name, "labels": labels}, "rules": rules}
    for name, groups in _BOUND.items():
        subjects = [{"kind": "Group", "apiGroup": _RBAC, "name": group} for group in groups]
        reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
        yield CLUSTERROLEBINDINGS, "", {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    yield (
        SERVICES,
        "default",
        {"metadata": {"name": "kubernetes", "labels": labels}, "spec": {"clusterIP": "10.96.0.1", "ports": ports}},
    )
