"""Lists the objects of a peering in the own cluster before and after its end: the report of what was removed."""

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

REPORT_COLUMNS = {"kind": "KIND", "name": "NAME", "state": "NOW"}
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
"""Kinds whose objects are named by the peer's cluster ID."""
_LEASE_NAMESPACE: Final = "kube-node-lease"


@attrs.frozen
class FoundObject:
    """One object; the UID distinguishes it from a later one of the same name."""

    kind: str
    name: str
    uid: str


async def objects_of(session: Session, peer: ClusterID) -> list[FoundObject]:
    """Return the objects that exist because of a peer: records, node, access, tenant namespaces and their pods."""
    found: dict[str, FoundObject] = {}

    def take(resource: Resource, objects: Iterable[Object]) -> None:
        for each in objects:
            meta = each.metadata
            found.setdefault(meta.uid, FoundObject(resource.kind, str(meta.key), meta.uid))

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
        return []  # That CRD is not installed.
    return listing.items


def report_rows(before: Iterable[FoundObject], after: Iterable[FoundObject]) -> list[dict[str, Any]]:
    """Return one row per object: removed, or left. An object with an old name and a new UID is not listed."""
    left = {found_object.uid for found_object in after}
    return [
        {
            "kind": found_object.kind,
            "name": found_object.name,
            "state": "left" if found_object.uid in left else "removed",
        }
        for found_object in sorted(before, key=lambda found_object: (found_object.kind, found_object.name))
    ]
