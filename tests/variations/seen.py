"""The oracle for objects: what must not be seen in the namespaces of a tenant, whatever was asked for. Pure.

Each function yields what is wrong with one object as the API server shows it, in words. None reads liqod's contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from tests.variations.services import HOSTS
from tests.variations.storage import CLASS
from tests.variations.variation import MARK

Judge = Callable[[Mapping[str, Any]], Iterator[str]]
_OWN_FINALIZERS: Final = ("kubernetes.io/pvc-protection", "service.kubernetes.io/load-balancer-cleanup")
"""Finalizers that Kubernetes itself sets, and takes away."""
_PORTS_OF_NODES: Final = (22, 6443, 10250)
_GATEWAY: Final = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "public", "name": "shared"}
_ROOT: Final = {"path": {"type": "PathPrefix", "value": "/"}}
_IN_IPV6: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""Networks of IPv6 whose last 32 bits are an address of IPv4 (RFC 6052, section 2.1; RFC 4291, section 2.5.5.1)."""


def metadata(body: Mapping[str, Any]) -> Iterator[str]:
    """Labels and annotations that others act on, and finalizers."""
    meta = body["metadata"]
    for field in ("labels", "annotations"):
        for key, value in (meta.get(field) or {}).items():
            if value == MARK:
                yield f"{field} {key}"
    yield from finalizers(body)


def finalizers(body: Mapping[str, Any]) -> Iterator[str]:
    """Finalizers that nobody here removes."""
    for name in body["metadata"].get("finalizers") or ():
        if name not in _OWN_FINALIZERS:
            yield f"finalizer {name}"


def service(body: Mapping[str, Any]) -> Iterator[str]:
    """Addresses and names that belong to others."""
    yield from metadata(body)
    spec = body["spec"]
    for field in ("externalIPs", "loadBalancerIP", "externalName", "loadBalancerClass"):
        if spec.get(field):
            yield f"{field} {spec[field]}"
    for port in spec.get("ports") or () if spec.get("type") == "LoadBalancer" else ():
        if port["port"] in _PORTS_OF_NODES:
            yield f"port {port['port']} of nodes"


def ingress(body: Mapping[str, Any]) -> Iterator[str]:
    """Hosts, controllers and backends of others."""
    yield from metadata(body)
    spec = body["spec"]
    if spec.get("ingressClassName") != "public":
        yield f"class {spec.get('ingressClassName')}"
    if "kubernetes.io/ingress.class" in (body["metadata"].get("annotations") or {}):
        yield "class by annotation"
    if "defaultBackend" in spec:
        yield "a default backend"
    for rule in spec.get("rules") or ():
        yield from _host(rule.get("host", ""))
        if any("resource" in path["backend"] for path in rule.get("http", {}).get("paths", ())):
            yield "a backend that is no service"
    for tls in spec.get("tls") or ():
        for host in tls.get("hosts") or [""]:
            yield from _host(host)


def route(body: Mapping[str, Any]) -> Iterator[str]:
    """Gateways, hosts and services of others, and what a proxy would do."""
    yield from metadata(body)
    spec = body["spec"]
    for parent in spec.get("parentRefs") or [{}]:
        if {"group": "gateway.networking.k8s.io", "kind": "Gateway", **parent} != _GATEWAY:
            yield f"gateway {parent}"
    for host in spec.get("hostnames") or [""]:
        yield from _host(host)
    rules = spec.get("rules") or ()
    if len(rules) > 16:
        yield f"{len(rules)} rules"
    for rule in rules:
        for ref in rule.get("backendRefs") or ():
            if ref.get("namespace") or ref.get("kind", "Service") != "Service" or "filters" in ref:
                yield f"backend {ref}"
        yield from (f"filter {one['type']}" for one in rule.get("filters") or ())
        yield from (f"{field} of a rule" for field in rule if field not in ("backendRefs", "filters", "matches"))
        yield from (f"match {one}" for one in rule.get("matches") or () if one != _ROOT)


def _host(host: str) -> Iterator[str]:
    if host.split(".")[-len(HOSTS.split(".")) :] != HOSTS.split("."):
        yield f"host {host or 'of everybody'}"


def claim(body: Mapping[str, Any]) -> Iterator[str]:
    """Volumes, classes and data of others."""
    yield from metadata(body)
    spec, annotations = body["spec"], body["metadata"].get("annotations") or {}
    if spec.get("volumeName"):
        yield f"volume {spec['volumeName']}"
    if "selector" in spec:
        yield "a selector"
    if spec.get("storageClassName") != CLASS or "volume.beta.kubernetes.io/storage-class" in annotations:
        yield f"class {spec.get('storageClassName')} {annotations}"
    if spec.get("volumeAttributesClassName"):
        yield "a volume attributes class"
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        yield "data of another namespace"


def volume(body: Mapping[str, Any]) -> Iterator[str]:
    """A volume that a claim of a tenant has: all of them are others'."""
    owner = (body["spec"].get("claimRef") or {}).get("namespace", "default")
    if owner != "default":
        yield f"bound to a claim in {owner}"


def secret(body: Mapping[str, Any]) -> Iterator[str]:
    """Tokens of this cluster, and what is not known to be the tenant's."""
    yield from metadata(body)
    if "offloading.liqo.io/origin" not in (body["metadata"].get("labels") or {}):
        yield "nobody's"
    if body.get("type") == "kubernetes.io/service-account-token" or "token" in (body.get("data") or {}):
        yield "a token"


def slice_judge(lenders: tuple[str, ...]) -> Judge:
    """Return the judge of EndpointSlices at a cluster with these networks: pods, services, nodes."""
    networks = [ip_network(one) for one in lenders]

    def judge(body: Mapping[str, Any]) -> Iterator[str]:
        yield from metadata(body)
        if body["addressType"] == "FQDN":
            yield "names"
            return
        for endpoint in body.get("endpoints") or ():
            for text in endpoint["addresses"]:
                for one in _meant(ip_address(text)):
                    if any(one.version == net.version and one in net for net in networks):
                        yield f"{text} is the lender's"
                    if one.is_loopback or one.is_link_local or one.is_multicast or one.is_unspecified:
                        yield f"{text} is the node's or everybody's"
                    if str(one) in ("fd00:ec2::254", "255.255.255.255"):
                        yield f"{text} is the cloud's or everybody's"

    return judge


def _meant(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """Yield an address and those of IPv4 that it may lead to."""
    yield address
    if isinstance(address, IPv6Address):
        yield from filter(None, (address.ipv4_mapped, address.sixtofour))
        if any(address in one for one in _IN_IPV6) and int(address) > 1:
            yield IPv4Address(int(address) & 0xFFFFFFFF)
