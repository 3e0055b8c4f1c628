"""What peering asks of the rest of the daemon, as protocols that the agent satisfies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from liqod.model.ids import ClusterID
from liqod.model.objects.api_request import Ask
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer import AccessGrant


class Lender(Protocol):
    """The part that makes room for borrowers; every method may raise ``Refusal``."""

    async def admit(self, peer: ClusterID, offered: Mapping[str, str]) -> AccessGrant:
        """Make the peer a tenant with the quota that was offered, and return how it reaches us. Idempotent."""

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        """Give the peer's namespace ``local`` a place, called ``remote`` if free; returns its name. Idempotent."""

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        """Delete a namespace that was granted to the peer, with all that is in it. Idempotent."""

    async def dismiss(self, peer: ClusterID) -> None:
        """Take the peer's rights back. Idempotent."""

    def permits(self, peer: ClusterID, ask: Ask) -> bool:
        """Tell whether a borrower may ask this of our API server over the relay."""

    def account_of(self, peer: ClusterID) -> str:
        """Return the user that a borrower is to our API server."""

    def used_by(self, peer: ClusterID) -> Resources:
        """Return the requests of the pods that the peer runs here."""


class Sighting(Protocol):
    """Where a peer may be, by somebody's word: only ever a hint to dial. Empty texts mean unknown."""

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
