"""Which networks pods and Services have, by what distributions and plugins say. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from liqod.config.schema import Settings
from liqod.facts.observed import (
    CIDRS,
    CILIUM,
    ELSEWHERE,
    FLANNEL,
    KUBE_PROXY,
    KUBEADM,
    OLD_FLANNEL,
    OPENSHIFT,
    PLUGINS,
    POOLS,
    ClusterConfiguration,
    FlannelConfiguration,
    ObjectSelector,
    ObservedCluster,
    ProxyConfiguration,
    arguments_of,
    data_of,
    objects_of,
    parse_document,
    part_of,
    split_list,
    texts_of,
)
from liqod.model.objects.node import Node
from liqod.model.records.facts import DOMAIN, POD_NETWORKS, SERVICE_NETWORKS, Fact, State
from liqod.model.records.name_service import is_domain
from liqod.model.records.network import Network

NODE_BITS: Final = {4: 8, 6: 16}
"""How many bits a node's pod network is narrower than the cluster's, by IP version: the defaults of
kube-controller-manager (--node-cidr-mask-size-ipv4 24, -ipv6 64) with a cluster CIDR of the usual size (/16, /48)."""
RANCHER_PODS: Final = "10.42.0.0/16"
RANCHER_SERVICES: Final = "10.43.0.0/16"
"""The defaults of k3s and RKE2 (--cluster-cidr, --service-cidr)."""
MAX_NETWORKS: Final = 16
"""Networks of one kind that a cluster may have; other clusters get no more than these."""

Answer = tuple[Sequence[str], str, State]
"""What a source says: texts of networks, the source, and how sure it is.

``Unknown``: the source says why nothing can be concluded here, neither from it nor from those that come after it.
"""


def pod_networks(seen: ObservedCluster, settings: Settings, plugin: str) -> Fact:
    """Return the networks of pods: the first source that names a network counts."""
    return _first(POD_NETWORKS, _pods(seen, settings, plugin), "set pod-cidrs under [network]")


def service_networks(seen: ObservedCluster, settings: Settings) -> Fact:
    """Return the networks of Services: the first source that names a network counts.

    That the Service ``kubernetes`` has the first address of such a network says nothing about its size.
    """
    return _first(SERVICE_NETWORKS, _services(seen, settings), "set service-cidrs under [network]")


def domain(seen: ObservedCluster) -> Fact:
    """Return the domain of the cluster's names, by the configuration of kubeadm, k3s or RKE2."""
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    options = arguments_of(seen.nodes)
    said = [(kubeadm.networking.dns_domain if kubeadm is not None else "", f"{KUBEADM}: networking.dnsDomain")]
    if options is not None:
        said.append((options.get("cluster-domain", ""), "node-args annotation of a server: --cluster-domain"))
    for text, source in said:
        if is_domain(text):
            return Fact(name=DOMAIN, state="Known", values=[text], source=source)
    return Fact(name=DOMAIN, message="no source names it; domain under [cluster] is what counts")


def _pods(seen: ObservedCluster, settings: Settings, plugin: str) -> Iterator[Answer]:
    yield settings.network.pod_cidrs, "setting network.pod-cidrs", "Known"
    yield from _unread(seen, OPENSHIFT)
    networks = objects_of(part_of(seen.at(OPENSHIFT), "status", "clusterNetwork"))
    yield texts_of([one.get("cidr") for one in networks]), f"{OPENSHIFT}: status.clusterNetwork", "Known"
    yield from _of_plugin(seen, plugin)
    yield from _unread(seen, KUBEADM)
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    if kubeadm is not None:
        yield split_list(kubeadm.networking.pod_subnet), f"{KUBEADM}: networking.podSubnet", "Known"
    options = arguments_of(seen.nodes)
    if options is not None:
        yield split_list(options.get("cluster-cidr", "")), "node-args annotation of a server: --cluster-cidr", "Known"
    yield from _unread(seen, KUBE_PROXY)
    proxy = parse_document(data_of(seen.at(KUBE_PROXY), "config.conf"), ProxyConfiguration)
    if proxy is not None:
        yield split_list(proxy.cluster_cidr), f"{KUBE_PROXY}: clusterCIDR", "Known"
    if options is not None:
        yield [RANCHER_PODS], "the default of k3s and RKE2, whose servers name no --cluster-cidr", "Assumed"
    yield widened(seen.nodes), "spec.podCIDRs of the nodes, widened to the usual size", "Assumed"


def _of_plugin(seen: ObservedCluster, plugin: str) -> Iterator[Answer]:
    """Yield what plugins say that hand out addresses by themselves: those do not use what nodes were assigned."""
    yield from _unread(seen, *(ELSEWHERE if plugin else PLUGINS))
    elsewhere = next((place for place in ELSEWHERE if seen.has(place)), None)
    if plugin == "cilium":
        yield from _cilium(seen)
    elif elsewhere is not None:
        yield (), f"{elsewhere} hands out addresses of networks that are not named in the cluster", "Unknown"
    elif plugin == "calico":
        yield from _unread(seen, POOLS)
        if not seen.has(POOLS):
            yield (), f"{POOLS} of Calico are not served as {POOLS.resource.api_version}", "Unknown"
        yield texts_of([part_of(one, "spec", "cidr") for one in seen.items(POOLS)]), f"{POOLS}: spec.cidr", "Known"
    elif plugin in ("flannel", "canal"):
        for place in (FLANNEL, OLD_FLANNEL):
            flannel = parse_document(data_of(seen.at(place), "net-conf.json"), FlannelConfiguration)
            if flannel is not None:
                yield [flannel.Network, flannel.IPv6Network], f"{place}: net-conf.json", "Known"


def _cilium(seen: ObservedCluster) -> Iterator[Answer]:
    """Yield Cilium's networks (Cilium: "IP Address Management (IPAM)", "CNI Chaining").

    With ``portmap`` the plugin that it is chained to forwards ports and nothing else.
    """
    yield from _unread(seen, CILIUM)
    ipam, chained = (data_of(seen.at(CILIUM), key)[:40] for key in ("ipam", "cni-chaining-mode"))
    if chained not in ("", "none", "portmap"):
        yield (), f"{CILIUM}: cni-chaining-mode {chained}, another plugin hands out the addresses", "Unknown"
    if ipam == "cluster-pool":
        pools = [data_of(seen.at(CILIUM), f"cluster-pool-ipv{version}-cidr") for version in (4, 6)]
        yield [part for pool in pools for part in split_list(pool)], f"{CILIUM}: cluster-pool-ipv4-cidr", "Known"
    if ipam not in ("", "kubernetes"):
        yield (), f"{CILIUM}: ipam {ipam}, whose networks it does not name", "Unknown"


def _services(seen: ObservedCluster, settings: Settings) -> Iterator[Answer]:
    yield settings.network.service_cidrs, "setting network.service-cidrs", "Known"
    yield from _unread(seen, CIDRS)
    cidrs = [text for one in seen.items(CIDRS) for text in texts_of(part_of(one, "spec", "cidrs"))]
    yield cidrs, "ServiceCIDRs (networking.k8s.io)", "Known"
    yield seen.service_ranges, "the range that the API server names where it refuses an address", "Known"
    yield from _unread(seen, OPENSHIFT)
    openshift = texts_of(part_of(seen.at(OPENSHIFT), "status", "serviceNetwork"))
    yield openshift, f"{OPENSHIFT}: status.serviceNetwork", "Known"
    yield from _unread(seen, KUBEADM)
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    if kubeadm is not None:
        yield split_list(kubeadm.networking.service_subnet), f"{KUBEADM}: networking.serviceSubnet", "Known"
    options = arguments_of(seen.nodes)
    if options is not None:
        yield split_list(options.get("service-cidr", "")), "node-args annotation of a server: --service-cidr", "Known"
        yield [RANCHER_SERVICES], "the default of k3s and RKE2, whose servers name no --service-cidr", "Assumed"


def _unread(seen: ObservedCluster, *places: ObjectSelector) -> Iterator[Answer]:
    """Yield that a source may not be read: it might say something else than those that come after it."""
    for place in places:
        if place not in seen.objects:
            yield (), f"{place} may not be read (`liqodctl install` gives the right)", "Unknown"


def widened(nodes: Sequence[Node]) -> list[str]:
    """Return the networks that hold the pods of all nodes, those of nodes to come included, as far as is known.

    Each node has a part of the cluster's network, which the API does not show as a whole: it is assumed to be wider
    than a node's by the default number of bits.
    """
    wide: set[Network] = set()
    for network in _parsed(text for node in nodes for text in node.spec.pod_cidrs):
        shortest = 8 if network.version == 4 else 32
        wide.add(network.supernet(new_prefix=max(shortest, network.prefixlen - NODE_BITS[network.version])))
    four = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(one for one in wide if isinstance(one, ipaddress.IPv6Network))
    return [str(one) for one in (*sorted(four), *sorted(six))]


def _first(name: str, answers: Iterable[Answer], setting: str) -> Fact:
    for texts, source, state in answers:
        if state == "Unknown":
            return Fact(name=name, message=f"{source}; {setting}")
        networks = list(dict.fromkeys(str(one) for one in _parsed(texts)))
        if len(networks) > MAX_NETWORKS:
            # A part of them would leave the others open to tenants.
            message = f"{source} names {len(networks)} networks, more than {MAX_NETWORKS}; {setting} to wider ones"
            return Fact(name=name, source=source, message=message)
        if networks:
            return Fact(name=name, state=state, values=networks, source=source)
    return Fact(name=name, message=f"no source names a network; {setting}")


def _parsed(texts: Iterable[str]) -> list[Network]:
    found: list[Network] = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue
        if network.prefixlen:
            found.append(network)
    return found
