"""Defaults of absent fields of core kinds. Pure.

Sources: ``SetDefaults_*`` of kubernetes/pkg/apis and the admission plug-ins ServiceAccount, Priority and
DefaultTolerationSeconds. Functions return new objects and never change what they were given.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubesandbox.kinds.kinds import Json
from kubesandbox.kinds.quantity import parse

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path


def pod_spec(spec: Mapping[str, Any]) -> Json:
    """Return the specification of a pod, or of a pod template, with its defaults."""
    result: Json = {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        **{name: value for name, value in spec.items() if value is not None},
    }
    for name in ("containers", "initContainers"):
        if isinstance(result.get(name), list):
            result[name] = [_container(each, bool(spec.get("hostNetwork"))) for each in result[name]]
    if "serviceAccountName" in result:
        result["serviceAccount"] = result["serviceAccountName"]
    elif "serviceAccount" in result:
        result["serviceAccountName"] = result["serviceAccount"]
    if result.get("volumes"):
        result["volumes"] = [_volume(each) for each in result["volumes"]]
    return result


def _container(container: Any, host_network: bool) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    result = {
        "imagePullPolicy": "Always" if latest and "@" not in image else "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **{name: value for name, value in container.items() if value is not None},
    }
    if isinstance(result.get("ports"), list):
        result["ports"] = [_port(each, host_network) for each in result["ports"]]
    limits = (result["resources"] or {}).get("limits")
    if limits:
        result["resources"] = {
            **result["resources"],
            "requests": {**limits, **(result["resources"].get("requests") or {})},
        }
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(result.get(probe), dict):
            result[probe] = _probe(result[probe])
    if result.get("env"):
        result["env"] = [_variable(each) for each in result["env"]]
    return result


def _port(port: Any, host_network: bool) -> Any:
    if not isinstance(port, dict):
        return port
    filled = {"protocol": "TCP", **port}
    if host_network and "hostPort" not in filled and "containerPort" in filled:
        filled["hostPort"] = filled["containerPort"]
    return filled


def _probe(probe: Json) -> Json:
    filled = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, **probe}
    if isinstance(filled.get("httpGet"), dict):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **filled["httpGet"]}
    return filled


def _variable(variable: Any) -> Any:
    field = (variable.get("valueFrom") or {}).get("fieldRef") if isinstance(variable, dict) else None
    if not isinstance(field, dict) or "apiVersion" in field:
        return variable
    return {**variable, "valueFrom": {**variable["valueFrom"], "fieldRef": {"apiVersion": "v1", **field}}}


def _volume(volume: Any) -> Any:
    if not isinstance(volume, dict):
        return volume
    result = dict(volume)
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if isinstance(result.get(source), dict):
            result[source] = {"defaultMode": 420, **result[source]}
    if isinstance(result.get("hostPath"), dict):
        result["hostPath"] = {"type": "", **result["hostPath"]}
    if set(result) == {"name"}:
        result["emptyDir"] = {}
    return result


def pod(body: Json) -> Json:
    """Return a new pod with its defaults, the priority and the tolerations of the admission plug-ins."""
    spec = pod_spec(body.get("spec") or {})
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    status = {"phase": "Pending", "qosClass": qos_class(spec), **(body.get("status") or {})}
    return body | {"spec": spec, "status": status}


def _tolerations(tolerations: list[Json]) -> list[Json]:
    result = list(tolerations)
    for taint in (_NOT_READY, _UNREACHABLE):
        tolerated = any(
            each.get("key", "") in (taint, "") and each.get("effect", "") in ("NoExecute", "") for each in tolerations
        )
        if not tolerated:
            result.append({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return result


def with_account_token(spec: Json, suffix: str) -> Json:
    """Return a pod's specification with the projected token volume that the ServiceAccount plug-in adds."""
    mounts = [each for each in spec.get("volumes") or () if str(each.get("name", "")).startswith("kube-api-access-")]
    if spec.get("automountServiceAccountToken") is False or mounts:
        return spec
    name = f"kube-api-access-{suffix}"
    volume = {
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                        ]
                    }
                },
            ],
        },
    }
    mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}

    def mounted(container: Json) -> Json:
        present = container.get("volumeMounts") or []
        if any(each.get("mountPath") == TOKEN_PATH for each in present):
            return container
        return container | {"volumeMounts": [*present, mount]}

    result = spec | {"volumes": [*(spec.get("volumes") or ()), volume]}
    for each in ("containers", "initContainers"):
        if spec.get(each):
            result[each] = [mounted(container) for container in spec[each]]
    return result


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [each.get("resources") or {} for each in containers if isinstance(each, dict)]
    named = [
        {key: value for key, value in (each.get(which) or {}).items() if key in ("cpu", "memory")}
        for each in resources
        for which in ("requests", "limits")
    ]
    if not any(named):
        return "BestEffort"
    try:
        for each in resources:
            limits, requests = each.get("limits") or {}, each.get("requests") or {}
            for name in ("cpu", "memory"):
                if name not in limits or parse(str(requests.get(name, limits[name]))) != parse(str(limits[name])):
                    return "Burstable"
    except ValueError:
        return "Burstable"
    return "Guaranteed"


def _template(template: Any) -> Json:
    body = template if isinstance(template, dict) else {}
    return body | {"metadata": body.get("metadata") or {}, "spec": pod_spec(body.get("spec") or {})}


def _deployment(body: Json) -> Json:
    spec = {"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10, **(body.get("spec") or {})}
    strategy = {"type": "RollingUpdate", **(spec.get("strategy") or {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {
            "maxSurge": "25%",
            "maxUnavailable": "25%",
            **(strategy.get("rollingUpdate") or {}),
        }
    return body | {"spec": spec | {"strategy": strategy, "template": _template(spec.get("template"))}}


def _replica_set(body: Json) -> Json:
    spec = {"replicas": 1, **(body.get("spec") or {})}
    status = {"replicas": 0, **(body.get("status") or {})}
    return body | {"spec": spec | {"template": _template(spec.get("template"))}, "status": status}


def _workload(body: Json) -> Json:
    spec = body.get("spec") or {}
    return body | {"spec": spec | {"template": _template(spec.get("template"))}}


def _job(body: Json) -> Json:
    spec = {"backoffLimit": 6, "completions": 1, "parallelism": 1, "suspend": False, **(body.get("spec") or {})}
    spec = {
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        **spec,
    }
    return body | {"spec": spec | {"template": _template(spec.get("template"))}}


def _service(body: Json) -> Json:
    spec = {"sessionAffinity": "None", "type": "ClusterIP", **(body.get("spec") or {})}
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("ports"):
        spec["ports"] = [{"protocol": "TCP", "targetPort": each.get("port"), **each} for each in spec["ports"]]
    return body | {"spec": spec, "status": {"loadBalancer": {}, **(body.get("status") or {})}}


def _namespace(body: Json) -> Json:
    metadata = body["metadata"]
    if metadata.get("name"):
        labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
        metadata = metadata | {"labels": labels}
    spec = {"finalizers": ["kubernetes"], **(body.get("spec") or {})}
    return body | {"metadata": metadata, "spec": spec, "status": {"phase": "Active", **(body.get("status") or {})}}


def _node(body: Json) -> Json:
    empty = dict.fromkeys(
        (
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ),
        "",
    )
    status = body.get("status") or {}
    ports = status.get("daemonEndpoints") or {"kubeletEndpoint": {"Port": 0}}
    filled = {**status, "daemonEndpoints": ports, "nodeInfo": {**empty, **(status.get("nodeInfo") or {})}}
    if "capacity" in filled:
        filled.setdefault("allocatable", filled["capacity"])
    return body | {"spec": body.get("spec") or {}, "status": filled}


def _secret(body: Json) -> Json:
    plain = body.get("stringData")
    result = {"type": "Opaque", **{name: value for name, value in body.items() if name != "stringData"}}
    if plain:
        encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
        result["data"] = {**(result.get("data") or {}), **encoded}
    return result


def _role_binding(body: Json) -> Json:
    subjects = []
    for each in body.get("subjects") or ():
        group = "" if each.get("kind") == "ServiceAccount" else "rbac.authorization.k8s.io"
        subjects.append({**({"apiGroup": group} if group else {}), **each})
    reference = {"apiGroup": "rbac.authorization.k8s.io", **(body.get("roleRef") or {})}
    return body | {"roleRef": reference} | ({"subjects": subjects} if subjects else {})


def _webhooks(body: Json) -> Json:
    filled = []
    for each in body.get("webhooks") or ():
        hook: Json = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
                      "objectSelector": {},
                      "timeoutSeconds": 10, **each}  # fmt: skip
        if body.get("kind") == "MutatingWebhookConfiguration":
            hook.setdefault("reinvocationPolicy", "Never")
        hook["rules"] = [{"scope": "*", **rule} for rule in hook.get("rules") or ()]
        filled.append(hook)
    return body | {"webhooks": filled} if filled else body


def _crd(body: Json) -> Json:
    spec = dict(body.get("spec") or {})
    names = dict(spec.get("names") or {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    return body | {"spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


_BY_KIND: Final[Mapping[str, Callable[[Json], Json]]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
    "Job": _job,
    "Service": _service,
    "Namespace": _namespace,
    "Node": _node,
    "Secret": _secret,
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
    "MutatingWebhookConfiguration": _webhooks,
    "ValidatingWebhookConfiguration": _webhooks,
    "CustomResourceDefinition": _crd,
    "StorageClass": lambda body: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **body},
}


def fill(kind: str, body: Json) -> Json:
    """Return an object of a core kind with its defaults."""
    if kind == "Pod":
        return pod(body)
    filler = _BY_KIND.get(kind)
    return filler(body) if filler is not None else body
