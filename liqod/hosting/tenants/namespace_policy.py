"""The ValidatingAdmissionPolicy that reserves the labels of tenants' namespaces, and their names. Pure.

What the daemon does in a namespace goes by its labels: whose pods are in it, where a credential lies, what its own
account may do there. Those who may make namespaces may label them, so the API server has to ask for more: the right to
say who is a peer (``patch`` on ForeignClusters), which the daemon's account has, and administrators.
"""

from __future__ import annotations

from typing import Any, Final

from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace

NAMESPACE_POLICY: Final = "liqod-tenant-namespaces"
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
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAMESPACE_POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        # Metadata is written by way of the subresources, too (registry/core/namespace, strategy.go).
                        "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
                    }
                ]
            },
            "matchConditions": [{"name": "of-a-tenant", "expression": concerned}],
            "validations": [
                {
                    "expression": right,
                    "message": f"the labels {' and '.join(_LABELS)}, and names that begin with {tenant_namespace('')}, "
                    "are for liqod and for those who may patch foreignclusters",
                    "reason": "Forbidden",
                }
            ],
        },
    }


def _label(of: str, key: str) -> str:
    exists = f"has({of}.metadata.labels) && '{key}' in {of}.metadata.labels"
    known = f"oldObject != null && {exists}" if of == "oldObject" else exists
    return f"({known} ? {of}.metadata.labels['{key}'] : {_ABSENT})"
