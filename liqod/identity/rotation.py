"""Changing a cluster's key: what proves the next one, and which step comes when. Pure.

A key is believed on the word of the one before it. The next key is announced in a session of the present one, with a
signature of the next one over what only the two ends of that session know: whoever repeats an announcement elsewhere,
or announces a key of somebody else's, has no such signature. A peer keeps both keys on record until it sees the next
one in use. The present key serves until everybody heard of the next one, or until the time for that is over: at every
moment at least one key is in the cluster's hands and on record with every peer that heard.
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
from liqod.model.records.rotation import Order

ANSWER: Final = 60.0
"""Seconds beyond the end of the wait that a connected peer has to answer: nobody may keep a key from changing."""


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
    """Tell whether the holder of the announced key is at the other end of this session, and meant this cluster."""
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
    """What the Secret holds: the next key's fingerprint (empty: none), the order, and until when to wait (seconds)."""

    following: str = ""
    order: Order | None = None
    until: float | None = None


@attrs.frozen
class Audience:
    """One peer that trusts us: whether it is connected, can understand NewKey, and has the next key on record."""

    name: str
    connected: bool
    able: bool
    knows: bool


@attrs.frozen
class Rest:
    """Nothing is to be done: there is no order and no next key."""


@attrs.frozen
class Make:
    """Make the next key."""


@attrs.frozen
class Drop:
    """The order was taken back: forget the next key, and say so."""


@attrs.frozen
class Wait:
    """Announce to whoever is connected, and look again at ``until``; ``missing`` have not heard yet."""

    missing: tuple[str, ...]
    until: float


@attrs.frozen
class Promote:
    """The next key is the present one now; ``left_behind`` never heard of it and must trust the cluster anew."""

    left_behind: tuple[str, ...]


Step = Rest | Make | Drop | Wait | Promote


def decide(kept: Kept, audience: Sequence[Audience], now: float) -> Step:
    """Return the next step of a rotation, from what is on record and who has heard."""
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
