"""The kinds that the sandbox serves, with their names in the API and their properties."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

Json = dict[str, Any]
"""A Kubernetes object as plain JSON; stored ones are never changed in place."""

LEASE_NAMESPACE: Final = "kube-node-lease"
ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Key(NamedTuple):
    """The namespace and name of an object; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class GroupResource(NamedTuple):
    """The key under which objects of a kind are stored, independent of the version."""

    group: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@attrs.frozen
class Column:
    """A column of a table answer."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = attrs.field(default="", kw_only=True)
    priority: int = attrs.field(default=0, kw_only=True)
    path: str = attrs.field(default="", kw_only=True)


@attrs.frozen
class Kind:
    """One kind in one version.

    ``subresources`` are those besides the object itself; ``schema`` and ``columns`` come from a custom resource
    definition, ``stored_version`` is the version in which its objects are kept.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = attrs.field(default=True, kw_only=True)
    short_names: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    subresources: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    categories: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    verbs: tuple[str, ...] = attrs.field(default=ALL_VERBS, kw_only=True)
    singular_name: str = attrs.field(default="", kw_only=True)
    custom: bool = attrs.field(default=False, kw_only=True)
    schema: Mapping[str, Any] | None = attrs.field(default=None, eq=False, kw_only=True)
    columns: tuple[Column, ...] | None = attrs.field(default=None, kw_only=True)
    stored_version: str = attrs.field(default="", kw_only=True)
    has_generation: bool = attrs.field(default=True, kw_only=True)

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


PODS: Final = GroupResource("", "pods")
NODES: Final = GroupResource("", "nodes")
NAMESPACES: Final = GroupResource("", "namespaces")
EVENTS: Final = GroupResource("", "events")
SERVICES: Final = GroupResource("", "services")
SECRETS: Final = GroupResource("", "secrets")
CONFIGMAPS: Final = GroupResource("", "configmaps")
SERVICEACCOUNTS: Final = GroupResource("", "serviceaccounts")
RUNTIMECLASSES: Final = GroupResource("node.k8s.io", "runtimeclasses")
LEASES: Final = GroupResource("coordination.k8s.io", "leases")
ENDPOINTSLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
DEPLOYMENTS: Final = GroupResource("apps", "deployments")
REPLICASETS: Final = GroupResource("apps", "replicasets")
JOBS: Final = GroupResource("batch", "jobs")
CRDS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
ROLES: Final = GroupResource("rbac.authorization.k8s.io", "roles")
CLUSTERROLES: Final = GroupResource("rbac.authorization.k8s.io", "clusterroles")
ROLEBINDINGS: Final = GroupResource("rbac.authorization.k8s.io", "rolebindings")
CLUSTERROLEBINDINGS: Final = GroupResource("rbac.authorization.k8s.io", "clusterrolebindings")
MUTATING: Final = GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING: Final = GroupResource("admissionregistration.k8s.io", "validatingwebhookconfigurations")


def _of(
    group: str,
    plural: str,
    kind: str,
    short: str = "",
    *,
    namespaced: bool = True,
    sub: str = "",
    categories: str = "",
    generation: bool = False,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Kind:
    return Kind(
        group,
        "v1",
        plural,
        kind,
        namespaced=namespaced,
        short_names=tuple(short.split()),
        subresources=tuple(sub.split()),
        categories=tuple(categories.split()),
        verbs=verbs,
        has_generation=generation,
    )


_core: Final = functools.partial(_of, "")


_NO_COLLECTION_DELETE: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_RBAC: Final = "rbac.authorization.k8s.io"
_EXTENSIONS: Final = "api-extensions"
_ADMISSION: Final = "admissionregistration.k8s.io"
_POD_PARTS: Final = "attach binding ephemeralcontainers eviction exec log portforward proxy resize status"

BUILTIN: Final[tuple[Kind, ...]] = (
    _core("bindings", "Binding", verbs=("create",)),
    _core("configmaps", "ConfigMap", "cm"),
    _core("endpoints", "Endpoints", "ep"),
    _core("events", "Event", "ev"),
    _core("limitranges", "LimitRange", "limits"),
    _core("namespaces", "Namespace", "ns", namespaced=False, sub="finalize status", verbs=_NO_COLLECTION_DELETE),
    _core("nodes", "Node", "no", namespaced=False, sub="proxy status"),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", sub="status"),
    _core("persistentvolumes", "PersistentVolume", "pv", namespaced=False, sub="status"),
    _core("pods", "Pod", "po", sub=_POD_PARTS, categories="all", generation=True),
    _core("replicationcontrollers", "ReplicationController", "rc", sub="status", categories="all", generation=True),
    _core("resourcequotas", "ResourceQuota", "quota", sub="status"),
    _core("secrets", "Secret"),
    _core("serviceaccounts", "ServiceAccount", "sa", sub="token"),
    _core("services", "Service", "svc", sub="proxy status", categories="all"),
    _of(
        _ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
        categories=_EXTENSIONS,
        generation=True,
    ),
    _of(
        _ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
        categories=_EXTENSIONS,
        generation=True,
    ),
    # Policies are stored and not enforced: their expressions are CEL, which the sandbox does not evaluate.
    _of(
        _ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        sub="status",
        categories=_EXTENSIONS,
        generation=True,
    ),
    _of(
        _ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=_EXTENSIONS,
        generation=True,
    ),
    _of(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd crds",
        namespaced=False,
        sub="status",
        categories=_EXTENSIONS,
        generation=True,
    ),
    _of("apps", "daemonsets", "DaemonSet", "ds", sub="status", categories="all", generation=True),
    _of("apps", "deployments", "Deployment", "deploy", sub="scale status", categories="all", generation=True),
    _of("apps", "replicasets", "ReplicaSet", "rs", sub="scale status", categories="all", generation=True),
    _of("apps", "statefulsets", "StatefulSet", "sts", sub="scale status", categories="all", generation=True),
    _of("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs=("create",)),
    _of("authentication.k8s.io", "tokenreviews", "TokenReview", namespaced=False, verbs=("create",)),
    _of("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",)),
    _of(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        verbs=("create",),
    ),
    _of("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs=("create",)),
    _of("batch", "cronjobs", "CronJob", "cj", sub="status", categories="all", generation=True),
    _of("batch", "jobs", "Job", sub="status", categories="all", generation=True),
    _of("coordination.k8s.io", "leases", "Lease"),
    _of("discovery.k8s.io", "endpointslices", "EndpointSlice", generation=True),
    _of("networking.k8s.io", "ingressclasses", "IngressClass", namespaced=False, generation=True),
    _of("networking.k8s.io", "ingresses", "Ingress", "ing", sub="status", generation=True),
    _of("networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol", generation=True),
    _of("node.k8s.io", "runtimeclasses", "RuntimeClass", namespaced=False),
    _of("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", sub="status", generation=True),
    _of(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _of(_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    _of(_RBAC, "rolebindings", "RoleBinding"),
    _of(_RBAC, "roles", "Role"),
    _of("scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", namespaced=False, generation=True),
    _of("storage.k8s.io", "csinodes", "CSINode", namespaced=False),
    _of("storage.k8s.io", "storageclasses", "StorageClass", "sc", namespaced=False),
    _of("storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False, sub="status"),
)

SUBRESOURCE_KINDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "attach": ("", "v1", "PodAttachOptions"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
"""Group, version and kind of the body of subresources that are not the object itself."""
