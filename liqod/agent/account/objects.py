"""The daemon's own account in its cluster, as objects: ServiceAccount, its tokens, and roles with what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from liqod.agent.account.names import ACCOUNT, account_of, bound_secret_of
from liqod.agent.account.rights import Right, required
from liqod.config.schema import Settings
from liqod.kube import manifests
from liqod.kube import resources as kinds
from liqod.kube.resources import Resource

_RBAC: Final = "rbac.authorization.k8s.io"
LABELS: Final = {"app.kubernetes.io/name": "liqod", "app.kubernetes.io/managed-by": "liqodctl"}
"""What our roles and bindings are found by when the configuration that they were made for is gone."""


def account(namespace: str, name: str = ACCOUNT) -> dict[str, Any]:
    """Return the ServiceAccount; nothing in the cluster mounts its tokens by itself. It says which release wrote it."""
    labels = manifests.release_label()
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})},
        "automountServiceAccountToken": False,
    }


def bound_secret(namespace: str, name: str = ACCOUNT) -> dict[str, Any]:
    """Return the Secret that the account's tokens are bound to: nothing is in it, and with it all of them end."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": bound_secret_of(name), "namespace": namespace, "labels": dict(LABELS)},
        "type": "Opaque",
    }


def token_request(name: str, seconds: int) -> dict[str, Any]:
    """Return the TokenRequest for an account: a token that ends, and before that with its Secret.

    The daemon lives outside of the cluster, where no kubelet renews a token for it.
    """
    bound = {"apiVersion": "v1", "kind": "Secret", "name": bound_secret_of(name)}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }


def roles(settings: Settings) -> list[tuple[Resource, dict[str, Any]]]:
    """Return the roles and bindings that give the account what a daemon with these settings needs."""
    rights, name = required(settings), account_of(settings.daemon.role)
    objects: list[tuple[Resource, dict[str, Any]]] = []
    for namespace in dict.fromkeys(["", *(right.namespace for right in rights)]):
        rules = rules_of(right for right in rights if right.namespace == namespace)
        objects.append((kinds.ROLES if namespace else kinds.CLUSTERROLES, _role(name, namespace, rules)))
        objects.append(
            (
                kinds.ROLEBINDINGS if namespace else kinds.CLUSTERROLEBINDINGS,
                _binding(name, namespace, settings.kubernetes.namespace),
            )
        )
    return objects


def rules_of(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return the fewest rules that grant these rights and no other ones."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.resource.group, right.what, right.name), []).append(right.verb)
    named: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, what, name), some in verbs.items():
        named.setdefault((group, what, tuple(some)), []).append(name)
    whats: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, what, those), names in named.items():
        whats.setdefault((group, those, tuple(name for name in names if name)), []).append(what)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            "verbs": list(those),
            **({"resourceNames": list(only)} if only else {}),
        }
        for (group, those, only), resources in whats.items()
    ]


def _role(name: str, namespace: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    where: dict[str, Any] = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, **where, "labels": dict(LABELS)},
        "rules": rules,
    }


def _binding(name: str, namespace: str, own: str) -> dict[str, Any]:
    where: dict[str, Any] = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, **where, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role" if namespace else "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": own}],
    }
