"""What a tenant may not have of claims, Secrets and slices: data, tokens and addresses of others."""

from __future__ import annotations

from typing import Any, Final

from tests.variations.variation import MARK, ForbiddenObject

CLASS: Final = "disks"
"""The storage class that is granted to the tenant."""
_CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": CLASS,
    "resources": {"requests": {"storage": "1Gi"}},
}
_CLAIMS: Final[tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]] = (
    ("a volume of others", {"volumeName": "others"}, {}),
    ("a volume of others, without a class", {"volumeName": "others", "storageClassName": ""}, {}),
    ("a volume of another class", {"volumeName": "private", "storageClassName": "private"}, {}),
    ("a volume that another claim will have", {"volumeName": "reserved"}, {}),
    ("a volume by label", {"selector": {"matchLabels": {"data": "others"}}}, {}),
    ("a volume by any label", {"selector": {"matchExpressions": [{"key": "data", "operator": "Exists"}]}}, {}),
    ("a volume by no label", {"selector": {}}, {}),
    (
        "a volume by label, without a class",
        {"selector": {"matchLabels": {"data": "others"}}, "storageClassName": ""},
        {},
    ),
    ("any volume without a class", {"storageClassName": ""}, {}),
    ("the cluster's default class", {"storageClassName": None}, {}),
    ("another class", {"storageClassName": "private"}, {}),
    ("another way of performance", {"volumeAttributesClassName": "gold"}, {}),
    (
        "data of another namespace",
        {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "data", "namespace": "default"}},
        {},
    ),
    (
        "a snapshot of others",
        {
            "dataSourceRef": {
                "apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot",
                "name": "s",
                "namespace": "kube-system",
            }
        },
        {},
    ),
    ("no class, by annotation", {}, {"annotations": {"volume.beta.kubernetes.io/storage-class": ""}}),
    (
        "another class, by annotation",
        {"storageClassName": None},
        {"annotations": {"volume.beta.kubernetes.io/storage-class": "private"}},
    ),
    (
        "to be bound already",
        {"volumeName": "others"},
        {"annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}},
    ),
    ("a provisioner", {}, {"annotations": {"volume.kubernetes.io/storage-provisioner": MARK}}),
    ("a node", {}, {"annotations": {"volume.kubernetes.io/selected-node": MARK}}),
    ("to be copied", {}, {"labels": {"velero.io/exclude-from-backup": MARK}}),
    ("to stay for ever", {}, {"finalizers": ["example.com/never"]}),
)
_SLICES: Final = (
    ("the node itself", ("127.0.0.1",)),
    ("the node itself, at the end", ("127.255.255.254",)),
    ("the metadata service", ("169.254.169.254",)),
    ("a neighbour on the link", ("169.254.0.1",)),
    ("no address", ("0.0.0.0",)),
    ("everybody", ("224.0.0.1",)),
    ("the whole link", ("255.255.255.255",)),
    ("the API server", ("10.96.0.1",)),
    ("the name server", ("10.96.0.10",)),
    ("the last service", ("10.111.255.254",)),
    ("a pod of the lender", ("10.48.0.5",)),
    ("the last pod", ("10.48.255.254",)),
    ("its own address and the lender's", ("172.30.0.7", "10.48.1.1")),
    ("many and one", (*(f"172.30.1.{n}" for n in range(1, 60)), "10.96.0.1")),
    ("a node of the lender", ("NODE",)),
)
_SLICES6: Final = (
    ("the node itself, in IPv6", ("::1",)),
    ("the link, in IPv6", ("fe80::1",)),
    ("everybody, in IPv6", ("ff02::1",)),
    ("no address, in IPv6", ("::",)),
    ("the API server, mapped", ("::ffff:10.96.0.1",)),
    ("the node, mapped", ("::ffff:127.0.0.1",)),
    ("metadata, mapped", ("::ffff:a9fe:a9fe",)),
    ("metadata, in IPv6", ("fd00:ec2::254",)),
    ("a pod, translated", ("64:ff9b::a30:5",)),
    ("a pod, compatible", ("::10.48.0.5",)),
    ("a pod, by 6to4", ("2002:a30:5::1",)),
)


def claims() -> list[ForbiddenObject]:
    """Return the forbidden PersistentVolumeClaims."""
    made = []
    for words, fields, metadata in _CLAIMS:
        spec = {key: value for key, value in {**_CLAIM, **fields}.items() if value is not None}
        made.append(ForbiddenObject(words, {"metadata": metadata, "spec": spec}, {"spec": _CLAIM}))
    return made


def secrets() -> list[ForbiddenObject]:
    """Return the forbidden Secrets: tokens of accounts, and what controllers copy or act on."""
    token = "kubernetes.io/service-account-token"
    account = {"kubernetes.io/service-account.name": "default"}
    known = {"kubernetes.io/service-account.name": "strong", "kubernetes.io/service-account.uid": "0"}
    made: list[tuple[str, dict[str, Any]]] = [
        ("a token", {"metadata": {"annotations": account}, "type": token}),
        ("a token of a strong account", {"metadata": {"annotations": known}, "type": token}),
        ("a token, with data", {"metadata": {"annotations": account}, "type": token, "data": {"a": "Yg=="}}),
        ("to be copied", {"metadata": {"annotations": {"replicator.v1.mittwald.de/replicate-to": MARK}}}),
        ("to be a cluster", {"metadata": {"labels": {"argocd.argoproj.io/secret-type": MARK}}}),
        ("to be a release", {"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": MARK}}}),
        ("to stay for ever", {"metadata": {"finalizers": ["example.com/never"]}}),
    ]
    own = {"offloading.liqo.io/origin": "any"}
    harmless = {"type": "Opaque", "metadata": {"labels": own}}
    for _, body in made:
        body["metadata"]["labels"] = {**own, **body["metadata"].get("labels", {})}
    return [
        *(ForbiddenObject(words, body, harmless) for words, body in made),
        ForbiddenObject("of nobody", {"metadata": {}}, harmless),
    ]


def slices(node: str) -> list[ForbiddenObject]:
    """Return the forbidden ShadowEndpointSlices, of a cluster with a node of this address."""

    def template(kind: str, addresses: tuple[str, ...]) -> dict[str, Any]:
        endpoints = [{"addresses": [node if one == "NODE" else one]} for one in addresses]
        return {"spec": {"template": {"addressType": kind, "endpoints": endpoints, "ports": [{"port": 443}]}}}

    def forbidden(words: str, kind: str, addresses: tuple[str, ...]) -> ForbiddenObject:
        # Of no service: one that names a service would wait for it.
        harmless = template("IPv6", ("2001:db8::8",)) if kind == "IPv6" else template("IPv4", ("172.30.0.8",))
        return ForbiddenObject(words, {"metadata": {}, **template(kind, addresses)}, {"metadata": {}, **harmless})

    several = ("172.30.0.9", "10.96.0.1")
    one = {"addresses": list(several), "hostname": "a", "nodeName": "control", "zone": "z"}
    listed = {"spec": {"template": {"addressType": "IPv4", "endpoints": [one], "ports": [{"port": 443}]}}}
    never = {"metadata": {"finalizers": ["example.com/never"]}, **template("IPv4", ("172.30.0.7",))}
    return [
        *(forbidden(words, "IPv4", addresses) for words, addresses in _SLICES),
        *(forbidden(words, "IPv6", addresses) for words, addresses in _SLICES6),
        *(
            forbidden(words, "FQDN", (name,))
            for words, name in (("a name of the cluster", "vault.vault.svc"), ("a name of the node", "localhost"))
        ),
        ForbiddenObject("several addresses of one endpoint", listed, template("IPv4", ("172.30.0.8",))),
        ForbiddenObject("to stay for ever", never, template("IPv4", ("172.30.0.7",))),
    ]
