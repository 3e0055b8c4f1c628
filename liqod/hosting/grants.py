"""Which namespaces a borrower may be given: names that end with its own ID, and never one that was there before."""

from __future__ import annotations

from typing import Any, Final

from liqod.model.ids import is_dns_label
from liqod.model.meta import Object
from liqod.model.names import (
    ORIGINAL_NAME_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    TENANT_NAMESPACE_LABEL,
    remote_namespace,
    tenant_namespace,
)
from liqod.model.offer import Refusal

MAX_NAMESPACES: Final = 1000
"""Namespaces that one borrower may have here."""
_RESERVED: Final = ("kube-", "openshift-", tenant_namespace(""))
_SECURITY: Final = "pod-security.kubernetes.io"


def check_name(peer: str, local: str, remote: str) -> None:
    """Raise Refusal unless a borrower may ask for this name."""
    if not (is_dns_label(local) and is_dns_label(remote)):
        raise Refusal(
            "InvalidName", f"{local[:80]!r} -> {remote[:80]!r}: both must be names of namespaces (DNS-1123 labels)"
        )
    if remote.startswith(_RESERVED):
        raise Refusal("NameReserved", f"{remote}: names that begin with {', '.join(_RESERVED)} belong to this cluster")
    if remote != remote_namespace(local, peer) and not remote.endswith(f"-{peer}"):
        raise Refusal(
            "NameNotYours",
            f"{remote}: a namespace granted to cluster {peer} ends with -{peer}; ask for "
            f"{remote_namespace(local, peer)}",
        )


def is_granted(namespace: Object) -> bool:
    """Tell whether a namespace was made for a borrower's pods (and is not a tenant namespace)."""
    labels = namespace.metadata.labels
    return (
        bool(labels.get(REMOTE_CLUSTER_LABEL))
        and TENANT_NAMESPACE_LABEL not in labels
        and ORIGINAL_NAME_ANNOTATION in namespace.metadata.annotations
    )


def tenant_of(namespace: Object) -> str:
    """Return the ID of the cluster that a namespace was granted to, empty when it was granted to none."""
    return namespace.metadata.labels[REMOTE_CLUSTER_LABEL] if is_granted(namespace) else ""


def check_existing(existing: Object, peer: str, local: str) -> None:
    """Raise Refusal unless an existing namespace is the very grant that is asked for."""
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
    """Return the labels by which Pod Security admission enforces a level."""
    return {f"{_SECURITY}/enforce": level, f"{_SECURITY}/enforce-version": "latest"}


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
