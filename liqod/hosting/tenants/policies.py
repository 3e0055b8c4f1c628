"""ValidatingAdmissionPolicies (CEL) for what RBAC cannot express about borrowers, bound for all of them.

They are the contract of tenants where a borrower writes the object itself: metadata, services, ingresses, routes,
claims, secrets, slices and ShadowPods; and where it deletes one. What a pod may be is decided once more where the
daemon creates it (``shadowpods.pod_contract``). Two are about everybody: who may say that a namespace is a tenant's,
and at which level (``admission.namespace_admission``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from liqod.hosting.tenants.admission import metadata_rules
from liqod.hosting.tenants.admission.expressions import host_is_granted, only, only_fields
from liqod.hosting.tenants.admission.metadata_rules import cel_list
from liqod.hosting.tenants.admission.namespace_admission import (
    NAMESPACE_POLICY,
    SECURITY_POLICY,
    namespace_policy,
    security_policy,
)
from liqod.hosting.tenants.admission.pod_rules import pod_rules
from liqod.hosting.tenants.admission.route_rules import route_rules
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.quota.content_bounds import CHANGES, GROWTH
from liqod.hosting.tenants.quota.record_bounds import BYTES, KINDS
from liqod.hosting.tenants.rights import ROUTES, SERVICE_ACCOUNT
from liqod.model.ingress_path import GATEWAY_GROUP, NOT_PLAIN, PATH_TYPES
from liqod.model.names import (
    FULL_CONTENTS_LABEL,
    FULL_LABEL,
    HELD_WRITES_LABEL,
    ORIGIN_LABEL,
    REMOTE_CLUSTER_LABEL,
    tenant_namespace,
)
from liqod.model.objects.portable_metadata import METADATA_POLICY, POD_POLICY
from liqod.model.records.home_policies import NAME as HOME_POLICIES
from liqod.model.records.name_service import LABEL as NAME_SERVICE

FINALIZER_POLICY: Final = "liqod-borrower-finalizers"
INGRESS_POLICY: Final = "liqod-borrower-ingresses"
ROUTE_POLICY: Final = "liqod-borrower-routes"
SLICE_POLICY: Final = "liqod-borrower-slices"
ISOLATION_POLICY: Final = "liqod-borrower-network-policies"
SERVICE_POLICY: Final = "liqod-borrower-services"
SECRET_POLICY: Final = "liqod-borrower-secrets"  # noqa: S105 (a name, not a secret)
CLAIM_POLICY: Final = "liqod-borrower-claims"
EPHEMERAL_POLICY: Final = "liqod-borrower-ephemeral-claims"
RECORD_POLICY: Final = "liqod-borrower-records"
DELETION_POLICY: Final = "liqod-borrower-deletions"
ORIGIN_POLICY: Final = "liqod-borrower-origins"
CONTENT_POLICY: Final = "liqod-borrower-contents"
WRITE_POLICY: Final = "liqod-tenant-writes"
MAKES_A_TOKEN: Final = ("makes-a-token", "has(object.type) && object.type == 'kubernetes.io/service-account-token'")
"""The CEL condition, with its name, under which the token controller fills a secret with a service account token."""
_API: Final = "admissionregistration.k8s.io/v1"
_IS_BORROWER: Final = (
    f"request.userInfo.username.startsWith('system:serviceaccount:{tenant_namespace('')}') && "
    f"request.userInfo.username.endsWith(':{SERVICE_ACCOUNT}') || "
    "request.userInfo.username.startsWith('liqo:cluster:')"
)
# Each controller has an account of its own with --use-service-account-credentials ("kube-controller-manager").
_IS_CLAIM_CONTROLLER: Final = (
    "request.userInfo.username in ['system:serviceaccount:kube-system:ephemeral-volume-controller', "
    "'system:kube-controller-manager'] && has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(o, o.kind == 'Pod')"
)
# The fields of Kubernetes 1.36 (api/core/v1/types.go, api/networking/v1/types.go); each that is not named in a rule is
# harmless. An object is a map in an expression, whatever its type: what is not set is not in it.
_FIELDS_OF_SERVICES: Final = (
    "allocateLoadBalancerNodePorts",
    "clusterIP",
    "clusterIPs",
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "ports",
    "publishNotReadyAddresses",
    "selector",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
    "type",
)
_FIELDS_OF_PORTS: Final = ("appProtocol", "name", "nodePort", "port", "protocol", "targetPort")
_FIELDS_OF_INGRESSES: Final = ("defaultBackend", "ingressClassName", "rules", "tls")
_FIELDS_OF_CLAIMS: Final = (
    "accessModes",
    "dataSource",
    "dataSourceRef",
    "resources",
    "selector",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "volumeName",
)
MAX_PORTS: Final = 64
"""Ports of a borrower's service."""
MAX_DESTINATIONS: Final = 10_000
"""Endpoints of a borrower's slice, times its ports: a hundred, which is the most of a slice that Kubernetes itself
makes by default (``max-endpoints-per-slice``), of a hundred ports."""
_DEFAULT: Final = Contract()
_NAMES: Final = (
    METADATA_POLICY,
    FINALIZER_POLICY,
    SERVICE_POLICY,
    INGRESS_POLICY,
    ROUTE_POLICY,
    SECRET_POLICY,
    CLAIM_POLICY,
    EPHEMERAL_POLICY,
    SLICE_POLICY,
    ISOLATION_POLICY,
    POD_POLICY,
    RECORD_POLICY,
    DELETION_POLICY,
    ORIGIN_POLICY,
    CONTENT_POLICY,
    WRITE_POLICY,
    NAMESPACE_POLICY,
    SECURITY_POLICY,
)
_CORE: Final = ("", "v1")
_NETWORKING: Final = ("networking.k8s.io", "v1")
# All versions: a request for another one counts as one for v1 only where v1 is served, and Gateway API releases before
# 1.1 serve GRPCRoutes in others alone. That it is v1 is a rule of its own.
_GATEWAY: Final = (GATEWAY_GROUP, "*")
_OFFLOADING: Final = ("offloading.liqo.io", "v1beta1")
_OBJECTS: Final = {
    _CORE: ("configmaps", "secrets", "services", "persistentvolumeclaims"),
    _NETWORKING: ("ingresses",),
    _GATEWAY: ROUTES,
}
"""What a borrower writes that other controllers of this cluster read."""
_CONTENTS: Final = {_CORE: ("configmaps", "secrets")}
"""What is bounded by its size, beside records."""

# The options of a deletion are those of its body or of its query, one way or the other validated, and for a collection
# they are judged with each object of it (apiserver/pkg/endpoints/handlers/delete.go). They are null or absent where an
# operation has none (admission/v1, AdmissionRequest.options), and that asks for nothing.
_LEAVES_DEPENDENTS: Final = (
    "leaves-dependents",
    "has(request.options) && request.options != null && "
    "((has(request.options.orphanDependents) && request.options.orphanDependents) || "
    "(has(request.options.propagationPolicy) && "
    "!(request.options.propagationPolicy in ['Background', 'Foreground'])))",
)
_SLICE_RULES: Final = [
    (
        "!has(object.spec.template) || !has(object.spec.template.addressType) || "
        "object.spec.template.addressType != 'FQDN'",
        "a borrower's slice may not hold names: where they are resolved, they may be names of this cluster",
    ),
    # The proxy of each node has rules for every port of every endpoint.
    (
        "!has(object.spec.template) || !has(object.spec.template.endpoints) || !has(object.spec.template.ports) || "
        f"object.spec.template.endpoints.size() * object.spec.template.ports.size() <= {MAX_DESTINATIONS}",
        f"a borrower's slice may have {MAX_DESTINATIONS} endpoints times ports at most",
    ),
]


def policies(contract: Contract = _DEFAULT) -> list[dict[str, Any]]:
    """Return the policies that enforce a contract; each is bound by a binding of its name."""
    return [
        # One policy for all: each that is evaluated costs the API server conversions of the object.
        _policy(
            METADATA_POLICY,
            _OBJECTS,
            metadata_rules.rules(contract),
            only=[_unlike(metadata_rules.ordinary(contract))],
        ),
        _policy(
            FINALIZER_POLICY,
            {_OFFLOADING: KINDS},
            [metadata_rules.NO_FINALIZERS, metadata_rules.NO_OWNERS],
            only=[_unlike(metadata_rules.NEITHER)],
        ),
        _policy(SERVICE_POLICY, {_CORE: ("services",)}, _service_rules(contract)),
        _policy(INGRESS_POLICY, {_NETWORKING: ("ingresses",)}, _ingress_rules(contract)),
        _policy(ROUTE_POLICY, {_GATEWAY: ROUTES}, route_rules(contract)),
        _policy(
            SECRET_POLICY,
            {_CORE: ("secrets",)},
            [("false", "a borrower may not have tokens made for service accounts of this cluster")],
            # A match condition: each pod that mounts tokens has a secret, and for those nothing more is evaluated.
            only=[MAKES_A_TOKEN],
        ),
        _policy(CLAIM_POLICY, {_CORE: ("persistentvolumeclaims",)}, _claim_rules(contract)),
        _ephemeral_policy(contract),
        _policy(
            SLICE_POLICY,
            {_OFFLOADING: ("shadowendpointslices",)},
            _SLICE_RULES,
            only=[_unlike(*(expression for expression, _ in _SLICE_RULES))],
        ),
        _policy(
            ISOLATION_POLICY,
            {_OFFLOADING: ("shadownetworkpolicysets",)},
            [
                (
                    f"object.metadata.name == '{HOME_POLICIES}'",
                    f"a borrower has one set of network policies in a namespace, and its name is {HOME_POLICIES}",
                ),
            ],
        ),
        _pod_policy(contract),
        _record_policy(),
        _policy(
            DELETION_POLICY,
            {**_OBJECTS, _OFFLOADING: KINDS},
            [("false", "a borrower's deletion may not leave dependents behind (propagationPolicy=Orphan)")],
            only=[_LEAVES_DEPENDENTS],
            operations=("DELETE",),
        ),
        _policy(
            ORIGIN_POLICY,
            _OBJECTS,
            [
                (
                    "false",
                    f"what a borrower has here has the label {ORIGIN_LABEL}, by which sizes are counted; what is "
                    "without it is this cluster's own",
                )
            ],
            # What a borrower deletes it could replace: the lender's own services, and what its pods mount.
            operations=("CREATE", "UPDATE", "DELETE"),
            # For those with the label nothing is evaluated: of a change, the old object is looked at as well.
            selecting={"objectSelector": _where(ORIGIN_LABEL, "DoesNotExist")},
        ),
        _content_policy(),
        _write_policy(),
        namespace_policy(),
        security_policy(contract.granted.pod_security),
    ]


def _ephemeral_policy(contract: Contract) -> dict[str, Any]:
    """Return the policy of claims that are made for ephemeral volumes of tenants' pods.

    The controller manager makes them from the pod's template. That the template names no class is no fault of it: what
    the default class is, and whether there is one, is known where the claim is made.
    """
    policy = _policy(
        EPHEMERAL_POLICY,
        {_CORE: ("persistentvolumeclaims",)},
        _claim_rules(contract),
        operations=("CREATE",),
        selecting={"namespaceSelector": _where(REMOTE_CLUSTER_LABEL, "Exists")},
    )
    policy["spec"]["matchConditions"] = [{"name": "for-a-pod", "expression": _IS_CLAIM_CONTROLLER}]
    return policy


def _pod_policy(contract: Contract) -> dict[str, Any]:
    """Return the policy of ShadowPods: what the daemon would refuse of a pod is refused before there is a record.

    A change of what is neither the pod nor a label is no fault of what was written before a setting was changed.
    """
    rules = pod_rules(contract)
    labels = "(has({0}.metadata.labels) ? dyn({0}.metadata.labels) : {{}})"
    changed = f"dyn(object.spec) != dyn(oldObject.spec) || {labels.format('object')} != {labels.format('oldObject')}"
    policy = _policy(
        POD_POLICY,
        {_OFFLOADING: ("shadowpods",)},
        [(expression, message) for expression, message, _ in rules],
        # What has no pod makes none.
        only=[
            (
                "is-another-pod",
                f"({_IS_BORROWER}) && has(object.spec) && has(object.spec.pod) && (oldObject == null || {changed})",
            )
        ],
    )
    for validation, (_, _, words) in zip(policy["spec"]["validations"], rules, strict=True):
        if words:
            validation["messageExpression"] = words
    return policy


def _record_policy() -> dict[str, Any]:
    """Return the policy that refuses records of which a tenant has all that it may (``quota.tenant_records``).

    It selects namespaces with the label alone: elsewhere nothing is evaluated.
    """
    # No name that the label may have is a part of another one.
    value = f"namespaceObject.metadata.labels['{FULL_LABEL}']"
    return _policy(
        RECORD_POLICY,
        {_OFFLOADING: KINDS},
        [
            (
                f"oldObject != null || !{value}.contains(request.resource.resource)",
                "too many records: this tenant has all of this kind that it may have here ([hosting] tenant-records); "
                "delete some at home",
            ),
            # A record can be made larger, too.
            (
                f"!{value}.contains('{BYTES}')",
                "too large records: those of this tenant take all of the room that they may take here ([hosting] "
                "tenant-records); delete some at home",
            ),
        ],
        selecting={"namespaceSelector": _where(FULL_LABEL, "Exists")},
    )


def _content_policy() -> dict[str, Any]:
    """Return the policy that refuses config maps and secrets of a tenant without room (``quota.content_bounds``)."""
    value = f"namespaceObject.metadata.labels['{FULL_CONTENTS_LABEL}']"
    room = "the config maps and secrets of this tenant take all of the room that they may take here ([hosting] "
    return _policy(
        CONTENT_POLICY,
        _CONTENTS,
        [
            (
                f"!{value}.contains('{GROWTH}') || (oldObject != null && {_no_longer('data')} && "
                f"{_no_longer('binaryData')})",
                f"{room}tenant-contents); none is created and none gets longer: delete some at home",
            ),
            (
                f"!{value}.contains('{CHANGES}')",
                f"{room}tenant-contents), and a quarter more; none is created or changed: delete some at home",
            ),
        ],
        selecting={"namespaceSelector": _where(FULL_CONTENTS_LABEL, "Exists")},
    )


def _write_policy() -> dict[str, Any]:
    """Return the policy that refuses what a tenant writes that wrote too much in a time (``quota.tenant_writes``).

    Deletions free room, and what lets an object go that is being deleted is not refused, either: no finalizer is added
    by a borrower, so that there are few of such changes.
    """
    why = "this tenant has written more than it may in the last minutes ([hosting] tenant-writes)"
    policy = _policy(
        WRITE_POLICY,
        {**_OBJECTS, _OFFLOADING: KINDS},
        [
            (
                "oldObject != null && has(oldObject.metadata.finalizers) && (!has(object.metadata.finalizers) || "
                "object.metadata.finalizers.size() < oldObject.metadata.finalizers.size())",
                f"{why}, and may write again later",
            )
        ],
        selecting={"namespaceSelector": _where(HELD_WRITES_LABEL, "Exists")},
    )
    date = f"namespaceObject.metadata.labels['{HELD_WRITES_LABEL}']"
    policy["spec"]["validations"][0]["messageExpression"] = f"'{why}, and may write again at ' + {date}"
    return policy


def _no_longer(field: str) -> str:
    """Return the expression that no entry of a field is new, or longer than before."""
    new, old = f"object.{field}", f"oldObject.{field}"
    # The size of a string is its characters: a text of the same length may take four times the bytes.
    kept = f"{new}.all(k, has({old}) && k in {old} && bytes({new}[k]).size() <= bytes({old}[k]).size())"
    return f"(!has({new}) || {kept})"


def _service_rules(contract: Contract) -> list[tuple[str, str]]:
    types, classes = contract.granted.service_types, contract.load_balancer_classes
    return [
        only_fields("service", "object.spec", _FIELDS_OF_SERVICES),
        (
            f"!has(object.spec.ports) || object.spec.ports.all(p, {only('p', _FIELDS_OF_PORTS)})",
            "a port of a borrower's service has a field that this release of liqod does not know",
        ),
        (
            "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
            "a borrower's service may not have externalIPs: they would take traffic meant for others",
        ),
        (
            "!has(object.spec.loadBalancerIP) || object.spec.loadBalancerIP == ''",
            "a borrower's service may not choose its loadBalancerIP",
        ),
        (
            f"!has(object.metadata.labels) || !('{NAME_SERVICE}' in object.metadata.labels)",
            f"a borrower's service may not have the label {NAME_SERVICE}: this cluster's name service has it",
        ),
        (
            f"!has(object.spec.ports) || object.spec.ports.size() <= {MAX_PORTS}",
            f"a borrower's service may have {MAX_PORTS} ports at most: each is rules on every node",
        ),
        (
            "oldObject == null || object.spec.type == oldObject.spec.type",
            "a borrower may not change the type of a service; delete it and create it again",
        ),
        # An ExternalName behind an Ingress would publish services of this cluster (CVE-2021-25740 is alike).
        (
            f"!has(object.spec.type) || object.spec.type in {cel_list(types)}",
            f"a borrower's service may be of the types {', '.join(types) or 'none'} here ([hosting] service-types)",
        ),
        (
            f"!has(object.spec.loadBalancerClass) || object.spec.loadBalancerClass in {cel_list(classes)}",
            "a borrower's service may name only a load balancer class that is offered ([sharing] "
            "load-balancer-classes)",
        ),
        # ServiceLB of K3s and its like give a load balancer the addresses of nodes, and its ports are led away there
        # before a process of the node sees a packet.
        (
            "!has(object.spec.type) || object.spec.type != 'LoadBalancer' || !has(object.spec.ports) || "
            f"object.spec.ports.all(p, !(p.port in {json.dumps(contract.granted.reserved_ports)}))",
            "a borrower's load balancer may not have a port that nodes use themselves, such as 22, 6443 and 10250 "
            "([hosting] reserved-ports)",
        ),
    ]


def _ingress_rules(contract: Contract) -> list[tuple[str, str]]:
    hosts, classes = contract.granted.ingress_hosts, contract.granted.ingress_classes
    if not hosts:
        return [("false", "ingresses of borrowers are not granted here ([hosting] ingress-hosts names the hosts)")]
    granted = host_is_granted(hosts)
    hosts_shown = ", ".join(hosts)
    rules = [
        only_fields("ingress", "object.spec", _FIELDS_OF_INGRESSES),
        (
            f"!has(object.spec.rules) || object.spec.rules.all(r, {only('r', ('host', 'http'))} && (!has(r.http) || "
            f"({only('r.http', ('paths',))} && r.http.paths.all(p, {only('p', ('backend', 'path', 'pathType'))}))))",
            "a rule of a borrower's ingress has a field that this release of liqod does not know",
        ),
        # Ingress controllers merge the hosts of all namespaces: another's host would take its traffic.
        (
            f"!has(object.spec.rules) || object.spec.rules.all(r, has(r.host) && [r.host].exists(h, {granted}))",
            f"a borrower's ingress is for hosts under {hosts_shown} only, each rule with a host",
        ),
        (
            f"!has(object.spec.tls) || object.spec.tls.all(t, has(t.hosts) && t.hosts.all(h, {granted}))",
            f"a borrower's ingress has certificates for hosts under {hosts_shown} only, each with its hosts",
        ),
        (
            "!has(object.spec.defaultBackend)",
            "a borrower's ingress may not have a default backend: it would take the traffic of all hosts",
        ),
        (
            "!has(object.spec.rules) || object.spec.rules.all(r, !has(r.http) || "
            f"r.http.paths.all(p, {only('p.backend', ('service',))}))",
            "a borrower's ingress leads to services only, not to other resources",
        ),
        (
            "!has(object.spec.rules) || object.spec.rules.all(r, !has(r.http) || r.http.paths.all(p, has(p.path) && "
            f"p.path.startsWith('/') && !p.path.matches('{NOT_PLAIN}') && has(p.pathType) && "
            f"p.pathType in {cel_list(PATH_TYPES)}))",
            "a borrower's ingress has paths of letters, digits and /_.~- only, of the types Prefix and Exact: ingress "
            "controllers write others into their configuration",
        ),
    ]
    if classes:
        rules.append(
            (
                f"has(object.spec.ingressClassName) && object.spec.ingressClassName in {cel_list(classes)}",
                f"a borrower's ingress may be of the classes {', '.join(classes)} here ([hosting] ingress-classes)",
            )
        )
    return rules


def _claim_rules(contract: Contract) -> list[tuple[str, str]]:
    classes = contract.granted.storage_classes
    rules = [
        only_fields("claim", "object.spec", _FIELDS_OF_CLAIMS),
        (
            "(has(object.spec.volumeName) ? object.spec.volumeName : '') == "
            "(oldObject != null && has(oldObject.spec.volumeName) ? oldObject.spec.volumeName : '')",
            "a borrower may not choose the volume of a claim: it may hold the data of others",
        ),
        (
            "!has(object.spec.selector)",
            "a borrower may not select the volume of a claim: it may hold the data of others",
        ),
        # With the empty class a claim binds to any matching PersistentVolume without a class (Kubernetes:
        # "Persistent Volumes", class). The annotation, from before there was the field, is read first
        # (component-helpers, GetPersistentVolumeClaimClass).
        (
            "has(object.spec.storageClassName) && object.spec.storageClassName != ''",
            "a borrower's claim must be of a storage class: volumes without one may hold the data of others",
        ),
        (
            "!has(object.metadata.annotations) || "
            "!('volume.beta.kubernetes.io/storage-class' in object.metadata.annotations)",
            "a borrower's claim names its storage class in spec.storageClassName, not in an annotation",
        ),
        (
            "!has(object.spec.volumeAttributesClassName) || object.spec.volumeAttributesClassName == ''",
            "a borrower's claim may not choose a volume attributes class",
        ),
        (
            "!has(object.spec.dataSourceRef) || !has(object.spec.dataSourceRef.namespace) || "
            "object.spec.dataSourceRef.namespace == object.metadata.namespace",
            "a borrower's claim may not be filled from another namespace",
        ),
    ]
    if classes:
        rules.append(
            (
                f"!has(object.spec.storageClassName) || object.spec.storageClassName in {cel_list(classes)}",
                f"a borrower's claim may be of the classes {', '.join(classes)} here ([hosting] storage-classes)",
            )
        )
    if own := contract.own_storage_class:
        rules.append(
            (
                f"!has(object.spec.storageClassName) || object.spec.storageClassName != {json.dumps(own)}",
                f"a borrower's claim may not be of the class {own}: it is for this cluster's own pods ([storage] "
                "virtual-class)",
            )
        )
    return rules


def bindings() -> list[dict[str, Any]]:
    """Return the bindings that enforce the policies."""
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }
        for name in _NAMES
    ]


def _unlike(*expressions: str) -> tuple[str, str]:
    """Return the condition that something of a borrower's is not as nearly all is, of which no rule is broken.

    An API server converts the object for its conditions, and three times more to validate it. It evaluates all
    conditions, whose request it may be, so that this one has the borrower in it.
    """
    return "is-unlike-others", f"({_IS_BORROWER}) && !({' && '.join(f'({one})' for one in expressions)})"


def _where(label: str, operator: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": label, "operator": operator}]}


def _policy(
    name: str,
    kinds: Mapping[tuple[str, str], Sequence[str]],
    rules: list[tuple[str, str]],
    *,
    only: Sequence[tuple[str, str]] = (),
    operations: Sequence[str] = ("CREATE", "UPDATE"),
    selecting: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return a policy for kinds by group and version; ``only`` are conditions, by name, of something to validate, and
    ``selecting`` selectors of objects or namespaces: of others nothing is evaluated.
    """
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
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": list(operations),
                        "resources": list(plurals),
                    }
                    for (group, version), plurals in kinds.items()
                ],
                **selecting,
            },
            "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"} for expression, message in rules
            ],
        },
    }
