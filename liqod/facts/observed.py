"""What facts are concluded from: nodes, and objects that distributions and network plugins leave behind. Pure.

Objects are read by their names, so that the daemon need not be allowed to list more than it lists already; but for two
kinds that hold networks and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import msgspec

from liqod.kube.resources import CONFIGMAPS, DAEMONSETS, ENDPOINTSLICES, SERVICECIDRS, SERVICES, Resource
from liqod.model.objects.meta import View
from liqod.model.objects.node import Node

MAX_DOCUMENT: Final = 256 * 1024
"""Characters of a document inside an object that are parsed at most."""

OPENSHIFT_NETWORKS: Final = Resource("config.openshift.io", "v1", "networks", "Network", False)
IP_POOLS: Final = Resource("crd.projectcalico.org", "v1", "ippools", "IPPool", False)

T = TypeVar("T")


@attrs.frozen
class ObjectSelector:
    """One object that may tell something, by kind, name and namespace; without a name all objects of the kind."""

    resource: Resource
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        if not self.name:
            return f"{self.resource.kind}s"
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource.kind} {where}{self.name}"


KUBEADM: Final = ObjectSelector(CONFIGMAPS, "kubeadm-config", "kube-system")
KUBE_PROXY: Final = ObjectSelector(CONFIGMAPS, "kube-proxy", "kube-system")
KUBE_PROXY_PODS: Final = ObjectSelector(DAEMONSETS, "kube-proxy", "kube-system")
CILIUM: Final = ObjectSelector(CONFIGMAPS, "cilium-config", "kube-system")
FLANNEL: Final = ObjectSelector(CONFIGMAPS, "kube-flannel-cfg", "kube-flannel")
OLD_FLANNEL: Final = ObjectSelector(CONFIGMAPS, "kube-flannel-cfg", "kube-system")
OPENSHIFT: Final = ObjectSelector(OPENSHIFT_NETWORKS, "cluster")
POOLS: Final = ObjectSelector(IP_POOLS)
CIDRS: Final = ObjectSelector(SERVICECIDRS)
API_SERVICE: Final = ObjectSelector(SERVICES, "kubernetes", "default")
API_ENDPOINTS: Final = ObjectSelector(ENDPOINTSLICES, "kubernetes", "default")

PLUGINS: Final[Mapping[ObjectSelector, str]] = {
    ObjectSelector(DAEMONSETS, "cilium", "kube-system"): "cilium",
    ObjectSelector(DAEMONSETS, "anetd", "kube-system"): "cilium",
    ObjectSelector(DAEMONSETS, "canal", "kube-system"): "canal",
    ObjectSelector(DAEMONSETS, "rke2-canal", "kube-system"): "canal",
    ObjectSelector(DAEMONSETS, "calico-node", "kube-system"): "calico",
    ObjectSelector(DAEMONSETS, "calico-node", "calico-system"): "calico",
    ObjectSelector(DAEMONSETS, "kube-flannel-ds", "kube-flannel"): "flannel",
    ObjectSelector(DAEMONSETS, "kube-flannel-ds", "kube-system"): "flannel",
    ObjectSelector(DAEMONSETS, "kube-flannel", "kube-system"): "flannel",
    ObjectSelector(DAEMONSETS, "kindnet", "kube-system"): "kindnet",
    ObjectSelector(DAEMONSETS, "kube-router", "kube-system"): "kube-router",
    ObjectSelector(DAEMONSETS, "aws-node", "kube-system"): "aws-vpc-cni",
    ObjectSelector(DAEMONSETS, "azure-cns", "kube-system"): "azure-cni",
    ObjectSelector(DAEMONSETS, "weave-net", "kube-system"): "weave",
    ObjectSelector(DAEMONSETS, "ovnkube-node", "openshift-ovn-kubernetes"): "ovn-kubernetes",
}
"""The DaemonSets of network plugins. Cilium before others, which may be left over or chained to it."""
ELSEWHERE: Final = tuple(place for place, name in PLUGINS.items() if name in ("aws-vpc-cni", "weave"))
"""Those of plugins that hand out addresses of networks which no object of the cluster names."""

ARGUMENTS: Final = ("k3s.io/node-args", "rke2.io/node-args")
"""Annotations of Nodes with the command line of a server or agent, as a list in JSON."""
_LISTS: Final = frozenset(("cluster-cidr", "service-cidr"))
"""Options whose repeats add to each other. Source: k3s, pkg/cli/cmds/server.go, StringSliceFlag."""

PLACES: Final = (
    KUBEADM,
    KUBE_PROXY,
    KUBE_PROXY_PODS,
    CILIUM,
    FLANNEL,
    OLD_FLANNEL,
    OPENSHIFT,
    POOLS,
    CIDRS,
    API_SERVICE,
    API_ENDPOINTS,
    *PLUGINS,
)
"""All that is read; the daemon's account may get these by name, and list those without one."""


@attrs.frozen(kw_only=True)
class ObservedCluster:
    """What was seen of the cluster.

    ``nodes`` are real ones. ``objects`` has an entry for each place that could be read, None for what is not there; a
    place without an entry may not be read. What was listed has the key ``items``. ``service_ranges`` are the networks
    that an API server without ServiceCIDRs names where it refuses an address. ``server_names`` are those in its
    certificate, None where that could not be seen now.
    """

    nodes: Sequence[Node] = ()
    objects: Mapping[ObjectSelector, Mapping[str, Any] | None] = {}
    service_ranges: Sequence[str] = ()
    version: str = ""
    server: str = ""
    server_names: Sequence[str] | None = ()
    host: str = ""

    def at(self, place: ObjectSelector) -> Mapping[str, Any]:
        """Return an object, empty where there is none or it could not be read."""
        return self.objects.get(place) or {}

    def items(self, place: ObjectSelector) -> list[Mapping[str, Any]]:
        """Return the objects that were listed; none where the kind is not served, or may not be listed."""
        return objects_of(self.at(place).get("items"))

    def has(self, place: ObjectSelector) -> bool:
        """Return whether an object is there."""
        return self.objects.get(place) is not None

    @property
    def is_complete(self) -> bool:
        """Whether every place could be read, so that what was not found is not there."""
        return all(place in self.objects for place in PLACES)


class Networking(View, frozen=True):
    """The networks and the domain in kubeadm's ClusterConfiguration (kubeadm.k8s.io/v1beta4)."""

    pod_subnet: str = ""
    service_subnet: str = ""
    dns_domain: str = ""


class ClusterConfiguration(View, frozen=True):
    """The part of kubeadm's configuration that is read (kubeadm.k8s.io/v1beta4)."""

    networking: Networking = Networking()
    control_plane_endpoint: str = ""


class ProxyConfiguration(View, frozen=True):
    """The part of kube-proxy's configuration that is read; an empty mode is ``iptables``.

    Source: kubeproxy.config.k8s.io/v1alpha1.
    """

    mode: str = ""
    cluster_cidr: str = msgspec.field(name="clusterCIDR", default="")


class FlannelConfiguration(View, frozen=True, rename=None):
    """flannel's net-conf.json."""

    Network: str = ""
    IPv6Network: str = ""


def data_of(config_map: Mapping[str, Any], key: str) -> str:
    """Return one entry of a ConfigMap as text; empty where there is none."""
    value = part_of(config_map, "data", key)
    return value if isinstance(value, str) else ""


def parse_document(text: str, kind: type[T]) -> T | None:
    """Return a document inside a ConfigMap, YAML or JSON; None where it cannot be read as what it should be."""
    if not text or len(text) > MAX_DOCUMENT:
        return None
    try:
        return msgspec.yaml.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    except Exception as error:
        # PyYAML's errors have a base class of their own, which only its one door imports.
        if type(error).__module__.startswith("yaml"):
            return None
        raise


def part_of(value: Any, *path: str) -> Any:
    """Return what is at a path of keys inside an object; None where that is not there."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def texts_of(value: Any) -> list[str]:
    """Return the texts of a list; what is no list has none."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def objects_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; what is no list has none."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def split_list(text: str) -> list[str]:
    """Return the parts of a list that is separated by commas or spaces."""
    return [part for part in text.replace(",", " ").split() if part]


def arguments_of(nodes: Iterable[Node]) -> dict[str, str] | None:
    """Return the options of a k3s or RKE2 server, without their dashes; None where no server shows them.

    Both write their command line, the configuration file included, to annotations of their nodes. An option without a
    value has an empty one. Of an option that is repeated the last one counts, but of the lists of networks, which the
    program joins too: repeated they are also where the configuration file has a list. Here commas separate them.
    """
    for node in nodes:
        for key in ARGUMENTS:
            words = _words(node.metadata.annotations.get(key, ""))
            if words and words[0] == "server":
                return _options(words[1:])
    return None


def arguments_of_k3s(nodes: Iterable[Node]) -> list[dict[str, str]]:
    """Return the options of each k3s server that shows them, as ``arguments_of`` does."""
    shown = [_words(node.metadata.annotations.get(ARGUMENTS[0], "")) for node in nodes]
    return [_options(words[1:]) for words in shown if words and words[0] == "server"]


def _words(text: str) -> list[str]:
    if len(text) > MAX_DOCUMENT:
        return []
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except msgspec.MsgspecError:
        return []


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        after = words[position + 1] if position + 1 < len(words) else ""
        if not equals and not after.startswith("--"):
            value = after
        if name == "kube-proxy-arg":
            # The options of kube-proxy have a prefix here, so that they are not taken for the server's own.
            inner, _, value = value.partition("=")
            name = f"kube-proxy-arg {inner}"
        found[name] = f"{found[name]},{value}" if name in _LISTS and name in found else value
    return found
