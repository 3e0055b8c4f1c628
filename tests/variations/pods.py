"""What a tenant may not have of a pod: forbidden values for each place of a pod's spec where it can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.variations.variation import MARK, ForbiddenObject

_IMAGE: Final = "localhost/busybox:1"
_CONTAINER: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a privileged container", {"securityContext": {"privileged": True}}),
    ("capabilities of the node", {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
    ("raw sockets beside the default", {"securityContext": {"capabilities": {"add": ["NET_RAW", "NET_ADMIN"]}}}),
    ("the unmasked /proc", {"securityContext": {"procMount": "Unmasked"}}),
    ("no seccomp", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("no AppArmor", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("an SELinux type of the host", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    ("an SELinux user", {"securityContext": {"seLinuxOptions": {"user": "system_u"}}}),
    ("a process of the host, on Windows", {"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    ("a port of the node", {"ports": [{"containerPort": 80, "hostPort": 10250}]}),
    ("an image that somebody else pulled", {"imagePullPolicy": "Never"}),
    ("an image that somebody else pulled, maybe", {"imagePullPolicy": "IfNotPresent"}),
    ("a probe from the node to itself", {"livenessProbe": {"httpGet": {"port": 10255, "host": "127.0.0.1"}}}),
    ("a probe from the node to others", {"readinessProbe": {"tcpSocket": {"port": 80, "host": "169.254.169.254"}}}),
    (
        "a hook from the node to itself",
        {"lifecycle": {"preStop": {"httpGet": {"port": 10248, "host": "localhost"}}}},
    ),
)
_POD: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("the host's network", {"hostNetwork": True}),
    ("the host's processes", {"hostPID": True}),
    ("the host's IPC", {"hostIPC": True}),
    ("a node of the control plane", {"nodeName": "control"}),
    ("a node past the scheduler", {"nodeName": "dedicated"}),
    ("to be scheduled by another", {"schedulerName": "other"}),
    ("an account of the namespace", {"serviceAccountName": "strong"}),
    ("an account by the old name", {"serviceAccount": "strong"}),
    ("the token of the default account", {"automountServiceAccountToken": True}),
    ("to come before the cluster's own", {"priorityClassName": "system-cluster-critical"}),
    ("to come before every node's own", {"priorityClassName": "system-node-critical"}),
    ("to come before others, by number", {"priority": 1_000_000}),
    ("to preempt", {"preemptionPolicy": "PreemptLowerPriority"}),
    ("another runtime", {"runtimeClassName": "strong"}),
    ("to take all taints", {"tolerations": [{"operator": "Exists"}]}),
    (
        "the control plane by toleration and label",
        {
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        },
    ),
    (
        "a dedicated node",
        {
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}],
            "nodeSelector": {"kubernetes.io/hostname": "dedicated"},
        },
    ),
    (
        "a dedicated node by affinity",
        {
            "tolerations": [{"key": "", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["dedicated"]}]}
                        ]
                    }
                }
            },
        },
    ),
    ("sysctls of the node", {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}),
    ("no seccomp for the pod", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("an SELinux type for the pod", {"securityContext": {"seLinuxOptions": {"type": "container_runtime_t"}}}),
    (
        "Windows' host processes for the pod",
        {"securityContext": {"windowsOptions": {"hostProcess": True}}, "os": {"name": "windows"}},
    ),
    ("to end after a year", {"terminationGracePeriodSeconds": 31_536_000}),
    ("a workload of others", {"workloadRef": {"name": "others", "podGroup": "g"}}),
    ("a claim for devices", {"resourceClaims": [{"name": "gpu", "resourceClaimName": "others"}]}),
    ("what no release knows", {"rootOfNode": True}),
)
_EVERYWHERE: Final = {"namespaceSelector": {}, "labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
_BY_NAME: Final = {"namespaces": ["default"], "labelSelector": {}, "topologyKey": "kubernetes.io/os"}
_VOLUMES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("the disk of the node", {"hostPath": {"path": "/"}}),
    ("a socket of the node", {"hostPath": {"path": "/run/containerd/containerd.sock", "type": "Socket"}}),
    ("a file system by address", {"nfs": {"server": "192.0.2.1", "path": "/"}}),
    (
        "a block device by address",
        {"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
    ),
    ("a driver of the node", {"csi": {"driver": "secrets-store.csi.k8s.io"}}),
    ("a program of the node", {"flexVolume": {"driver": "example/x"}}),
    ("a repository", {"gitRepo": {"repository": "https://git.example/x"}}),
    ("a disk of the cloud account", {"awsElasticBlockStore": {"volumeID": "vol-1"}}),
    ("a share with a secret", {"azureFile": {"secretName": "s", "shareName": "x"}}),
    ("a pool of storage", {"rbd": {"monitors": ["192.0.2.1"], "image": "x"}}),
    ("an image from the node's disk", {"image": {"reference": "localhost/private:1", "pullPolicy": "Never"}}),
)
_SOURCES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a token", {"serviceAccountToken": {"path": "token"}}),
    ("a token for the API server", {"serviceAccountToken": {"path": "t", "audience": "", "expirationSeconds": 7200}}),
    ("the trust of others", {"clusterTrustBundle": {"name": "others", "path": "ca.pem"}}),
    ("a certificate", {"podCertificate": {"signerName": "example.com/x", "keyType": "ED25519", "keyPath": "k"}}),
)
_CLAIMS: Final[tuple[tuple[str, dict[str, Any], dict[str, str]], ...]] = (
    ("a volume of others by template", {"volumeName": "others"}, {}),
    ("a labelled volume by template", {"selector": {"matchLabels": {"data": "others"}}}, {}),
    ("a volume of no class by template", {"storageClassName": ""}, {}),
    ("a class that is not granted by template", {"storageClassName": "private"}, {}),
    (
        "no class by template and annotation",
        {"storageClassName": None},
        {"volume.beta.kubernetes.io/storage-class": ""},
    ),
    (
        "data of another namespace by template",
        {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "data", "namespace": "default"}},
        {},
    ),
)
_METADATA: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("to be a static pod", {"annotations": {"kubernetes.io/config.mirror": MARK}}),
    ("to be a static pod's source", {"annotations": {"kubernetes.io/config.source": MARK}}),
    ("to stop the autoscaler", {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": MARK}}),
    ("to leave the service mesh", {"annotations": {"sidecar.istio.io/inject": MARK}}),
    ("a network of the node", {"annotations": {"k8s.v1.cni.cncf.io/networks": MARK}}),
    ("bandwidth", {"annotations": {"kubernetes.io/egress-bandwidth": MARK}}),
    ("an address of others", {"annotations": {"cni.projectcalico.org/ipAddrs": MARK}}),
    ("no AppArmor by annotation", {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": MARK}}),
    ("an identity of the cloud", {"labels": {"azure.workload.identity/use": MARK}}),
    ("to be selected as the DNS", {"labels": {"k8s-app.kubernetes.io/x": MARK, "dns.example/role": MARK}}),
    ("to stay for ever", {"finalizers": ["example.com/never"]}),
    ("to be another's application", {"labels": {"argocd.argoproj.io/instance": MARK}}),
)


def _spec(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": _IMAGE}], **fields}


def _of(spec: dict[str, Any], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": metadata or {}, "spec": {"pod": spec}}


def _specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the forbidden specs with their words."""
    for words, fields in _CONTAINER:
        evil = {"name": "evil", "image": _IMAGE, **fields}
        yield f"{words}, in a container", _spec(containers=[{"name": "main", "image": _IMAGE, **fields}])
        if "hook" not in words and "probe" not in words:
            yield f"{words}, in an init container", _spec(initContainers=[evil])
            yield f"{words}, in a debug container", _spec(ephemeralContainers=[evil])
        yield f"{words}, in a sidecar", _spec(initContainers=[{**evil, "restartPolicy": "Always"}])
    for words, fields in _POD:
        yield words, _spec(**fields)
    for words, term in (("everywhere", _EVERYWHERE), ("by name", _BY_NAME)):
        yield (
            f"to keep others from its nodes, {words}",
            _spec(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
        )
    for words, source in _VOLUMES:
        yield words, _spec(volumes=[{"name": "v", **source}])
    for words, source in _SOURCES:
        config = {"configMap": {"name": "c", "optional": True}}
        yield f"{words}, projected", _spec(volumes=[{"name": "v", "projected": {"sources": [source]}}])
        yield f"{words}, behind another", _spec(volumes=[{"name": "v", "projected": {"sources": [config, source]}}])
    for words, fields, notes in _CLAIMS:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
            **fields,
        }
        if claim["storageClassName"] is None:
            claim.pop("storageClassName")
        template = {"metadata": {"annotations": notes}, "spec": claim}
        yield words, _spec(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}])


def forbidden_objects() -> list[ForbiddenObject]:
    """Return all forbidden objects."""
    made = [ForbiddenObject(words, _of(spec), _of(_spec())) for words, spec in _specs()]
    return [*made, *(ForbiddenObject(words, _of(_spec(), metadata), _of(_spec())) for words, metadata in _METADATA)]
