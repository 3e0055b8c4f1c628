"""Encodes request bodies as JSON and reads namespace and name from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liqod.kube.resources import Resource

Content = Mapping[str, Any] | msgspec.Struct | bytes
"""A request body: a mapping, a view, or encoded JSON."""

_encode = msgspec.json.Encoder().encode


def identity(body: Content | list[Any]) -> tuple[str, str]:
    """Return namespace and name from a body's metadata; empty strings if absent or if the body is bytes."""
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    metadata = getattr(body, "metadata", None)
    return getattr(metadata, "namespace", "") or "", getattr(metadata, "name", "") or ""


def encoded(body: Content | list[Any]) -> bytes:
    """Return a body as JSON."""
    return body if isinstance(body, bytes) else _encode(body)


def typed(resource: Resource, body: Content) -> bytes:
    """Return an object as JSON with ``apiVersion`` and ``kind``; bytes are returned unchanged.

    Views omit both, because they are the same for every object of a cache.
    """
    if isinstance(body, bytes):
        return body
    whole = _encode(body)
    if "kind" in body if isinstance(body, Mapping) else hasattr(body, "kind"):
        return whole
    head = b'{"apiVersion":"%s","kind":"%s"' % (resource.api_version.encode(), resource.kind.encode())
    return head + (b"}" if whole == b"{}" else b"," + whole[1:])
