"""What RBAC cannot say about the daemon's own account, as admission policies of the API server (CEL). Pure.

Tenants' namespaces come and go, so the account's rights in them are cluster-wide. These policies bind what it writes to
the namespaces that were made for peers and to its own: a thief of its token cannot run a pod in ``kube-system``,
have a token made for another account, or turn a namespace of the cluster's into a tenant's.

What may be done in tenants' namespaces anyhow is not looked at there at all (``namespaceSelector``): a policy that is
evaluated costs the API server four conversions of the object, one that is not selected a look at a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from liqod.agent.account.names import ACCOUNT
from liqod.hosting.tenants.policies import MAKES_A_TOKEN
from liqod.model.names import ENABLED_LABEL, REMOTE_CLUSTER_LABEL
from liqod.webhook.configuration import NAME as WEBHOOK

_API: Final = "admissionregistration.k8s.io/v1"
PREFIX: Final = "liqod-daemon-"

_LABELLED: Final = "has({0}.metadata.labels) && '{1}' in {0}.metadata.labels"
_NOT_OF_TENANTS: Final = {"matchExpressions": [{"key": REMOTE_CLUSTER_LABEL, "operator": "DoesNotExist"}]}
_SAME_IMAGES: Final = "object.spec.{0}.all(c, oldObject.spec.{0}.exists(o, o.name == c.name && o.image == c.image))"


def policies(namespace: str) -> list[dict[str, Any]]:
    """Return the policies for the account in ``namespace``; each is bound by a binding of its name."""
    return [
        _policy(
            "objects",
            namespace,
            [
                _rule("", ["secrets", "serviceaccounts", "resourcequotas", "services"]),
                _rule("networking.k8s.io", ["networkpolicies"]),
                _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"]),
                _rule("discovery.k8s.io", ["endpointslices"]),
            ],
            [
                (
                    f"request.namespace == '{namespace}'",
                    "liqod writes such objects in its own namespace and in those of its tenants only",
                )
            ],
            tenants=False,
        ),
        _policy(
            "secrets",
            namespace,
            [_rule("", ["secrets"], "CREATE", "UPDATE")],
            [("false", "liqod has no tokens made for service accounts by secrets")],
            # As a condition: for every other secret nothing more is evaluated.
            only=[MAKES_A_TOKEN],
        ),
        _policy(
            "tokens",
            namespace,
            [_rule("", ["serviceaccounts/token"], "CREATE")],
            [
                (
                    f"{_LABELLED.format('namespaceObject', ENABLED_LABEL)} && "
                    f"namespaceObject.metadata.labels['{ENABLED_LABEL}'] == 'true' && "
                    "has(object.spec.boundObjectRef) && object.spec.boundObjectRef.kind == 'Pod'",
                    "liqod asks for tokens of its tenants' accounts, and for tokens bound to pods in offloaded "
                    "namespaces, only",
                )
            ],
            tenants=False,
        ),
        _policy(
            "pods",
            namespace,
            [_rule("", ["pods"], "CREATE", "UPDATE")],
            [
                ("request.operation != 'CREATE'", "liqod makes pods in namespaces of its tenants only"),
                (
                    f"request.operation != 'UPDATE' || ({_SAME_IMAGES.format('containers')} && "
                    f"(!has(object.spec.initContainers) || {_SAME_IMAGES.format('initContainers')}))",
                    "liqod changes no images outside of the namespaces of its tenants",
                ),
            ],
            tenants=False,
        ),
        _policy(
            "parts-of-pods",
            namespace,
            [_rule("", ["pods/ephemeralcontainers", "pods/resize"], "UPDATE")],
            [("false", "liqod adds containers to running pods, and resizes them, for its tenants only")],
            tenants=False,
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
    name: str,
    namespace: str,
    rules: list[dict[str, Any]],
    validations: list[tuple[str, str]],
    *,
    tenants: bool = True,
    only: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Return a policy that is in force everywhere, or, without ``tenants``, in all namespaces but those of tenants.

    ``only`` are further conditions, by name, without which there is nothing to validate.
    """
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    conditions = [("by-the-daemon", f"request.userInfo.username == '{user}'"), *only]
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": PREFIX + name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules,
                "namespaceSelector": {} if tenants else _NOT_OF_TENANTS,
            },
            "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    }
