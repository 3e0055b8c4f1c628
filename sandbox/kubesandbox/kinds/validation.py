"""Validates objects of core kinds, in the wording of kube-apiserver. Pure.

Source: kubernetes/pkg/apis/*/validation. Covers frequent errors, not all rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubesandbox.kinds.defaults import qos_class
from kubesandbox.kinds.kinds import Json, Kind
from kubesandbox.kinds.quantity import parse
from kubesandbox.kinds.statuses import Cause

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_DATA_KEY: Final = "[-._a-zA-Z0-9]+"

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL_1035}')"
)
_QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)
_DATA_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_DATA_KEY}')"
)
_POD_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
IMMUTABLE: Final = "field is immutable"
_SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"


def _matches(pattern: str, text: str, limit: int) -> bool:
    return len(text) <= limit and re.fullmatch(pattern, text) is not None


def metadata(kind: Kind, body: Json) -> Iterator[Cause]:
    """Check name, labels, annotations, owners and finalizers."""
    meta = body["metadata"]
    name = str(meta.get("name", ""))
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    else:
        yield from _name(kind, name)
    yield from _labels(meta.get("labels"), "metadata.labels")
    for key in meta.get("annotations") or ():
        if not _qualified(key.lower()):
            yield Cause.invalid("metadata.annotations", key, _QUALIFIED_TEXT)
    for i, owner in enumerate(meta.get("ownerReferences") or ()):
        at = f"metadata.ownerReferences[{i}]"
        for field, label in (("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")):
            if not owner.get(field):
                yield Cause.invalid(f"{at}.{field}", owner.get(field, ""), f"{label} must not be empty")
    for i, finalizer in enumerate(meta.get("finalizers") or ()):
        if not _qualified(finalizer):
            yield Cause.invalid(f"metadata.finalizers[{i}]", finalizer, _QUALIFIED_TEXT)


def _name(kind: Kind, name: str) -> Iterator[Cause]:
    if kind.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            yield Cause.invalid("metadata.name", name, "may not contain '/' or '%'")
    elif kind.plural == "namespaces" and not kind.group:
        if not _matches(_LABEL, name, 63):
            yield Cause.invalid("metadata.name", name, _LABEL_TEXT)
    elif kind.plural == "services" and not kind.group:
        if not _matches(_LABEL_1035, name, 63):
            yield Cause.invalid("metadata.name", name, _LABEL_1035_TEXT)
    elif len(name) > 253:
        yield Cause.invalid("metadata.name", name, "must be no more than 253 bytes")
    elif not _matches(_SUBDOMAIN, name, 253):
        yield Cause.invalid("metadata.name", name, _SUBDOMAIN_TEXT)


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not _matches(_SUBDOMAIN, prefix, 253):
        return False
    return _matches(_QUALIFIED, name, 63)


def _labels(labels: Mapping[str, Any] | None, at: str) -> Iterator[Cause]:
    for key, value in (labels or {}).items():
        if not _qualified(key):
            yield Cause.invalid(at, key, _QUALIFIED_TEXT)
        if not isinstance(value, str) or not _matches(_VALUE, value, 63):
            too_long = isinstance(value, str) and len(value) > 63
            yield Cause.invalid(at, value, "must be no more than 63 bytes" if too_long else _VALUE_TEXT)


def _pod_spec(spec: Mapping[str, Any], at: str) -> Iterator[Cause]:
    containers = spec.get("containers")
    if not containers:
        yield Cause.required(f"{at}.containers")
    volumes = {each.get("name") for each in spec.get("volumes") or () if isinstance(each, dict)}
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(group) or ()):
            yield from _container(container, f"{at}.{group}[{i}]", seen, volumes)
    policy = spec.get("restartPolicy")
    if policy not in (None, "Always", "OnFailure", "Never"):
        yield Cause.unsupported(f"{at}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    yield from _labels(spec.get("nodeSelector"), f"{at}.nodeSelector")
    account = spec.get("serviceAccountName")
    if account and not _matches(_SUBDOMAIN, account, 253):
        yield Cause.invalid(f"{at}.serviceAccountName", account, _SUBDOMAIN_TEXT)
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            yield Cause.invalid(
                f"{at}.tolerations[{i}].operator",
                toleration["value"],
                "value must be empty when `operator` is 'Exists'",
            )


def _container(container: Any, at: str, seen: set[str], volumes: set[Any]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield Cause.required(f"{at}.name")
    elif not _matches(_LABEL, name, 63):
        yield Cause.invalid(f"{at}.name", name, _LABEL_TEXT)
    elif name in seen:
        yield Cause.duplicate(f"{at}.name", name)
    seen.add(name)
    if not str(container.get("image", "")).strip():
        yield Cause.required(f"{at}.image")
    for i, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not number:
            yield Cause.required(f"{at}.ports[{i}].containerPort")
        elif not 1 <= number <= 65535:
            yield Cause.invalid(f"{at}.ports[{i}].containerPort", number, "must be between 1 and 65535, inclusive")
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield Cause.not_found(f"{at}.volumeMounts[{i}].name", mount.get("name"))
    for i, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield Cause.required(f"{at}.env[{i}].name")
    yield from _resources(container.get("resources") or {}, f"{at}.resources")


def _resources(resources: Mapping[str, Any], at: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in sorted(requests):
        if name in limits:
            wanted, limit = parse(str(requests[name])), parse(str(limits[name]))
            extended = "/" in name and not name.startswith("kubernetes.io/")
            if extended and wanted != limit:
                yield Cause.invalid(
                    f"{at}.requests", str(requests[name]), f"must be equal to {name} limit of {limits[name]}"
                )
            elif wanted > limit:
                text = f"must be less than or equal to {name} limit of {limits[name]}"
                yield Cause.invalid(f"{at}.requests", str(requests[name]), text)


def _pod(body: Json) -> Iterator[Cause]:
    yield from _pod_spec(body.get("spec") or {}, "spec")


def _workload(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    replicas = spec.get("replicas", 1)
    if isinstance(replicas, int) and replicas < 0:
        yield Cause.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    template = spec.get("template") or {}
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        yield Cause.required("spec.selector")
    else:
        wanted = selector.get("matchLabels") or {}
        if not wanted and not selector.get("matchExpressions"):
            yield Cause.invalid("spec.selector", selector, "empty selector is invalid for deployment")
        if any(labels.get(key) != value for key, value in wanted.items()):
            yield Cause.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _pod_spec(template.get("spec") or {}, "spec.template.spec")


def _job(body: Json) -> Iterator[Cause]:
    spec = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    yield from _pod_spec(spec, "spec.template.spec")
    if spec.get("restartPolicy") == "Always":
        yield Cause.unsupported("spec.template.spec.restartPolicy", "Always", ("OnFailure", "Never"))


def _service(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    if spec.get("type") != "LoadBalancer":
        only = "may only be used when `type` is 'LoadBalancer'"
        if spec.get("loadBalancerSourceRanges"):
            yield Cause.forbidden("spec.LoadBalancerSourceRanges", only)
        elif _SOURCE_RANGES in (body["metadata"].get("annotations") or {}):
            yield Cause.forbidden(f"metadata.annotations[{_SOURCE_RANGES}]", only)
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        yield Cause.required("spec.ports")
    many = len(spec.get("ports") or ()) > 1
    for i, port in enumerate(spec.get("ports") or ()):
        number = port.get("port", 0)
        if many and not port.get("name"):
            yield Cause.required(f"spec.ports[{i}].name")
        if not isinstance(number, int) or not 1 <= number <= 65535:
            yield Cause.invalid(f"spec.ports[{i}].port", number, "must be between 1 and 65535, inclusive")


def _data(body: Json) -> Iterator[Cause]:
    for part in ("data", "binaryData"):
        for key in body.get(part) or ():
            if not _matches(_DATA_KEY, key, 253):
                yield Cause.invalid(f"{part}[{key}]", key, _DATA_KEY_TEXT)


def _lease(body: Json) -> Iterator[Cause]:
    duration = (body.get("spec") or {}).get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        yield Cause.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")


def _crd(body: Json) -> Iterator[Cause]:
    spec = body.get("spec") or {}
    names = spec.get("names") or {}
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if body["metadata"].get("name") != expected:
        text = 'must be spec.names.plural+"."+spec.group'
        yield Cause.invalid("metadata.name", body["metadata"].get("name", ""), text)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield (
            Cause.required("spec.scope")
            if not spec.get("scope")
            else Cause.unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
        )
    versions = spec.get("versions") or ()
    if sum(bool(each.get("storage")) for each in versions) != 1:
        yield Cause.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    for i, each in enumerate(versions):
        if not (each.get("schema") or {}).get("openAPIV3Schema"):
            yield Cause.required(f"spec.versions[{i}].schema.openAPIV3Schema", "schemas are required")


_BY_KIND: Final[Mapping[str, Callable[[Json], Iterator[Cause]]]] = {
    "Pod": _pod,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
    "Job": _job,
    "Service": _service,
    "ConfigMap": _data,
    "Secret": _data,
    "Lease": _lease,
    "CustomResourceDefinition": _crd,
}


def check(kind: Kind, body: Json) -> list[Cause]:
    """Return the errors of a complete object of a core kind."""
    found = list(metadata(kind, body))
    checker = _BY_KIND.get(kind.kind)
    if checker is not None:
        try:
            found.extend(checker(body))
        except ValueError as error:
            found.append(Cause.invalid("spec", "", str(error)))
    return found


def check_change(kind: Kind, old: Json, new: Json, subresource: str = "") -> list[Cause]:
    """Return the changes of immutable fields between two states of an object."""
    found: list[Cause] = []
    match kind.kind:
        case "Pod" if subresource == "ephemeralcontainers":
            found.extend(_debugging(old, new))
        case "Pod" if subresource == "resize":
            found.extend(_resizing(old, new))
        case "Pod":
            found.extend(_pod_change(old, new))
        case "Deployment" | "ReplicaSet":
            before, after = (old.get("spec") or {}).get("selector"), (new.get("spec") or {}).get("selector")
            if before != after:
                found.append(Cause.invalid("spec.selector", after, IMMUTABLE))
        case "Secret" if old.get("type") != new.get("type"):
            found.append(Cause.invalid("type", new.get("type"), IMMUTABLE))
        case "RoleBinding" | "ClusterRoleBinding" if old.get("roleRef") != new.get("roleRef"):
            found.append(Cause.invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
        case "EndpointSlice" if old.get("addressType") != new.get("addressType"):
            found.append(Cause.invalid("addressType", new.get("addressType"), IMMUTABLE))
    if kind.kind in ("ConfigMap", "Secret") and old.get("immutable"):
        if not new.get("immutable"):
            found.append(Cause.forbidden("immutable", f"{IMMUTABLE} when `immutable` is set"))
        if old.get("data") != new.get("data"):
            found.append(Cause.forbidden("data", f"{IMMUTABLE} when `immutable` is set"))
    return found


def _pod_change(old: Json, new: Json) -> Iterator[Cause]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if _fixed(before) != _fixed(after):
        yield Cause.forbidden("spec", _POD_UPDATE_TEXT)
    elif any(
        _lasting(each) not in map(_lasting, after.get("tolerations") or ()) for each in before.get("tolerations") or ()
    ):
        yield Cause.forbidden(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _debugging(old: Json, new: Json) -> Iterator[Cause]:
    """Containers for debugging are only added."""
    after = {each.get("name"): each for each in new["spec"].get("ephemeralContainers") or ()}
    for each in old["spec"].get("ephemeralContainers") or ():
        name = each.get("name")
        if name not in after:
            words = f'existing ephemeral containers "{name}" may not be removed\n'
            yield Cause.forbidden("spec.ephemeralContainers", words)
        elif after[name] != each:
            words = f'existing ephemeral containers "{name}" may not be changed\n'
            yield Cause.forbidden("spec.ephemeralContainers", words)


def _resizing(old: Json, new: Json) -> Iterator[Cause]:
    """Only CPU and memory may change; requests cannot be removed, and the QoS class cannot change (KEP-1287)."""
    if qos_class(old["spec"]) != qos_class(new["spec"]):
        words = "Pod QOS Class may not change as a result of resizing"
        yield Cause.invalid("spec", (new.get("status") or {}).get("qosClass", ""), words)
    for group in ("containers", "initContainers"):
        for i, (before, after) in enumerate(
            zip(old["spec"].get(group) or (), new["spec"].get(group) or (), strict=True)
        ):
            for part in ("requests", "limits"):
                had, has = ((each.get("resources") or {}).get(part) or {} for each in (before, after))
                if any(name in had and name not in has for name in ("cpu", "memory")):
                    words = f"resource {part} cannot be removed"
                    yield Cause.forbidden(f"spec.{group}[{i}].resources.{part}", words)
                if any(had.get(name) != has.get(name) for name in {*had, *has} - {"cpu", "memory"}):
                    yield Cause.forbidden("spec", "only cpu and memory resources are mutable")


def _lasting(toleration: Json) -> Json:
    """Return the part of a toleration that may not change: all but its seconds."""
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _fixed(spec: Mapping[str, Any]) -> Json:
    free = ("activeDeadlineSeconds", "tolerations", "containers", "initContainers", "schedulingGates")
    rest: Json = {name: value for name, value in spec.items() if name not in free}
    for group in ("containers", "initContainers"):
        containers: Sequence[Json] = spec.get(group) or ()
        rest[group] = [{name: value for name, value in each.items() if name != "image"} for each in containers]
    return rest
