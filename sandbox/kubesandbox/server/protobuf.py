"""Reads the protobuf bodies in which ``kubectl create`` writes its core kinds. Pure.

The field numbers are those of k8s.io/api ``generated.proto``; fields that kubectl's commands do not set are left
out, and kinds that are not here are refused as an unknown format. Answers are always JSON, which every client takes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubesandbox.kinds.kinds import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
MAX_DEPTH: Final = 24


class NotReadable(ValueError):
    """The bytes are not a Kubernetes protobuf body, or of a kind that is not known here."""


# number:name:type. Types: s text, b truth, i whole number, y bytes, or a message; capitals (B, I) are optional fields,
# in which false and 0 mean something. A star: repeated. A percent sign: a map from text.
_MESSAGES_TEXT: Final = """
ClusterRole 1:metadata:ObjectMeta 2:rules:*PolicyRule
ClusterRoleBinding 1:metadata:ObjectMeta 2:subjects:*Subject 3:roleRef:RoleRef
ConfigMap 1:metadata:ObjectMeta 4:immutable:B 2:data:%s 3:binaryData:%y
Container 1:name:s 2:image:s 3:command:*s 4:args:*s 5:workingDir:s 6:ports:*ContainerPort 7:env:*EnvVar \
8:resources:ResourceRequirements 9:volumeMounts:*VolumeMount 14:imagePullPolicy:s 16:stdin:b 17:stdinOnce:b 18:tty:b
ContainerPort 1:name:s 2:hostPort:i 3:containerPort:i 4:protocol:s 5:hostIP:s
Deployment 1:metadata:ObjectMeta 2:spec:DeploymentSpec
DeploymentSpec 1:replicas:I 2:selector:LabelSelector 3:template:PodTemplateSpec 4:strategy:DeploymentStrategy \
5:minReadySeconds:i 6:revisionHistoryLimit:I 7:paused:b 9:progressDeadlineSeconds:I
DeploymentStrategy 1:type:s
EnvVar 1:name:s 2:value:s
Job 1:metadata:ObjectMeta 2:spec:JobSpec
JobSpec 1:parallelism:I 2:completions:I 3:activeDeadlineSeconds:I 7:backoffLimit:I 6:template:PodTemplateSpec \
10:suspend:B
LabelSelector 1:matchLabels:%s 2:matchExpressions:*LabelSelectorRequirement
LabelSelectorRequirement 1:key:s 2:operator:s 3:values:*s
LocalObjectReference 1:name:s
Namespace 1:metadata:ObjectMeta
NonResourceAttributes 1:path:s 2:verb:s
ObjectMeta 1:name:s 2:generateName:s 3:namespace:s 5:uid:s 6:resourceVersion:s 7:generation:i 11:labels:%s \
12:annotations:%s 13:ownerReferences:*OwnerReference 14:finalizers:*s
ObjectReference 1:kind:s 2:namespace:s 3:name:s 4:uid:s 5:apiVersion:s
OwnerReference 5:apiVersion:s 1:kind:s 3:name:s 4:uid:s 6:controller:B 7:blockOwnerDeletion:B
PodSpec 20:initContainers:*Container 2:containers:*Container 3:restartPolicy:s 4:terminationGracePeriodSeconds:I \
5:activeDeadlineSeconds:I 6:dnsPolicy:s 7:nodeSelector:%s 8:serviceAccountName:s 21:automountServiceAccountToken:B \
10:nodeName:s 11:hostNetwork:b 19:schedulerName:s 22:tolerations:*Toleration
PodTemplateSpec 1:metadata:ObjectMeta 2:spec:PodSpec
PolicyRule 1:verbs:*s 2:apiGroups:*s 3:resources:*s 4:resourceNames:*s 5:nonResourceURLs:*s
Quantity 1:string:s
ResourceAttributes 1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s 6:subresource:s 7:name:s
ResourceRequirements 1:limits:%Quantity 2:requests:%Quantity
Role 1:metadata:ObjectMeta 2:rules:*PolicyRule
RoleBinding 1:metadata:ObjectMeta 2:subjects:*Subject 3:roleRef:RoleRef
RoleRef 1:apiGroup:s 2:kind:s 3:name:s
Secret 1:metadata:ObjectMeta 5:immutable:B 2:data:%y 4:stringData:%s 3:type:s
SelfSubjectAccessReview 1:metadata:ObjectMeta 2:spec:SelfSubjectAccessReviewSpec
SelfSubjectAccessReviewSpec 1:resourceAttributes:ResourceAttributes 2:nonResourceAttributes:NonResourceAttributes
SelfSubjectReview 1:metadata:ObjectMeta
Service 1:metadata:ObjectMeta 2:spec:ServiceSpec
ServiceAccount 1:metadata:ObjectMeta 2:secrets:*ObjectReference 3:imagePullSecrets:*LocalObjectReference \
4:automountServiceAccountToken:B
ServicePort 1:name:s 2:protocol:s 3:port:i 4:targetPort:IntOrString 5:nodePort:i
ServiceSpec 1:ports:*ServicePort 2:selector:%s 3:clusterIP:s 4:type:s 7:sessionAffinity:s 10:externalName:s
Subject 1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s
TokenRequest 1:metadata:ObjectMeta 2:spec:TokenRequestSpec
TokenRequestSpec 1:audiences:*s 4:expirationSeconds:I 3:boundObjectRef:BoundObjectReference
BoundObjectReference 1:kind:s 2:apiVersion:s 3:name:s 4:uid:s
Toleration 1:key:s 2:operator:s 3:value:s 4:effect:s 5:tolerationSeconds:I
VolumeMount 1:name:s 2:readOnly:b 3:mountPath:s 4:subPath:s
IntOrString 1:type:i 2:intVal:i 3:strVal:s
"""


def _parse(text: str) -> Mapping[str, Mapping[int, tuple[str, str]]]:
    messages = {}
    for line in text.strip().splitlines():
        name, *fields = line.split()
        parts = (field.split(":") for field in fields)
        messages[name] = {int(number): (field, kind) for number, field, kind in parts}
    return messages


_MESSAGES: Final = _parse(_MESSAGES_TEXT)


def read(data: bytes) -> Json:
    """Return the object in a protobuf body as plain JSON; raises NotReadable."""
    if not data.startswith(_MAGIC):
        raise NotReadable("a Kubernetes protobuf body begins with 'k8s'")
    try:
        envelope = dict(_fields(data[len(_MAGIC) :]))
        about = {number: bytes(value).decode() for number, value in _fields(_bytes(envelope[1]))}
        kind = about.get(2, "")
        if kind not in _MESSAGES:
            raise NotReadable(f"bodies of the kind {kind!r} are taken as JSON only")
        body: Json = _message(_bytes(envelope.get(2, b"")), kind, 0)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise NotReadable(f"the protobuf body is malformed: {error}") from error
    return {"apiVersion": about.get(1, ""), "kind": kind, **body}


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise NotReadable("the protobuf body is malformed: a number where a message belongs")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value): whole numbers and bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                length, at = _varint(data, at)
                if at + length > len(data):
                    raise NotReadable("the protobuf body ends early")
                yield tag >> 3, data[at : at + length]
                at += length
            case 1:
                at += 8
            case 5:
                at += 4
            case other:
                raise NotReadable(f"wire type {other} is not in use")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
        if shift > 63:
            raise NotReadable("a number is longer than 64 bits")
    return (value - (1 << 64) if value >> 63 else value), at


def _message(data: bytes, name: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotReadable("the protobuf body is nested too deeply")
    fields = _MESSAGES[name]
    result: Json = {}
    for number, raw in _fields(data):
        if number not in fields:
            continue
        field, kind = fields[number]
        if kind.startswith("*"):
            result.setdefault(field, []).append(_value(raw, kind[1:], depth))
        elif kind.startswith("%"):
            entry = dict(_fields(_bytes(raw)))
            key = _bytes(entry.get(1, b"")).decode()
            result.setdefault(field, {})[key] = _value(entry.get(2, b""), kind[1:], depth)
        else:
            value = _value(raw, kind, depth)
            if kind in ("B", "I") or value not in ("", 0, {}, None):
                result[field] = value
    if name == "Quantity":
        return result.get("string", "0")
    if name == "IntOrString":
        return result.get("strVal", "") if result.get("type") else result.get("intVal", 0)
    return result


def _value(raw: Any, kind: str, depth: int) -> Any:
    match kind:
        case "s":
            return _bytes(raw).decode()
        case "y":
            return base64.b64encode(_bytes(raw)).decode()
        case "b" | "B":
            return bool(raw)
        case "i" | "I":
            return int(raw)
    return _message(_bytes(raw), kind, depth + 1)
