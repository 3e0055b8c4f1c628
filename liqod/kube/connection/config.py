"""Loads the configuration for an API server: from a kubeconfig, from inside a cluster, or from a peer's grant.

The ``kubernetes`` package reads kubeconfig files, contexts, exec plugins and the in-cluster environment. It is imported
only when needed: the import costs a third of a second of CPU and 17 MiB.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from liqod.flow.errors import ExpectedError
from liqod.kube.connection.account_token import AccountToken

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


def load(kubeconfig: str = "", context: str = "") -> ClientConfig:
    """Return the configuration of a kubeconfig's context, or the in-cluster one.

    An empty ``kubeconfig`` means: in-cluster where available (and no context is given), else ``$KUBECONFIG``, else
    ``~/.kube/config``. Blocks: it reads files and may run an exec plugin. Raises ConfigError.
    """
    if not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster()
    named = kubeconfig or os.environ.get("KUBECONFIG", "") or "~/.kube/config"
    if not _files(named):
        raise ConfigError(
            f"no kubeconfig at {named}, and this is not a pod of a cluster; name one in [kubernetes] kubeconfig "
            "or in $KUBECONFIG"
        )
    return _from_kubeconfig(named, context)


def _in_cluster() -> ClientConfig:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, incluster_config, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        ca_pem = _content(configuration.ssl_ca_cert)
    except (ConfigException, OSError) as error:
        raise ConfigError(
            f"the in-cluster configuration is incomplete: {error}; does the pod have a service account token mounted?"
        ) from error
    token = TokenFile(Path(incluster_config.SERVICE_TOKEN_FILENAME))
    return ClientConfig(
        server=configuration.host, ca_pem=ca_pem, token=token, renew_token=token.expire, in_cluster=True
    )


def _from_kubeconfig(named: str, context: str) -> ClientConfig:
    from kubernetes.config import ConfigException

    try:
        context = context or _first_context(named)
        user = _user(named, context)
        with tempfile.TemporaryDirectory(prefix="liqod-") as scratch:
            # The kubernetes package writes embedded certificates to files; they are read back and removed at once.
            configuration = _loaded(named, context, scratch)
            if getattr(configuration, "proxy", None) and any(
                "proxy-url" in part.read_text("utf-8") for part in _files(named)
            ):
                raise ConfigError(f"{named} names a proxy-url, which is not supported: the connection must be direct")
            config = ClientConfig(
                server=configuration.host,
                ca_pem=_content(configuration.ssl_ca_cert),
                client_cert_pem=_content(configuration.cert_file),
                client_key_pem=_content(configuration.key_file),
                insecure=not configuration.verify_ssl,
                # What is no text in quotes may be a number in YAML.
                tls_server_name=str(configuration.tls_server_name or ""),
            )
    except ConfigError:
        raise
    except (ConfigException, OSError) as error:
        raise ConfigError(f"the kubeconfig {named} cannot be used: {error}") from error
    except Exception as error:
        # A broken file raises arbitrary errors in the loader. Later lines of the message may quote the file: drop them.
        detail = next(iter(str(error).splitlines()), "")
        raise ConfigError(f"the kubeconfig {named} cannot be used: {type(error).__name__}: {detail}") from error
    return _with_token(config, configuration, named, context, user)


def _with_token(config: ClientConfig, configuration: Any, named: str, context: str, user: Any) -> ClientConfig:
    token = _bearer(configuration, named)
    if "exec" in user:
        if not token and config.client_cert_pem is None:
            raise ConfigError(
                f"the exec plugin of {named} gave neither a token nor a certificate; run "
                f"`kubectl --kubeconfig {named} get --raw /version` to see why"
            )
        if token:
            held = _Held(token, lambda: _token_again(named, context))
            return attrs.evolve(config, token=held, renew_token=held.renew, renewal_blocks=True)
        return config
    path = _token_file(user, named)
    if "token" not in user and path is not None:
        file = TokenFile(path)
        return attrs.evolve(config, token=file, renew_token=file.expire)
    if token:
        # A token that was replaced in the file is used as soon as the old one is rejected (401). What is in a token
        # file beside it counts as in client-go ("takes precedence over Token"), if it is newer, for the same account.
        own = AccountToken(token, lambda: _token_again(named, context), path)
        return attrs.evolve(config, token=own, renew_token=own.renew)
    return config


def _token_file(user: Any, named: str) -> Path | None:
    """Return the file that a user's entry names; a relative path is relative to its kubeconfig."""
    if "tokenFile" not in user:
        return None
    return Path(getattr(user, "path", None) or named).expanduser().parent / str(user["tokenFile"])


def _token_again(named: str, context: str) -> str:
    with tempfile.TemporaryDirectory(prefix="liqod-") as scratch:
        return _bearer(_loaded(named, context, scratch), named)


def _loaded(named: str, context: str, scratch: str) -> Any:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(
        config_file=named,
        context=context or None,
        client_configuration=configuration,
        persist_config=False,
        temp_file_path=scratch,
    )
    return configuration


def _files(named: str) -> list[Path]:
    """Return the existing ones of several files, joined as in ``$KUBECONFIG``."""
    paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return [path for path in paths if path.is_file()]


def _first_context(named: str) -> str:
    """Return the current context of the first of several files that has one; empty for a single file.

    Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files": the first file to set a value wins. The
    kubernetes package takes the last one's.
    """
    from kubernetes.config.kube_config import KubeConfigMerger

    files = _files(named)
    for path in files if len(files) > 1 else ():
        current = KubeConfigMerger(str(path)).config.safe_get("current-context")
        if current:
            return str(current)
    return ""


def _user(named: str, context: str) -> Any:
    """Return the user entry of a kubeconfig, the source of the credentials; the loader does not expose it."""
    from kubernetes.config.kube_config import KubeConfigMerger

    whole = KubeConfigMerger(named).config
    chosen = whole["contexts"].get_with_name(context or whole["current-context"])["context"]
    found = whole["users"].get_with_name(chosen["user"], safe=True) if chosen.safe_get("user") else None
    return found["user"] if found and found.safe_get("user") else {}


def _bearer(configuration: Any, named: str) -> str:
    value = str(configuration.api_key.get("BearerToken") or "")
    if not value:
        return ""
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "bearer":
        raise ConfigError(f"{named} names a user with password, which Kubernetes no longer knows; use a token")
    return token.strip()


def _content(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
