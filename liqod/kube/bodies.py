"""Bodies of requests: which object they are about, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liqod.kube.resources import Resource

Content = Mapping[str, Any] | msgspec.Struct | bytes
"""What can be sent: a mapping, a view, or JSON that is encoded already."""

_encode = msgspec.json.Encoder().encode


def identity(body: Content | list[Any]) -> tuple[str, str]:
    """Return namespace and name from a body's metadata; empty where there is none or the body is bytes."""
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    metadata = getattr(body, "metadata", None)
    return getattr(metadata, "namespace", "") or "", getattr(metadata, "name", "") or ""


def encoded(body: Content | list[Any]) -> bytes:
    """Return a body as JSON."""
    return body if isinstance(body, bytes) else _encode(body)


def typed(resource: Resource, body: Content) -> bytes:
    """Return an object as JSON that says its ``apiVersion`` and ``kind``; bytes are taken as they are.

    Views leave both out, because they are the same for every object of a cache.
    """
    if isinstance(body, bytes):
        return body
    whole = _encode(body)
    if "kind" in body if isinstance(body, Mapping) else hasattr(body, "kind"):
        return whole
    head = b'{"apiVersion":"%s","kind":"%s"' % (resource.api_version.encode(), resource.kind.encode())
    return head + (b"}" if whole == b"{}" else b"," + whole[1:])
