"""The way to the lender's API server: the credential it granted, and a client that uses the newest token."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.application.service import MultiService
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.flow.tasks import Tasks
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.connection.cache_quota import Allowance
from liqod.kube.connection.config import from_grant, over_relay
from liqod.kube.resources import SECRETS
from liqod.kubelet.common.readiness import Readiness, not_known, not_ready
from liqod.kubelet.common.views import Secret
from liqod.kubelet.lender.endpoint_choice import Setting, Way, possible
from liqod.model.ids import Key

SECRET_NAME: Final = "liqo-credential"  # noqa: S105 (a name, not a secret)
KNOWN: Final = Readiness(ready=True, reason="CredentialPresent", message="the lender granted access to its API server")


@frozen
class Grant:
    """A credential taken out of its Secret; the token is kept apart, because it alone changes often.

    Without a URL there is only the relay.
    """

    api_url: str
    ca: bytes
    relay: bool = False


class Access(MultiService):
    """Keeps ``client`` (None until there is a credential) and ``readiness`` (why there is none).

    A new token is used from the next request on; a new URL or CA makes a new client. A credential that is deleted is
    reported, and the client stays: the lender decides whether it still answers. ``ways`` are those that both sides
    allow, ``way`` is the one that ``client`` takes, empty without one. ``relay`` makes what connects to the lender's
    relay; without it there is only the direct way.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        home: Client,
        namespace: str,
        setting: Setting = "auto",
        relay: Callable[[], Any] | None = None,
        lender: str = "lender",
    ) -> None:
        super().__init__()
        self.ways: Latest[tuple[Way, ...]] = Latest(())
        self.way: Latest[Way | None] = Latest(None)
        self._setting = setting
        self._relay = relay
        self._lender = lender
        self.client: Latest[Client | None] = Latest(None)
        self.readiness: Latest[Readiness] = Latest(not_known(f"the secret {namespace}/{SECRET_NAME} was not read yet"))
        self.renewed: Latest[int] = Latest(0)
        self._reactor = reactor
        self._key = Key(namespace, SECRET_NAME)
        self._token = ""
        self._grant: Grant | None = None
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._secrets: Informer[Secret] = Informer(
            home, SECRETS, Secret, reactor, namespace=namespace, fields=f"metadata.name={SECRET_NAME}"
        )
        self._secrets.setServiceParent(self)
        self._secrets.subscribe(self._changed)
        self._secrets.when_synced().addCallback(lambda _: self._missing(self._secrets.get(self._key)))

    def _missing(self, secret: Secret | None) -> None:
        if secret is None:
            self.readiness.set(
                not_ready(
                    "CredentialMissing",
                    f"there is no secret {self._key}: the lender grants access when the clusters are connected",
                )
            )

    def _changed(self, key: Key, old: Secret | None, new: Secret | None) -> None:
        if key != self._key:
            return
        if new is None:
            self._missing(new)
            return
        try:
            grant, token = read(new)
        except ValueError as error:
            self.readiness.set(not_ready("CredentialMalformed", f"the secret {self._key} cannot be used: {error}"))
            return
        if token != self._token:
            self._token = token
            self.renewed.set(self.renewed.value + 1)
        changed = self._grant is None or (grant.api_url, grant.ca) != (self._grant.api_url, self._grant.ca)
        self._grant = grant
        ways = possible(self._setting, direct=bool(grant.api_url), relay=grant.relay and self._relay is not None)
        if not ways:
            offered = "directly" if grant.api_url else "over its relay"
            sentence = (
                f"the lender lets its API server be reached {offered} only, and [peering] api = {self._setting} here "
                "says otherwise: change it on one of the two sides"
            )
            self.readiness.set(not_ready("NoCommonWay", sentence))
            return
        way = self.way.value
        if way not in ways:
            self.take(ways[0])
        elif changed and way == "direct":
            self.take(way)
        self.ways.set(ways)
        self.readiness.set(KNOWN)

    def take(self, way: Way) -> None:
        """Reach the lender by this way from now on."""
        self.way.set(way)
        self._replace(self.client_by(way))

    def client_by(self, way: Way) -> Client | None:
        """Return a new client that takes a way; None where there is no credential."""
        grant = self._grant
        if grant is None:
            return None
        if way == "relay" and self._relay is not None:
            return Client(over_relay(self._lender, self._relay()), self._reactor, allowance=Allowance())
        config = from_grant(grant.api_url, grant.ca or None, lambda: self._token)
        return Client(config, self._reactor, allowance=Allowance())

    def _replace(self, client: Client | None) -> None:
        old = self.client.value
        self.client.set(client)
        if old is not None:
            self._tasks.spawn(old.close(), "closing the connections to a lender's former address")

    async def close(self) -> None:
        """Close the client's connections; called last, when nothing uses it any more."""
        client = self.client.value
        if client is not None:
            await client.close()


def read(secret: Secret) -> tuple[Grant, str]:
    """Return what a credential's Secret holds; raises ValueError with what is wrong."""
    url = _text(secret, "api-url")
    relay = "relay" in secret.data and _text(secret, "relay") == "true"
    if relay and not url:
        return Grant("", b"", relay), ""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("api-url is not the URL of an API server")
    token = _text(secret, "token").strip()
    if not token or any(character.isspace() or ord(character) < 33 for character in token):
        raise ValueError("token is empty or not one word")
    return Grant(url, _bytes(secret, "ca.crt"), relay), token


def _text(secret: Secret, key: str) -> str:
    try:
        return _bytes(secret, key).decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"{key} is not ASCII text") from None


def _bytes(secret: Secret, key: str) -> bytes:
    if key not in secret.data:
        raise ValueError(f"{key} is missing")
    try:
        return base64.b64decode(secret.data[key], validate=True)
    except binascii.Error:
        raise ValueError(f"{key} is not base64") from None
