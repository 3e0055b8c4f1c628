"""What somebody attempts with a token of one of liqod's own accounts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from liqod.kubelet.common.readiness import READY
from liqod.kubelet.node.forge import NodeFacts, forge_node
from liqod.kubelet.reflection.forge.claim import forge_class
from liqod.webhook.configuration import NAME as WEBHOOK
from tests.weakened.attempt import AGENT, DAEMON, NAMES, OWN, TENANT, Attempt, asked, named

_SYSTEM: Final = {"namespace": "kube-system", "namespace_labels": {}}
_HOME: Final = {"namespace": OWN, "namespace_labels": {}}
_OFFLOADED: Final = {"namespace": "shop", "namespace_labels": {"liqo.io/enabled": "true"}}
_HEARTBEATS: Final = {
    "namespace": "kube-node-lease",
    "namespace_labels": {"kubernetes.io/metadata.name": "kube-node-lease"},
}
_PEERS: Final = {"rights": frozenset({"patch foreignclusters.discovery.liqo.io"})}
_OBJECTS: Final = (
    "secrets",
    "serviceaccounts",
    "resourcequotas",
    "limitranges",
    "services",
    "networkpolicies",
    "ingresses",
    "httproutes",
    "grpcroutes",
    "endpointslices",
)
_ANY_TAINT: Final = [{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"}]
_REAL: Final = named({"spec": {"podCIDR": "10.0.0.0/24"}})
_TOKEN: Final = "kubernetes.io/service-account-token"


def attempts() -> Iterator[Attempt]:
    """Yield all attempts."""
    yield from _objects()
    yield from _secrets_and_tokens()
    yield from _pods()
    yield from _namespaces_and_webhooks()
    yield from _nodes()
    yield from _leases()
    yield from _storage()
    request = {"metadata": {"name": "csr"}, "spec": {"username": "system:node:worker"}}
    yield _by(DAEMON, "a kubelet's certificate", "certificatesigningrequests/approval", request, request)


def _by(
    user: str, words: str, resource: str, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, **more: Any
) -> Attempt:
    return asked(words, resource, new, old, user=user, **{**_SYSTEM, **more})


def _all_ways(user: str, words: str, resource: str, thing: Mapping[str, Any], **more: Any) -> Iterator[Attempt]:
    yield _by(user, words, resource, thing, None, **more)
    yield _by(user, words, resource, thing, thing, **more)
    yield _by(user, words, resource, None, thing, **more)


def _objects() -> Iterator[Attempt]:
    for resource in _OBJECTS:
        yield from _all_ways(DAEMON, "in a namespace of others", resource, named({}))
    for resource in ("roles", "rolebindings"):
        yield from _all_ways(DAEMON, "rights in its own namespace", resource, named({}), **_HOME)


def _secrets_and_tokens() -> Iterator[Attempt]:
    token = named({"type": _TOKEN})
    yield _by(DAEMON, "a token by a secret", "secrets", token, None, **_HOME)
    yield _by(DAEMON, "a token by a secret", "secrets", token, token, **_HOME)
    other = named({"type": "Opaque"}, "liqod-identity")
    yield _by(AGENT, "another secret", "secrets", other, None, **_HOME)
    yield _by(AGENT, "another secret", "secrets", other, other, **_HOME)
    for label in ("discovery.liqo.io/pairing-token", "discovery.liqo.io/invitation"):
        pairing = named({"metadata": {"labels": {label: "true"}}, "type": "Opaque"}, "liqod-tunnel")
        yield _by(AGENT, "a token for pairing", "secrets", pairing, None, **_HOME)
    bound = {"kind": "Pod", "name": "a"}
    spec = {"spec": {"boundObjectRef": bound, "expirationSeconds": 600}}
    resource = "serviceaccounts/token"
    yield _by(DAEMON, "a token of others", resource, spec, None, name="default")
    yield _by(DAEMON, "a token that is bound to nothing", resource, {"spec": {}}, None, name="default", **_OFFLOADED)
    for user in (DAEMON, AGENT, NAMES):
        mine = user.rpartition(":")[2]
        fine = {"expirationSeconds": 600, "boundObjectRef": {"kind": "Secret", "name": f"{mine}-account"}}
        for words, fields in (
            ("a token of a year", {"expirationSeconds": 31_536_000}),
            ("a token without an end", {"boundObjectRef": None}),
        ):
            yield _by(user, words, resource, {"spec": {**fine, **fields}}, None, name=mine, **_HOME)
    names = {"expirationSeconds": 600, "boundObjectRef": {"kind": "Secret", "name": "liqod-account"}}
    yield _by(AGENT, "the daemon's token", resource, {"spec": names}, None, name="liqod", **_HOME)


def _pod(image: str = "a:1", **more: Any) -> dict[str, Any]:
    return named({"spec": {"containers": [{"name": "main", "image": image}], **more}}, "web")


def _pods() -> Iterator[Attempt]:
    yield _by(DAEMON, "a pod", "pods", _pod(), None)
    yield _by(DAEMON, "another image", "pods", _pod("b:1"), _pod())
    joined = _pod()
    joined["metadata"]["labels"] = {"app": "dns"}
    yield _by(DAEMON, "to join a service", "pods", joined, _pod())
    yield _by(DAEMON, "onto a virtual node", "pods", _pod(tolerations=_ANY_TAINT), _pod())
    addressed = {**_pod(), "status": {"podIP": "192.0.2.1"}}
    yield _by(DAEMON, "an address of a pod", "pods/status", addressed, _pod())
    for part in ("ephemeralcontainers", "resize"):
        yield _by(DAEMON, "more of a running pod", f"pods/{part}", _pod(), _pod())
    beside = {"namespace": "liqo-tenant-rome", "namespace_labels": {**TENANT, "liqo.io/tenant-namespace": "true"}}
    yield _by(DAEMON, "a pod beside credentials", "pods", _pod(), None, **beside)


def _namespaces_and_webhooks() -> Iterator[Attempt]:
    def space(**labels: str) -> dict[str, Any]:
        return {"metadata": {"name": "x", "labels": {name.replace("_", "/"): text for name, text in labels.items()}}}

    def labelled(*keys: str) -> dict[str, Any]:
        levels = {
            "pod-security.kubernetes.io/enforce": "baseline",
            "pod-security.kubernetes.io/enforce-version": "latest",
        }
        return {"metadata": {"name": "x", "labels": {**dict.fromkeys(keys, "rome"), **levels}}}

    remote, tenant = "liqo.io/remote-cluster-id", "liqo.io/tenant-namespace"
    for words, new, old in (
        ("a namespace of others", space(), None),
        ("a namespace of others becomes a tenant's", labelled(remote), labelled()),
        ("a tenant's namespace becomes another's", labelled(), labelled(remote)),
        ("a namespace of others goes", None, labelled()),
        ("a namespace with a level becomes one without", labelled(remote, tenant), labelled(remote)),
    ):
        yield _by(DAEMON, words, "namespaces", new, old, **_PEERS)
    rule = {"operations": ["CREATE"], "resources": ["secrets"], "scope": "Namespaced"}
    hook = {"rules": [rule], "namespaceSelector": {"matchLabels": {"liqo.io/enabled": "true"}}}
    for name, hooks in ((WEBHOOK, [hook]), ("other", [])):
        made = named({"webhooks": hooks}, name)
        yield _by(DAEMON, "a webhook", "mutatingwebhookconfigurations", made, None)
        yield _by(DAEMON, "a webhook", "mutatingwebhookconfigurations", made, made)


def _nodes() -> Iterator[Attempt]:
    tainted = {**_REAL, "spec": {**_REAL["spec"], "taints": [{"key": "a", "effect": "NoSchedule"}]}}
    made = forge_node(NodeFacts("liqo-milan", "milan", "192.0.2.9", READY, None))
    bare = copy.deepcopy(made)
    del bare["spec"]["taints"]
    for user in (DAEMON, AGENT):
        yield _by(user, "a taint of a node", "nodes", tainted, _REAL)
        for resource in ("nodes", "nodes/status"):
            yield _by(user, "a real node", resource, _REAL, None)
            yield _by(user, "a real node", resource, None, _REAL)
        yield _by(user, "how a real node is", "nodes/status", _REAL, _REAL)
    yield _by(DAEMON, "a virtual node for all pods", "nodes", bare, None)
    yield _by(DAEMON, "a virtual node for all pods", "nodes", bare, made)
    for resource in ("nodes", "nodes/status"):
        yield from _all_ways(AGENT, "a virtual node", resource, made)


def _leases() -> Iterator[Attempt]:
    yield from _all_ways(DAEMON, "a real node's heartbeat", "leases", named({}, "worker"), **_HEARTBEATS)
    leading = named({}, "liqod")
    yield _by(AGENT, "the leader's lease", "leases", leading, None, **_HOME)
    yield _by(AGENT, "the leader's lease", "leases", leading, leading, **_HOME)


def _storage() -> Iterator[Attempt]:
    def volume(**spec: Any) -> dict[str, Any]:
        sized = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec}
        return named({"metadata": {"labels": {"liqo.io/managed-by": "liqod"}}, "spec": sized}, "pvc-1")

    others = named({"spec": {"csi": {"driver": "d"}}})
    yield _by(DAEMON, "a volume of others", "persistentvolumes", others, others)
    yield _by(DAEMON, "a volume of others", "persistentvolumes", None, others)
    for words, made in (
        ("the disk of the node", volume(hostPath={"path": "/"})),
        ("a program of the node", volume(flexVolume={"driver": "d"})),
    ):
        yield _by(DAEMON, words, "persistentvolumes", made, None)
        yield _by(DAEMON, words, "persistentvolumes", made, volume(csi={"driver": "d"}))
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = named({"spec": {"storageClassName": "a", **wanted}}, "data")
    led = {**claim, "spec": {**claim["spec"], "volumeName": "thiefs"}}
    yield _by(DAEMON, "another volume", "persistentvolumeclaims", led, claim)
    bad = {**forge_class("liqo"), "provisioner": "nfs.csi.k8s.io"}
    yield _by(DAEMON, "a storage class", "storageclasses", bad, None)
    yield _by(DAEMON, "a storage class", "storageclasses", bad, forge_class("liqo"))
