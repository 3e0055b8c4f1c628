"""ValidatingAdmissionPolicies about tenants' namespaces: who labels them, and at which Pod Security level. Pure.

What the daemon does in a namespace goes by its labels: whose pods are in it, where a credential lies, what its own
account may do there. Those who may make namespaces may label them, so the API server has to ask for more: the right to
say who is a peer (``patch`` on ForeignClusters), which the daemon's account has, and administrators.

The level is the configuration's for everybody: a thief of the daemon's account would make a namespace without one, and
run a privileged pod in it.
"""

from __future__ import annotations

from typing import Any, Final

from liqod.hosting.tenants.grants import ENFORCE, ENFORCE_VERSION
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace

NAMESPACE_POLICY: Final = "liqod-tenant-namespaces"
SECURITY_POLICY: Final = "liqod-tenant-pod-security"
_LABELS: Final = (REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL)
# No value of a label: those begin and end with a letter or digit (Kubernetes, "Labels and Selectors", syntax).
_ABSENT: Final = "'-'"


def namespace_policy() -> dict[str, Any]:
    """Return the policy; it evaluates nothing but a comparison where neither labels nor such a name are concerned."""
    concerned = " || ".join(
        [
            *(f"{_label('object', one)} != {_label('oldObject', one)}" for one in _LABELS),
            f"(oldObject == null && object.metadata.name.startsWith('{tenant_namespace('')}'))",
        ]
    )
    right = f"authorizer.group('{FOREIGNCLUSTERS.group}').resource('{FOREIGNCLUSTERS.plural}').check('patch').allowed()"
    rule = _rule(
        # Metadata is written by way of the subresources, too (registry/core/namespace, strategy.go).
        "namespaces",
        "namespaces/status",
        "namespaces/finalize",
    )
    message = (
        f"the labels {' and '.join(_LABELS)}, and names that begin with {tenant_namespace('')}, are for liqod and for "
        "those who may patch foreignclusters"
    )
    return _policy(NAMESPACE_POLICY, {"resourceRules": [rule]}, ("of-a-tenant", concerned), (right, message))


def security_policy(level: str) -> dict[str, Any]:
    """Return the policy that granted namespaces are of a Pod Security level, of its latest version."""
    wanted = {ENFORCE: level, ENFORCE_VERSION: "latest"}
    selected = [
        {"key": REMOTE_CLUSTER_LABEL, "operator": "Exists"},
        {"key": TENANT_NAMESPACE_LABEL, "operator": "DoesNotExist"},
    ]
    # A namespace from before the setting was changed stays as it is until the daemon changes it.
    changed = " || ".join(f"{_label('object', one)} != {_label('oldObject', one)}" for one in (*wanted, *_LABELS))
    remote, tenant = (_label("object", one) for one in _LABELS)
    granted = f"{remote} != {_ABSENT} && {tenant} == {_ABSENT}"
    right = " && ".join(f"{_label('object', one)} == '{value}'" for one, value in wanted.items())
    return _policy(
        SECURITY_POLICY,
        {
            "resourceRules": [_rule("namespaces", "namespaces/status", "namespaces/finalize")],
            "objectSelector": {"matchExpressions": selected},
        },
        ("pod-security", f"{granted} && ({changed})"),
        (right, f"namespaces of tenants are of the Pod Security level {level} ([hosting] pod-security)"),
    )


def _rule(*resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(resources),
    }


def _policy(
    name: str, constraints: dict[str, Any], condition: tuple[str, str], validation: tuple[str, str]
) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "matchConditions": [{"name": condition[0], "expression": condition[1]}],
            "validations": [{"expression": validation[0], "message": validation[1], "reason": "Forbidden"}],
        },
    }


def _label(of: str, key: str) -> str:
    exists = f"has({of}.metadata.labels) && '{key}' in {of}.metadata.labels"
    known = f"oldObject != null && {exists}" if of == "oldObject" else exists
    return f"({known} ? {of}.metadata.labels['{key}'] : {_ABSENT})"
