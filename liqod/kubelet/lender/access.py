"""Access to a lender's API server: reads the granted credential and provides a client with the latest token."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.interfaces import IReactorTime
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
from liqod.kubelet.lender.endpoint_choice import Endpoint, EndpointSetting, allowed_endpoints
from liqod.kubelet.ports import Relays
from liqod.model.ids import ClusterID, Key
from liqod.model.names import CREDENTIAL_SECRET, tenant_namespace
from liqod.model.timestamps import parse_rfc3339

CREDENTIAL_PRESENT: Final = Readiness(
    ready=True, reason="CredentialPresent", message="the lender granted access to its API server"
)


@frozen
class Grant:
    """A credential without its token, which changes more often; without a URL only the relay can be used."""

    api_url: str
    ca: bytes
    relay: bool = False


class LenderAccess(MultiService):
    """Reads the credential's Secret, and provides a client for the endpoint in use.

    The next request uses a new token; a new URL or CA needs a new client. A deleted Secret is reported in
    ``readiness``, but the client is kept: the lender decides whether the credential is still valid.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        home: Client,
        lender: ClusterID,
        *,
        setting: EndpointSetting,
        relays: Relays,
    ) -> None:
        super().__init__()
        namespace = tenant_namespace(lender)
        self._clock = clock
        self._home = home
        self._lender = lender
        self._setting = setting
        self._relays = relays
        self._key = Key(namespace, CREDENTIAL_SECRET)
        self.endpoints: Latest[tuple[Endpoint, ...]] = Latest(())
        """The endpoints that both sides allow, the preferred one first."""
        self.endpoint: Latest[Endpoint | None] = Latest(None)
        """The endpoint that ``client`` uses."""
        self.client: Latest[Client | None] = Latest(None)
        """A client of the lender's API server; None before the first credential."""
        self.readiness: Latest[Readiness] = Latest(not_known(f"the secret {self._key} was not read yet"))
        """Whether there is a usable credential, and if not, why."""
        self.requests: Counter[tuple[str, str]] = Counter()
        """The requests of all clients, of the former ones too, as ``Client.requests`` counts them."""
        self.token_renewals: Latest[int] = Latest(0)
        """The number of tokens received from the lender."""
        self.expires: datetime | None = None
        """When the credential ends, by what was said when it came; None: without one, or not known."""
        self._token = ""
        self._grant: Grant | None = None
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._secrets: Informer[Secret] = Informer(
            home, SECRETS, Secret, clock, namespace=namespace, fields=f"metadata.name={CREDENTIAL_SECRET}"
        )
        self._secrets.setServiceParent(self)
        self._secrets.subscribe(self._changed)
        self._secrets.when_synced().addCallback(lambda _: self._missing(self._secrets.get(self._key)))

    def _missing(self, secret: Secret | None) -> None:
        if secret is None:
            self.expires = None
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
        self.expires = expiry_of(new)
        if token != self._token:
            self._token = token
            self.token_renewals.set(self.token_renewals.value + 1)
        changed = self._grant is None or (grant.api_url, grant.ca) != (self._grant.api_url, self._grant.ca)
        self._grant = grant
        relay = grant.relay and self._relays.relay_of(self._lender) is not None
        endpoints = allowed_endpoints(self._setting, direct=bool(grant.api_url), relay=relay)
        if not endpoints:
            offered = "directly" if grant.api_url else "over its relay"
            sentence = (
                f"the lender offers its API server {offered} only, and [peering] api = {self._setting} here excludes "
                "that: change the setting on one of the two sides"
            )
            self.readiness.set(not_ready("NoCommonWay", sentence))
            return
        endpoint = self.endpoint.value
        if endpoint not in endpoints:
            self.use(endpoints[0])
        elif changed and endpoint == "direct":
            self.use(endpoint)
        self.endpoints.set(endpoints)
        self.readiness.set(CREDENTIAL_PRESENT)

    def use(self, endpoint: Endpoint) -> None:
        """Switch to an endpoint, with a new client."""
        self.endpoint.set(endpoint)
        self._replace(self.client_for(endpoint))

    def client_for(self, endpoint: Endpoint) -> Client | None:
        """Return a new client for an endpoint; None without a credential."""
        grant = self._grant
        if grant is None:
            return None
        relay = self._relays.relay_of(self._lender) if endpoint == "relay" else None
        if relay is not None:
            config = over_relay(str(self._lender), relay)
        else:
            config = from_grant(grant.api_url, grant.ca or None, lambda: self._token)
        client = Client(config, self._clock, allowance=Allowance())
        client.requests = self.requests
        # The caches of this cluster's daemon, wherever they are of, are kept together; they are named by their servers.
        client.kept = self._home.kept
        return client

    def _replace(self, client: Client | None) -> None:
        old = self.client.value
        self.client.set(client)
        if old is not None:
            self._tasks.spawn(old.close(), "closing the connections to a lender's former address")

    async def close(self) -> None:
        """Close the client's connections; call it last, after all users of the client have stopped."""
        client = self.client.value
        if client is not None:
            await client.close()


def read(secret: Secret) -> tuple[Grant, str]:
    """Return the credential and the token in a Secret; raises ValueError with the reason if it is invalid."""
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


def expiry_of(secret: Secret) -> datetime | None:
    """Return when the credential in a Secret ends; None where that is not said."""
    try:
        return parse_rfc3339(_text(secret, "expires-at"))
    except ValueError:
        return None


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
