"""ValidatingAdmissionPolicies (CEL) for what RBAC cannot express about borrowers, bound for all of them.

A borrower may create services, except those that intercept traffic of others (externalIPs: CVE-2020-8554, or a chosen
load balancer address), and secrets, except those that this cluster would fill with a service account token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from liqod.hosting.tenants.rights import SERVICE_ACCOUNT
from liqod.model.names import tenant_namespace

SERVICE_POLICY: Final = "liqod-borrower-services"
SECRET_POLICY: Final = "liqod-borrower-secrets"  # noqa: S105 (a name, not a secret)
CLAIM_POLICY: Final = "liqod-borrower-claims"
MAKES_A_TOKEN: Final = ("makes-a-token", "has(object.type) && object.type == 'kubernetes.io/service-account-token'")
"""The CEL condition, with its name, under which the token controller fills a secret with a service account token."""
_API: Final = "admissionregistration.k8s.io/v1"
_IS_BORROWER: Final = (
    f"request.userInfo.username.startsWith('system:serviceaccount:{tenant_namespace('')}') && "
    f"request.userInfo.username.endsWith(':{SERVICE_ACCOUNT}') || "
    "request.userInfo.username.startsWith('liqo:cluster:')"
)


def policies() -> list[dict[str, Any]]:
    """Return the policies; each is bound by a binding of its name."""
    return [
        _policy(
            SERVICE_POLICY,
            "services",
            [
                (
                    "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
                    "a borrower's service may not have externalIPs: they would take traffic meant for others",
                ),
                (
                    "!has(object.spec.loadBalancerIP) || object.spec.loadBalancerIP == ''",
                    "a borrower's service may not choose its loadBalancerIP",
                ),
                (
                    "oldObject == null || object.spec.type == oldObject.spec.type",
                    "a borrower may not change the type of a service; delete it and make it anew",
                ),
            ],
        ),
        _policy(
            SECRET_POLICY,
            "secrets",
            [("false", "a borrower may not have tokens made for service accounts of this cluster")],
            # A match condition: each pod that mounts tokens has a secret, and for those nothing more is evaluated.
            only=[MAKES_A_TOKEN],
        ),
        _policy(
            CLAIM_POLICY,
            "persistentvolumeclaims",
            [
                (
                    "oldObject != null || !has(object.spec.volumeName) || object.spec.volumeName == ''",
                    "a borrower may not choose the volume of a claim: it may hold the data of others",
                ),
                (
                    "oldObject == null || (has(object.spec.volumeName) ? object.spec.volumeName : '') == "
                    "(has(oldObject.spec.volumeName) ? oldObject.spec.volumeName : '')",
                    "a borrower may not choose the volume of a claim: it may hold the data of others",
                ),
                # With the empty class a claim binds to any matching PersistentVolume without a class (Kubernetes:
                # "Persistent Volumes", class).
                (
                    "has(object.spec.storageClassName) && object.spec.storageClassName != ''",
                    "a borrower's claim must be of a storage class: volumes without one may hold the data of others",
                ),
                (
                    "!has(object.spec.dataSourceRef) || !has(object.spec.dataSourceRef.namespace) || "
                    "object.spec.dataSourceRef.namespace == object.metadata.namespace",
                    "a borrower's claim may not be filled from another namespace",
                ),
            ],
        ),
    ]


def bindings() -> list[dict[str, Any]]:
    """Return the bindings that enforce the policies."""
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }
        for name in (SERVICE_POLICY, SECRET_POLICY, CLAIM_POLICY)
    ]


def _policy(
    name: str, plural: str, rules: list[tuple[str, str]], *, only: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return a policy for one kind; ``only`` are conditions, by name, without which there is nothing to validate."""
    conditions = [("by-a-borrower", _IS_BORROWER), *only]
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [plural],
                    }
                ]
            },
            "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"} for expression, message in rules
            ],
        },
    }
