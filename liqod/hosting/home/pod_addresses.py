"""Whose pod has an address here: by the pods that were made for tenants, as their nodes report them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from liqod.hosting.tenants.namespaces import Namespaces
from liqod.kube.cache.informer import Informer
from liqod.model.addresses import parse_ip
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Object, View
from liqod.model.objects.pod_completion import FINISHED

_BY_ADDRESS: Final = "address"


class _Address(View, frozen=True):
    ip: str = ""


class _Spec(View, frozen=True):
    host_network: bool | None = None


class _Status(View, frozen=True):
    phase: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    pod_ips: list[_Address] | None = msgspec.field(name="podIPs", default=None)


class PlacedPod(Object, frozen=True):
    """A pod with its addresses, and nothing that is long."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that are its own: a finished pod has none any more, though its status still names one."""
        if self.status.phase in FINISHED or self.spec.host_network:
            return ()
        texts = {self.status.pod_ip or "", *(one.ip for one in self.status.pod_ips or ())}
        return tuple(str(address) for text in sorted(texts) if (address := parse_ip(text)) is not None)


def _addresses(pod: PlacedPod) -> Iterable[str]:
    return pod.addresses


class PodAddresses:
    """The pods of tenants, by address."""

    def __init__(self, pods: Informer[PlacedPod], namespaces: Namespaces) -> None:
        self._pods = pods
        self._namespaces = namespaces
        pods.add_index(_BY_ADDRESS, _addresses)

    def tenant_at(self, address: str) -> ClusterID | None:
        """Return the tenant whose pod alone has an address; None where it is nobody's, or of two tenants."""
        parsed = parse_ip(address)
        if parsed is None or not self._pods.synced:
            return None
        found = {
            self._namespaces.known_tenant(pod.metadata.namespace) or ""
            for pod in self._pods.by_index(_BY_ADDRESS, str(parsed))
        }
        tenant = found.pop() if len(found) == 1 else ""
        return ClusterID(tenant) if tenant else None
