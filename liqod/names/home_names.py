"""Home's side: answers a lender that asks for a name, from Services and EndpointSlices that are read for the question.

Nothing is watched for it: a Service is read by name, with the rights that reflection has anyhow, and kept for seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final, Literal, Protocol

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from liqod.kube.client import Client
from liqod.kube.errors import Forbidden
from liqod.kube.resources import ENDPOINTSLICES, SERVICES
from liqod.model.ids import ClusterID, Key
from liqod.model.names import SERVICE_NAME_LABEL
from liqod.model.records.name_service import HomeAnswer
from liqod.names.home_services import (
    NEGATIVE_TTL,
    NOTHING,
    HomeService,
    HomeSlice,
    Way,
    answer,
    parse,
    pointer,
)
from liqod.names.translation import PTR, address_of

API_SERVER: Final = Key("default", "kubernetes")
"""The Service of home's API server: every pod knows it, and programs have its name built in."""
KEPT: Final = 5.0
"""Seconds for which a Service that was read is used again."""
MOST_KEPT: Final = 1024
"""Services, and names without one, that are kept."""
MOST_SLICES: Final = 32
"""EndpointSlices of a headless Service that are looked at: 3,200 endpoints, of which 64 are answered."""


class HomeView(Protocol):
    """What is known here of a lender: ``agent.fabric_networks.LenderWays``."""

    def offloaded(self, lender: ClusterID) -> Collection[str]:
        """Return the namespaces whose pods may run there."""
        ...

    def way(self, lender: ClusterID) -> Way:
        """Return how its pods reach addresses of this cluster."""
        ...

    def original(self, lender: ClusterID, address: str) -> str:
        """Return the address of a Service here that its pods call by another one; nothing where it is none."""
        ...


@frozen
class _Read:
    """A Service as it was read, with its slices where it is headless, and until when it is used."""

    service: HomeService | None
    slices: tuple[HomeSlice, ...]
    until: float


class HomeNames:
    """Implements ``peering.ports.HomeNames``. ``expose``: of which namespaces' Services it answers for."""

    def __init__(self, client: Client, clock: IReactorTime, domain: str, expose: Literal["offloaded", "all"]) -> None:
        self._client = client
        self._clock = clock
        self._domain = domain
        self._expose = expose
        self._view: HomeView | None = None
        self._kept: OrderedDict[Key, _Read] = OrderedDict()

    def attach(self, view: HomeView) -> None:
        """Answer by what ``view`` knows of lenders; before, nothing is answered."""
        self._view = view

    async def answer(self, lender: ClusterID, name: str, kind: int) -> HomeAnswer:
        """Return what is known of a name; raises KubeError."""
        view = self._view
        if view is None:
            return _refused("NamesNotAnswered", "this cluster does not know its lenders yet; ask again")
        try:
            if kind == PTR:
                return await self._pointer(view, lender, name)
            asked = parse(name, self._domain)
            if asked is None:
                return NOTHING
            if not self._is_exposed(view, lender, Key(asked.namespace, asked.service)):
                # The same as of one that does not exist: who asks learns no names of namespaces.
                return NOTHING
            read = await self._read(Key(asked.namespace, asked.service))
            way = view.way(lender)
            return answer(asked, kind, read.service, read.slices, domain=self._domain, way=way)
        except Forbidden:
            return _refused("NotAllowed", "this cluster's daemon may not read Services: run liqodctl install there")

    def _is_exposed(self, view: HomeView, lender: ClusterID, service: Key) -> bool:
        return self._expose == "all" or service == API_SERVER or service.namespace in view.offloaded(lender)

    async def _read(self, key: Key) -> _Read:
        now = self._clock.seconds()
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            return kept
        found = await self._client.list(SERVICES, key.namespace, view=HomeService, fields=f"metadata.name={key.name}")
        service = next((one for one in found.items if one.metadata.name == key.name), None)
        slices: tuple[HomeSlice, ...] = ()
        if service is not None and service.spec.type != "ExternalName" and not service.addresses:
            labels = f"{SERVICE_NAME_LABEL}={key.name}"
            pieces = await self._client.list(ENDPOINTSLICES, key.namespace, view=HomeSlice, labels=labels)
            slices = tuple(pieces.items[:MOST_SLICES])
        read = _Read(service, slices, now + KEPT)
        self._kept[key] = read
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return read

    async def _pointer(self, view: HomeView, lender: ClusterID, name: str) -> HomeAnswer:
        address = address_of(name)
        if address is None:
            return NOTHING
        # By the address that it has here pods call it as well: it is in what they get from this cluster's API server.
        own = view.original(lender, str(address)) or str(address)
        found = await self._client.list(SERVICES, view=HomeService, fields=f"spec.clusterIP={own}")
        service = next((one for one in found.items if own in one.addresses), None)
        if service is None or not self._is_exposed(view, lender, service.metadata.key):
            return NOTHING
        return pointer(address, service, self._domain)


def _refused(reason: str, message: str) -> HomeAnswer:
    return HomeAnswer(ttl=NEGATIVE_TTL, reason=reason, message=message)
