"""What each tenant sees and where it asks, from the granted namespaces and the tenants' Services. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from liqod.model.ids import is_dns_label
from liqod.model.names import DNS_LABEL, DNS_SERVICE
from liqod.model.objects.granted_namespace import home_name_of, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.records.facts import OwnNetworks
from liqod.model.records.name_service import MAX_TENANTS, SLOTS, NameService
from liqod.model.records.network import Network
from liqod.names.translation import TenantView

EVERYWHERE: Final[tuple[Network, ...]] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
MAX_DNS: Final = 4
"""Servers that are asked at most, as many as may be configured."""


@frozen
class Table:
    """One tenant: the port at which it asks, and what it sees."""

    port: int
    view: TenantView


def tables(
    namespaces: Iterable[Object],
    services: Iterable[NameService],
    *,
    slot: int,
    domain: str,
    closed: tuple[Network, ...] = (),
) -> dict[str, Table]:
    """Return the table of each tenant that has a Service for a slot; ``domain`` is that of this cluster.

    A tenant whose port another one has is left out: who asks there would not be known.
    """
    granted = _by_tenant(namespaces)
    found: dict[str, Table] = {}
    taken: dict[int, str] = {}
    for service in sorted(services, key=lambda one: (one.metadata.creation_timestamp or "", one.tenant)):
        tenant, port = service.tenant, service.port
        if service.slot != slot or not port or taken.setdefault(port, tenant) != tenant:
            continue
        asks_home = tenant if service.home_server is not None else ""
        view = TenantView(service.domain, domain, granted.get(tenant, {}), closed, asks_home)
        found[tenant] = Table(port, view)
    return found


def closed_networks(own: OwnNetworks) -> tuple[Network, ...]:
    """Return the networks whose addresses have no names for tenants but their own: this cluster's, if they are known.

    While they are not, any address may be of a pod or a Service here.
    """
    return EVERYWHERE if own.unknown else (*own.pods, *own.services)


def dns_servers(services: Iterable[NameService]) -> tuple[tuple[str, int], ...]:
    """Return the cluster's own DNS servers out of Services of its namespace: that of the usual name, else by label."""
    by_name: dict[bool, list[str]] = {True: [], False: []}
    for one in sorted(services, key=lambda one: one.metadata.name):
        is_usual = one.metadata.name == DNS_SERVICE
        if one.spec.cluster_ip not in ("", "None") and (is_usual or one.metadata.labels.get(DNS_LABEL) == DNS_SERVICE):
            by_name[is_usual].append(one.spec.cluster_ip)
    return tuple((address, 53) for address in (by_name[True] or by_name[False])[:MAX_DNS])


def home_servers(services: Iterable[NameService]) -> list[tuple[str, int]]:
    """Return where control takes questions for homes, what most Services say first.

    Another daemon leads now and then: Services that it does not write, as of a tenant that is leaving, say the old one.
    """
    said = Counter(home for one in services if (home := one.home_server) is not None)
    return sorted(said, key=lambda place: (-said[place], place))


def free_ports(services: Iterable[NameService], first: int) -> Iterator[int]:
    """Yield the ports from ``first`` on at which no tenant asks."""
    taken = {one.port for one in services}
    yield from (port for port in range(first, first + MAX_TENANTS * len(SLOTS)) if port not in taken)


def _by_tenant(namespaces: Iterable[Object]) -> Mapping[str, dict[str, str]]:
    granted: dict[str, dict[str, str]] = {}
    # Where two were made for one namespace of home, the one counts that stays.
    for namespace in sorted(namespaces, key=lambda one: (not one.metadata.deleting, one.metadata.name)):
        home = home_name_of(namespace)
        if is_dns_label(home):
            granted.setdefault(tenant_of(namespace), {})[home] = namespace.metadata.name
    return granted
