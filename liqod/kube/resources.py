"""The API resources that liqod reads or writes: group, version, plural, kind and scope."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Resource:
    """A kind as the API serves it; ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS: Final = Resource("", "v1", "pods", "Pod", True)
NODES: Final = Resource("", "v1", "nodes", "Node", False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True)
SERVICES: Final = Resource("", "v1", "services", "Service", True)
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True)
EVENTS: Final = Resource("", "v1", "events", "Event", True)
SERVICEACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
ENDPOINTSLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLEBINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
CLUSTERROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTERROLEBINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
MUTATINGWEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
MUTATINGPOLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False
)
MUTATINGPOLICYBINDINGS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", True)
DAEMONSETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
STATEFULSETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", True)
DISRUPTIONBUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
INGRESSES: Final = Resource("networking.k8s.io", "v1", "ingresses", "Ingress", True)
HTTPROUTES: Final = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", True)
GRPCROUTES: Final = Resource("gateway.networking.k8s.io", "v1", "grpcroutes", "GRPCRoute", True)
VALIDATINGPOLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
VALIDATINGPOLICYBINDINGS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
SERVICECIDRS: Final = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False)
LIMITRANGES: Final = Resource("", "v1", "limitranges", "LimitRange", True)
RESOURCEQUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True)
NETWORKPOLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True)
PRIORITYCLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
RUNTIMECLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
STORAGECLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
PERSISTENTVOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
PERSISTENTVOLUMECLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
INGRESSCLASSES: Final = Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)

SEARCHDOMAINS: Final = Resource("discovery.liqo.io", "v1alpha1", "searchdomains", "SearchDomain", False)
CLUSTERFACTS: Final = Resource("discovery.liqo.io", "v1alpha1", "clusterfacts", "ClusterFacts", False)
FOREIGNCLUSTERS: Final = Resource("discovery.liqo.io", "v1alpha1", "foreignclusters", "ForeignCluster", False)
ADVERTISEMENTS: Final = Resource("sharing.liqo.io", "v1alpha1", "advertisements", "Advertisement", False)
RESOURCESLICES: Final = Resource("sharing.liqo.io", "v1alpha1", "resourceslices", "ResourceSlice", True)
VIRTUALNODES: Final = Resource("offloading.liqo.io", "v1beta1", "virtualnodes", "VirtualNode", True)
NAMESPACEOFFLOADINGS: Final = Resource(
    "offloading.liqo.io", "v1beta1", "namespaceoffloadings", "NamespaceOffloading", True
)
NATTINGTABLES: Final = Resource(
    "virtualkubelet.liqo.io", "v1alpha1", "namespacenattingtables", "NamespaceNattingTable", False
)
NETWORKCONFIGS: Final = Resource("net.liqo.io", "v1alpha1", "networkconfigs", "NetworkConfig", False)
TUNNELENDPOINTS: Final = Resource("net.liqo.io", "v1alpha1", "tunnelendpoints", "TunnelEndpoint", False)
NETWORKGATEWAYS: Final = Resource("net.liqo.io", "v1alpha1", "networkgateways", "NetworkGateway", False)
SHADOWPODS: Final = Resource("offloading.liqo.io", "v1beta1", "shadowpods", "ShadowPod", True)
SHADOWENDPOINTSLICES: Final = Resource(
    "offloading.liqo.io", "v1beta1", "shadowendpointslices", "ShadowEndpointSlice", True
)
SHADOWNETWORKPOLICYSETS: Final = Resource(
    "offloading.liqo.io", "v1beta1", "shadownetworkpolicysets", "ShadowNetworkPolicySet", True
)
