"""Labels, annotations, taints and names that liqod shares with its users and its peers.

The strings are the field's own (``liqo.io/...``), so that manifests written for Liqo keep working.
"""

from __future__ import annotations

import hashlib
from typing import Final

FIELD_MANAGER: Final = "liqod"
REFLECTION_MANAGER: Final = "reflection.liqo.io"
SYSTEM_NAMESPACE: Final = "liqo-system"

ENABLED_LABEL: Final = "liqo.io/enabled"
CONNECTIVITY_TEST_LABEL: Final = "liqo.io/connectivity-test"
"""On what `liqodctl test` makes, and deletes."""
CONNECTIVITY_TEST_BY: Final = "liqo.io/connectivity-test-by"
"""On the namespace of a test: the process that made it."""
OVERLAY_ANNOTATION: Final = "net.liqo.io/overlay"
"""On a Node: the address at which the host's end of the network fabric's overlay is reached."""
TYPE_LABEL: Final = "liqo.io/type"
VIRTUAL_NODE_TYPE: Final = "virtual-node"
PROVIDER: Final = "liqod"
"""The provider in ``spec.providerID`` of virtual nodes."""
REMOTE_CLUSTER_LABEL: Final = "liqo.io/remote-cluster-id"
TENANT_NAMESPACE_LABEL: Final = "liqo.io/tenant-namespace"
MANAGED_BY_LABEL: Final = "liqo.io/managed-by"
MANAGED_BY_SHADOWPOD: Final = "shadowpod"
SHADOW_POD_LABEL: Final = "liqo.io/shadowPod"
ORIGIN_LABEL: Final = "offloading.liqo.io/origin"
ISOLATED_LABEL: Final = "offloading.liqo.io/isolated"
"""On a pod at a lender: in which directions NetworkPolicies of home isolate it; ``ingress``, ``egress`` or ``both``."""
NETWORK_POLICIES_ANNOTATION: Final = "offloading.liqo.io/network-policies"
"""On a ShadowPod: its home sends the NetworkPolicies of its namespace, so that a lender awaits these first."""
NETWORK_POLICIES_SENT: Final = "sent"
DESTINATION_LABEL: Final = "offloading.liqo.io/destination"
NODE_NAME_LABEL: Final = "offloading.liqo.io/nodename"
ORIGINAL_NAME_ANNOTATION: Final = "liqo.io/original-name"
ANTI_AFFINITY_PRESET: Final = "liqo.io/anti-affinity-preset"
ANTI_AFFINITY_LABELS: Final = "liqo.io/anti-affinity-labels"
DELETIONS_HELD: Final = "DeletionsHeld"
"""The condition of a VirtualNode while deletions at its lender wait for a confirmation."""
HOME_API: Final = "HomeAPI"
"""The condition of a VirtualNode that says whether its pods reach the API server of this cluster."""
HOME_SERVICES: Final = "HomeServices"
"""The condition of a VirtualNode that says whether its pods call Services of this cluster by their addresses."""
PROCESS_LABEL: Final = "liqo.io/process"
"""On the Lease of a process of the daemon: its role."""
PROCESS_ANNOTATION: Final = "liqo.io/process-state"
"""On the same Lease: what the process says of itself, as JSON (``diagnosis.processes.ProcessState``)."""
TOKEN_ANNOTATION: Final = "liqo.io/token-secret"  # noqa: S105 -- the name of an annotation
"""On a ServiceAccount of the daemon: the Secret with which the tokens end that `liqodctl` wrote to kubeconfigs."""
WEBHOOK_PROBE: Final = "liqo.io/webhook-probe"
"""On a pod that is only tried (a dry run): the webhook answers by the value ``answered``."""
DELETION_ANNOTATION: Final = "liqo.io/deletion-asked-again"
"""On a CRD that the API server has not deleted: when `liqodctl down` had it look again (RFC 3339)."""
HOME_UID_ANNOTATION: Final = "liqo.io/home-cluster-uid"
"""On a natting table: the UID of the namespace kube-system of the cluster that wrote it."""
CONFIRM_ANNOTATION: Final = "liqo.io/confirm-deletions"
"""On a VirtualNode: the observation (``status.deletionsObservation``) whose deletions somebody confirmed."""
HOME_POD_UID_ANNOTATION: Final = "offloading.liqo.io/home-pod-uid"
HOME_SPEC_ANNOTATION: Final = "offloading.liqo.io/home-spec"
"""On a ShadowPod and its pod: the digest of the mutable part of the home pod's spec that it was brought to."""
FINISHED_ANNOTATION: Final = "offloading.liqo.io/finished"
"""On a ShadowPod: the final phase of its home pod, if the lender did not report one."""
DELETION_GRACE_ANNOTATION: Final = "offloading.liqo.io/deletion-grace-period-seconds"
"""On a ShadowPod: terminate its pod, with this grace period in seconds instead of the spec's."""

CLOSED_LABEL: Final = "offloading.liqo.io/closed"
"""The whole selector of a service that must take no traffic any more: a label of no pod."""
FULL_LABEL: Final = "offloading.liqo.io/full"
"""On a tenant's namespaces: the kinds of records, or their size (``bytes``), of which it has all that it may."""
FULL_CONTENTS_LABEL: Final = "offloading.liqo.io/full-contents"
"""On a tenant's namespaces whose config maps and secrets take all the room that they may take: what is refused."""
HELD_WRITES_LABEL: Final = "offloading.liqo.io/held-writes"
"""On the namespaces of a tenant that wrote more than it may in a time: the date until which it writes nothing."""
QUOTA_ANNOTATION: Final = "offloading.liqo.io/quota"
"""On a tenant namespace: the quota level with which the tenant began; without it that is "soft"."""

SKIP_REFLECTION: Final = "liqo.io/skip-reflection"
ALLOW_REFLECTION: Final = "liqo.io/allow-reflection"
FORCE_NODE_PORT: Final = "liqo.io/force-remote-node-port"
MANAGED_BY_SHADOWSLICE: Final = "shadowendpointslice"
SLICE_MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
REFLECTED_SLICE: Final = "endpointslice.reflection.liqo.io"
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
PATH_LOST_ANNOTATION: Final = "offloading.liqo.io/path-lost"
"""On an EndpointSlice of a borrower: the path to its home is lost, and so its endpoints are not ready."""
HOME_API_LABEL: Final = "offloading.liqo.io/home-api"
"""On a service and its slice at a lender: they lead to the API server of the borrower's own cluster."""

PROVISIONER: Final = "liqo.io/storage"

RUNTIME_CLASS: Final = "liqo"
"""The RuntimeClass by which a pod asks for a virtual node; it names no runtime, and never goes to a lender."""

TAINT_KEY: Final = "virtual-node.liqo.io/not-allowed"
TAINT_VALUE: Final = "true"
TAINT_EFFECT: Final = "NoExecute"

INTERNAL_ADDRESS: Final = "InternalIP"
HOSTNAME_ADDRESS: Final = "Hostname"
"""Types of addresses of a Node, in ``status.addresses``."""

# The names become labels and parts of DNS names, which are shorter than names of objects, 253 (RFC 1123).
MAX_NAME: Final = 63


CREDENTIAL_SECRET: Final = "liqo-credential"  # noqa: S105 -- the name of the object, nothing secret
"""The Secret in a peer's tenant namespace: at a borrower it holds the access to the lender, at a lender the token."""
DNS_NAMESPACE: Final = "kube-system"
DNS_SERVICE: Final = "kube-dns"
"""The Service of a cluster's DNS, whatever answers there (Kubernetes: "Customizing DNS Service")."""
DNS_LABEL: Final = "k8s-app"
"""Its value is the Service's usual name: RKE2, which calls the Service otherwise, has it as well."""


def tenant_namespace(cluster_id: str) -> str:
    """Return the name of a peer's tenant namespace, in either cluster."""
    return f"liqo-tenant-{cluster_id}"


def advertisement_name(provider_id: str) -> str:
    """Return the name of the Advertisement record that a provider's offer is kept in."""
    return f"advertisement-{provider_id}"


def remote_namespace(local: str, home_cluster_id: str) -> str:
    """Return ``<local>-<home-cluster-id>``, shortened with a hash where that would pass 63 characters.

    Source: spec 001, "Multi-namespaced environment". The natting table remains the authority for a namespace's name.
    """
    full = f"{local}-{home_cluster_id}"
    if len(full) <= MAX_NAME:
        return full
    digest = hashlib.sha256(local.encode()).hexdigest()[:8]
    room = MAX_NAME - len(home_cluster_id) - len(digest) - 2
    if room < 1:
        return f"{digest}-{hashlib.sha256(full.encode()).hexdigest()[:40]}"
    return f"{local[:room].rstrip('-')}-{digest}-{home_cluster_id}"
