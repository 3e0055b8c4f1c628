"""What home answers of its Services: by the forms of Kubernetes' DNS, with addresses as pods at the lender call them.

Pure. Sources: Kubernetes DNS-Based Service Discovery (dns/docs/specification.md, 2.3 and 2.4), RFC 2782 (SRV).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from attrs import frozen

from liqod.model.addresses import Address, parse_ip
from liqod.model.ids import is_dns_label
from liqod.model.objects.meta import Object, View
from liqod.model.records.name_service import HomeAnswer, HomeRecord
from liqod.model.records.views import SliceEndpoint, SlicePort
from liqod.names.translation import PROTOCOLS, PTR, is_name

A, CNAME, AAAA, SRV = 1, 5, 28, 33
TTL: Final = 5
"""Seconds for which a lender may keep a record: endpoints change (CoreDNS has 5 by default too)."""
NEGATIVE_TTL: Final = 5
"""The same of a name that does not exist, or has no such record."""
MOST: Final = 64
"""Records in an answer (``wire.check.MAX_RECORDS``); a client tries a few of them."""
NOTHING: Final = HomeAnswer(ttl=NEGATIVE_TTL)
OTHER: Final = HomeAnswer(ttl=NEGATIVE_TTL, exists=True)


class ServicePort(View, frozen=True):
    """One port of a Service."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class ServiceSpec(View, frozen=True):
    """The part of a Service that its names follow from."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    external_name: str = ""
    ports: list[ServicePort] | None = None
    publish_not_ready_addresses: bool = False


class HomeService(Object, frozen=True):
    """A Service of this cluster."""

    spec: ServiceSpec = ServiceSpec()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its own addresses; none for a headless one."""
        own = self.spec.cluster_ips or [self.spec.cluster_ip]
        return tuple(one for one in own if parse_ip(one) is not None)


class HomeSlice(Object, frozen=True):
    """An EndpointSlice of such a Service."""

    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


@frozen
class ServiceName:
    """A name below this cluster's domain: of a Service, of one of its endpoints (``host``), or of a port (SRV)."""

    namespace: str
    service: str
    host: str = ""
    port: str = ""
    protocol: str = ""


@frozen
class Way:
    """How pods at a lender reach addresses of this cluster: each function returns one, or nothing while it does not.

    ``reason`` and ``message``: why Services are not reached, where that is so for all.
    """

    service: Callable[[str], str]
    endpoint: Callable[[str], str]
    reason: str = ""
    message: str = ""


def parse(name: str, domain: str) -> ServiceName | None:
    """Return what a name means below a domain; None for one of no Service."""
    if not name.endswith(f".svc.{domain}"):
        return None
    labels = name[: -len(f".svc.{domain}")].split(".")
    if not 2 <= len(labels) <= 4 or not all(is_dns_label(one) for one in labels[-2:]):
        return None
    service, namespace = labels[-2:]
    if len(labels) == 2:
        return ServiceName(namespace, service)
    if len(labels) == 3:
        return ServiceName(namespace, service, host=labels[0]) if is_dns_label(labels[0]) else None
    port, protocol = labels[:2]
    if port[:1] != "_" or protocol not in PROTOCOLS or not is_dns_label(port[1:]):
        return None
    return ServiceName(namespace, service, port=port[1:], protocol=protocol[1:].upper())


def answer(
    asked: ServiceName,
    kind: int,
    service: HomeService | None,
    slices: Sequence[HomeSlice],
    *,
    domain: str,
    way: Way,
) -> HomeAnswer:
    """Return what is answered of a Service and its slices, which are needed of a headless one alone."""
    if service is None:
        return NOTHING
    whole = f"{asked.service}.{asked.namespace}.svc.{domain}"
    if service.spec.type == "ExternalName":
        target = service.spec.external_name.rstrip(".").lower()
        # Kubernetes takes labels that are too long for DNS.
        if asked.host or asked.port or not is_name(target):
            return NOTHING
        # What it leads to is not looked up: that is up to who asked.
        return HomeAnswer(records=(HomeRecord(whole, CNAME, TTL, target),)) if kind in (A, AAAA, CNAME) else OTHER
    if way.reason:
        return HomeAnswer(ttl=NEGATIVE_TTL, reason=way.reason, message=way.message)
    if not service.addresses:
        return _headless(asked, kind, service, slices, whole=whole, way=way)
    if asked.host:
        return NOTHING
    if kind == SRV:
        return _found(_ports_of(asked, service, whole), otherwise=NOTHING if asked.port else OTHER)
    if asked.port:
        return OTHER if any(_ports_of(asked, service, whole)) else NOTHING
    return _addresses(whole, kind, service.addresses, way.service)


def pointer(address: Address, service: HomeService | None, domain: str) -> HomeAnswer:
    """Return the name of the Service that has an address (as lenders see it, ``address``)."""
    if service is None:
        return NOTHING
    meta = service.metadata
    target = f"{meta.name}.{meta.namespace}.svc.{domain}"
    if not is_name(target):
        return NOTHING
    return HomeAnswer(records=(HomeRecord(address.reverse_pointer, PTR, TTL, target),))


def _headless(
    asked: ServiceName, kind: int, service: HomeService, slices: Sequence[HomeSlice], *, whole: str, way: Way
) -> HomeAnswer:
    endpoints = list(_endpoints(service, slices))
    if asked.host:
        endpoints = [(host, address, ports) for host, address, ports in endpoints if host == asked.host]
    if not endpoints:
        return NOTHING
    if kind == SRV:
        wanted = (asked.port, asked.protocol)
        records = (
            HomeRecord(_owner(asked, whole), SRV, TTL, f"0 100 {port.port} {host}.{whole}")
            for host, _, ports in endpoints
            if is_name(f"{host}.{whole}")
            for port in ports
            if port.port and port.name and wanted in (("", ""), (port.name, port.protocol))
        )
        return _found(records, otherwise=NOTHING if asked.port else OTHER)
    if asked.port:
        return OTHER
    owner = f"{asked.host}.{whole}" if asked.host else whole
    return _addresses(owner, kind, [address for _, address, _ in endpoints], way.endpoint)


def _endpoints(service: HomeService, slices: Sequence[HomeSlice]) -> Iterator[tuple[str, str, Sequence[SlicePort]]]:
    """Yield name, address and ports of each endpoint that is to be called."""
    for piece in slices:
        for endpoint in piece.endpoints or ():
            if endpoint.conditions.ready is False and not service.spec.publish_not_ready_addresses:
                continue
            for text in endpoint.addresses:
                address = parse_ip(text)
                if address is not None:
                    # In full, so that no label ends in a hyphen.
                    dashed = address.exploded.replace(".", "-").replace(":", "-")
                    yield endpoint.hostname or dashed, str(address), piece.ports or ()


def _ports_of(asked: ServiceName, service: HomeService, whole: str) -> Iterator[HomeRecord]:
    for port in service.spec.ports or ():
        if not port.name or not port.port:
            continue
        if asked.port and (asked.port, asked.protocol) != (port.name, port.protocol):
            continue
        yield HomeRecord(_owner(asked, whole), SRV, TTL, f"0 100 {port.port} {whole}")


def _owner(asked: ServiceName, whole: str) -> str:
    if asked.port:
        return f"_{asked.port}._{asked.protocol.lower()}.{whole}"
    return f"{asked.host}.{whole}" if asked.host else whole


def _addresses(owner: str, kind: int, own: Iterable[str], seen_as: Callable[[str], str]) -> HomeAnswer:
    version = {A: 4, AAAA: 6}.get(kind)
    fitting = [one for one in own if (parsed := parse_ip(one)) is not None and parsed.version == version]
    if not fitting:
        return OTHER
    seen = sorted({there for one in fitting if (there := seen_as(one))})
    if not seen:
        return HomeAnswer(
            ttl=NEGATIVE_TTL, reason="NotReached", message="pods at the lender do not reach its address, or not yet"
        )
    return HomeAnswer(records=tuple(HomeRecord(owner, kind, TTL, one) for one in seen[:MOST]))


def _found(records: Iterable[HomeRecord], *, otherwise: HomeAnswer) -> HomeAnswer:
    # An endpoint of two slices, one for each IP version, has each port once.
    found = tuple(one for _, one in zip(range(MOST), dict.fromkeys(records), strict=False))
    return HomeAnswer(records=found) if found else otherwise
