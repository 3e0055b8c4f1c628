"""Decides which namespaces may be granted to a borrower: names that end with its ID or match a configured pattern.

An existing namespace is never granted. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from liqod.config.schema import KubernetesSettings, StorageSettings
from liqod.model.ids import is_dns_label
from liqod.model.names import (
    ORIGINAL_NAME_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    SYSTEM_NAMESPACE,
    remote_namespace,
    tenant_namespace,
)
from liqod.model.objects.granted_namespace import tenant_of
from liqod.model.objects.meta import Object
from liqod.model.records.offer import Refusal

MAX_NAMESPACES: Final = 1000
"""Namespaces that are granted to one borrower at most."""
_RESERVED: Final = ("kube-", "openshift-", tenant_namespace(""))
_OWN: Final = frozenset({"default", SYSTEM_NAMESPACE, KubernetesSettings().namespace, StorageSettings().namespace})
# Top-level domains are named so (RFC 5890, A-label): in the search list of pods, the service "example" of a namespace
# xn--p1ai is found before the domain example.xn--p1ai. No other one has a hyphen, as tenants' namespaces do.
_TOP_LEVEL: Final = "xn--"
# Add-ons' namespaces are named so, such as istio-system: a cluster chooses its ID, and all of them end with this one.
_RESERVED_ID: Final = "system"
_ADD_ONS: Final = frozenset(
    {
        "argo-events",
        "argo-rollouts",
        "calico-apiserver",
        "cert-manager",
        "cilium-secrets",
        "cilium-spire",
        "container-registry",
        "external-dns",
        "external-secrets",
        "gmp-public",
        "gpu-operator",
        "haproxy-controller",
        "ingress-nginx",
        "istio-cni",
        "istio-egress",
        "istio-ingress",
        "knative-eventing",
        "knative-serving",
        "kubernetes-dashboard",
        "linkerd-cni",
        "linkerd-jaeger",
        "linkerd-viz",
        "local-path-storage",
        "nginx-gateway",
        "nginx-ingress",
        "node-feature-discovery",
        "rook-ceph",
        "sealed-secrets",
        "secrets-store-csi-driver",
        "tigera-operator",
        "vault-secrets-operator",
    }
)
"""Other namespaces that the manifests of add-ons use: one that is installed later finds the namespace there, and is the
tenant's."""
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
ENFORCE_VERSION: Final = f"{ENFORCE}-version"


def check_name(
    peer: str,
    local: str,
    remote: str,
    allowed: Iterable[str] = (),
    *,
    own: Collection[str] = (),
    peers: Iterable[str] = (),
) -> None:
    """Raise Refusal unless a name may be granted to a borrower; ``allowed`` are patterns of names for all of them.

    ``own`` are namespaces that the settings give to this cluster; ``peers`` are the IDs of the clusters that it trusts.
    A name that ends with several of these belongs to the longest: ``shop-north-rome`` is of ``north-rome``.
    """
    if not (is_dns_label(local) and is_dns_label(remote)):
        raise Refusal(
            "InvalidName", f"{local[:80]!r} -> {remote[:80]!r}: both must be names of namespaces (DNS-1123 labels)"
        )
    if remote.startswith(_RESERVED):
        raise Refusal("NameReserved", f"{remote}: names that begin with {', '.join(_RESERVED)} belong to this cluster")
    if remote.startswith(_TOP_LEVEL):
        raise Refusal("NameReserved", f"{remote}: names that begin with {_TOP_LEVEL} are those of top-level domains")
    if remote in _OWN or remote in _ADD_ONS or remote in own or (peer == _RESERVED_ID and remote.endswith(f"-{peer}")):
        raise Refusal("NameReserved", f"{remote} belongs to this cluster")
    longer = next((other for other in peers if len(other) > len(peer) and remote.endswith(f"-{other}")), None)
    if longer is not None:
        raise Refusal("NameReserved", f"{remote} ends with -{longer}, the ID of another cluster: it is for that one")
    its_own = remote == remote_namespace(local, peer) or remote.endswith(f"-{peer}")
    if not its_own and not any(_matches(pattern, remote) for pattern in allowed):
        raise Refusal(
            "NameNotYours",
            f"{remote}: a namespace granted to cluster {peer} ends with -{peer}; ask for "
            f"{remote_namespace(local, peer)}, or have this cluster's administrator allow the name "
            "([hosting] namespace-names)",
        )


def _matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern, in which ``*`` matches any text."""
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), name) is not None


def check_existing(existing: Object, peer: str, local: str) -> None:
    """Raise Refusal unless an existing namespace is the one that was granted for ``local`` of this peer."""
    name = existing.metadata.name
    if tenant_of(existing) != peer:
        raise Refusal(
            "NamespaceTaken", f"namespace {name} exists here and was not made for cluster {peer}; it is left alone"
        )
    known = existing.metadata.annotations[ORIGINAL_NAME_ANNOTATION]
    if known != local:
        raise Refusal("NamespaceTaken", f"namespace {name} was granted for {known} of cluster {peer}, not for {local}")
    if existing.metadata.deleting:
        raise Refusal("NamespaceTerminating", f"namespace {name} is being deleted here; ask again when it is gone")


def security_labels(level: str) -> dict[str, str]:
    """Return the labels with which Pod Security admission enforces a level."""
    return {ENFORCE: level, ENFORCE_VERSION: "latest"}


def body(peer: str, local: str, remote: str, level: str) -> dict[str, Any]:
    """Return the namespace to create."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": remote,
            "labels": {REMOTE_CLUSTER_LABEL: peer, **security_labels(level)},
            "annotations": {ORIGINAL_NAME_ANNOTATION: local},
        },
    }
