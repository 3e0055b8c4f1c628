"""Which software a cluster is made of: distribution, versions, network plugin, kube-proxy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from liqod.facts.observed import (
    CILIUM,
    KUBE_PROXY,
    KUBE_PROXY_PODS,
    KUBEADM,
    OPENSHIFT,
    PLUGINS,
    ObservedCluster,
    ProxyConfiguration,
    arguments_of,
    arguments_of_k3s,
    data_of,
    objects_of,
    parse_document,
    part_of,
    texts_of,
)
from liqod.model.objects.node import Node
from liqod.model.records.facts import (
    DISTRIBUTION,
    MAX_VALUES,
    NODE_SYSTEMS,
    NODE_VERSIONS,
    NODES_COUNT,
    PLUGIN,
    PROXY,
    RUNTIMES,
    VERSION,
    Fact,
)

SUFFIXES: Final[Mapping[str, str]] = {
    "+k3s": "k3s",
    "+rke2": "rke2",
    "+k0s": "k0s",
    "-gke.": "gke",
    "-eks-": "eks",
}
"""What the versions of kubelets have in them."""
LABELS: Final[Mapping[str, str]] = {
    "microk8s.io/cluster": "microk8s",
    "kubernetes.azure.com/cluster": "aks",
    "minikube.k8s.io/name": "minikube",
}
"""Labels that one distribution alone gives to its nodes."""
FLANNEL_BACKEND: Final = "flannel.alpha.coreos.com/backend-type"
"""The annotation that flannel writes to every Node, also where it runs inside k3s."""
MODES: Final = frozenset(("iptables", "ipvs", "nftables"))


def distribution(seen: ObservedCluster) -> Fact:
    """Return who packaged the cluster."""
    for node in seen.nodes:
        version = node.status.node_info.kubelet_version
        for suffix, name in SUFFIXES.items():
            if suffix in version:
                return _known(DISTRIBUTION, [name], f"kubelet version {version}")
        for label, name in LABELS.items():
            if label in node.metadata.labels:
                return _known(DISTRIBUTION, [name], f"node label {label}")
        if node.spec.provider_id.startswith("kind://"):
            return _known(DISTRIBUTION, ["kind"], "spec.providerID of a node")
        if node.status.node_info.os_image.startswith("Talos"):
            return _known(DISTRIBUTION, ["talos"], "osImage of a node")
    if seen.has(OPENSHIFT):
        return _known(DISTRIBUTION, ["openshift"], str(OPENSHIFT))
    if seen.has(KUBEADM):
        return _known(DISTRIBUTION, ["kubeadm"], str(KUBEADM))
    return Fact(name=DISTRIBUTION, message="no node and no object has the marks of a distribution that is known here")


def versions(seen: ObservedCluster) -> list[Fact]:
    """Return the versions of API server and kubelets, the systems and runtimes, and how many nodes there are."""
    infos = [node.status.node_info for node in seen.nodes]
    return [
        _known(VERSION, [seen.version] if seen.version else [], "/version of the API server"),
        _known(NODES_COUNT, [str(len(seen.nodes))], "nodes that are no virtual ones"),
        _known(NODE_VERSIONS, _distinct(one.kubelet_version for one in infos), "kubeletVersion of the nodes"),
        _known(NODE_SYSTEMS, _distinct(one.os_image for one in infos), "osImage of the nodes"),
        _known(RUNTIMES, _distinct(one.container_runtime_version for one in infos), "the nodes"),
    ]


def plugin(seen: ObservedCluster) -> Fact:
    """Return the network plugin; behind flannel the controller for NetworkPolicies that servers of k3s have."""
    for place, name in PLUGINS.items():
        if seen.has(place):
            return _known(PLUGIN, [name, *_beside(name, seen)], str(place))
    if any(FLANNEL_BACKEND in node.metadata.annotations for node in seen.nodes):
        return _known(PLUGIN, ["flannel", *_beside("flannel", seen)], f"node annotation {FLANNEL_BACKEND}")
    return Fact(name=PLUGIN, message="no network plugin that is known here left its marks")


def _beside(plugin: str, seen: ObservedCluster) -> list[str]:
    """Return the controller for NetworkPolicies that k3s has beside flannel, that of kube-router, if it is seen to run.

    Source: k3s, pkg/agent/netpol, and "Critical configuration values" of its manual: all servers have the same option.
    """
    servers = arguments_of_k3s(seen.nodes)
    runs = bool(servers) and all(options.get("disable-network-policy", "false") == "false" for options in servers)
    return ["kube-router"] if plugin == "flannel" and runs else []


def proxy(seen: ObservedCluster) -> Fact:
    """Return what carries out Services."""
    replacement = data_of(seen.at(CILIUM), "kube-proxy-replacement")
    if replacement in ("true", "strict") and not seen.has(KUBE_PROXY_PODS):
        return _known(PROXY, ["cilium"], f"{CILIUM}: kube-proxy-replacement")
    named = _mode_argument(seen.at(KUBE_PROXY_PODS))
    if named:
        return _known(PROXY, [named], f"{KUBE_PROXY_PODS}: --proxy-mode")
    options = arguments_of(seen.nodes)
    if options is not None and "disable-kube-proxy" not in options:
        mode = options.get("kube-proxy-arg proxy-mode", "")
        if mode in MODES:
            return _known(PROXY, [mode], "node-args annotation of a server: --kube-proxy-arg")
        return Fact(name=PROXY, state="Assumed", values=["iptables"], source="the default of k3s and RKE2")
    configuration = parse_document(data_of(seen.at(KUBE_PROXY), "config.conf"), ProxyConfiguration)
    if configuration is not None:
        mode = configuration.mode if configuration.mode in MODES else "iptables"
        return _known(PROXY, [mode], f"{KUBE_PROXY}: mode")
    return Fact(name=PROXY, message="neither kube-proxy nor what replaces it shows its configuration")


def _mode_argument(daemon_set: Mapping[str, Any]) -> str:
    """Return the mode in the command line of kube-proxy's pods; the option overrides the configuration's mode."""
    for container in objects_of(part_of(daemon_set, "spec", "template", "spec", "containers")):
        for word in (*texts_of(container.get("command")), *texts_of(container.get("args"))):
            mode = word.removeprefix("--proxy-mode=")
            if mode != word and mode in MODES:
                return mode
    return ""


def environment_of(daemon_set: Mapping[str, Any], name: str) -> str:
    """Return a variable that a DaemonSet gives to a container of its pods; empty where it gives none by its value."""
    for container in objects_of(part_of(daemon_set, "spec", "template", "spec", "containers")):
        for one in objects_of(container.get("env")):
            if one.get("name") == name and isinstance(value := one.get("value"), str):
                return value
    return ""


def real_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are no virtual ones, in the order of their names."""
    return sorted((node for node in nodes if not node.virtual), key=lambda node: node.metadata.name)


def _known(name: str, values: Sequence[str], source: str) -> Fact:
    state = "Known" if values else "Unknown"
    return Fact(name=name, state=state, values=list(values), source=source if values else "")  # type: ignore[arg-type]


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted({text for text in texts if text})[:MAX_VALUES]
