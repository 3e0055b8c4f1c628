"""Which namespaces of this cluster were made for peers, and for which of their namespaces. Pure.

The labels are the daemon's word: an admission policy keeps others from setting them (``hosting.tenants``).
"""

from __future__ import annotations

from collections.abc import Iterable

from liqod.model.names import ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL
from liqod.model.objects.meta import Object


def is_tenant_namespace(namespace: Object, peer: str) -> bool:
    """Return whether a namespace is the tenant namespace of a peer; one that merely has the name is not."""
    labels = namespace.metadata.labels
    return labels.get(REMOTE_CLUSTER_LABEL) == peer and TENANT_NAMESPACE_LABEL in labels


def is_granted(namespace: Object) -> bool:
    """Return whether a namespace was created for a borrower's pods (and is not a tenant namespace)."""
    labels = namespace.metadata.labels
    return (
        bool(labels.get(REMOTE_CLUSTER_LABEL))
        and TENANT_NAMESPACE_LABEL not in labels
        and ORIGINAL_NAME_ANNOTATION in namespace.metadata.annotations
    )


def tenant_of(namespace: Object | None) -> str:
    """Return the ID of the cluster that a namespace was granted to; empty for none, and where there is no namespace."""
    return namespace.metadata.labels[REMOTE_CLUSTER_LABEL] if namespace is not None and is_granted(namespace) else ""


def granted_to(tenant: str, namespaces: Iterable[Object]) -> list[Object]:
    """Return those namespaces that were granted to a cluster."""
    return [one for one in namespaces if tenant_of(one) == tenant]


def home_name_of(namespace: Object) -> str:
    """Return the name that a granted namespace has at home; empty for one that was not granted."""
    return namespace.metadata.annotations[ORIGINAL_NAME_ANNOTATION] if is_granted(namespace) else ""
