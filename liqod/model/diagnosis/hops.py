"""The hops of the path to a peer's pods, in the order of a packet, and which of them a record means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AGREEMENT: Final = "Agreement"
HOST: Final = "This host"
ROUTE: Final = "Local route"
TUNNEL: Final = "Tunnel"
GATEWAY: Final = "Peer's gateway"
SIZES: Final = "Sizes"
PODS: Final = "Peer's pods"
HOPS: Final = (AGREEMENT, HOST, ROUTE, TUNNEL, GATEWAY, SIZES, PODS)

_OF_CUT: Final[Mapping[str, str]] = {
    "local route": ROUTE,
    "tunnel": TUNNEL,
    "remote host": GATEWAY,
    "remote pods": PODS,
}


def of_cut(cut: str) -> str:
    """Return the hop that ``status.cut`` of a TunnelEndpoint names; the tunnel where it names none."""
    return _OF_CUT.get(cut, TUNNEL)
