"""What a borrower writes at the lender: ShadowPods, ShadowEndpointSlices, and records of its NetworkPolicies."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from liqod.config.load import parse
from liqod.hosting.endpointslice_forge import EndpointSlice, body_of, decide, refused_addresses, template_of, unready
from liqod.hosting.networkpolicies.checks import REST, checked
from liqod.hosting.networkpolicies.objects import CheckedPolicy
from liqod.hosting.networkpolicies.record import UNREADABLE, TenantContext, read
from liqod.hosting.shadowpods import dns, forge
from liqod.hosting.shadowpods.admission import Refuse, admit
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.tenants.contract import Contract
from liqod.model.foreign_address import NetworkLookup, objection
from liqod.model.names import ORIGIN_LABEL
from liqod.model.records.home_policies import MAX_ADDRESSES, MAX_MAPPED, ShadowNetworkPolicySet
from liqod.model.records.network import Subnets, TunnelEndpointSpec
from liqod.model.records.views import ShadowEndpointSlice, ShadowPod
from tests.fuzz.cost import Target

CONTRACT: Final = Contract.of(parse('[hosting]\nstorage-classes = ["fast"]\nimage-pull-policy = "Always"', {}))
OFFERED: Final = {"cpu": 64, "memory": 1 << 36, "pods": 100, "ephemeral-storage": 1 << 40}

# From the documentation of Kubernetes, not from the code: what a pod may not say where it must not leave its namespace.
# The values that the levels of Pod Security judge (privileged, hostPort, capabilities, sysctls ...) are judged there.
NEVER: Final = {
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "automountServiceAccountToken",
    "nodeName",
    "serviceAccount",
    "serviceAccountName",
    "priority",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "ephemeralContainers",
    "resourceClaims",
}
"""Fields that a pod's spec does not have unless they are false."""
NO_SOURCES: Final = {"serviceAccountToken", "clusterTrustBundle", "podCertificate"}
KINDS: Final = {
    "name",
    "configMap",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
OF_CLUSTER: Final = re.compile(r"kubernetes\.io/config\.|kubectl\.kubernetes\.io/|offloading\.liqo\.io/forged-by")


def shadow_pod(data: bytes) -> None:
    """A whole ShadowPod, or its pod alone: refused in a sentence, or a pod in which nothing reaches beyond."""
    for shadow in _shadows(data):
        verdict = admit(shadow, "rome", OFFERED, {})  # type: ignore[arg-type]
        try:
            restricted = restrict(shadow, CONTRACT)
            body = forge.pod(restricted, "liqod-tenant")
            if dns.asks_cluster(body["spec"]):
                body["spec"] = dns.with_name_servers(body["spec"], ["10.96.0.53"], "shop", "home.example")
        except ValueError as error:
            assert str(error)
            continue
        finally:
            if isinstance(verdict, Refuse):
                assert verdict.reason.isalpha()
                assert len(verdict.message) <= 1001
        if isinstance(verdict, Refuse):
            continue
        said = json.loads(msgspec.json.encode(body))
        assert said["metadata"]["name"] == shadow.metadata.name
        assert said["metadata"]["namespace"] == shadow.metadata.namespace
        assert not any(OF_CLUSTER.match(key) for key in said["metadata"]["annotations"])
        _stays_inside(said["spec"])
        again = forge.pod(restrict(restricted, CONTRACT), "liqod-tenant")
        assert again["spec"] == forge.pod(restricted, "liqod-tenant")["spec"]


def endpoint_slice(data: bytes) -> None:
    """A ShadowEndpointSlice: its endpoints are the borrower's, at addresses of its own networks, or left out."""
    try:
        shadow = msgspec.json.decode(data, type=ShadowEndpointSlice)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    peer = [ipaddress.ip_network("10.64.0.0/16"), ipaddress.ip_network("fd00:64::/32")]
    agreed = NetworkLookup(peer)
    refused = refused_addresses(shadow, lambda address: objection(address, NetworkLookup(), agreed))
    wanted = template_of(shadow, "rome", refused)
    body = json.loads(msgspec.json.encode(body_of(shadow, unready(wanted), lost=True)))
    for endpoint in body["endpoints"]:
        assert endpoint["nodeName"] == "rome"
        assert not endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]:
            parsed = ipaddress.ip_address(address)
            parsed = getattr(parsed, "ipv4_mapped", None) or parsed
            assert any(parsed in one for one in peer), address
    assert body["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] != "endpointslice-controller.k8s.io"
    assert len(body["metadata"]["labels"]) <= 4
    present = msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "u"}}, EndpointSlice)
    decide(shadow, present, wanted)


def policy_record(data: bytes) -> None:
    """Read home's policies: what they are made of is bounded, and what cannot be read isolates every pod."""
    sent = read(data, SEEN)
    with suppress(msgspec.MsgspecError, RecursionError):
        msgspec.json.decode(b'{"metadata":{"name":"home"},"spec":%b}' % data, type=ShadowNetworkPolicySet)
    assert len(sent.facts.pods) <= MAX_ADDRESSES
    assert len(sent.facts.addresses.pairs) <= MAX_MAPPED + 1
    if UNREADABLE in sent.specs:
        assert checked(sent.specs, ())[0][0] == CheckedPolicy(REST, frozenset(), (), ())


def _shadows(data: bytes) -> Iterator[ShadowPod]:
    metadata = {"name": "web", "namespace": "shop-rome", "uid": "u", "labels": {ORIGIN_LABEL: "rome"}}
    whole = b'{"metadata":%s,"spec":{"pod":%s}}' % (msgspec.json.encode(metadata), data)
    for text in (data, whole):
        try:
            yield msgspec.json.decode(text, type=ShadowPod)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue


def _stays_inside(spec: dict[str, Any]) -> None:
    for name in NEVER & spec.keys():
        assert spec[name] in (False, None, ""), (name, spec[name])
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostNetwork"] is False
    assert spec.get("terminationGracePeriodSeconds") is None or spec["terminationGracePeriodSeconds"] <= 3600
    for toleration in spec.get("tolerations") or ():
        assert toleration["key"] in CONTRACT.tolerations
    for volume in spec.get("volumes") or ():
        _is_own(volume)
    for one in [*spec["containers"], *(spec.get("initContainers") or ())]:
        assert one["imagePullPolicy"] == "Always"
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            for action in ("httpGet", "tcpSocket"):
                assert not ((one.get(probe) or {}).get(action) or {}).get("host")
    _is_apart(spec["affinity"])


def _is_own(volume: dict[str, Any]) -> None:
    """A volume is of a kind that holds what is the tenant's own, and a claim for one does not choose whose."""
    assert {name for name, value in volume.items() if value is not None} <= KINDS, volume
    for source in (volume.get("projected") or {}).get("sources") or ():
        assert not any(source.get(name) for name in NO_SOURCES), source
    claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
    assert not claim.get("volumeName"), claim
    assert claim.get("storageClassName") in ("fast", None), claim
    assert not (claim.get("dataSourceRef") or {}).get("namespace"), claim


def _is_apart(affinity: dict[str, Any]) -> None:
    """No virtual node is chosen, and of other pods none but the tenant's are looked at."""
    virtual = {"key": "liqo.io/type", "operator": "NotIn", "values": ["virtual-node"]}
    terms = affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    assert terms
    for term in terms:
        expressions = term.get("matchExpressions") or []
        assert virtual in expressions or not (expressions or term.get("matchFields")), terms
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        preferred = [one["podAffinityTerm"] for one in rules.get(_PREFERRED) or ()]
        assert {name for name, value in rules.items() if value is not None} <= {_REQUIRED, _PREFERRED}
        for term in (*(rules.get(_REQUIRED) or ()), *preferred):
            assert "namespaces" not in term
            selector = term.get("namespaceSelector")
            assert selector is None or selector["matchLabels"]["liqo.io/remote-cluster-id"] == "rome", selector


_CONTAINER: Final = {
    "name": "main",
    "image": "app:1",
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1}},
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
    "securityContext": {"runAsUser": 7, "capabilities": {"drop": ["ALL"]}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
_FULL: Final[dict[str, Any]] = {
    "containers": [_CONTAINER],
    "initContainers": [{**_CONTAINER, "restartPolicy": "Always"}],
    "volumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": {"items": []}}]}},
        {
            "name": "e",
            "ephemeral": {
                "volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"storageClassName": "fast"}}
            },
        },
    ],
    "terminationGracePeriodSeconds": 99999,
    "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 9}],
}
_WIDE: Final[dict[str, Any]] = {
    "containers": [{"name": "c", "image": "i"}],
    "affinity": {
        "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name"}]}, {}]}},
        "podAntiAffinity": {
            _REQUIRED: [{"topologyKey": "zone", "namespaces": ["kube-system"]}],
            _PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "z", "namespaceSelector": {}}}],
        },
    },
    "hostNetwork": True,
    "nodeName": "cp-1",
    "serviceAccountName": "default",
    "dnsConfig": {
        "nameservers": ["192.0.2.1"],
        "searches": ["a.example"],
        "options": [{"name": "ndots", "value": "1"}],
    },
}
_SLICE: Final = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop-rome",
        "uid": "u",
        "labels": {"kubernetes.io/service-name": "web"},
    },
    "spec": {
        "template": {
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.64.0.7"], "conditions": {"ready": True}, "nodeName": "n"},
                {"addresses": ["10.0.0.1", "::ffff:10.64.0.1", "fd00:64::1"]},
            ],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        }
    },
}
_RECORD: Final = {
    "policies": [{"name": "web", "spec": {"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}}],
    "namespaces": [{"name": "shop", "labels": {"team": "a"}}],
    "pods": [
        {
            "namespace": "shop",
            "labels": {"app": "db"},
            "ports": [{"name": "sql", "port": 5432}],
            "addresses": ["10.64.0.7"],
        }
    ],
    "nameServers": [{"namespace": "kube-system", "addresses": ["10.64.0.53"]}],
    "addresses": [{"home": "192.0.2.1", "here": "10.70.0.1"}],
    "withheld": ["zone"],
}
SEEN: Final = TenantContext(
    home="shop",
    here={"shop": "shop-rome"},
    tunnel=TunnelEndpointSpec(
        remote=Subnets(pod_cidrs=["10.10.0.0/16"]), remote_seen=Subnets(pod_cidrs=["10.64.0.0/16"])
    ),
)
TARGETS: Final[Mapping[str, Target]] = {
    "shadow-pod": shadow_pod,
    "endpoint-slice": endpoint_slice,
    "policy-record": policy_record,
}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "shadow-pod": [
        msgspec.json.encode(_FULL),
        msgspec.json.encode(_WIDE),
        b'{"containers":[{"name":"c","x":[[[[]]]]}],"hostUsers":true,"volumes":[{"name":"h","hostPath":{"path":"/"}}]}',
        msgspec.json.encode(
            {
                "metadata": {
                    "name": "web",
                    "namespace": "shop-rome",
                    "labels": {ORIGIN_LABEL: "rome", "app": "web", "topology.kubernetes.io/zone": "z"},
                    "annotations": {"kubernetes.io/config.mirror": "x", "a": "b"},
                },
                "spec": {"pod": {"containers": [{"name": "c"}]}},
            }
        ),
    ],
    "policy-record": [
        msgspec.json.encode(_RECORD),
        b'{"policies":[{"name":"x","spec":{"podSelector":[[[[]]]]}}],"pods":[{"addresses":["::ffff:10.64.0.1","x"]}]}',
    ],
    "endpoint-slice": [
        msgspec.json.encode(_SLICE),
        b'{"metadata":{"name":"a"},"spec":{"template":{"addressType":"FQDN","endpoints":[{"addresses":["a.b"]}]}}}',
    ],
}
