"""Offers: what a cluster lends, sent in an advertisement and shown as the capacity of a virtual node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import attrs
import msgspec

from liqod.model.names import tenant_namespace

MAX_RESOURCES: Final = 128
MAX_LABELS: Final = 64
MAX_CLASSES: Final = 64

RECLAIMED: Final = "Reclaimed"
"""Why pods end whose lender takes back what it lent: the reason of their status, and of a condition of the node."""
RECLAIMED_BY: Final = "liqod/reclaimed-by"
"""The label of an offer that is taken back, with the moment from which on its pods are evicted."""
_MOMENT: Final = "%Y%m%dT%H%M%SZ"
"""A date as the value of a label can hold it, which has no colon."""


class Offer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Resources (quantities as text, by name), prices, labels for the virtual node, and the classes the lender has.

    ``gateways``, each ``namespace/name``, are those that routes may be of.

    Everything in it comes from the peer when it is received: ``acceptance`` checks it before anything uses it.
    """

    resources: dict[str, str] = {}
    prices: dict[str, str] = {}
    labels: dict[str, str] = {}
    storage_classes: list[str] = []
    ingress_classes: list[str] = []
    load_balancer_classes: list[str] = []
    gateways: list[str] = []
    kubernetes_version: str = ""

    @property
    def reclaimed_by(self) -> datetime | None:
        """When the lender begins to evict what runs there; None while it does not take its offer back."""
        try:
            return datetime.strptime(self.labels.get(RECLAIMED_BY, ""), _MOMENT).replace(tzinfo=UTC)
        except ValueError:
            return None


def reclaim_label(by: datetime) -> dict[str, str]:
    """Return the label of an offer that is taken back at a moment."""
    return {RECLAIMED_BY: by.astimezone(UTC).strftime(_MOMENT)}


class AccessGrant(msgspec.Struct, frozen=True, kw_only=True):
    """How a borrower reaches the lender's API server: URL, CA bundle (PEM) and a bearer token with its life in seconds.

    ``relay``: also over the peers' port; with no URL and no token only there. The token never shows in ``repr``.
    """

    api_url: str
    ca: str
    token: str
    lifetime: int
    namespace: str
    relay: bool = False

    def __repr__(self) -> str:
        return f"AccessGrant(api_url={self.api_url!r}, namespace={self.namespace!r}, lifetime={self.lifetime})"


class Refusal(Exception):
    """The peer or our own policy refused: a machine-readable reason and a message for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class PeerUnreachable(Exception):
    """There is no established session with the peer; try again when there is."""


def tenant_namespace_taken(peer: str) -> Refusal:
    """Return why nothing is kept in a namespace that has the name of a peer's tenant namespace, but not its labels."""
    name = tenant_namespace(peer)
    return Refusal(
        "NamespaceTaken",
        f"namespace {name} exists here without the labels of a tenant namespace of {peer}: somebody else made it; "
        "delete it, or have an administrator label it, to peer with that cluster",
    )


@attrs.frozen
class HomeStreamsGrant:
    """How many idle streams are kept ready for a lender, and the reason where that is fewer than asked.

    ``message`` says why, or what pods there do without all the same.
    """

    count: int
    reason: str = ""
    message: str = ""
