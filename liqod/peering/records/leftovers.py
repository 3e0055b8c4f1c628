"""The objects left of a virtual node: its VirtualNode record, the Node, the NamespaceNattingTable.

The record goes first, deleted by peering or by an administrator. The virtual kubelet then drains the node and deletes
the Node; the table it deletes with the lender's last virtual node, unless that one comes back and owes the lender
something. Until none is left, it needs its access to the lender.
"""

from __future__ import annotations

from liqod.kube.cache.informer import Informer
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, tenant_namespace
from liqod.model.objects.node import Node
from liqod.model.records.views import Advertisement, NamespaceNattingTable, VirtualNode


class Leftovers:
    """Finds the objects left of virtual nodes in the caches; sends no request."""

    def __init__(
        self, virtual_nodes: Informer[VirtualNode], nodes: Informer[Node], tables: Informer[NamespaceNattingTable]
    ) -> None:
        self._virtual_nodes = virtual_nodes
        self._nodes = nodes
        self._tables = tables
        nodes.add_index("peer", _peer_of)

    def of(self, peer: ClusterID) -> list[str]:
        """Return what is left, as phrases for a message; empty when nothing is."""
        left = []
        if self._virtual_nodes.get(Key(tenant_namespace(peer), peer)) is not None:
            left.append("the record of the virtual node")
        left += [f"node {node.metadata.name}" for node in self._nodes.by_index("peer", peer)]
        if self._tables.get(Key("", peer)) is not None:
            left.append("the mapping of namespaces")
        return left

    def is_clear(self, peer: ClusterID, offer: Advertisement | None) -> bool:
        """Return whether nothing of a virtual node is left, and none is about to be created."""
        return not self.of(peer) and (offer is None or offer.has_ended)


def _peer_of(node: Node) -> tuple[str, ...]:
    return (node.metadata.labels.get(REMOTE_CLUSTER_LABEL, ""),) if node.virtual else ()
