"""Namespaces that somebody labelled as a tenant's before an admission policy kept them from it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from liqod.cli.console.session import Session
from liqod.hosting.tenants.admission.namespace_admission import NAMESPACE_POLICY
from liqod.kube.errors import NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES, VALIDATINGPOLICIES
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.views import ForeignCluster


async def disown(session: Session) -> AsyncIterator[str]:
    """Take the labels of tenants from namespaces that are older than the policy and of no peer; yields a line each.

    What is younger was labelled by the daemon or an administrator. Peers are the clusters with a trusted key, and those
    whose peering is being ended: what was made for them stays as it is.
    """
    try:
        policy = await session.client.get(VALIDATINGPOLICIES, NAMESPACE_POLICY, view=Object)
    except NotFound:
        return  # before Kubernetes 1.30
    since = policy.metadata.creation_timestamp or ""
    labels = (REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL)
    found = {
        one.metadata.name: one
        for label in labels
        for one in (await session.client.list(NAMESPACES, view=Object, labels=label)).items
        # Times of an API server are of one form, which sorts as text.
        if (one.metadata.creation_timestamp or "") <= since and not one.metadata.deleting
    }
    if not found:
        return
    records = (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items
    peers = {one.metadata.name for one in records if one.spec.fingerprint or one.metadata.finalizers}
    for name, namespace in found.items():
        peer = namespace.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
        if peer not in peers:
            patch = {"metadata": {"uid": namespace.metadata.uid, "labels": dict.fromkeys(labels)}}
            await session.client.patch(NAMESPACES, name, patch, view=None)
            yield f"namespace {name}: labels of a tenant removed: it was there before liqod, and {peer} is no peer"
