"""URLs of the Kubernetes API, as a pure function of what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, urlencode

from liqod.kube.resources import Resource


@lru_cache(maxsize=256)
def prefix(resource: Resource) -> str:
    """Return the part of the path that all objects of a group and version share."""
    if resource.group:
        return f"/apis/{resource.group}/{resource.version}"
    return f"/api/{resource.version}"


def collection(resource: Resource, namespace: str = "") -> str:
    """Return the path of a kind's objects: of one namespace, or of all when ``namespace`` is empty.

    Raises ValueError for a namespace with a cluster-scoped kind.
    """
    if not namespace:
        return f"{prefix(resource)}/{resource.plural}"
    if not resource.namespaced:
        raise ValueError(f"{resource} are not in namespaces, {namespace!r} was given")
    return f"{prefix(resource)}/namespaces/{quote(namespace, safe='')}/{resource.plural}"


def item(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object or of a subresource of it.

    Raises ValueError for an empty name or a missing namespace: the path would mean a whole collection, and deleting
    that must not happen by an empty string. Names are escaped, so that no name reaches another path.
    """
    if not name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name for one of {resource}")
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource} are in namespaces, none was given for {name!r}")
    path = f"{collection(resource, namespace)}/{quote(name, safe=':')}"
    return f"{path}/{quote(subresource, safe='')}" if subresource else path


def query(path: str, parameters: Mapping[str, str]) -> str:
    """Return the path with those parameters that are not empty."""
    text = urlencode({key: value for key, value in parameters.items() if value})
    return f"{path}?{text}" if text else path
