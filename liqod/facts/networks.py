"""Which networks pods and Services have, by what distributions and plugins say. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from liqod.config.schema import Settings
from liqod.facts.observed import (
    API_SERVICE,
    CILIUM,
    FLANNEL,
    KUBE_PROXY,
    KUBEADM,
    OLD_FLANNEL,
    OPENSHIFT,
    POOL,
    POOL_SIX,
    ClusterConfiguration,
    FlannelConfiguration,
    Observed,
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
from liqod.model.records.facts import POD_NETWORKS, SERVICE_NETWORKS, Fact, State
from liqod.model.records.network import Network

NODE_BITS: Final = {4: 8, 6: 16}
"""How many bits a node's pod network is narrower than the cluster's, by IP version: the defaults of
kube-controller-manager (--node-cidr-mask-size-ipv4 24, -ipv6 64) with a cluster CIDR of the usual size (/16, /48)."""
RANCHER_PODS: Final = "10.42.0.0/16"
RANCHER_SERVICES: Final = "10.43.0.0/16"
"""The defaults of k3s and RKE2 (--cluster-cidr, --service-cidr)."""
MAX_NETWORKS: Final = 16
"""Networks of one kind that a cluster may have; to other clusters no more are announced."""

Answer = tuple[Sequence[str], str, State]
"""What a source says: texts of networks, the source, and how sure it is."""


def pod_networks(seen: Observed, settings: Settings, plugin: str) -> Fact:
    """Return the networks of pods: the first source that names a network counts."""
    hint = "no source names the network of this cluster's pods; set pod-cidrs under [network]"
    return _first(POD_NETWORKS, _pods(seen, settings, plugin), hint)


def service_networks(seen: Observed, settings: Settings) -> Fact:
    """Return the networks of Services: the first source that names a network counts."""
    hint = "no source names the network of this cluster's Services; set service-cidrs under [network]"
    return _first(SERVICE_NETWORKS, _services(seen, settings), hint)


def _pods(seen: Observed, settings: Settings, plugin: str) -> Iterator[Answer]:
    yield settings.network.pod_cidrs, "setting network.pod-cidrs", "Known"
    networks = objects_of(part_of(seen.at(OPENSHIFT), "status", "clusterNetwork"))
    yield texts_of([one.get("cidr") for one in networks]), f"{OPENSHIFT}: status.clusterNetwork", "Known"
    # A plugin that hands out addresses by itself does not use what the cluster assigned to its nodes.
    if plugin == "cilium" and data_of(seen.at(CILIUM), "ipam") == "cluster-pool":
        pools = [data_of(seen.at(CILIUM), f"cluster-pool-ipv{version}-cidr") for version in (4, 6)]
        yield [part for pool in pools for part in split_list(pool)], f"{CILIUM}: cluster-pool-ipv4-cidr", "Known"
    if plugin == "calico":
        pools = [part_of(seen.at(place), "spec", "cidr") for place in (POOL, POOL_SIX)]
        yield texts_of(pools), f"{POOL}: spec.cidr", "Known"
    if plugin in ("flannel", "canal"):
        for place in (FLANNEL, OLD_FLANNEL):
            flannel = parse_document(data_of(seen.at(place), "net-conf.json"), FlannelConfiguration)
            if flannel is not None:
                yield [flannel.Network, flannel.IPv6Network], f"{place}: net-conf.json", "Known"
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    if kubeadm is not None:
        yield split_list(kubeadm.networking.pod_subnet), f"{KUBEADM}: networking.podSubnet", "Known"
    options = arguments_of(seen.nodes)
    if options is not None:
        yield split_list(options.get("cluster-cidr", "")), "node-args annotation of a server: --cluster-cidr", "Known"
    proxy = parse_document(data_of(seen.at(KUBE_PROXY), "config.conf"), ProxyConfiguration)
    if proxy is not None:
        yield split_list(proxy.cluster_cidr), f"{KUBE_PROXY}: clusterCIDR", "Known"
    if options is not None:
        yield [RANCHER_PODS], "the default of k3s and RKE2, whose servers name no --cluster-cidr", "Assumed"
    yield widened(seen.nodes), "spec.podCIDRs of the nodes, widened to the usual size", "Assumed"


def _services(seen: Observed, settings: Settings) -> Iterator[Answer]:
    yield settings.network.service_cidrs, "setting network.service-cidrs", "Known"
    yield seen.service_cidrs or (), "ServiceCIDRs (networking.k8s.io)", "Known"
    yield seen.service_ranges, "the range that the API server names where it refuses an address", "Known"
    openshift = texts_of(part_of(seen.at(OPENSHIFT), "status", "serviceNetwork"))
    yield openshift, f"{OPENSHIFT}: status.serviceNetwork", "Known"
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    if kubeadm is not None:
        yield split_list(kubeadm.networking.service_subnet), f"{KUBEADM}: networking.serviceSubnet", "Known"
    options = arguments_of(seen.nodes)
    if options is not None:
        yield split_list(options.get("service-cidr", "")), "node-args annotation of a server: --service-cidr", "Known"
        yield [RANCHER_SERVICES], "the default of k3s and RKE2, whose servers name no --service-cidr", "Assumed"
    addresses = texts_of(part_of(seen.at(API_SERVICE), "spec", "clusterIPs"))
    texts = [f"{one}/{112 if ':' in one else 16}" for one in addresses]
    # The address of this Service is the first one of every network of Services.
    yield texts, f"{API_SERVICE}: spec.clusterIPs, in a network of the usual size", "Assumed"


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


def _first(name: str, answers: Iterable[Answer], hint: str) -> Fact:
    for texts, source, state in answers:
        networks = list(dict.fromkeys(str(one) for one in _parsed(texts)))
        if len(networks) > MAX_NETWORKS:
            # A part of them would leave the others open to tenants.
            message = (
                f"{source} names {len(networks)} networks, more than {MAX_NETWORKS}: name wider ones in the settings"
            )
            return Fact(name=name, source=source, message=message)
        if networks:
            return Fact(name=name, state=state, values=networks, source=source)
    return Fact(name=name, message=hint)


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
