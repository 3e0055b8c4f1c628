"""Which namespaces of this cluster were made for borrowers, and for which of their namespaces. Pure."""

from __future__ import annotations

from liqod.model.names import ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL
from liqod.model.objects.meta import Object


def is_granted(namespace: Object) -> bool:
    """Return whether a namespace was created for a borrower's pods (and is not a tenant namespace)."""
    labels = namespace.metadata.labels
    return (
        bool(labels.get(REMOTE_CLUSTER_LABEL))
        and TENANT_NAMESPACE_LABEL not in labels
        and ORIGINAL_NAME_ANNOTATION in namespace.metadata.annotations
    )


def tenant_of(namespace: Object) -> str:
    """Return the ID of the cluster that a namespace was granted to; empty for none."""
    return namespace.metadata.labels[REMOTE_CLUSTER_LABEL] if is_granted(namespace) else ""


def home_name_of(namespace: Object) -> str:
    """Return the name that a granted namespace has at home; empty for one that was not granted."""
    return namespace.metadata.annotations[ORIGINAL_NAME_ANNOTATION] if is_granted(namespace) else ""
