"""Protocols that peering requires from the rest of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from liqod.identity.tls import PeerTLS
from liqod.model.ids import ClusterID
from liqod.model.objects.api_request import RequestAttributes
from liqod.model.objects.quantity import Resources
from liqod.model.records.name_service import HomeAnswer
from liqod.model.records.offer import AccessGrant


@attrs.frozen(kw_only=True)
class OwnCluster:
    """This cluster as its peers know it; ``epoch`` increases with every start of the daemon."""

    id: ClusterID
    name: str
    tls: PeerTLS
    epoch: int


class Tenants(Protocol):
    """The borrowers that this cluster grants access; every method may raise ``Refusal``. Hosting implements it."""

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        """Make the peer a tenant with the offered quota, and return its access to the API server. Idempotent."""

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> bool:
        """Grant the namespace ``remote`` for the peer's ``local``; return whether rights changed. Idempotent."""

    async def release_namespace(self, peer: ClusterID, remote: str) -> bool:
        """Delete a namespace that was granted to the peer, with its content; return whether it was. Idempotent."""

    async def dismiss(self, peer: ClusterID) -> bool:
        """Revoke the peer's rights; return whether it had any. Idempotent."""

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        """Return whether a borrower may send this request to our API server over the relay."""

    def account_of(self, peer: ClusterID) -> str:
        """Return the user name of a borrower at our API server."""

    def used_by(self, peer: ClusterID) -> Resources:
        """Return the resource requests of the pods that the peer runs here."""


class Sighting(Protocol):
    """An unauthenticated address of a peer, from discovery: only a hint to dial. Empty strings mean unknown."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def cluster_name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


class TenantPods(Protocol):
    """Where the pods of borrowers are here, for the streams to their home's API server. Hosting implements it."""

    def tenant_at(self, address: str) -> ClusterID | None:
        """Return the borrower whose pod alone has an address; None for any other address."""

    def has_tunnel(self, peer: ClusterID) -> bool:
        """Return whether there is a tunnel to a peer, or may be one: its pods reach home's API server by that."""


class HomeNames(Protocol):
    """Answers lenders that ask for names of this cluster's Services: ``names.home_names.HomeNames``."""

    async def answer(self, lender: ClusterID, name: str, kind: int) -> HomeAnswer:
        """Return what is known of a name; raises KubeError."""
