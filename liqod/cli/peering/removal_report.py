"""What a peering put into one's own cluster, looked up before and after its end: the receipt of what was removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from liqod.cli.console.session import Session
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACES,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NODES,
    PODS,
    ROLEBINDINGS,
    SECRETS,
    SERVICEACCOUNTS,
    SHADOWPODS,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.ids import ClusterID
from liqod.model.names import REMOTE_CLUSTER_LABEL, advertisement_name
from liqod.model.objects.meta import Object

RECEIPT_COLUMNS = {"kind": "KIND", "name": "NAME", "state": "NOW"}
_LABELLED: Final = (
    VIRTUALNODES,
    NODES,
    ADVERTISEMENTS,
    SECRETS,
    SERVICEACCOUNTS,
    ROLEBINDINGS,
    NAMESPACES,
)
_NAMED: Final = (FOREIGNCLUSTERS, NATTINGTABLES, NETWORKCONFIGS, TUNNELENDPOINTS)
"""What has the name of the peer."""
_LEASE_NAMESPACE: Final = "kube-node-lease"


@attrs.frozen
class Thing:
    """One object, by all that tells it from another one of the same name."""

    kind: str
    name: str
    uid: str


async def belongings(session: Session, peer: ClusterID) -> list[Thing]:
    """Return what is there because of a peer: records, node, access, tenants' namespaces and what runs in them."""
    found: dict[str, Thing] = {}

    def take(resource: Resource, objects: Iterable[Object]) -> None:
        for each in objects:
            meta = each.metadata
            found.setdefault(meta.uid, Thing(resource.kind, str(meta.key), meta.uid))

    for resource in _NAMED:
        take(resource, await _one(session, resource, peer))
    take(ADVERTISEMENTS, await _one(session, ADVERTISEMENTS, advertisement_name(peer)))
    by_label = {}
    for resource in _LABELLED:
        by_label[resource] = await _labelled(session, resource, peer)
        take(resource, by_label[resource])
    for node in by_label[NODES]:
        take(LEASES, await _one(session, LEASES, node.metadata.name, _LEASE_NAMESPACE))
        pods = await session.client.list(PODS, view=Object, fields=f"spec.nodeName={node.metadata.name}")
        take(PODS, pods.items)
    for namespace in by_label[NAMESPACES]:
        for resource in (SHADOWPODS, PODS):
            take(resource, (await session.client.list(resource, namespace.metadata.name, view=Object)).items)
    return list(found.values())


async def _one(session: Session, resource: Resource, name: str, namespace: str = "") -> list[Object]:
    try:
        return [await session.client.get(resource, name, namespace, view=Object)]
    except NotFound:
        return []


async def _labelled(session: Session, resource: Resource, peer: ClusterID) -> list[Object]:
    try:
        listing = await session.client.list(resource, view=Object, labels=f"{REMOTE_CLUSTER_LABEL}={peer}")
    except NotFound:
        return []  # the definition of that record is not installed
    return listing.items


def receipt_rows(before: Iterable[Thing], after: Iterable[Thing]) -> list[dict[str, Any]]:
    """Return one row per object: removed, or left. What is new under an old name was made since and is not listed."""
    left = {thing.uid for thing in after}
    return [
        {"kind": thing.kind, "name": thing.name, "state": "left" if thing.uid in left else "removed"}
        for thing in sorted(before, key=lambda thing: (thing.kind, thing.name))
    ]
