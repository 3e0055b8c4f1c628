"""What requests to the Kubernetes API consist of: their paths, and their bodies as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec

from liqod.kube.resources import Resource

Content = Mapping[str, Any] | msgspec.Struct | bytes
"""A request body: a mapping, a view, or encoded JSON."""

_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=256)
def prefix(resource: Resource) -> str:
    """Return the common path of all objects of a group and version."""
    if resource.group:
        return f"/apis/{resource.group}/{resource.version}"
    return f"/api/{resource.version}"


def collection(resource: Resource, namespace: str = "") -> str:
    """Return the path of a collection: of one namespace, or of all if ``namespace`` is empty.

    Raises ValueError for a namespace with a cluster-scoped kind.
    """
    if not namespace:
        return f"{prefix(resource)}/{resource.plural}"
    if not resource.namespaced:
        raise ValueError(f"{resource} are not in namespaces, {namespace!r} was given")
    return f"{prefix(resource)}/namespaces/{quote(namespace, safe='')}/{resource.plural}"


def item(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object or of one of its subresources.

    Raises ValueError for an empty name or a missing namespace: the path would name a whole collection, and DELETE on it
    removes all objects (deletecollection). Names are percent-encoded, so that no name reaches another path.
    """
    if not name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name for one of {resource}")
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource} are in namespaces, none was given for {name!r}")
    path = f"{collection(resource, namespace)}/{quote(name, safe=':')}"
    return f"{path}/{quote(subresource, safe='')}" if subresource else path


def namespace_of(path: str) -> str:
    """Return the namespace that the object of a path is in, empty for one that is in none."""
    _, _, rest = path.partition("/namespaces/")
    name, is_inside, _ = rest.partition("/")
    return unquote(name) if is_inside else ""


def query(path: str, parameters: Mapping[str, str]) -> str:
    """Return the path with the non-empty query parameters."""
    text = urlencode({key: value for key, value in parameters.items() if value})
    return f"{path}?{text}" if text else path


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
