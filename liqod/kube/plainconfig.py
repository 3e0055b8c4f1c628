"""The ordinary kubeconfig, read without the ``kubernetes`` package: one file, certificates or a token. Pure.

Whatever is more than that (plugins, proxies, passwords, anything unknown, anything broken) is not read here at all, so
that it has one meaning and one explanation: those of the package.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import msgspec


class _Strict(msgspec.Struct, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A part of the file in which nothing may be that is not named here."""


class Cluster(_Strict, frozen=True):
    """Where an API server is and whom it is to be trusted by; ``certificate_authority`` is a path."""

    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    extensions: Any = None


class User(_Strict, frozen=True):
    """Who one is; the names without ``data`` are paths."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    extensions: Any = None


class _Context(_Strict, frozen=True):
    cluster: str
    user: str
    namespace: str = ""
    extensions: Any = None


class _Named(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster | None = None
    user: User | None = None
    context: _Context | None = None


class _File(msgspec.Struct, rename="kebab", frozen=True):
    contexts: list[_Named]
    clusters: list[_Named]
    users: list[_Named]
    current_context: str = ""


def read(text: str, context: str) -> tuple[Cluster, User] | None:
    """Return cluster and user of a context (empty: the current one), None where the file is not an ordinary one."""
    try:
        file = msgspec.yaml.decode(text, type=_File, strict=True)
    except (msgspec.MsgspecError, ValueError):
        return None
    chosen = _one(file.contexts, context or file.current_context)
    if chosen is None or chosen.context is None:
        return None
    cluster, user = _one(file.clusters, chosen.context.cluster), _one(file.users, chosen.context.user)
    if cluster is None or user is None or cluster.cluster is None or user.user is None:
        return None
    if not cluster.cluster.server.startswith("https://") or (user.user.token and user.user.token_file):
        return None
    return cluster.cluster, user.user


def _one(entries: list[_Named], name: str) -> _Named | None:
    found = [entry for entry in entries if entry.name == name]
    return found[0] if len(found) == 1 else None


def data(text: str) -> bytes:
    """Return what is embedded as base64; raises ValueError without quoting it."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None
