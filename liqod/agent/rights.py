"""What the daemon must be allowed to do in its own cluster, and how to find out what it is not."""

from __future__ import annotations

from typing import Any, Final

import attrs

from liqod.kube import resources as kinds
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Unauthorized
from liqod.kube.resources import Resource

_REVIEW: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)


@attrs.frozen
class Right:
    """One verb on one kind of object, everywhere in the cluster."""

    verb: str
    resource: Resource
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else str(self.resource)
        return f"{self.verb} {what}"


def _verbs(resource: Resource, *verbs: str, subresource: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, resource, subresource) for verb in verbs)


REQUIRED: Final[tuple[Right, ...]] = (
    *_verbs(kinds.NAMESPACES, "get", "list", "watch", "create", "delete"),
    *_verbs(kinds.NODES, "list", "watch", "create", "patch", "delete"),
    *_verbs(kinds.NODES, "patch", subresource="status"),
    *_verbs(kinds.PODS, "list", "watch", "create", "delete"),
    *_verbs(kinds.PODS, "patch", subresource="status"),
    *_verbs(kinds.SECRETS, "get", "list", "watch", "create", "delete"),
    *_verbs(kinds.SERVICEACCOUNTS, "create"),
    *_verbs(kinds.SERVICEACCOUNTS, "create", subresource="token"),
    *_verbs(kinds.CLUSTERROLES, "create", "patch"),
    *_verbs(kinds.ROLEBINDINGS, "create", "delete"),
    *_verbs(kinds.LEASES, "get", "create", "update"),
    *_verbs(kinds.EVENTS, "create", "patch"),
    *_verbs(kinds.MUTATINGWEBHOOKS, "get", "create", "patch"),
    *_verbs(kinds.FOREIGNCLUSTERS, "list", "watch", "create", "patch"),
    *_verbs(kinds.ADVERTISEMENTS, "list", "watch", "create", "patch"),
    *_verbs(kinds.VIRTUALNODES, "list", "watch", "create", "patch", "delete"),
    *_verbs(kinds.NATTINGTABLES, "list", "watch", "create", "patch"),
    *_verbs(kinds.SHADOWPODS, "list", "watch", "delete"),
)

DEFINITION_RIGHTS: Final = _verbs(kinds.CRDS, "get", "create", "patch")
"""Needed only where the daemon manages the definitions of its records itself."""


async def may(client: Client, right: Right) -> bool:
    """Ask the API server whether we have a right; a server without access reviews lets everyone."""
    attributes: dict[str, Any] = {
        "verb": right.verb,
        "group": right.resource.group,
        "resource": right.resource.plural,
        "subresource": right.subresource,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer: dict[str, Any] = await client.create(_REVIEW, body)
    except Unauthorized:
        raise
    except ApiError as error:
        if error.code in (404, 405):
            return True
        raise
    return bool(answer.get("status", {}).get("allowed"))


async def missing(client: Client, *, definitions: bool) -> list[Right]:
    """Return the rights that the daemon lacks; whoever may do everything is asked only once."""
    everything = Right("*", Resource("*", "*", "*", "*", False))
    if await may(client, everything):
        return []
    wanted = REQUIRED + (DEFINITION_RIGHTS if definitions else ())
    return [right for right in wanted if not await may(client, right)]
