"""Creates a VirtualNode from an accepted offer and a credential, and deletes it when that is over.

Every step is idempotent and has an inverse, which is taken when the offer is refused or withdrawn. An offer that is no
longer received changes nothing here, and neither does a record missing from the cache.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import VIRTUALNODES
from liqod.model.ids import ClusterID, Key
from liqod.model.names import MAX_NAME, REMOTE_CLUSTER_LABEL, tenant_namespace
from liqod.model.objects.node import Node
from liqod.model.records.views import VirtualNode
from liqod.peering.changes import Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.exchange.credentials import CredentialStore, ensure_namespace
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.session.peer import Peer, short_id

PREFIX: Final = "liqo-"
_OTHER = re.compile(r"[^a-z0-9]+")


class VirtualNodes(PeerController):
    """Reconciles the VirtualNode of a peer with the decision about its offer."""

    name = "virtualnodes"
    queue = Queue.VIRTUAL_NODE

    def __init__(
        self,
        context: PeeringContext,
        *,
        records: ForeignClusters,
        credential_store: CredentialStore,
        virtual_nodes: Informer[VirtualNode],
        nodes: Informer[Node],
        leftovers: Leftovers,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._credential_store = credential_store
        self._virtual_nodes = virtual_nodes
        self._nodes = nodes
        self._leftovers = leftovers

    async def reconcile(self, peer_id: ClusterID) -> None:
        """Take the next steps for one peer, forwards or backwards."""
        peer = self._peers.get(peer_id)
        offer = self._records.offer_of(peer_id)
        record = self._records.get(peer_id)
        ends = record is not None and record.metadata.deleting
        if peer is None or (offer is None and not ends):
            return
        existing = self._virtual_nodes.get(Key(tenant_namespace(peer_id), peer_id))
        if ends or offer is None or offer.has_ended:
            await self._undo(peer, existing)
        elif offer.status.phase == "Accepted":
            self._credential_store.offer_accepted(peer)
            if existing is None and await self._credential_store.exists(peer):
                await self._make(peer)

    async def _make(self, peer: Peer) -> None:
        record = self._records.get(peer.id)
        await self._nodes.when_synced()  # a name can be chosen only when all names in use are known
        name = peer.name or (record.status.cluster_name if record is not None else "")
        body = {
            "metadata": {
                "name": peer.id,
                "namespace": tenant_namespace(peer.id),
                "labels": {REMOTE_CLUSTER_LABEL: peer.id},
            },
            "spec": {"clusterID": peer.id, "nodeName": node_name(name or peer.id, peer.id, self._taken(peer.id))},
        }
        try:
            await self._client.create(VIRTUALNODES, body, view=None)
        except AlreadyExists:
            return  # it exists already; metadata.name is immutable
        except NotFound:
            # The API server answers 404 to a create in a namespace that does not exist.
            await ensure_namespace(self._client, peer.id)
            await self._client.create(VIRTUALNODES, body, view=None)

    async def _undo(self, peer: Peer, existing: VirtualNode | None) -> None:
        if existing is not None and not existing.metadata.deleting:
            await self._client.delete(VIRTUALNODES, peer.id, tenant_namespace(peer.id), uid=existing.metadata.uid)
        # The kubelet that empties the node still needs the credential: it goes with the last trace of the node.
        if not self._leftovers.of(peer.id) and await self._credential_store.exists(peer):
            await self._credential_store.delete(peer)

    def _taken(self, peer: ClusterID) -> set[str]:
        nodes = {
            node.metadata.name for node in self._nodes.items() if node.metadata.labels.get(REMOTE_CLUSTER_LABEL) != peer
        }
        own = Key(tenant_namespace(peer), peer)
        # Users name the further virtual nodes of a peer, also before there is an offer.
        return nodes | {node.spec.node_name for node in self._virtual_nodes.items() if node.metadata.key != own}


def node_name(cluster_name: str, cluster_id: str, taken: Collection[str]) -> str:
    """Return ``liqo-<cluster name>`` as a DNS label, with a short ID appended where that is taken."""
    plain = _OTHER.sub("-", cluster_name.lower()).strip("-") or short_id(cluster_id)
    name = (PREFIX + plain)[:MAX_NAME].rstrip("-")
    if name not in taken:
        return name
    suffix = f"-{short_id(cluster_id)}"
    return name[: MAX_NAME - len(suffix)].rstrip("-") + suffix
