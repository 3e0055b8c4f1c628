"""Authorizes a borrower's API requests over the relay, by the same rules as its roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from liqod.hosting.tenants import rights
from liqod.model.names import tenant_namespace
from liqod.model.objects.api_request import RequestAttributes

_BORROWER: Final[list[dict[str, Any]]] = rights.borrower_role(services=True)["rules"]
"""With services: where this API server grants borrowers none, its RBAC refuses them."""


def user_of(peer: str) -> str:
    """Return the user name of a borrower's service account (Kubernetes: "Service account tokens")."""
    return f"system:serviceaccount:{tenant_namespace(peer)}:{rights.SERVICE_ACCOUNT}"


def permits(peer: str, ask: RequestAttributes, tenant: str) -> bool:
    """Return whether a borrower may send a request; ``tenant`` is the cluster ID that the namespace was granted to.

    In its tenant namespace a borrower may read its own service account and nothing else.
    """
    if not ask.namespace or ask.path:
        return False
    if ask.namespace == tenant_namespace(peer):
        return _covered(rights.tenant_role(peer)["rules"], ask)
    return tenant == peer and _covered(_BORROWER, ask)


def _covered(rules: Iterable[Mapping[str, Any]], ask: RequestAttributes) -> bool:
    return any(
        ask.group in rule["apiGroups"]
        and ask.what in rule["resources"]
        and ask.verb in rule["verbs"]
        and ask.name in rule.get("resourceNames", [ask.name])
        for rule in rules
    )
