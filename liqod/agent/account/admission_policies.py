"""What RBAC cannot say about the daemon's own account, as admission policies of the API server (CEL). Pure.

Tenants' namespaces come and go, so the account's rights in them are cluster-wide. These policies bind what it writes to
the namespaces that were made for peers and to its own: a thief of its token cannot run a pod in ``kube-system``,
have a token made for another account, or turn a namespace of the cluster's into a tenant's. The account of a network
agent, whose token is on many hosts, writes one Secret and Leases of its own: RBAC knows no names for ``create``, and no
beginnings of names.

What is dangerous in a tenant's namespace is up to its Pod Security level, which is bound for everybody
(``hosting.tenants.admission.namespace_admission``). What may be done there anyhow is not looked at at all
(``namespaceSelector``), nor are virtual nodes, whose status is written all the time (``objectSelector``): a policy that
is evaluated costs the API server four conversions of the object, one that is not selected a look at a label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from liqod.agent.account.names import ACCOUNT, ACCOUNTS, NETWORK_ACCOUNT, bound_secret_of
from liqod.config.schema import Settings
from liqod.fabric.agent.key import SECRET as TUNNEL_SECRET
from liqod.hosting.tenants.policies import MAKES_A_TOKEN
from liqod.kubelet.node.forge import LEASE_NAMESPACE
from liqod.kubelet.reflection.forge.claim import PLACEHOLDER, SELECTED_NODE
from liqod.model.diagnosis.processes import PREFIX as PROCESS_LEASES
from liqod.model.names import (
    ENABLED_LABEL,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    OVERLAY_ANNOTATION,
    PROVIDER,
    PROVISIONER,
    REMOTE_CLUSTER_LABEL,
    TAINT_EFFECT,
    TAINT_KEY,
    TENANT_NAMESPACE_LABEL,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)
from liqod.model.records.invitations import INVITATION_LABEL, TOKEN_LABEL
from liqod.model.records.network import NETWORK_LEASE
from liqod.webhook.configuration import NAME as WEBHOOK

_API: Final = "admissionregistration.k8s.io/v1"
PREFIX: Final = "liqod-daemon-"

_LABELLED: Final = "has({0}.metadata.labels) && '{1}' in {0}.metadata.labels"
_NOT_OF_TENANTS: Final = {"matchExpressions": [{"key": REMOTE_CLUSTER_LABEL, "operator": "DoesNotExist"}]}
_TENANT_NAMESPACES: Final = {"matchExpressions": [{"key": TENANT_NAMESPACE_LABEL, "operator": "Exists"}]}
_NOT_OFFLOADED: Final = {"matchExpressions": [{"key": ENABLED_LABEL, "operator": "NotIn", "values": ["true"]}]}
_REAL_NODES: Final = {"matchExpressions": [{"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}]}
_VIRTUAL_NODES: Final = {"matchExpressions": [{"key": TYPE_LABEL, "operator": "In", "values": [VIRTUAL_NODE_TYPE]}]}
# A virtual node whose label somebody took away is put right by its kubelet. An API server lets nobody change the
# providerID of a node that has one (Kubernetes, validation of nodes).
_WAS_VIRTUAL: Final = (
    f"(oldObject != null && has(oldObject.spec.providerID) && oldObject.spec.providerID.startsWith('{PROVIDER}://'))"
)
_SAME: Final = "has(object.{0}) == has(oldObject.{0}) && (!has(object.{0}) || object.{0} == oldObject.{0})"
_ANNOTATIONS_WITHIN: Final = (
    "(!has({0}.metadata.annotations) || {0}.metadata.annotations.all(k, k == '{2}' || "
    "(has({1}.metadata.annotations) && k in {1}.metadata.annotations && "
    "{1}.metadata.annotations[k] == {0}.metadata.annotations[k])))"
)
# Whether a pod can be on a virtual node: all have the taint, and who made the pod cannot take a toleration back.
_OFFLOADABLE: Final = (
    "(has({0}.spec.tolerations) && {0}.spec.tolerations.exists(t, "
    f"!has(t.key) || t.key == '' || t.key == '{TAINT_KEY}'))"
)
_IS_OFFLOADED: Final = (
    f"({_LABELLED.format('namespaceObject', ENABLED_LABEL)} && "
    f"namespaceObject.metadata.labels['{ENABLED_LABEL}'] == 'true')"
)
# The API server shows a TokenRequest that is bound to nothing with null in that field, which it does not leave out.
_IS_BOUND: Final = (
    "has(object.spec.boundObjectRef) && !(object.spec.boundObjectRef == null) && has(object.spec.boundObjectRef.kind)"
)
_SAME_IMAGES: Final = "object.spec.{0}.all(c, oldObject.spec.{0}.exists(o, o.name == c.name && o.image == c.image))"


def policies(settings: Settings) -> list[dict[str, Any]]:
    """Return the policies for the accounts of a configuration; each is bound by a binding of its name."""
    namespace, lifetime = settings.kubernetes.namespace, settings.kubernetes.token_lifetime
    by_agent = _by(namespace, NETWORK_ACCOUNT)
    return [
        _policy(
            "objects",
            namespace,
            [
                _rule("", ["secrets", "serviceaccounts", "resourcequotas", "limitranges", "services"]),
                _rule("networking.k8s.io", ["networkpolicies", "ingresses"]),
                _rule("gateway.networking.k8s.io", ["httproutes", "grpcroutes"]),
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
            "roles",
            namespace,
            [_rule("rbac.authorization.k8s.io", ["roles", "rolebindings"])],
            # Not in its own either: the role of borrowers lets one into pods, and the network agent's is privileged.
            [("false", "liqod gives rights in namespaces of its tenants only")],
            tenants=False,
        ),
        # One policy for both accounts: each that is evaluated costs every secret of the cluster a conversion.
        _policy(
            "secrets",
            namespace,
            [_rule("", ["secrets"], "CREATE", "UPDATE")],
            [
                (by_agent, "liqod has no tokens made for service accounts by secrets"),
                (
                    f"!({by_agent}) || (request.namespace == '{namespace}' && "
                    f"object.metadata.name == '{TUNNEL_SECRET}' && has(object.type) && object.type == 'Opaque')",
                    f"liqod's network agent writes the Secret {TUNNEL_SECRET}, and no other one",
                ),
                # What has such a label is a token that another cluster pairs by, whatever its name is.
                *(
                    (
                        f"!({by_agent}) || !({_LABELLED.format('object', label)})",
                        f"liqod's network agent makes no tokens for pairing (label {label})",
                    )
                    for label in (TOKEN_LABEL, INVITATION_LABEL)
                ),
            ],
            # As a condition: for every other secret of the daemon's nothing more is evaluated.
            only=[("makes-a-token-or-is-an-agents", f"{by_agent} || ({MAKES_A_TOKEN[1]})")],
            accounts=(ACCOUNT, NETWORK_ACCOUNT),
        ),
        _policy(
            "tokens",
            namespace,
            [_rule("", ["serviceaccounts/token"], "CREATE")],
            [
                (
                    f"(request.namespace == '{namespace}' && request.name == '{ACCOUNT}') || ({_IS_OFFLOADED} && "
                    f"{_IS_BOUND} && object.spec.boundObjectRef.kind == 'Pod')",
                    "liqod asks for tokens of its tenants' accounts, for tokens bound to pods in offloaded namespaces, "
                    "and for its own, only",
                )
            ],
            tenants=False,
        ),
        _policy(
            "own-tokens",
            namespace,
            [_rule("", ["serviceaccounts/token"], "CREATE")],
            [
                (
                    f"request.userInfo.username == 'system:serviceaccount:{namespace}:' + request.name",
                    "each account of liqod has tokens made for itself only",
                ),
                (
                    f"has(object.spec.expirationSeconds) && object.spec.expirationSeconds <= {lifetime}",
                    f"tokens of liqod's accounts hold for {lifetime} seconds at most (token-lifetime under "
                    "[kubernetes], and `liqodctl install` after a change)",
                ),
                # Who deletes it ends every token of the account, also one that a thief had renewed.
                (
                    f"{_IS_BOUND} && object.spec.boundObjectRef.kind == 'Secret' && "
                    "has(object.spec.boundObjectRef.name) && "
                    f"object.spec.boundObjectRef.name == request.name + '{bound_secret_of('')}'",
                    "tokens of liqod's accounts end with a Secret",
                ),
            ],
            only=[("for-itself", f"request.namespace == '{namespace}' && request.name in {list(ACCOUNTS)}")],
            accounts=ACCOUNTS,
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
                # Services and policies go by labels; a pod whose owner is gone is deleted.
                (
                    f"request.operation != 'UPDATE' || ({_same_metadata()})",
                    "liqod changes no labels, owners and finalizers of pods outside of the namespaces of its tenants",
                ),
                (
                    f"request.operation != 'UPDATE' || {_IS_OFFLOADED} || "
                    f"!{_OFFLOADABLE.format('object')} || {_OFFLOADABLE.format('oldObject')}",
                    "liqod lets pods onto virtual nodes in offloaded namespaces only",
                ),
            ],
            tenants=False,
        ),
        # Where the label is nothing is evaluated: it is there that statuses are written all the time.
        _policy(
            "statuses-of-pods",
            namespace,
            [_rule("", ["pods/status"], "UPDATE")],
            [
                (
                    _OFFLOADABLE.format("object"),
                    "liqod writes the status of pods that can be on virtual nodes only: services go by the addresses "
                    f"in it (toleration of {TAINT_KEY}, or label {ENABLED_LABEL} of the namespace)",
                )
            ],
            where=_NOT_OFFLOADED,
        ),
        _policy(
            "parts-of-pods",
            namespace,
            [_rule("", ["pods/ephemeralcontainers", "pods/resize"], "UPDATE")],
            [("false", "liqod adds containers to running pods, and resizes them, for its tenants only")],
            tenants=False,
        ),
        _policy(
            "pods-beside-credentials",
            namespace,
            [_rule("", ["pods"], "CREATE")],
            # These namespaces have no Pod Security level of their own.
            [("false", "liqod makes pods in namespaces that were granted to tenants only")],
            where=_TENANT_NAMESPACES,
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
                (
                    f"request.operation != 'UPDATE' || ({_LABELLED.format('object', TENANT_NAMESPACE_LABEL)}) == "
                    f"({_LABELLED.format('oldObject', TENANT_NAMESPACE_LABEL)})",
                    f"liqod keeps the label {TENANT_NAMESPACE_LABEL} as it is",
                ),
            ],
        ),
        _policy(
            "webhooks",
            namespace,
            [_rule("admissionregistration.k8s.io", ["mutatingwebhookconfigurations"], "CREATE", "UPDATE")],
            [
                (f"object.metadata.name == '{WEBHOOK}'", f"liqod has one webhook configuration, {WEBHOOK}"),
                (
                    "!has(object.webhooks) || object.webhooks.all(w, has(w.namespaceSelector) && "
                    "has(w.namespaceSelector.matchLabels) && "
                    f"'{ENABLED_LABEL}' in w.namespaceSelector.matchLabels && "
                    f"w.namespaceSelector.matchLabels['{ENABLED_LABEL}'] == 'true' && "
                    "has(w.rules) && w.rules.all(r, r.resources == ['pods'] && r.operations == ['CREATE'] && "
                    # An empty list of a rule is refused by the API itself; a namespace is in no enabled namespace.
                    "has(r.scope) && r.scope == 'Namespaced'))",
                    "liqod's webhook is for the creation of pods in offloaded namespaces only",
                ),
            ],
        ),
        _policy(
            "nodes",
            namespace,
            [_rule("", ["nodes", "nodes/status"])],
            [
                (
                    f"(request.operation == 'UPDATE' && !has(request.subResource)) || {_WAS_VIRTUAL}",
                    f"liqod makes, removes and describes virtual nodes only (label {TYPE_LABEL}={VIRTUAL_NODE_TYPE})",
                ),
                (
                    f"request.operation != 'UPDATE' || {_WAS_VIRTUAL} || ("
                    + " && ".join(
                        [
                            _same_metadata("spec"),
                            _ANNOTATIONS_WITHIN.format("object", "oldObject", OVERLAY_ANNOTATION),
                            _ANNOTATIONS_WITHIN.format("oldObject", "object", OVERLAY_ANNOTATION),
                        ]
                    )
                    + ")",
                    f"of nodes that are not virtual liqod writes the annotation {OVERLAY_ANNOTATION}, and nothing else",
                ),
            ],
            accounts=(ACCOUNT, NETWORK_ACCOUNT),
            objects=_REAL_NODES,
        ),
        # Not for their status, which is written all the time.
        _policy(
            "virtual-nodes",
            namespace,
            [_rule("", ["nodes"], "CREATE", "UPDATE")],
            [
                (
                    "has(object.spec.taints) && object.spec.taints.exists(t, "
                    f"t.key == '{TAINT_KEY}' && t.effect == '{TAINT_EFFECT}')",
                    f"virtual nodes have the taint {TAINT_KEY}: they are for pods that may be in other clusters",
                )
            ],
            objects=_VIRTUAL_NODES,
        ),
        _policy(
            "network-nodes",
            namespace,
            [_rule("", ["nodes", "nodes/status"])],
            [("false", "liqod's network agent changes no virtual nodes: they are no hosts")],
            accounts=(NETWORK_ACCOUNT,),
            objects=_VIRTUAL_NODES,
        ),
        _policy(
            "leases",
            namespace,
            [_rule("coordination.k8s.io", ["leases"])],
            [
                (
                    "false",
                    f"liqod reports on virtual nodes only (label {TYPE_LABEL}={VIRTUAL_NODE_TYPE} of the Lease; "
                    "`liqodctl install` labels those of earlier versions)",
                )
            ],
            where={
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [LEASE_NAMESPACE]}
                ]
            },
            objects=_REAL_NODES,
        ),
        _policy(
            "network-leases",
            namespace,
            [_rule("coordination.k8s.io", ["leases"], "CREATE", "UPDATE")],
            [
                (
                    f"object.metadata.name == '{NETWORK_LEASE}' || "
                    + " || ".join(
                        f"object.metadata.name.startsWith('{PROCESS_LEASES}{role}-')" for role in ("network", "node")
                    ),
                    f"liqod's network agents write the Lease {NETWORK_LEASE} and those of their own processes only",
                )
            ],
            accounts=(NETWORK_ACCOUNT,),
        ),
        _policy(
            "volumes",
            namespace,
            [_rule("", ["persistentvolumes"])],
            [
                (
                    f"request.operation == 'CREATE' || ({_LABELLED.format('oldObject', MANAGED_BY_LABEL)} && "
                    f"oldObject.metadata.labels['{MANAGED_BY_LABEL}'] == '{FIELD_MANAGER}')",
                    "liqod changes and removes its own volumes only",
                ),
                (
                    f"request.operation == 'DELETE' || ({_path_of_a_node(settings)})",
                    "liqod makes volumes of paths of nodes only where [storage] node-paths allows them; name the "
                    "directory of this cluster's provisioner there, and run `liqodctl install`",
                ),
                (
                    "request.operation == 'DELETE' || !has(object.spec.flexVolume)",
                    "liqod makes no volumes that a program of the node mounts",
                ),
            ],
        ),
        _policy(
            "claims",
            namespace,
            [_rule("", ["persistentvolumeclaims"], "UPDATE")],
            [
                (
                    " && ".join(
                        [
                            _same_metadata("spec"),
                            _ANNOTATIONS_WITHIN.format("object", "oldObject", ""),
                            _ANNOTATIONS_WITHIN.format("oldObject", "object", SELECTED_NODE),
                        ]
                    ),
                    f"of claims liqod removes the annotation {SELECTED_NODE}, and changes nothing else",
                )
            ],
        ),
        _policy(
            "classes",
            namespace,
            [_rule("storage.k8s.io", ["storageclasses"], "CREATE", "UPDATE")],
            [
                (
                    f"object.metadata.name == {json.dumps(settings.storage.virtual_class)} && "
                    f"object.provisioner == '{PROVISIONER}' && !has(object.metadata.annotations)",
                    "liqod makes the storage class of claims that follow their pods only, and no default one",
                )
            ],
        ),
        _policy(
            "signing-requests",
            namespace,
            [_rule("certificates.k8s.io", ["certificatesigningrequests/approval"], "UPDATE")],
            [("object.spec.username == request.userInfo.username", "liqod approves its own signing requests only")],
        ),
    ]


def _same_metadata(*more: str) -> str:
    """Return the expression that an update leaves labels, finalizers and owners as they are, and ``more`` fields."""
    fields = (*more, "metadata.labels", "metadata.finalizers", "metadata.ownerReferences")
    return " && ".join(f"({_SAME.format(field)})" for field in fields)


def _path_of_a_node(settings: Settings) -> str:
    """Return the expression that a volume is at a path of a node that is granted, if it is at any.

    A path has as many parts as its pattern: who writes in a volume may put a link there, but nothing beside it.
    """
    part = "[A-Za-z0-9_.:-]+"
    patterns = [re.escape(one).replace(r"\*", part) for one in settings.storage.node_paths]
    allowed = json.dumps(f"^({'|'.join([*patterns, re.escape(PLACEHOLDER)])})$")
    return " && ".join(
        f"(!has(object.spec.{kind}) || (object.spec.{kind}.path.matches({allowed}) && "
        f"!object.spec.{kind}.path.contains('..')))"
        for kind in ("hostPath", "local")
    )


def bindings(settings: Settings) -> list[dict[str, Any]]:
    """Return the bindings that put the policies in force."""
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy["metadata"]["name"]},
            "spec": {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]},
        }
        for policy in policies(settings)
    ]


def _rule(group: str, resources: list[str], *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        # All: a request for another version counts as one for v1 only where v1 is served (matchPolicy Equivalent).
        "apiVersions": ["*"],
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
    where: Mapping[str, Any] | None = None,
    objects: Mapping[str, Any] | None = None,
    only: Sequence[tuple[str, str]] = (),
    accounts: Sequence[str] = (ACCOUNT,),
) -> dict[str, Any]:
    """Return a policy that is in force everywhere, or, without ``tenants``, in all namespaces but those of tenants.

    ``where`` and ``objects`` select namespaces and objects instead. ``only`` are further conditions, by name, without
    which there is nothing to validate.
    """
    conditions = [("by-the-daemon", _by(namespace, *accounts)), *only]
    selected = where if where is not None else {} if tenants else _NOT_OF_TENANTS
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": PREFIX + name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules,
                "namespaceSelector": selected,
                **({} if objects is None else {"objectSelector": objects}),
            },
            "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    }


def _by(namespace: str, *accounts: str) -> str:
    users = [f"system:serviceaccount:{namespace}:{account}" for account in accounts]
    return " || ".join(f"request.userInfo.username == '{user}'" for user in users)
