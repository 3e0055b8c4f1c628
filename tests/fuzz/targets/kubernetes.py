"""What an API server sends: lines of a watch and reviews of admission; and the credential that a lender gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liqod.kube.cache.watch_decoder import (
    INITIAL_END,
    Bookmark,
    Decoder,
    Failure,
    Lines,
    LineTooLong,
    Unreadable,
    WatchEvent,
)
from liqod.kube.connection.config import ConfigError, from_grant
from liqod.kube.connection.transport import tls_creator
from liqod.kubelet.common.views import Secret
from liqod.kubelet.lender.access import read
from liqod.model.api_url import OwnAddresses, api_url_problem
from liqod.model.objects.node_selector import NodeRequirement, Term
from liqod.model.records.offloading import LOCAL, REMOTE, OffloadingPolicy
from liqod.model.records.spillover import HOME_FIRST, Spillover, SpilloverPeer
from liqod.model.records.views import ShadowPod
from liqod.webhook.review import MalformedReview, answer
from tests.fuzz.cost import Target, step_of

OWN: Final = OwnAddresses("https://192.0.2.1:6443", ("10.0.0.0/8", "fd00::/16"))
DECODER: Final = Decoder(ShadowPod)
POLICIES: Final = (
    OffloadingPolicy(),
    OffloadingPolicy(placement=LOCAL),
    OffloadingPolicy(
        placement=REMOTE, terms=(Term(match_expressions=[NodeRequirement(key="zone", operator="In", values=["a"])]),)
    ),
    OffloadingPolicy(spillover=Spillover(mode=HOME_FIRST, peers=[SpilloverPeer(cluster="milan")])),
)


def watch_line(data: bytes) -> None:
    """The body of a watch, cut as the first byte says: lines are the same wherever it is cut, and each is an event."""
    step, rest = step_of(data, 256), data[1:]
    cut, lines = Lines(1024), []
    try:
        for start in range(0, len(rest), step):
            lines += cut.feed(rest[start : start + step])
    except LineTooLong:
        assert max(map(len, rest.split(b"\n"))) > 1024
        lines = []
    else:
        assert lines == [line for line in rest.split(b"\n")[:-1] if line]
    # Of many there are more of the same; the daemon takes them in turns.
    for line in (*lines[:1024], rest):
        event = DECODER.line(line)
        assert isinstance(event, WatchEvent | Bookmark | Failure | Unreadable)
        if isinstance(event, WatchEvent):
            assert event.object.metadata.name
        known = DECODER.object(line)
        assert isinstance(known, ShadowPod | Unreadable)


def review(data: bytes) -> None:
    """A review, or a pod in one: MalformedReview, or an answer whose patch fits the pod and adds nothing again."""
    policy = POLICIES[(data[0] if data else 0) % len(POLICIES)]
    pod = data[1:]
    request = b'{"uid":"u","operation":"CREATE","kind":{"version":"v1","kind":"Pod"},"object":%s}'
    for body in (pod, _review(request % pod)):
        try:
            answered = json.loads(answer(body, lambda _: policy, 30.0))
        except MalformedReview as error:
            assert str(error)
            continue
        response = answered["response"]
        if not response["allowed"]:
            assert response["status"]["message"]
        elif "patch" in response and body is not pod:
            try:
                found = json.loads(pod)
            except UnicodeDecodeError:
                continue  # a text in it that nobody reads is no UTF-8, which no API server sends
            changed = patched(found, json.loads(base64.b64decode(response["patch"])))
            again = answer(_review(request % json.dumps(changed).encode()), lambda _: policy, 30.0)
            assert "patch" not in json.loads(again)["response"], changed


def credential(data: bytes) -> None:
    """URL, token and CA that a lender gives: refused by name, or a server that is reached without surprise."""
    url, _, rest = data.partition(b"\0")
    token, _, ca = rest.partition(b"\0")
    text = url.decode("latin-1")
    if not api_url_problem(text):
        assert text.lower().startswith("https://")
        assert not set(text) & set(" \r\n\t\0")
        assert isinstance(OWN.problem(text), str)
    fields = {"api-url": url, "token": token, "ca.crt": ca}
    secret = Secret(data={name: base64.b64encode(value).decode() for name, value in fields.items()})
    try:
        grant, word = read(secret)
        config = from_grant(grant.api_url, grant.ca, lambda: word)
        tls_creator(config, "192.0.2.1")
    except (ValueError, ConfigError) as error:
        assert str(error)
        return
    assert word.isascii()
    assert "\n" not in word
    assert "\r" not in word


def patched(value: Any, patch: list[dict[str, Any]]) -> Any:
    """Return a value after a JSON patch (RFC 6902) of the kinds that we write; raises for one that does not fit."""
    for operation in patch:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        inner = value
        for part in way:
            inner = inner[int(part)] if isinstance(inner, list) else inner[part]
        match operation["op"], inner:
            case "add", list() if last == "-":
                inner.append(operation["value"])
            case "add", dict():
                inner[last] = operation["value"]
            case "replace", list():
                inner[int(last)] = operation["value"]
            case "remove", list():
                del inner[int(last)]
            case _:
                raise AssertionError(f"not an operation of ours: {operation}")
    return value


def _review(request: bytes) -> bytes:
    return b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":%s}' % request


def _line(kind: str, **thing: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": thing}) + b"\n"


_META: Final = {"name": "web", "namespace": "shop-rome", "resourceVersion": "7", "labels": {"a": "b"}}
_TERMS: Final = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        }
    },
    "tolerations": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 300}],
}
_PODS: Final[tuple[dict[str, Any], ...]] = (
    {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}},
    {"spec": _TERMS},
    {"metadata": {"annotations": {}}, "spec": {"nodeSelector": {"liqo.io/type": "virtual-node"}, **_TERMS}},
    {"spec": {"runtimeClassName": "liqo", "topologySpreadConstraints": [], "tolerations": [{"operator": "Exists"}]}},
)
TARGETS: Final[Mapping[str, Target]] = {"watch-line": watch_line, "review": review, "credential": credential}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "watch-line": [
        b"\x10" + _line("ADDED", metadata=_META, spec={"pod": {"containers": [{"name": "c"}]}}),
        b"\xff" + _line("BOOKMARK", metadata={"resourceVersion": "9", "annotations": {INITIAL_END: "true"}}),
        b"\x01" + _line("ERROR", code=410, reason="Expired", message="too old", details={"retryAfterSeconds": 1}),
        b"\xff" + _line("MODIFIED", metadata=_META, spec={"pod": 7}) + _line("DELETED", metadata=_META),
    ],
    "review": [
        *(bytes([number]) + json.dumps(pod).encode() for number, pod in enumerate(_PODS)),
        *(bytes([3 - number]) + json.dumps(pod).encode() for number, pod in enumerate(_PODS)),
        b"\0" + _review(b'{"uid":"u","operation":"CREATE","kind":{"kind":"Pod"},"object":null}'),
    ],
    "credential": [
        b"https://192.0.2.7:6443\0abc.def\0",
        b"https://[2001:db8::1]:6443/k8s/c-1\0abc\0-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
        b"https://0x7f.1/\0a\nb\0x",
        b"https://2130706433:443\0a\0",
    ],
}
