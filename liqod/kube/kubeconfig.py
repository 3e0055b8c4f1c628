"""Kubeconfig files that hold all they need: addresses, certificates and tokens, but no programs to run.

These are nearly all there are, and reading them here takes a hundredth of the time that importing the ``kubernetes``
package does. Whatever says more than is understood here is left to that package.
Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files", and client.authentication/v1 ``kubeconfig``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CLUSTER: Final = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
        "extensions",
    }
)
_USER: Final = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "tokenFile",
        "extensions",
    }
)


@attrs.frozen
class Plain:
    """What one context of a kubeconfig says; secrets never show in ``repr``."""

    server: str
    ca_pem: bytes | None = attrs.field(repr=False)
    client_cert_pem: bytes | None = attrs.field(repr=False)
    client_key_pem: bytes | None = attrs.field(repr=False)
    token: str = attrs.field(repr=False)
    token_file: Path | None
    insecure: bool
    tls_server_name: str


def read_plain(path: Path, context: str = "") -> Plain | None:
    """Return what a file says for a context (the current one unless named), or None where it takes more to tell.

    Raises OSError for files that cannot be read, ValueError with a sentence for what cannot be used.
    """
    try:
        whole = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506  # it is a safe one
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(whole, dict):
        raise ValueError("it is empty")
    chosen = _named(whole, "context", context or str(whole.get("current-context") or ""))
    cluster = _named(whole, "cluster", str(chosen.get("cluster") or ""))
    user = _named(whole, "user", str(chosen["user"])) if chosen.get("user") else {}
    if not (set(cluster) <= _CLUSTER and set(user) <= _USER):
        return None
    if not cluster.get("server"):
        raise ValueError(f"the cluster {chosen['cluster']} has no server")
    here = path.parent
    token = user.get("token") or ""
    return Plain(
        server=str(cluster["server"]).rstrip("/"),
        ca_pem=_content(cluster, "certificate-authority", here),
        client_cert_pem=_content(user, "client-certificate", here),
        client_key_pem=_content(user, "client-key", here),
        token=str(token).strip(),
        token_file=here / str(user["tokenFile"]) if user.get("tokenFile") and not token else None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
    )


def _named(whole: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    if not name:
        raise ValueError(f"it names no {'current context' if kind == 'context' else kind}")
    for entry in whole.get(f"{kind}s") or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind) or {}
            if isinstance(found, dict):
                return found
    raise ValueError(f"it has no {kind} {name}")


def _content(part: Mapping[str, Any], key: str, here: Path) -> bytes | None:
    """Return embedded data, which comes first, or the content of the named file, relative to the kubeconfig."""
    if data := part.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            raise ValueError(f"{key}-data is not base64") from None
    return (here / str(part[key])).read_bytes() if part.get(key) else None
