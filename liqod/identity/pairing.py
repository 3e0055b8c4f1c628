"""Pairing tokens: an administrator passes a token to another one, and the two clusters trust each other. Pure.

A token names the issuer (cluster ID, fingerprint, addresses) and holds a secret. The dialer checks the issuer's
fingerprint first, then proves that it has the secret without sending it: an HMAC over the TLS exporter (RFC 8446, 7.5)
and both keys. A man in the middle has a different exporter on each side, so a proof is worthless in any other session.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

from liqod.model.ids import ClusterID, Fingerprint, parse_cluster_id, parse_fingerprint

PREFIX: Final = "liqo1."
SECRET_BYTES: Final = 32
"""256 bits: guessing one is hopeless without a limit on attempts, too."""
MAX_LENGTH: Final = 4096
MAX_ADDRESSES: Final = 8


class BadToken(ValueError):
    """A text is not a pairing token."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A pairing token. Its secret is in ``text`` alone, never in ``repr``."""

    id: str
    issuer: ClusterID
    name: str
    fingerprint: Fingerprint
    addresses: list[str]
    secret: bytes

    def __repr__(self) -> str:
        return f"Token(id={self.id!r}, issuer={self.issuer!r}, addresses={self.addresses!r})"

    @property
    def text(self) -> str:
        """The token as text without spaces."""
        packed = msgspec.msgpack.encode(self)
        checked = packed + hashlib.sha256(packed).digest()[:4]
        return PREFIX + base64.urlsafe_b64encode(checked).decode().rstrip("=")


def read_token(text: str) -> Token:
    """Parse a token; raise BadToken with the defect."""
    word = text.strip()
    if not word.startswith(PREFIX) or len(word) > MAX_LENGTH:
        raise BadToken(f"a pairing token begins with {PREFIX!r}: copy it whole from `liqodctl token create`")
    body = word.removeprefix(PREFIX)
    try:
        raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken("the pairing token has characters that do not belong there: copy it whole") from None
    packed, check = raw[:-4], raw[-4:]
    if hashlib.sha256(packed).digest()[:4] != check:
        raise BadToken("the pairing token was cut off or mistyped: copy it whole")
    try:
        token = msgspec.msgpack.decode(packed, type=Token)
        parse_cluster_id(token.issuer)
        parse_fingerprint(token.fingerprint)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadToken(f"the pairing token cannot be read: {error}") from None
    if len(token.secret) != SECRET_BYTES or not 1 <= len(token.addresses) <= MAX_ADDRESSES:
        raise BadToken("the pairing token lacks its secret or an address")
    return token


def verifier(secret: bytes) -> bytes:
    """Return the verifier that the issuer stores instead of the secret, and that proofs are computed with."""
    return hashlib.sha256(b"liqod pairing token 1\0" + secret).digest()


def proof(verifier: bytes, binding: bytes, token_id: str, dialer: Fingerprint, issuer: Fingerprint) -> str:
    """Return the proof, as hex, that holds in one TLS session between two keys only; ``binding`` is its exporter."""
    message = b"\0".join((binding, token_id.encode(), dialer.encode(), issuer.encode()))
    return hmac.new(verifier, message, hashlib.sha256).hexdigest()


def is_proven(given: str, expected: str) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
