"""The WireGuard key of this cluster: created once, kept in a Secret that all daemons of the cluster share."""

from __future__ import annotations

import base64
from typing import Any, Final

import attrs
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from liqod.flow.errors import ExpectedError
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import SECRETS

SECRET: Final = "liqod-tunnel"  # noqa: S105 -- the name of the object, nothing secret
FIELD: Final = "private-key"
NEXT: Final = "next-private-key"
"""The field of the next key: where it is set, it replaces the current one as soon as the peers accept it."""

HOST: Final = "host"
"""The field of the address of the host that uses the current key. A gateway on another one takes a key of its own."""


class KeyUnusable(ExpectedError):
    """The Secret does not hold a WireGuard key."""


@attrs.frozen
class TunnelKey:
    """A WireGuard key pair (Curve25519), both keys in base64."""

    private: str = attrs.field(repr=False)
    public: str


@attrs.frozen
class TunnelKeys:
    """The key in use, the next one where a rotation is under way, and the host that uses it; empty: not noted yet."""

    current: TunnelKey
    next: TunnelKey | None = None
    host: str = ""


def from_private(text: str) -> TunnelKey:
    """Return the pair that belongs to a private key in base64; raises KeyUnusable."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
        key = X25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise KeyUnusable("a field is not a WireGuard private key") from None
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return TunnelKey(base64.b64encode(raw).decode(), base64.b64encode(public).decode())


def generate() -> TunnelKey:
    """Return a new pair."""
    raw = X25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return from_private(base64.b64encode(raw).decode())


async def load_or_create(client: Client, namespace: str) -> TunnelKeys:
    """Return the cluster's keys; creates the first one where there is none."""
    try:
        return _read(await client.get(SECRETS, SECRET, namespace))
    except NotFound:
        key = generate()
    body = {
        "metadata": {"name": SECRET, "namespace": namespace},
        "type": "Opaque",
        "data": {FIELD: _encoded(key.private)},
    }
    try:
        await client.create(SECRETS, body, namespace)
    except AlreadyExists:
        # 409: another daemon of this cluster created it first; its key is used.
        return _read(await client.get(SECRETS, SECRET, namespace))
    return TunnelKeys(key)


async def plan_next(client: Client, namespace: str) -> TunnelKey:
    """Start a rotation and return the next key; that of a rotation under way is kept. Raises NotFound."""
    keys = _read(await client.get(SECRETS, SECRET, namespace))
    if keys.next is not None:
        return keys.next
    key = generate()
    await client.patch(SECRETS, SECRET, {"data": {NEXT: _encoded(key.private)}}, namespace, view=None)
    return key


async def exchange(client: Client, namespace: str, keys: TunnelKeys, host: str) -> TunnelKeys:
    """Make the next key, where there is one, the current one, and note that ``host`` uses it."""
    current = keys.next or keys.current
    patch = {"data": {FIELD: _encoded(current.private), NEXT: None, HOST: _encoded(host)}}
    await client.patch(SECRETS, SECRET, patch, namespace, view=None)
    return TunnelKeys(current, host=host)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _read(secret: dict[str, Any]) -> TunnelKeys:
    current = _field(secret, FIELD)
    following = _field(secret, NEXT) if (secret.get("data") or {}).get(NEXT) else None
    return TunnelKeys(current, following, _text(secret, HOST))


def _text(secret: dict[str, Any], name: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {}).get(name, "")).decode("ascii")
    except ValueError:
        return ""


def _field(secret: dict[str, Any], name: str) -> TunnelKey:
    try:
        return from_private(_text(secret, name))
    except KeyUnusable as error:
        raise KeyUnusable(f"the Secret {SECRET} cannot be used: {error}; delete it, and a new key is created") from None
