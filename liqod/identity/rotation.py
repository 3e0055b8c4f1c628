"""Rotates a cluster's key: the proof of the next one, and the order of the steps. Pure.

A key is trusted because the one before it announced it. The next key is announced in a session of the current one, with
a signature of the next one over the session's TLS exporter: an announcement that is replayed in another session, or of
a key that the sender does not hold, has no valid signature. A peer keeps both pins until it sees the next key in use.
The current key remains in use until every peer has pinned the next one, or until the deadline: at any time the cluster
holds a key that every notified peer has pinned.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from liqod.identity.certs import KeyPair
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.rotation import RotationOrder

ANSWER: Final = 60.0
"""Seconds after the deadline in which a connected peer must answer: no peer can block a rotation."""


class NotRotatable(Exception):
    """The next key is of a kind that cannot be announced."""


def announce(following: KeyPair, cluster_id: ClusterID, present: Fingerprint, binding: bytes) -> tuple[str, str]:
    """Return (public key, proof), both in base64, that hold in the session that ``binding`` is the exporter of."""
    key = following.key
    if not isinstance(key, Ed25519PrivateKey):
        raise NotRotatable("the next key is not an Ed25519 key")
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return _text(raw), _text(key.sign(_message(raw, cluster_id, present, binding)))


def is_proven(public_key: str, proof: str, cluster_id: ClusterID, present: Fingerprint, binding: bytes) -> bool:
    """Return whether the proof shows that the peer of this session holds the announced key, for this cluster."""
    try:
        raw = base64.b64decode(public_key, validate=True)
        signature = base64.b64decode(proof, validate=True)
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, _message(raw, cluster_id, present, binding))
    except (ValueError, InvalidSignature):
        return False
    return True


def fingerprint_of(public_key: str) -> Fingerprint:
    """Return the fingerprint of an Ed25519 key in base64; raises ValueError when it is none."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Fingerprint(f"sha256:{hashlib.sha256(spki).hexdigest()}")


def _message(raw: bytes, cluster_id: ClusterID, present: Fingerprint, binding: bytes) -> bytes:
    return b"\0".join((b"liqod next key 1", binding, cluster_id.encode(), present.encode(), raw))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@attrs.frozen
class Kept:
    """What the Secret holds: the next key's fingerprint (empty: none), the order, and the end of the wait (seconds)."""

    following: str = ""
    order: RotationOrder | None = None
    until: float | None = None


@attrs.frozen
class TrustingPeer:
    """One peer that trusts us: whether it is connected, can understand NewKey, and has the next key on record."""

    name: str
    connected: bool
    able: bool
    knows: bool


@attrs.frozen
class Rest:
    """Nothing to do: no order and no next key."""


@attrs.frozen
class Make:
    """Generate the next key."""


@attrs.frozen
class Drop:
    """The order was withdrawn: delete the next key, and say so."""


@attrs.frozen
class Wait:
    """Announce to all that are connected, and reconcile again at ``until``; ``missing`` do not have it yet."""

    missing: tuple[str, ...]
    until: float


@attrs.frozen
class Promote:
    """Make the next key the current one; peers ``left_behind`` never got it and have to trust the cluster again."""

    left_behind: tuple[str, ...]


Step = Rest | Make | Drop | Wait | Promote


def decide(kept: Kept, audience: Sequence[TrustingPeer], now: float) -> Step:
    """Return the next step of a rotation, from the records and which peers have the next key."""
    if kept.order is None:
        return Drop() if kept.following else Rest()
    if not kept.following or kept.until is None:
        return Make()
    missing = tuple(peer.name for peer in audience if not peer.knows)
    if not missing or now >= kept.until + ANSWER:
        return Promote(missing)
    answering = any(peer.connected and peer.able and not peer.knows for peer in audience)
    if now < kept.until:
        return Wait(missing, kept.until)
    return Wait(missing, kept.until + ANSWER) if answering else Promote(missing)
