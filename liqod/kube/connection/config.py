"""Loads the configuration for an API server: from a kubeconfig, from inside a cluster, or from a peer's grant."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from liqod.flow.errors import ExpectedError
from liqod.kube.connection import kubeconfig as kubeconfigs
from liqod.kube.connection.account_token import AccountToken
from liqod.kube.connection.kubeconfig import Source

REREAD: Final = 60.0
"""Seconds between two reads of a token file; the kubelet rotates projected tokens at 80 % of their lifetime."""


class ConfigError(ExpectedError):
    """The configuration for an API server cannot be loaded; the message names the source and the remedy."""


@attrs.frozen
class ClientConfig:
    """Server URL, trust, and credentials; secrets are excluded from ``repr``.

    ``ca_pem`` None: the system's trust store. ``token`` is called for every request, so it must be cheap: it returns a
    cached token. ``renew_token`` is called once after a 401 response, before one more attempt; with ``renewal_blocks``
    it runs a program and is called in a thread. ``dial`` is an endpoint (``IStreamClientEndpoint``) that replaces TCP
    and TLS and authenticates the server itself. ``in_cluster``: the server's address is that of the Service
    ``kubernetes``, as pods have it.
    """

    server: str
    ca_pem: bytes | None = attrs.field(default=None, repr=False)
    client_cert_pem: bytes | None = attrs.field(default=None, repr=False)
    client_key_pem: bytes | None = attrs.field(default=None, repr=False)
    token: Callable[[], str] | None = attrs.field(default=None, repr=False)
    insecure: bool = attrs.field(default=False, kw_only=True)
    tls_server_name: str = attrs.field(default="", kw_only=True)
    renew_token: Callable[[], None] | None = attrs.field(default=None, repr=False, kw_only=True)
    renewal_blocks: bool = attrs.field(default=False, kw_only=True)
    dial: Any = attrs.field(default=None, repr=False, kw_only=True)
    in_cluster: bool = attrs.field(default=False, kw_only=True)


def from_grant(url: str, ca_pem: bytes | None, token: Callable[[], str]) -> ClientConfig:
    """Return the configuration for an API server that a peer granted access to."""
    return ClientConfig(server=url.rstrip("/"), ca_pem=ca_pem, token=token)


def over_relay(peer: str, dial: Any) -> ClientConfig:
    """Return the configuration for the API server behind a peer's relay, which ``dial`` connects to.

    The URL appears in messages only; it is never resolved.
    """
    return ClientConfig(server=f"https://{peer}.relay", dial=dial)


class TokenFile:
    """Returns the bearer token of a file that is rotated; reads it at most once a minute, and after ``expire``.

    While the file is unreadable, the last token is used. Raises ConfigError if no token was ever read.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._token = ""
        self._due = 0.0

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def __call__(self) -> str:
        now = self._monotonic()
        if not self._token or now >= self._due:
            self._due = now + REREAD
            try:
                self._token = self._path.read_text("ascii").strip() or self._token
            except (OSError, ValueError) as error:
                if not self._token:
                    raise ConfigError(f"the token file {self._path} cannot be read: {error}") from error
            if not self._token:
                raise ConfigError(f"the token file {self._path} is empty")
        return self._token

    def expire(self) -> None:
        """Read the file again at the next use."""
        self._due = 0.0


class _Held:
    """Holds a bearer token that ``renew`` replaces."""

    def __init__(self, token: str, read: Callable[[], str]) -> None:
        self._token = token
        self._read = read

    def __call__(self) -> str:
        return self._token

    def renew(self) -> None:
        self._token = self._read()


def load(kubeconfig: str = "", context: str = "", *, apart: bool = False) -> ClientConfig:
    """Return the configuration of a kubeconfig's context, or the in-cluster one.

    An empty ``kubeconfig`` means: in-cluster where available (and no context is given), else ``$KUBECONFIG``, else
    ``~/.kube/config``. ``apart``: a process of its own reads it, each time. Blocks: it reads files and may run an exec
    plugin. Raises ConfigError.
    """
    if not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        inside = _read("", "", apart)
        token = TokenFile(Path(inside.token_file))
        return attrs.evolve(_trust(inside), token=token, renew_token=token.expire, in_cluster=True)
    named = kubeconfig or os.environ.get("KUBECONFIG", "") or "~/.kube/config"
    if not kubeconfigs.files(named):
        raise ConfigError(
            f"no kubeconfig at {named}, and this is not a pod of a cluster; name one in [kubernetes] kubeconfig "
            "or in $KUBECONFIG"
        )
    source = _read(named, context, apart)
    return _with_token(source, named, lambda: _read(named, context, apart).token, apart=apart)


def _read(named: str, context: str, apart: bool) -> Source:
    try:
        return kubeconfigs.read_apart(named, context) if apart else kubeconfigs.read(named, context)
    except kubeconfigs.KubeconfigError as error:
        raise ConfigError(str(error)) from error


def _trust(source: Source) -> ClientConfig:
    """Return the configuration without a token."""
    return ClientConfig(
        server=source.server,
        ca_pem=source.ca,
        client_cert_pem=source.certificate,
        client_key_pem=source.key,
        insecure=source.insecure,
        tls_server_name=source.tls_server_name,
    )


def _with_token(source: Source, named: str, again: Callable[[], str], *, apart: bool) -> ClientConfig:
    config = _trust(source)
    if source.has_plugin:
        if not source.token and config.client_cert_pem is None:
            raise ConfigError(
                f"the exec plugin of {named} gave neither a token nor a certificate; run "
                f"`kubectl --kubeconfig {named} get --raw /version` to see why"
            )
        if source.token:
            held = _Held(source.token, again)
            return attrs.evolve(config, token=held, renew_token=held.renew, renewal_blocks=True)
        return config
    path = Path(source.token_file) if source.token_file else None
    if not source.names_token and path is not None:
        file = TokenFile(path)
        return attrs.evolve(config, token=file, renew_token=file.expire)
    if source.token:
        # A token that was replaced in the file is used as soon as the old one is rejected (401). What is in a token
        # file beside it counts as in client-go ("takes precedence over Token"), if it is newer, for the same account.
        own = AccountToken(source.token, again, path)
        return attrs.evolve(config, token=own, renew_token=own.renew, renewal_blocks=apart)
    return config
