"""The set of peering controllers that the routers notify."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import attrs

from liqod.flow.controller import Controller
from liqod.flow.tasks import Tasks
from liqod.model.ids import ClusterID
from liqod.peering.borrowing.accept_pipeline import AcceptPipeline
from liqod.peering.borrowing.advertisements import Advertisements
from liqod.peering.exchange.credentials import CredentialIssuer, CredentialStore
from liqod.peering.exchange.namespaces import NamespaceRequests, NamespaceResponses
from liqod.peering.lending.advertiser import Advertiser
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.routing.notifications import ENQUEUED, Change, Queue
from liqod.peering.session.peer import Peer
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.next_keys import NextKeys
from liqod.peering.trust.rotation import KeyRotation
from liqod.peering.unpeering import UnpeeringController
from liqod.wire.events import Network, NetworkAck


class Networks(Protocol):
    """The exchange of networks with peers: ``exchange.network.NetworkExchange``."""

    def enqueue(self, key: ClusterID, after: float = 0.0) -> None:
        """Enqueue the exchange with a peer."""

    def event_received(self, peer: Peer, event: Network | NetworkAck) -> None:
        """Store what a peer sent about its network."""

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer."""


class NoNetworks:
    """Networks for ``[network] mode = none``: peers' network parameters are ignored."""

    def enqueue(self, key: ClusterID, after: float = 0.0) -> None:
        """Do nothing."""

    def event_received(self, peer: Peer, event: Network | NetworkAck) -> None:
        """Ignore the event."""

    def forget(self, peer: ClusterID) -> None:
        """Do nothing."""


@attrs.define(kw_only=True, slots=False, eq=False)
class Controllers:
    """All controllers of peers. ``notify`` enqueues a peer at those that the notification table names."""

    records: ForeignClusters
    leftovers: Leftovers
    tombstones: Tombstones
    advertiser: Advertiser
    credential_issuer: CredentialIssuer
    credential_store: CredentialStore
    accept: AcceptPipeline
    unpeering: UnpeeringController
    advertisements: Advertisements
    networks: Networks
    namespace_requests: NamespaceRequests
    namespace_responses: NamespaceResponses
    rotation: KeyRotation
    next_keys: NextKeys
    distrust: DistrustRecorder
    tasks: Tasks

    def notify(self, change: Change, peer: ClusterID) -> None:
        """Enqueue a peer at every controller that a change concerns."""
        for queue in ENQUEUED[change]:
            self._queues[queue].enqueue(peer)

    def forget(self, peer: ClusterID) -> None:
        """Drop the controllers' state of a peer whose record is gone."""
        for controller in (
            self.networks,
            self.advertiser,
            self.credential_issuer,
            self.credential_store,
            self.advertisements,
            self.next_keys,
        ):
            controller.forget(peer)

    @cached_property
    def _queues(self) -> Mapping[Queue, Controller[ClusterID] | Networks]:
        return {
            Queue.RECORD: self.records,
            Queue.OFFER: self.advertiser,
            Queue.GRANT: self.credential_issuer,
            Queue.ADVERTISEMENT: self.advertisements,
            Queue.VIRTUAL_NODE: self.accept,
            Queue.UNPEERING: self.unpeering,
            Queue.DISTRUST: self.distrust,
            Queue.NETWORK: self.networks,
        }
