"""What RBAC cannot say about the daemon's own account, as admission policies of the API server (CEL). Pure.

Tenants' namespaces come and go, so the account's rights in them are cluster-wide. These policies bind what it writes to
the namespaces that were made for peers and to its own: whoever steals its token cannot run a pod in ``kube-system``,
have a token made for another account, or turn a namespace of the cluster's into a tenant's.
"""

from __future__ import annotations

from typing import Any, Final

from liqod.agent.names import ACCOUNT
from liqod.model.names import ENABLED_LABEL, REMOTE_CLUSTER_LABEL
from liqod.webhook.configuration import NAME as WEBHOOK

_API: Final = "admissionregistration.k8s.io/v1"
PREFIX: Final = "liqod-daemon-"

_LABELLED: Final = "has({0}.metadata.labels) && '{1}' in {0}.metadata.labels"
_TENANTS: Final = _LABELLED.format("namespaceObject", REMOTE_CLUSTER_LABEL)
_SAME_IMAGES: Final = "object.spec.{0}.all(c, oldObject.spec.{0}.exists(o, o.name == c.name && o.image == c.image))"


def policies(namespace: str) -> list[dict[str, Any]]:
    """Return the policies for the account in ``namespace``; each is bound by a binding of its name."""
    ours = f"request.namespace == '{namespace}' || ({_TENANTS})"
    return [
        _policy(
            "objects",
            namespace,
            [
                _rule("", ["secrets", "serviceaccounts"]),
                _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"]),
                _rule("discovery.k8s.io", ["endpointslices"]),
            ],
            [(ours, "liqod writes such objects in its own namespace and in those of its tenants only")],
        ),
        _policy(
            "secrets",
            namespace,
            [_rule("", ["secrets"], "CREATE", "UPDATE")],
            [
                (
                    "!has(object.type) || object.type != 'kubernetes.io/service-account-token'",
                    "liqod has no tokens made for service accounts by secrets",
                )
            ],
        ),
        _policy(
            "tokens",
            namespace,
            [_rule("", ["serviceaccounts/token"], "CREATE")],
            [
                (
                    f"({_TENANTS}) || ({_LABELLED.format('namespaceObject', ENABLED_LABEL)} && "
                    f"namespaceObject.metadata.labels['{ENABLED_LABEL}'] == 'true' && "
                    "has(object.spec.boundObjectRef) && object.spec.boundObjectRef.kind == 'Pod')",
                    "liqod asks for tokens of its tenants' accounts, and for tokens bound to pods in offloaded "
                    "namespaces, only",
                )
            ],
        ),
        _policy(
            "pods",
            namespace,
            [_rule("", ["pods"], "CREATE", "UPDATE")],
            [
                (
                    f"({_TENANTS}) || request.operation != 'CREATE'",
                    "liqod makes pods in namespaces of its tenants only",
                ),
                (
                    f"({_TENANTS}) || request.operation != 'UPDATE' || ({_SAME_IMAGES.format('containers')} && "
                    f"(!has(object.spec.initContainers) || {_SAME_IMAGES.format('initContainers')}))",
                    "liqod changes no images outside of the namespaces of its tenants",
                ),
            ],
        ),
        _policy(
            "parts-of-pods",
            namespace,
            [_rule("", ["pods/ephemeralcontainers", "pods/resize"], "UPDATE")],
            [(_TENANTS, "liqod adds containers to running pods, and resizes them, for its tenants only")],
        ),
        _policy(
            "namespaces",
            namespace,
            [_rule("", ["namespaces"])],
            [
                (
                    f"request.operation == 'DELETE' || ({_LABELLED.format('object', REMOTE_CLUSTER_LABEL)})",
                    f"liqod makes namespaces for its tenants only (label {REMOTE_CLUSTER_LABEL})",
                ),
                (
                    f"request.operation == 'CREATE' || ({_LABELLED.format('oldObject', REMOTE_CLUSTER_LABEL)})",
                    f"liqod changes and removes namespaces of its tenants only (label {REMOTE_CLUSTER_LABEL})",
                ),
            ],
        ),
        _policy(
            "webhooks",
            namespace,
            [_rule("admissionregistration.k8s.io", ["mutatingwebhookconfigurations"], "CREATE")],
            [(f"object.metadata.name == '{WEBHOOK}'", f"liqod has one webhook configuration, {WEBHOOK}")],
        ),
    ]


def bindings(namespace: str) -> list[dict[str, Any]]:
    """Return the bindings that put the policies in force."""
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy["metadata"]["name"]},
            "spec": {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]},
        }
        for policy in policies(namespace)
    ]


def _rule(group: str, resources: list[str], *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations or ("CREATE", "UPDATE", "DELETE")),
        "resources": resources,
    }


def _policy(
    name: str, namespace: str, rules: list[dict[str, Any]], validations: list[tuple[str, str]]
) -> dict[str, Any]:
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": PREFIX + name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "by-the-daemon", "expression": f"request.userInfo.username == '{user}'"}],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    }
