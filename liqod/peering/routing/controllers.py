"""Creates the controllers of peers, by what they are for: trust, lending, borrowing, and the end of a peering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from twisted.application.service import IService

from liqod.config.schema import Settings
from liqod.flow.controller import Controller
from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.events import Recorder
from liqod.kube.resources import NETWORKCONFIGS, NODES, PODS, RESOURCESLICES, TUNNELENDPOINTS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.api_url import OwnAddresses
from liqod.model.ids import ClusterID
from liqod.model.objects.node import Node
from liqod.model.objects.pod import OCCUPYING_PODS, Pod
from liqod.model.objects.tenant_nodes import TenantNodes
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import (
    Advertisement,
    ForeignCluster,
    NamespaceNattingTable,
    ResourceSlice,
    VirtualNode,
)
from liqod.peering.borrowing.advertisements import Advertisements
from liqod.peering.borrowing.direct import DirectBorrowing
from liqod.peering.borrowing.slice_requests import SliceRequests
from liqod.peering.borrowing.virtual_nodes import VirtualNodes
from liqod.peering.controller import PeeringContext
from liqod.peering.exchange.credentials import CredentialIssuer, CredentialStore
from liqod.peering.exchange.names import NameQueries
from liqod.peering.exchange.namespaces import NamespaceRequests, NamespaceResponses
from liqod.peering.exchange.network import NetworkExchange, NoTunnels
from liqod.peering.lending.advertiser import Advertiser
from liqod.peering.lending.capacity import FreeCapacity
from liqod.peering.lending.cluster_info import ClusterInfo
from liqod.peering.lending.direct import DirectLending
from liqod.peering.lending.slice_grants import SliceGrants
from liqod.peering.ports import OwnCluster, Tenants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.invitation_expiry import InvitationExpiry
from liqod.peering.trust.issued_tokens import IssuedTokens
from liqod.peering.trust.next_keys import NextKeys
from liqod.peering.trust.pairing import Invitations, PairingTokens
from liqod.peering.trust.records import TrustRecords
from liqod.peering.trust.rotation import KeyRotation
from liqod.peering.unpeering import UnpeeringController


@attrs.frozen(kw_only=True, eq=False)
class Watches:
    """The informers of the records that peering consists of."""

    clusters: Informer[ForeignCluster]
    advertisements: Informer[Advertisement]
    virtual_nodes: Informer[VirtualNode]
    nodes: Informer[Node]
    tables: Informer[NamespaceNattingTable]

    def all(self) -> tuple[Informer[Any], ...]:
        """Return every informer."""
        return self.clusters, self.advertisements, self.virtual_nodes, self.nodes, self.tables


@attrs.frozen(kw_only=True, eq=False)
class LendingControllers:
    """The lender's side: our offer, the rights that it grants, slices, and the answers to requests of borrowers."""

    capacity: FreeCapacity
    cluster_info: ClusterInfo
    advertiser: Advertiser
    credential_issuer: CredentialIssuer
    namespace_responses: NamespaceResponses
    slice_grants: SliceGrants
    name_queries: NameQueries


@attrs.frozen(kw_only=True, eq=False)
class BorrowingControllers:
    """The borrower's side besides the decision: offers, credentials, virtual nodes, requests to lenders, and slices."""

    advertisements: Advertisements
    credential_store: CredentialStore
    virtual_nodes: VirtualNodes
    namespace_requests: NamespaceRequests
    slice_requests: SliceRequests


@attrs.frozen(kw_only=True, eq=False)
class TrustControllers:
    """Who is trusted: records, distrusted keys, and changes of keys on both sides."""

    records: TrustRecords
    distrust: DistrustRecorder
    issued_tokens: IssuedTokens
    invitation_expiry: InvitationExpiry
    rotation: KeyRotation
    next_keys: NextKeys


@attrs.frozen(kw_only=True, eq=False)
class DirectControllers:
    """Direct connections between lenders: as one of them, and as the home that asks for them."""

    lending: DirectLending
    borrowing: DirectBorrowing


@attrs.frozen(kw_only=True, eq=False)
class Controllers:
    """All controllers of peers, but for the decision about offers."""

    records: ForeignClusters
    offers: MutationCache[Advertisement]
    directions: DirectionPolicy
    leftovers: Leftovers
    trust: TrustControllers
    lending: LendingControllers
    borrowing: BorrowingControllers
    unpeering: UnpeeringController
    networks: NetworkExchange | NoTunnels
    direct: DirectControllers | None

    def forget(self, peer: ClusterID) -> None:
        """Drop the controllers' state of a peer whose record is gone."""
        self.networks.forget(peer)
        if self.direct is not None:
            self.direct.lending.forget(peer)
            self.direct.borrowing.forget(peer)
        self.lending.advertiser.forget(peer)
        self.lending.credential_issuer.forget(peer)
        self.lending.slice_grants.forget(peer)
        self.lending.name_queries.forget(peer)
        self.borrowing.credential_store.forget(peer)
        self.borrowing.advertisements.forget(peer)
        self.borrowing.slice_requests.forget(peer)
        self.trust.next_keys.forget(peer)

    def services(self) -> Iterator[IService]:
        """Yield the controllers in the order in which they start."""
        yield self.records
        yield self.lending.advertiser
        yield self.lending.credential_issuer
        yield self.lending.slice_grants
        yield self.borrowing.credential_store
        yield self.borrowing.virtual_nodes
        yield self.borrowing.advertisements
        yield self.borrowing.slice_requests
        yield self.unpeering
        yield self.trust.distrust
        yield self.trust.rotation
        yield self.trust.next_keys
        yield self.trust.invitation_expiry
        if isinstance(self.networks, Controller):
            yield self.networks
        if self.direct is not None:
            yield self.direct.lending
            yield self.direct.borrowing


def make_controllers(
    context: PeeringContext,
    informers: Informers,
    *,
    watches: Watches,
    settings: Settings,
    cluster: OwnCluster,
    tenants: Tenants,
    recorder: Recorder,
    tasks: Tasks,
) -> Controllers:
    """Return all controllers of peers."""
    directions = DirectionPolicy(settings.peering.incoming, settings.peering.outgoing)
    offers = MutationCache(watches.advertisements, context.clock)
    records = ForeignClusters(
        context,
        clusters=watches.clusters,
        offers=offers,
        nodes=watches.virtual_nodes,
        settings=settings.peering,
        directions=directions,
        recorder=recorder,
    )
    leftovers = Leftovers(watches.virtual_nodes, watches.nodes, watches.tables)
    trust = make_trust(context, informers, settings, cluster, records)
    advertisements = Advertisements(context, offers, leftovers, settings.acceptance)
    networks = (*settings.network.pod_cidrs, *settings.network.service_cidrs)
    credential_store = CredentialStore(context, OwnAddresses(context.client.config.server, networks))
    return Controllers(
        records=records,
        offers=offers,
        directions=directions,
        leftovers=leftovers,
        trust=trust,
        lending=make_lending(
            context,
            informers,
            settings=settings,
            records=records,
            tenants=tenants,
            directions=directions,
            epoch=cluster.epoch,
            tasks=tasks,
        ),
        borrowing=make_borrowing(
            context,
            informers,
            watches=watches,
            records=records,
            leftovers=leftovers,
            advertisements=advertisements,
            credential_store=credential_store,
        ),
        unpeering=UnpeeringController(
            context, records=records, leftovers=leftovers, trust=trust.records, distrust=trust.distrust
        ),
        networks=make_networks(context, informers, settings),
        direct=make_direct(context, informers, watches=watches, records=records, settings=settings, own=cluster.id),
    )


def make_lending(
    context: PeeringContext,
    informers: Informers,
    *,
    settings: Settings,
    records: ForeignClusters,
    tenants: Tenants,
    directions: DirectionPolicy,
    epoch: int,
    tasks: Tasks,
) -> LendingControllers:
    """Return the parts of the lender's side."""
    # A field selector leaves out pods that are not bound or have finished: they occupy nothing, and would cost an event
    # for each change.
    occupying = informers.of(PODS, Pod, fields=OCCUPYING_PODS)
    tenant_nodes = TenantNodes.of(settings.hosting.control_plane_nodes, settings.hosting.tolerations)
    capacity = FreeCapacity(informers.of(NODES, Node), occupying, context.clock, tenant_nodes)
    cluster_info = ClusterInfo(
        context.client,
        informers,
        context.clock,
        tasks,
        granted=settings.hosting.storage_classes,
        granted_ingress=settings.hosting.ingress_classes,
        gateways=settings.hosting.gateways,
    )
    advertiser = Advertiser(
        context,
        records=records,
        capacity=capacity,
        cluster_info=cluster_info,
        sharing=settings.sharing,
        tenants=tenants,
        epoch=epoch,
        directions=directions,
    )
    issuer = CredentialIssuer(context, records, tenants, directions)
    return LendingControllers(
        capacity=capacity,
        cluster_info=cluster_info,
        advertiser=advertiser,
        credential_issuer=issuer,
        name_queries=NameQueries(context.clock, context.peers),
        namespace_responses=NamespaceResponses(
            tenants, tasks, records, directions, context.audit, left_over=issuer.left_over, clock=context.clock
        ),
        slice_grants=SliceGrants(
            context, records=records, sharing=settings.sharing, tenants=tenants, directions=directions
        ),
    )


def make_borrowing(
    context: PeeringContext,
    informers: Informers,
    *,
    watches: Watches,
    records: ForeignClusters,
    leftovers: Leftovers,
    advertisements: Advertisements,
    credential_store: CredentialStore,
) -> BorrowingControllers:
    """Return the parts of the borrower's side."""
    return BorrowingControllers(
        advertisements=advertisements,
        credential_store=credential_store,
        virtual_nodes=VirtualNodes(
            context,
            records=records,
            credential_store=credential_store,
            virtual_nodes=watches.virtual_nodes,
            nodes=watches.nodes,
            leftovers=leftovers,
        ),
        namespace_requests=NamespaceRequests(context.clock),
        slice_requests=SliceRequests(
            context,
            records=records,
            slices=informers.of(RESOURCESLICES, ResourceSlice),
            virtual_nodes=watches.virtual_nodes,
            nodes=watches.nodes,
            pods=informers.of(PODS, Pod, fields=OCCUPYING_PODS),
        ),
    )


def make_trust(
    context: PeeringContext, informers: Informers, settings: Settings, cluster: OwnCluster, records: ForeignClusters
) -> TrustControllers:
    """Return the parts that decide who is trusted."""
    namespace = settings.kubernetes.namespace
    issued = IssuedTokens(informers, context.clock, namespace, context.audit)
    kept = TrustRecords(
        Tombstones(context.client, context.clock, namespace),
        PairingTokens(context.client, context.clock, namespace, cluster.tls, context.audit, is_issued=issued.is_issued),
        Invitations(context.client, informers, namespace, cluster.tls),
    )
    rotation = KeyRotation(
        context,
        informers=informers,
        namespace=namespace,
        cluster=cluster,
        records=records,
        within=settings.identity.rotation_grace,
        in_files=bool(settings.identity.key),
    )
    return TrustControllers(
        records=kept,
        distrust=DistrustRecorder(context, records, kept),
        issued_tokens=issued,
        invitation_expiry=InvitationExpiry(context, kept.invitations.informer),
        rotation=rotation,
        next_keys=NextKeys(context, cluster.tls, records),
    )


def make_networks(context: PeeringContext, informers: Informers, settings: Settings) -> NetworkExchange | NoTunnels:
    """Return the exchange of networks, or what tells peers that this cluster has none to exchange."""
    if settings.network.mode == "none":
        return NoTunnels(context)
    return NetworkExchange(context, informers.of(NETWORKCONFIGS, NetworkConfig))


def make_direct(
    context: PeeringContext,
    informers: Informers,
    *,
    watches: Watches,
    records: ForeignClusters,
    settings: Settings,
    own: ClusterID,
) -> DirectControllers | None:
    """Return the parts for direct connections between lenders; None where this cluster has no tunnels at all."""
    if settings.network.mode == "none":
        return None
    configs, direct = informers.of(NETWORKCONFIGS, NetworkConfig), settings.network.direct
    return DirectControllers(
        lending=DirectLending(
            context,
            records,
            own=own,
            willing=direct != "never",
            configs=configs,
            tunnels=informers.of(TUNNELENDPOINTS, TunnelEndpoint),
        ),
        borrowing=DirectBorrowing(
            context, records, own=own, willing=direct == "always", configs=configs, tables=watches.tables
        ),
    )
