"""When the slice of a ShadowEndpointSlice is made and deleted as its Service comes and goes, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.hosting.endpointslice_forge import EndpointSlice
from liqod.hosting.endpointslices import AWAITED, ShadowEndpointSlices
from liqod.kube.resources import Resource
from liqod.model.ids import Key
from liqod.model.names import SERVICE_NAME_LABEL
from liqod.model.records.name_service import NameService
from liqod.model.records.views import ShadowEndpointSlice
from tests.hosting.shadowpods.test_controller import Cache, Events
from tests.hosting.test_slices import ONE, shadow, slice_for

SERVICE: NameService = msgspec.convert({"metadata": {"name": "db", "namespace": "shop-home"}}, NameService)
KEY = Key("shop-home", "db-1")


class IndexedCache(Cache):
    """An informer with indexes, and whose first list may be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Deferred[None] = succeed(None)
        self._values: dict[str, Callable[[Any], Iterable[Hashable]]] = {}

    def when_synced(self) -> Deferred[None]:
        return self.listed

    def add_index(self, name: str, values: Callable[[Any], Iterable[Hashable]]) -> None:
        self._values[name] = values

    def by_index(self, name: str, value: Hashable) -> list[Any]:
        return [one for one in self.held.values() if value in self._values[name](one)]

    def remove(self, key: Key) -> None:
        old = self.held.pop(key)
        for subscriber in list(self.subscribers):
            subscriber(key, old, None)


class Server:
    """Keeps slices, which the watch shows at once, and notes what it is asked for."""

    def __init__(self, slices: IndexedCache) -> None:
        self.slices = slices
        self.requests: list[str] = []

    async def create(self, resource: Resource, body: Any, namespace: str, *, view: Any) -> EndpointSlice:
        self.requests.append("create")
        metadata = {**body["metadata"], "uid": f"r{len(self.requests)}", "resourceVersion": "1"}
        made = msgspec.convert({**body, "metadata": metadata}, EndpointSlice)
        self.slices.put(made)
        return made

    async def patch(self, resource: Resource, name: str, patch: Any, namespace: str, *, view: Any) -> EndpointSlice:
        self.requests.append("patch")
        before = self.slices.get(Key(namespace, name))
        labels = {**before.metadata.labels, **patch["metadata"]["labels"]}
        made: EndpointSlice = msgspec.structs.replace(
            before, metadata=msgspec.structs.replace(before.metadata, labels=labels)
        )
        self.slices.put(made)
        return made

    async def delete(self, resource: Resource, name: str, namespace: str, *, uid: str) -> None:
        self.requests.append(f"delete {uid}")
        self.slices.remove(Key(namespace, name))


class SlicesOfServicesTests(SynchronousTestCase):
    """One slice of one Service."""

    def setUp(self) -> None:
        self.clock, self.events = Clock(), Events()
        self.shadows, self.slices, self.services = IndexedCache(), IndexedCache(), IndexedCache()
        self.server = Server(self.slices)
        self.record: ShadowEndpointSlice = shadow(endpoints=[ONE], ports=[{"port": 80}])

    def start(self) -> None:
        async def tenant_of(namespace: str) -> str:
            return "home"

        async def prepare() -> None:
            return None

        namespaces = SimpleNamespace(
            informer=Cache(), known_tenant=lambda name: "home", is_terminating=lambda name: False, tenant_of=tenant_of
        )
        networks = SimpleNamespace(
            facts=Cache(),
            nodes=Cache(),
            tunnels=None,
            decisions=None,
            prepare=prepare,
            is_awaited=False,
            objection=lambda tenant, address: "",
        )
        controller = ShadowEndpointSlices(
            cast(Any, self.server),
            self.clock,
            shadows=cast(Any, self.shadows),
            slices=cast(Any, self.slices),
            services=cast(Any, self.services),
            namespaces=cast(Any, namespaces),
            networks=cast(Any, networks),
            lost=Latest({}),
            recorder=cast(Any, self.events),
            workers=1,
        )
        controller.startService()
        self.addCleanup(controller.stopService)
        self.clock.advance(0)

    def requests(self) -> list[str]:
        self.clock.pump([0.1] * 5)
        return self.server.requests

    def test_any_order(self) -> None:
        """The slice is made by one request when both are there, whichever comes first."""
        self.start()
        self.shadows.put(self.record)
        self.assertEqual(self.requests(), [])
        self.services.put(SERVICE)
        self.assertEqual(self.requests(), ["create"])

    def test_the_service_first(self) -> None:
        """A Service that changes asks for nothing."""
        self.start()
        self.services.put(SERVICE)
        self.shadows.put(self.record)
        self.services.put(msgspec.structs.replace(SERVICE))
        self.assertEqual(self.requests(), ["create"])

    def test_a_slice_of_none(self) -> None:
        """A slice that names no Service joins none, and is made."""
        self.start()
        self.shadows.put(
            msgspec.structs.replace(self.record, metadata=msgspec.structs.replace(self.record.metadata, labels={}))
        )
        self.assertEqual(self.requests(), ["create"])

    def test_after_a_start(self) -> None:
        """Nothing is deleted before the Services are known; then what joins one that is no tenant's goes."""
        self.services.listed = Deferred()
        self.shadows.put(self.record)
        self.slices.put(slice_for(self.record))
        self.start()
        self.assertEqual(self.requests(), [])
        self.services.listed.callback(None)
        self.assertEqual(self.requests(), ["delete r1"])
        self.clock.advance(AWAITED)
        self.assertEqual(self.requests(), ["delete r1", "create"])
        self.assertNotIn(SERVICE_NAME_LABEL, self.slices.get(KEY).metadata.labels)

    def test_a_slice_of_a_service_after_a_start(self) -> None:
        """A slice of a tenant's Service stays as it is."""
        self.shadows.put(self.record)
        self.slices.put(slice_for(self.record))
        self.services.put(SERVICE)
        self.start()
        self.assertEqual(self.requests(), [])

    def test_the_service_goes_and_comes(self) -> None:
        """The slice goes with it, and is made again at once."""
        self.start()
        self.services.put(SERVICE)
        self.shadows.put(self.record)
        self.assertEqual(self.requests(), ["create"])
        self.services.remove(SERVICE.metadata.key)
        self.assertEqual(self.requests(), ["create", "delete r1"])
        self.services.put(SERVICE)
        self.assertEqual(self.requests(), ["create", "delete r1", "create"])

    def test_many_at_a_time(self) -> None:
        """While other Services of its namespace come, its own is on its way."""
        self.start()
        self.shadows.put(self.record)
        for number in range(4):
            self.clock.advance(AWAITED * 0.7)
            key = msgspec.structs.replace(SERVICE.metadata, name=f"other-{number}")
            self.services.put(msgspec.structs.replace(SERVICE, metadata=key))
            self.assertEqual((self.requests(), self.events.reasons), ([], []))
        elsewhere = msgspec.structs.replace(SERVICE.metadata, namespace="another")
        self.clock.advance(AWAITED * 0.5)
        self.services.put(msgspec.structs.replace(SERVICE, metadata=elsewhere))
        self.clock.advance(AWAITED * 0.5)
        self.assertEqual((self.requests(), self.events.reasons), (["create"], ["NoService"]))

    def test_what_waits(self) -> None:
        """It is said when it has waited for a while, not while the borrower writes both."""
        self.start()
        self.shadows.put(self.record)
        self.assertEqual((self.requests(), self.events.reasons), ([], []))
        self.clock.advance(AWAITED)
        self.assertEqual((self.requests(), self.events.reasons), (["create"], ["NoService"]))
        self.assertNotIn(SERVICE_NAME_LABEL, self.slices.get(KEY).metadata.labels)
        self.services.put(SERVICE)
        self.assertEqual(self.requests(), ["create", "patch"])
        self.assertEqual(self.slices.get(KEY).metadata.labels[SERVICE_NAME_LABEL], "db")
