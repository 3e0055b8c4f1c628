"""Metrics of what ends: certificates, and tokens. What has no end, or none that is known, is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import attrs
import msgspec

from liqod.agent.metrics.source import MetricsSource, leading
from liqod.flow.errors import ExpectedError
from liqod.identity.certs import read_certificates
from liqod.kube.client import Client
from liqod.kube.connection.account_token import token_body
from liqod.metrics.registry import Registry, Samples

MAX_TOKEN: Final = 16 << 10
"""Characters of a token that is looked into; a service account's has about a thousand."""


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None


def register(registry: Registry, read: Ends) -> None:
    """Have a registry serve when something ends."""
    registry.gauge(
        "liqod_certificate_not_after_timestamp_seconds",
        "When a certificate of this daemon ends, as Unix time.",
        ("what",),
        read.certificates,
    )
    registry.gauge(
        "liqod_token_expiration_timestamp_seconds",
        "When a token that this daemon uses ends, as Unix time.",
        ("what", "peer"),
        read.tokens,
    )


@attrs.frozen
class Ends:
    """Reads when what one daemon shows to others ends."""

    _agent: MetricsSource

    def certificates(self) -> Samples:
        """Return when the certificates that this daemon shows to others end, or that of a CA that it trusts."""
        for what, end in self._certificates():
            yield (what,), end.timestamp()

    def _certificates(self) -> Iterator[tuple[str, datetime]]:
        agent = self._agent
        if agent.client is not None:
            yield from _first_end("home", agent.client.config.client_cert_pem, 1)
        if agent.home is not None:
            yield from _first_end("identity-ca", agent.home.ca_pem)
        if agent.pages is not None and (end := agent.pages.certificate_end) is not None:
            yield "metrics", end
        for features in leading(agent):
            yield "identity", features.peering.certificate_end
            if features.webhook is not None and (end := features.webhook.certificate_end) is not None:
                yield "webhook", end
            api = features.kubelets.api
            if api is not None and api.certificate_end is not None:
                yield "kubelet", api.certificate_end

    def tokens(self) -> Samples:
        """Return when the token for this cluster's API server ends, and those that lenders gave."""
        if self._agent.client is not None and (end := _end_of_own_token(self._agent.client)) is not None:
            yield ("home", ""), end.timestamp()
        for features in leading(self._agent):
            # The virtual nodes of a lender use one credential.
            ends = {str(kubelet.context.lender): kubelet.access.expires for kubelet in features.kubelets.all()}
            for peer, end in sorted(ends.items()):
                if end is not None:
                    yield ("lender", peer), end.timestamp()


def _first_end(what: str, pem: bytes | None, count: int | None = None) -> Iterator[tuple[str, datetime]]:
    """Yield when the first of these certificates ends; ``count``: of how many of them (None: of all)."""
    if not pem:
        return
    with suppress(ValueError):
        yield what, min(one.not_valid_after_utc for one in read_certificates(pem)[:count])


def _end_of_own_token(client: Client) -> datetime | None:
    token = client.config.token
    if token is None:
        return None
    try:
        return token_end(token())
    except ExpectedError:  # the file of the token cannot be read, which the requests of the client say
        return None


def token_end(token: str) -> datetime | None:
    """Return when a token ends by its own words (JWT, RFC 7519, ``exp``); None for one that has no end, or is no JWT.

    They are not verified: the server that takes the token does that.
    """
    body = token_body(token) if len(token) <= MAX_TOKEN else None
    if body is None:
        return None
    try:
        claims = msgspec.json.decode(body, type=_Claims)
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (msgspec.MsgspecError, ValueError, OverflowError, OSError, RecursionError):
        return None
