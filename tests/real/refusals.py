"""Every admission policy that refuses a request is named, not only the one that the API server picks.

Of several policies that deny a request an API server names one, in no fixed order (Kubernetes,
``apiserver/pkg/admission/plugin/policy/validating``: the policies come out of a map). A binding of the action Warn has
its words sent as a warning, whatever the others say.
"""

from __future__ import annotations

from typing import Any

from tests.real.path import eventually
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

_API = "admissionregistration.k8s.io/v1"
_PROBE = "every-refusal-is-named"


def name_every_refusal(cluster: Cluster) -> None:
    """Have each policy of liqod's that refuses a request named in a warning; returns when that is in force."""
    bindings = [
        one
        for one in cluster.get("validatingadmissionpolicybindings")["items"]
        if one["metadata"]["name"].startswith("liqod")
    ]
    if not bindings:
        raise AssertionError(f"{cluster.name} has no admission policies of liqod's")
    # API servers see bindings in the order of their creation: where the probe is in force, all the others are.
    cluster.apply(*map(_warning, bindings), *_probe())
    eventually("the probe is refused", lambda: _is_refused(cluster))


def _warning(binding: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{binding['metadata']['name']}-warns"},
        "spec": {**binding["spec"], "validationActions": ["Warn"]},
    }


def _probe() -> list[dict[str, Any]]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    policy = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _PROBE},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [_PROBE]}]},
            "validations": [{"expression": "false", "message": _PROBE}],
        },
    }
    binding = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _PROBE},
        "spec": {"policyName": _PROBE, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _is_refused(cluster: Cluster) -> bool:
    try:
        cluster.kubectl("create", "configmap", _PROBE, "-n", "default", "--dry-run=server")
    except CommandFailed as error:
        return _PROBE in error.output
    return False
