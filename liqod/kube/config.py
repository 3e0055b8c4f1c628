"""How to reach an API server: from a kubeconfig, from inside a cluster, or from a peer's grant."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from liqod.flow.errors import Foreseen


class ConfigError(Foreseen):
    """The way to an API server cannot be established; the text says what was tried and what to do."""


@attrs.frozen
class ClientConfig:
    """Server URL, trust, and credentials; secrets never show in ``repr``.

    ``ca_pem`` None: the system's trust store. ``token`` is asked at every request, so it must be cheap: it returns what
    it holds and re-reads now and then. ``renew_token`` is called once when the server says 401, before one more try;
    where ``renewal_blocks`` it runs a program and is called in a thread.
    """

    server: str
    ca_pem: bytes | None = None
    client_cert_pem: bytes | None = None
    client_key_pem: bytes | None = attrs.field(default=None, repr=False)
    token: Callable[[], str] | None = attrs.field(default=None, repr=False)
    insecure: bool = False
    tls_server_name: str = ""
    renew_token: Callable[[], None] | None = attrs.field(default=None, repr=False)
    renewal_blocks: bool = False


def from_grant(url: str, ca_pem: bytes | None, token: Callable[[], str]) -> ClientConfig:
    """Return the configuration for an API server that a peer granted access to."""
    return ClientConfig(server=url.rstrip("/"), ca_pem=ca_pem, token=token)
