"""What a borrower's ShadowPod may be, as rules of an admission policy (CEL): what the daemon would refuse. Pure.

They are made of the same list as the daemon's own check, which stays: an API server without these policies, a pod from
before a setting was changed, and the sizes and types that no expression can judge, are its own. What the daemon drops
from a pod, or sets itself, is not refused here either: every pod has tolerations, and nearly every one annotations,
that mean nothing at this cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from liqod.hosting.tenants.admission import pod_shape
from liqod.hosting.tenants.admission.metadata_rules import cel_list
from liqod.hosting.tenants.contract import Contract
from liqod.model.objects.portable_metadata import ACTED_ON

Rule = tuple[str, str, str]
"""An expression, the message of a refusal, and an expression for a message that says more; empty: none."""

# With ``dyn`` the API server's check of types, whose result is a warning, lets an object be gone through.
_POD: Final = "dyn(object.spec.pod)"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_NOT_HERE: Final = "is not among the fields that borrowers may use here"
_ASKS: Final = "it asks for a token of"
_NOT_LENT: Final = "which is not granted here ([hosting] service-accounts of the lender)"
_OF_CLUSTER: Final = "^([^/]*[.])?(kubernetes|k8s)[.]io/"
"""The same as ``portable_metadata.is_of_cluster``: such labels are dropped."""


def pod_rules(contract: Contract) -> list[Rule]:
    """Return the rules."""
    rest = {name: shape for name, shape in pod_shape.POD.items() if name not in (*_CONTAINERS, "volumes")}
    fields = cel_list(pod_shape.POD)
    account = f"(({_text('serviceAccountName')}) != '' ? {_text('serviceAccountName')} : {_text('serviceAccount')})"
    account = f"({account} == '' ? '{pod_shape.DEFAULT_ACCOUNT}' : {account})"
    takes_token = _if_set(_POD, "automountServiceAccountToken", f"{_POD}.automountServiceAccountToken == false")
    classes = ["", *contract.granted.runtime_classes]
    return [
        (
            f"{_sum_of_containers()} <= {pod_shape.MAX_CONTAINERS}",
            f"spec.pod cannot be run: it has more than {pod_shape.MAX_CONTAINERS} containers",
            "",
        ),
        (
            _known(_POD, pod_shape.POD),
            f"spec.pod cannot be run: a field of it {_NOT_HERE}",
            f"'spec.pod cannot be run: spec.' + {_POD}.filter(k, !(k in {fields}))[0] + ' {_NOT_HERE}'",
        ),
        (
            _within(_POD, rest, checked=True),
            f"spec.pod cannot be run: a field of its affinity, security context, DNS or resources {_NOT_HERE}",
            "",
        ),
        (
            f"{cel_list(_CONTAINERS)}.all(n, !(n in {_POD}) || {_is_null(f'{_POD}[n]')} || "
            f"{_POD}[n].all(c, {_within('c', pod_shape.CONTAINER)}))",
            f"spec.pod cannot be run: a field of one of its containers {_NOT_HERE}",
            "",
        ),
        (
            _if_set(_POD, "runtimeClassName", f"{_POD}.runtimeClassName in {cel_list(classes)}"),
            "spec.pod cannot be run: its runtimeClassName is not granted here ([hosting] runtime-classes)",
            f"'spec.pod cannot be run: spec.runtimeClassName ' + {_POD}.runtimeClassName + ' is not granted here "
            "([hosting] runtime-classes of the lender)'",
        ),
        (
            f"{takes_token} || {account} in {cel_list(contract.granted.service_accounts)}",
            f"spec.pod cannot be run: {_ASKS} a service account of this cluster, {_NOT_LENT}",
            f"\"spec.pod cannot be run: {_ASKS} this cluster's service account \" + {account} + ', {_NOT_LENT}'",
        ),
        (
            _if_set(_POD, "tolerations", f"{_POD}.tolerations.size() <= {pod_shape.MAX_TOLERATIONS}"),
            f"spec.pod cannot be run: it has more than {pod_shape.MAX_TOLERATIONS} tolerations",
            "",
        ),
        *_volume_rules(contract, f"!({takes_token})"),
        _label_rule(contract.labels),
    ]


def _volume_rules(contract: Contract, has_account: str) -> list[Rule]:
    kinds = sorted(contract.volumes)
    known = f"v.all(k, k == 'name' || k in {cel_list(kinds)} || {_is_null('v[k]')})"
    inside = {kind: pod_shape.VOLUMES[kind] for kind in kinds if kind in pod_shape.VOLUMES}
    token, certificate = pod_shape.TOKENS
    # Which account it is was judged before.
    sources = f"({_unset('s', certificate)}) && ({_unset('s', token)} || {has_account})"
    claim = "v.ephemeral.volumeClaimTemplate.spec"
    of_claim = _if_set(
        "v", "ephemeral", f"!has(v.ephemeral.volumeClaimTemplate) || !has({claim}) || ({_claim(claim, contract)})"
    )
    return [
        (
            _each_volume(known),
            "spec.pod cannot be run: one of its volumes is of a kind that is not granted here ([hosting] volumes)",
            f"'spec.pod cannot be run: spec.volumes[' + {_POD}.volumes.filter(v, !{known})[0].name + '] is of a kind "
            "that is not granted here ([hosting] volumes)'",
        ),
        (
            _each_volume(_within("v", inside, checked=True)),
            f"spec.pod cannot be run: a field of one of its volumes {_NOT_HERE}",
            "",
        ),
        (
            _each_volume(
                _if_set("v", "projected", _if_set("v.projected", "sources", f"v.projected.sources.all(s, {sources})"))
            ),
            "spec.pod cannot be run: one of its volumes asks for a token or certificate: those of this cluster's "
            "service accounts are not for borrowers; what the pod needs at home comes in a secret",
            "",
        ),
        (
            _each_volume(of_claim),
            "spec.pod cannot be run: the claim of one of its ephemeral volumes chooses its volume, would be filled "
            "from another namespace, or is of no storage class, or of one that is not lent",
            "",
        ),
    ]


def _claim(claim: str, contract: Contract) -> str:
    """Return the expression that a template is one of which the controller manager may make a claim."""
    classes = contract.granted.storage_classes
    name = f"{claim}.storageClassName"
    judged = [f"{name} != ''"]
    if classes:
        judged.append(f"{name} in {cel_list(classes)}")
    if own := contract.own_storage_class:
        judged.append(f"{name} != {cel_list([own])[1:-1]}")
    source = f"{claim}.dataSourceRef"
    return " && ".join(
        [
            _if_set(claim, "volumeName", f"{claim}.volumeName == ''"),
            _if_set(claim, "storageClassName", " && ".join(judged)),
            _if_set(claim, "dataSourceRef", _if_set(source, "namespace", f"{source}.namespace == ''")),
        ]
    )


def _label_rule(allowed: Iterable[str]) -> Rule:
    """Return the rule that a pod has labels that are granted; those of Kubernetes itself are dropped."""
    listed = list(allowed)
    prefixes = [one for one in listed if one.endswith(("/", "."))]
    names = [one for one in listed if one not in prefixes]
    each = " || ".join(
        [
            f"!(k.contains('/') || k.contains('.') || k in {cel_list(ACTED_ON)})",
            f"{cel_list(prefixes)}.exists(p, k.startsWith(p))",
            f"k in {cel_list(names)}",
            f"k.matches('{_OF_CLUSTER}')",
        ]
    )
    plain = "is not granted here; leave it out, or have the lender's administrator grant it ([hosting] labels)"
    return (
        f"!has(object.metadata.labels) || object.metadata.labels.all(k, {each})",
        f"spec.pod cannot be run: a label of it {plain}",
        f"'spec.pod cannot be run: the label ' + object.metadata.labels.filter(k, !({each}))[0] + \" {plain}\"",
    )


def _sum_of_containers() -> str:
    return "(" + " + ".join(f"({_sized(one)} ? {_POD}.{one}.size() : 0)" for one in _CONTAINERS) + ")"


def _sized(name: str) -> str:
    return f"has({_POD}.{name}) && !({_is_null(f'{_POD}.{name}')})"


def _text(name: str) -> str:
    """Return a text field of the pod; empty where there is none."""
    return f"(has({_POD}.{name}) && !({_is_null(f'{_POD}.{name}')}) ? {_POD}.{name} : '')"


def _each_volume(expression: str) -> str:
    return _if_set(_POD, "volumes", f"{_POD}.volumes.all(v, {expression})")


def _within(path: str, shape: Any, depth: int = 0, *, checked: bool = False) -> str:
    """Return the expression that a value has fields of a shape only; ``checked``: those of the value itself are."""
    if isinstance(shape, list):
        item = f"i{depth}"
        return f"{path}.all({item}, {_within(item, shape[0], depth + 1)})"
    parts = [] if checked else [_known(path, shape)]
    parts += [
        _if_set(path, name, _within(f"{path}.{name}", inner, depth + 1))
        for name, inner in shape.items()
        if inner is not None
    ]
    return f"({' && '.join(parts)})"


def _known(path: str, shape: Mapping[str, Any]) -> str:
    """Return the expression that a mapping has no other fields than those of a shape; null is no field."""
    return f"{path}.all(k, k in {cel_list(shape)} || {_is_null(f'{path}[k]')})"


def _if_set(path: str, name: str, expression: str) -> str:
    return f"({_unset(path, name)} || {expression})"


def _unset(path: str, name: str) -> str:
    return f"!has({path}.{name}) || {_is_null(f'{path}.{name}')}"


def _is_null(path: str) -> str:
    return f"type({path}) == null_type"
