"""The kinds that the sandbox serves, with their names in the API and their properties."""

from __future__ import annotations

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
    description: str = ""
    priority: int = 0
    path: str = ""


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
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    singular_name: str = ""
    custom: bool = False
    schema: Mapping[str, Any] | None = attrs.field(default=None, eq=False)
    columns: tuple[Column, ...] | None = None
    stored_version: str = ""
    has_generation: bool = True

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


def _core(
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
    return _of("", "v1", plural, kind, short, namespaced, sub, categories, generation, verbs)


def _of(
    group: str,
    version: str,
    plural: str,
    kind: str,
    short: str = "",
    namespaced: bool = True,
    sub: str = "",
    categories: str = "",
    generation: bool = False,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Kind:
    return Kind(
        group,
        version,
        plural,
        kind,
        namespaced,
        tuple(short.split()),
        tuple(sub.split()),
        tuple(categories.split()),
        verbs,
        has_generation=generation,
    )


_NO_COLLECTION_DELETE: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_RBAC: Final = "rbac.authorization.k8s.io"
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
    _of(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "", False, "",
        "api-extensions", True),
    _of(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "", False, "",
        "api-extensions", True),
    # Policies are stored and not enforced: their expressions are CEL, which the sandbox does not evaluate.
    _of(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", False, "status",
        "api-extensions", True),
    _of(_ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "", False, "",
        "api-extensions", True),
    _of("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", "crd crds", False,
        "status", "api-extensions", True),
    _of("apps", "v1", "daemonsets", "DaemonSet", "ds", True, "status", "all", True),
    _of("apps", "v1", "deployments", "Deployment", "deploy", True, "scale status", "all", True),
    _of("apps", "v1", "replicasets", "ReplicaSet", "rs", True, "scale status", "all", True),
    _of("apps", "v1", "statefulsets", "StatefulSet", "sts", True, "scale status", "all", True),
    _of("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", "", False, verbs=("create",)),
    _of("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", "", False, verbs=("create",)),
    _of("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=("create",)),
    _of("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", "", False,
        verbs=("create",)),
    _of("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", "", False, verbs=("create",)),
    _of("batch", "v1", "cronjobs", "CronJob", "cj", True, "status", "all", True),
    _of("batch", "v1", "jobs", "Job", "", True, "status", "all", True),
    _of("coordination.k8s.io", "v1", "leases", "Lease"),
    _of("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True),
    _of("networking.k8s.io", "v1", "ingressclasses", "IngressClass", "", False, generation=True),
    _of("networking.k8s.io", "v1", "ingresses", "Ingress", "ing", True, "status", generation=True),
    _of("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "netpol", generation=True),
    _of("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "", False),
    _of("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", True, "status", generation=True),
    _of(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", "", False),
    _of(_RBAC, "v1", "clusterroles", "ClusterRole", "", False),
    _of(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _of(_RBAC, "v1", "roles", "Role"),
    _of("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "pc", False, generation=True),
    _of("storage.k8s.io", "v1", "csinodes", "CSINode", "", False),
    _of("storage.k8s.io", "v1", "storageclasses", "StorageClass", "sc", False),
    _of("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", "", False, "status"),
)  # fmt: skip

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
