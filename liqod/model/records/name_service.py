"""The Services by which pods of a tenant ask for names: their names, labels and views. Pure.

Each tenant has one Service for each slot, in its tenant namespace, all without selector. Control writes them and their
EndpointSlices; the processes that answer read the Services, and say by a Lease for each slot where they are.
"""

from __future__ import annotations

import re
from typing import Final

import attrs
import msgspec

from liqod.model.addresses import is_ip
from liqod.model.host_port import split_address
from liqod.model.names import REMOTE_CLUSTER_LABEL, tenant_namespace
from liqod.model.objects.meta import Object, View
from liqod.model.records.views import SliceEndpoint, SlicePort

SLOTS: Final = (1, 2)
"""A pod gets two name servers, so that one may be away."""
LABEL: Final = "liqo.io/name-service"
"""On the Services and EndpointSlices; its value is the slot."""
DOMAIN_ANNOTATION: Final = "offloading.liqo.io/cluster-domain"
"""On a ShadowPod and on a tenant's Services: the domain of the tenant's own cluster."""
ADDRESSES_ANNOTATION: Final = "liqo.io/name-service-addresses"
"""On a Lease: the addresses of the process that answers, with commas between them."""
PORTS_ANNOTATION: Final = "liqo.io/name-service-ports"
"""On a Lease: the ports at which the process answers, with commas between them."""
HOME_ANNOTATION: Final = "liqo.io/name-service-home"
"""On a tenant's Services: where control takes questions for the tenant's home, an address and a port."""
MAX_TENANTS: Final = 256
"""Tenants that have a name service; each has a port in every process."""
DEFAULT_DOMAIN: Final = "cluster.local"
_DOMAIN: Final = re.compile(r"(?=.{1,128}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")


def is_domain(text: str) -> bool:
    """Return whether a text can be the domain of a cluster: lower case, without a dot at its end, 128 characters."""
    return _DOMAIN.fullmatch(text) is not None


def object_name(slot: int) -> str:
    """Return the name of the Service, the EndpointSlice and the Lease of a slot."""
    return f"liqod-names-{slot}"


class ServicePort(View, frozen=True):
    """One port of a Service; ``target_port`` is where the processes listen for its tenant."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    target_port: int | str = 0


class ServiceSpec(View, frozen=True):
    """The addresses and ports of a Service."""

    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: list[ServicePort] = []


class _OfTenant(Object, frozen=True):
    """What control made for a tenant, or something with the same labels."""

    @property
    def tenant(self) -> str:
        """The ID of the cluster whose pods ask here; empty for what is not in the tenant namespace of that cluster.

        Tenants cannot write there: in a namespace that was granted to one it could name another tenant.
        """
        tenant = self.metadata.labels.get(REMOTE_CLUSTER_LABEL, "")
        return tenant if tenant and self.metadata.namespace == tenant_namespace(tenant) else ""


class NameService(_OfTenant, frozen=True):
    """A Service of a tenant for a slot."""

    spec: ServiceSpec = ServiceSpec()

    @property
    def slot(self) -> int:
        """The slot; 0 for none that there is."""
        text = self.metadata.labels.get(LABEL, "")
        return next((slot for slot in SLOTS if str(slot) == text), 0)

    @property
    def port(self) -> int:
        """The port at which the processes listen for the tenant; 0 while there is none, and without a tenant."""
        ports = {one.target_port for one in self.spec.ports}
        (port,) = ports if len(ports) == 1 else (0,)
        return port if isinstance(port, int) and self.tenant else 0

    @property
    def home_server(self) -> tuple[str, int] | None:
        """Where control takes questions for the tenant's home; None where it takes none."""
        return home_server_of(self) if self.tenant else None

    @property
    def domain(self) -> str:
        """The domain of the tenant's own cluster."""
        return domain_of(self)


def home_server_of(thing: Object) -> tuple[str, int] | None:
    """Return where control takes questions for homes, as a Service says it; None where it takes none."""
    try:
        host, port = split_address(thing.metadata.annotations.get(HOME_ANNOTATION, ""))
    except ValueError:
        return None
    return (host, port) if is_ip(host) else None


def domain_of(thing: Object) -> str:
    """Return the domain of the tenant's own cluster as a ShadowPod or a Service says it; the usual one by default."""
    said = thing.metadata.annotations.get(DOMAIN_ANNOTATION, "")
    return said if is_domain(said) else DEFAULT_DOMAIN


class LeaseSpec(View, frozen=True):
    """Who holds a Lease, for how many seconds after its last renewal (RFC 3339)."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str | None = None


class NameLease(Object, frozen=True):
    """By which the process of a slot says where it answers."""

    spec: LeaseSpec = LeaseSpec()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the process."""
        return _listed(self.metadata.annotations.get(ADDRESSES_ANNOTATION, ""))

    @property
    def ports(self) -> frozenset[int]:
        """The ports at which the process answers."""
        listed = _listed(self.metadata.annotations.get(PORTS_ANNOTATION, ""))
        return frozenset(int(one) for one in listed if one.isascii() and one.isdecimal() and len(one) < 6)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


class NameSlice(_OfTenant, frozen=True):
    """The EndpointSlice of such a Service."""

    address_type: str = "IPv4"
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None

    @property
    def ready(self) -> tuple[str, ...]:
        """The addresses at which a process answers."""
        return tuple(address for one in self.endpoints or () if one.conditions.ready for address in one.addresses)


@attrs.frozen
class HomeRecord:
    """One record: its type by number (RFC 1035, 3.2.2), and its text as in NameAnswer (docs/protocol.md)."""

    name: str
    kind: int
    ttl: int
    data: str


@attrs.frozen(kw_only=True)
class HomeAnswer:
    """Records, or none for ``ttl`` seconds, or a reason why nothing is said.

    ``exists``: without records, that the name has others (RFC 2308, NODATA).
    """

    records: tuple[HomeRecord, ...] = ()
    ttl: int = 0
    exists: bool = False
    reason: str = ""
    message: str = ""
