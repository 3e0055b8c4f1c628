"""What virtual kubelets need from outside: other features as interfaces, this cluster, and its records."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from attrs import field, frozen
from twisted.internet.interfaces import IStreamClientEndpoint

from liqod.flow.controller import NO_METRICS, ReconcileMetrics
from liqod.flow.observe import Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    VIRTUALNODES,
)
from liqod.kubelet.common.views import Namespace
from liqod.model.ids import ClusterID, Key
from liqod.model.names import ENABLED_LABEL, INTERNAL_ADDRESS, TYPE_LABEL, VIRTUAL_NODE_TYPE, advertisement_name
from liqod.model.objects.meta import Object
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.unpeering import order_of
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode


class NamespaceGrants(Protocol):
    """Requests and releases namespaces at a lender; both are idempotent and raise Refusal or PeerUnreachable."""

    def map_namespace(self, peer: ClusterID, local: str, remote: str) -> Coroutine[Any, Any, str]:
        """Request the namespace ``remote`` of a lender for our ``local``; return its name there."""
        ...

    def release_namespace(self, peer: ClusterID, remote: str) -> Coroutine[Any, Any, None]:
        """Release a namespace; the lender deletes it with all its objects."""
        ...


class Relays(Protocol):
    """The relays by which lenders' API servers are reached through their daemons."""

    def relay_of(self, peer: ClusterID) -> IStreamClientEndpoint | None:
        """Return the endpoint of a lender's API relay; None without one."""
        ...


class ApiStreams(Protocol):
    """Streams between the daemons, by which pods at lenders without a tunnel reach this cluster's API server."""

    def api_streams(self, peer: ClusterID) -> Latest[HomeStreamsGrant | None]:
        """Return what a lender was granted; None: it asks for no streams."""
        ...


class Lenders(NamespaceGrants, Relays, ApiStreams, Protocol):
    """The lenders, as implemented by ``peering.service.Peering``."""

    def peer_answered(self, peer: ClusterID) -> None:
        """Notify that the API server of a lender answers, so that its daemon is dialled at once."""
        ...


@frozen(kw_only=True)
class HomeCluster:
    """This cluster, as virtual kubelets use it.

    ``node_address`` is the address of their nodes, ``node_address_type`` the type under which they show it; empty while
    it is not known: then it stays as it is.
    """

    cluster_id: ClusterID
    client: Client
    informers: Informers
    recorder: Recorder
    node_address: str = ""
    node_address_type: Latest[str] = field(factory=lambda: Latest(INTERNAL_ADDRESS))
    metrics: ReconcileMetrics = NO_METRICS


@frozen
class HomeRecords:
    """The records of this cluster that all virtual kubelets watch."""

    virtual_nodes: Informer[VirtualNode]
    offers: Informer[Advertisement]
    tables: Informer[NamespaceNattingTable]
    enabled: Informer[Namespace]
    """Namespaces with the label liqo.io/enabled=true."""
    offloadings: Informer[NamespaceOffloading]
    nodes: Informer[Object]
    """Virtual nodes."""
    peers: Informer[ForeignCluster]

    @classmethod
    def watched_by(cls, informers: Informers) -> HomeRecords:
        """Return the shared caches of these records."""
        return cls(
            virtual_nodes=informers.of(VIRTUALNODES, VirtualNode),
            offers=informers.of(ADVERTISEMENTS, Advertisement),
            tables=informers.of(NATTINGTABLES, NamespaceNattingTable),
            enabled=informers.of(NAMESPACES, Namespace, labels=f"{ENABLED_LABEL}=true"),
            offloadings=informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
            nodes=informers.of(NODES, Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"),
            peers=informers.of(FOREIGNCLUSTERS, ForeignCluster),
        )

    def offer_of(self, lender: ClusterID) -> Advertisement | None:
        """Return the offer of a lender; None without one."""
        return self.offers.get(Key("", advertisement_name(lender)))

    def virtual_nodes_of(self, lender: str) -> list[VirtualNode]:
        """Return the records of a lender's virtual nodes that are not being deleted."""
        return [
            record
            for record in self.virtual_nodes.items()
            if record.spec.cluster_id == lender and not record.metadata.deleting
        ]

    def is_given_up(self, lender: ClusterID) -> bool:
        """Return whether an administrator declared a lender dead, so that nothing waits for it."""
        peer = self.peers.get(Key("", lender))
        return peer is not None and peer.metadata.deleting and order_of(peer.metadata.annotations).kind == "dead"
