"""The parts of peering, for those that tell them of each other."""

from __future__ import annotations

import attrs

from liqod.flow.tasks import Tasks
from liqod.peering.borrowing.accept_pipeline import AcceptPipeline
from liqod.peering.borrowing.advertisements import Advertisements
from liqod.peering.exchange.credentials import CredentialIssuer, CredentialStore
from liqod.peering.exchange.namespaces import NamespaceRequests, NamespaceResponses
from liqod.peering.exchange.network import NetworkExchange
from liqod.peering.lending.advertiser import Advertiser
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.leftovers import Leftovers
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.next_keys import NextKeys
from liqod.peering.trust.rotation import KeyRotation
from liqod.peering.unpeering import UnpeeringController


@attrs.frozen
class Parts:
    """All of them; ``networks`` is None where there is no network between clusters."""

    records: ForeignClusters
    leftovers: Leftovers
    tombstones: Tombstones
    advertiser: Advertiser
    credential_issuer: CredentialIssuer
    credential_store: CredentialStore
    accept: AcceptPipeline
    unpeering: UnpeeringController
    advertisements: Advertisements
    networks: NetworkExchange | None
    namespace_requests: NamespaceRequests
    namespace_responses: NamespaceResponses
    rotation: KeyRotation
    next_keys: NextKeys
    tasks: Tasks
    distrust: DistrustRecorder
