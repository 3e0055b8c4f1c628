"""Where others reach the API server and the daemon, by what is known here. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from liqod.config.schema import Settings
from liqod.facts.observed import (
    API_ENDPOINTS,
    API_SERVICE,
    KUBEADM,
    ClusterConfiguration,
    ObservedCluster,
    data_of,
    objects_of,
    parse_document,
    part_of,
    texts_of,
)
from liqod.model.addresses import parse_ip, parse_ips
from liqod.model.host_port import join_address
from liqod.model.records.facts import (
    API_SERVER,
    API_SERVER_ADDRESSES,
    API_SERVER_NAMES,
    DAEMON_ADDRESSES,
    MAX_VALUES,
    Fact,
)
from liqod.model.records.network import parse_networks

_INSIDE: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""Names that mean the API server inside its cluster alone."""


def api_server(seen: ObservedCluster, settings: Settings, services: Sequence[str]) -> Fact:
    """Return the URL at which other clusters reach the API server; ``services`` are the networks of Services."""
    inside = _inside_networks(seen, services)
    if settings.kubernetes.api_server_url:
        return Fact(
            name=API_SERVER,
            state="Known",
            values=[settings.kubernetes.api_server_url],
            source="setting kubernetes.api-server-url",
        )
    if _is_reachable(seen.server, inside):
        return Fact(name=API_SERVER, state="Known", values=[seen.server], source="the daemon's kubeconfig")
    kubeadm = parse_document(data_of(seen.at(KUBEADM), "ClusterConfiguration"), ClusterConfiguration)
    endpoint = f"https://{kubeadm.control_plane_endpoint}" if kubeadm and kubeadm.control_plane_endpoint else ""
    if _is_reachable(endpoint, inside):
        return Fact(name=API_SERVER, state="Known", values=[endpoint], source=f"{KUBEADM}: controlPlaneEndpoint")
    addresses, port = api_endpoints(seen)
    if addresses:
        url = f"https://{join_address(addresses[0], port)}"
        return Fact(name=API_SERVER, state="Assumed", values=[url], source=str(API_ENDPOINTS))
    return Fact(
        name=API_SERVER,
        message="the daemon's kubeconfig names an address of its own host alone; set api-server-url under [kubernetes]",
    )


def api_server_addresses(seen: ObservedCluster) -> Fact:
    """Return the addresses of the API servers themselves."""
    addresses, _ = api_endpoints(seen)
    if addresses:
        return Fact(name=API_SERVER_ADDRESSES, state="Known", values=addresses, source=str(API_ENDPOINTS))
    return Fact(name=API_SERVER_ADDRESSES, message=f"there is no {API_ENDPOINTS} with addresses")


def api_server_names(seen: ObservedCluster) -> Fact:
    """Return the names and addresses in the API server's certificate."""
    if seen.server_names:
        names = sorted(set(seen.server_names))[:MAX_VALUES]
        return Fact(name=API_SERVER_NAMES, state="Known", values=names, source="the certificate of the API server")
    return Fact(name=API_SERVER_NAMES, message="the API server's certificate was not seen")


def daemon_addresses(
    seen: ObservedCluster, settings: Settings, *, pods: Sequence[str], services: Sequence[str]
) -> Fact:
    """Return where other clusters reach the daemon; ``pods`` and ``services`` are the networks of these."""
    named = settings.peering.advertise_addresses
    if named:
        source = "setting peering.advertise-addresses"
        return Fact(name=DAEMON_ADDRESSES, state="Known", values=named[:MAX_VALUES], source=source)
    hint = "set advertise-addresses under [peering]"
    address = parse_ip(seen.host)
    if address is None:
        return Fact(name=DAEMON_ADDRESSES, message=f"the address of the daemon's host is not known; {hint}")
    if address.is_loopback or address.is_unspecified:
        return Fact(name=DAEMON_ADDRESSES, message=f"the daemon's host shows the address {address} only; {hint}")
    if _is_inside(str(address), pods):
        return Fact(name=DAEMON_ADDRESSES, message=f"the daemon runs in a pod, {address}; {hint}")
    if not pods and _is_inside(_host_of(seen.server), _inside_networks(seen, services)):
        message = f"the daemon may run in a pod, {address}, and the networks of pods are not known; {hint}"
        return Fact(name=DAEMON_ADDRESSES, message=message)
    own = "the address of the daemon's host, towards the API server or by the default route"
    source = "setting kubelet.node-address" if settings.kubelet.node_address else own
    return Fact(name=DAEMON_ADDRESSES, state="Assumed", values=[str(address)], source=source)


def api_endpoints(seen: ObservedCluster) -> tuple[list[str], int]:
    """Return the addresses and the port in the EndpointSlice of the Service ``kubernetes``."""
    body = seen.at(API_ENDPOINTS)
    addresses = sorted(set(_addresses(body)), key=lambda one: (":" in one, one))[:MAX_VALUES]
    ports = [one.get("port") for one in objects_of(body.get("ports"))]
    return addresses, next((port for port in ports if isinstance(port, int)), 6443)


def _addresses(body: Mapping[str, Any]) -> Iterator[str]:
    for endpoint in objects_of(body.get("endpoints")):
        for address in parse_ips(texts_of(endpoint.get("addresses"))):
            if not address.is_loopback:
                yield str(address)


def _is_reachable(url: str, inside: Sequence[str]) -> bool:
    """Return whether others may reach a URL: it is neither of this host nor in the networks of the cluster alone."""
    host = _host_of(url)
    if not host or host == "localhost" or _is_inside(host, inside):
        return False
    address = parse_ip(host)
    return address is None or not (address.is_loopback or address.is_unspecified)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _inside_networks(seen: ObservedCluster, services: Sequence[str]) -> list[str]:
    return [*services, *map(str, parse_networks(texts_of(part_of(seen.at(API_SERVICE), "spec", "clusterIPs"))))]


def _is_inside(host: str, networks: Sequence[str]) -> bool:
    """Return whether a host is the API server by its names inside the cluster, or has an address of these networks."""
    if host in _INSIDE or host.startswith("kubernetes.default.svc."):
        return True
    address = parse_ip(host)
    return address is not None and any(address in ipaddress.ip_network(one) for one in networks)
