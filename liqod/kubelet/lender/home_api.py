"""Determines the addresses by which offloaded pods reach the API server of their home cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import ENDPOINTSLICES
from liqod.kubelet.common.context import ApiServer
from liqod.model.addresses import is_ip
from liqod.model.names import SERVICE_NAME_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.views import SliceEndpoint, SlicePort

NAMESPACE: Final = "default"
SERVICE: Final = "kubernetes"
HTTPS: Final = 443
MAX_ADDRESSES: Final = 8
"""Maximum number of addresses for one pod."""


class _Slice(Object, frozen=True):
    """An EndpointSlice of the service ``kubernetes``, in which every API server publishes its own address."""

    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class HomeApi:
    """The addresses of the home API server: from ``url`` if configured, else published ones, else from ``known``.

    ``slices`` publish them.
    """

    def __init__(self, informers: Informers, url: str, known: str) -> None:
        self._configured = _of_url(url) if url else None
        self._known = _of_url(known)
        labels = f"{SERVICE_NAME_LABEL}={SERVICE}"
        self.slices: Informer[_Slice] = informers.of(ENDPOINTSLICES, _Slice, namespace=NAMESPACE, labels=labels)

    def server(self, export_address: Callable[[str], str]) -> ApiServer:
        """Return the API server as a lender's pods reach it; untranslated addresses are used unchanged."""
        server = self._configured or self._published() or self._known
        addresses = tuple(export_address(address) or address for address in server.addresses)
        return ApiServer(addresses, server.port, server.name)

    def own_server(self) -> ApiServer:
        """Return the API server as pods of this cluster reach it; what is configured is for those outside."""
        return self._published() or self._known

    def _published(self) -> ApiServer | None:
        addresses: dict[str, None] = {}
        port = HTTPS
        for each in self.slices.items():
            for endpoint in each.endpoints or ():
                if endpoint.conditions.ready is not False:
                    addresses |= dict.fromkeys(endpoint.addresses)
            port = next((p.port for p in each.ports or () if p.port), port)
        return ApiServer(tuple(sorted(addresses)[:MAX_ADDRESSES]), port) if addresses else None


def _of_url(url: str) -> ApiServer:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or HTTPS
    return ApiServer((host,), port) if is_ip(host) else ApiServer((), port, name=host)
