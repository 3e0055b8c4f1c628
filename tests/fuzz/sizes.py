"""How large the inputs of each target become: as large as what is accepted of them, by the limits in the code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from liqod.flow.connections.handshake import MAX_HANDSHAKE
from liqod.http1.connection import MessageLimits
from liqod.kube.connection.answers import OF_A_PEER
from liqod.webhook.review import MAX_BODY
from liqod.wire.framing import FrameLimits

SMALLEST: Final = 4096
"""Bytes that the inputs of every target may have; more than what most of them accept."""
OBJECT: Final = 3 << 19
"""Bytes of an object that an API server stores: etcd's default limit of a request (etcd, --max-request-bytes)."""
MESSAGE: Final = 0xFFFF
"""Bytes of a message of DNS over TCP (RFC 1035, 4.2.2), and of the data of one record."""
_FRAMES: Final = FrameLimits()
_HEAD: Final = MessageLimits().head
SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "certificate": MAX_HANDSHAKE,
        "credential": _FRAMES.frame,
        "dns-answer": MESSAGE,
        "dns-question": MESSAGE,
        "dns-search": 4 * MESSAGE,
        "endpoint-slice": OBJECT,
        # Chunks are counted too, which the second reader does not: so many of one byte are fewer.
        "framing": 64 << 10,
        "head": _HEAD,
        "mdns": MESSAGE,
        "network": OBJECT,
        "nft": OBJECT,
        "nft-node": OBJECT,
        "node-request": _HEAD,
        "offer": _FRAMES.frame,
        "payload": _FRAMES.frame,
        "pem": OBJECT,
        "policy-record": OBJECT,
        "relay": _HEAD,
        "review": MAX_BODY,
        "shadow-pod": OBJECT,
        "slices": OBJECT,
        "stream": _FRAMES.pending,
        "txt": MESSAGE,
        "watch-line": OF_A_PEER,
    }
)
"""Bytes by target; of those that accept less, or read less of a longer input, none."""


def largest(target: str) -> int:
    """Return how many bytes an input of a target has at most: one more than what is accepted, which is refused."""
    return max(SMALLEST, SIZES.get(target, 0) + 1)
