"""The slice that leads a tenant's pods to streams, where there is no tunnel."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.hosting.endpointslice_forge import EndpointSlice
from liqod.hosting.home.api import HomeApiSlices, Place, service_key, slice_key
from liqod.model.ids import Key
from liqod.model.names import HOME_API_LABEL
from liqod.model.records.name_service import NameService

SERVICE = Key("shop-rome", "liqod-home-api")
HERE: Place = ("192.0.2.1", 5869)


class Cache:
    """An informer of one kind."""

    synced = True

    def __init__(self) -> None:
        self.objects: dict[Key, Any] = {}

    def get(self, key: Key) -> Any:
        return self.objects.get(key)

    def items(self) -> list[Any]:
        return list(self.objects.values())

    def subscribe(self, subscriber: Any) -> Any:
        return lambda: None


class Api:
    """Keeps slices."""

    def __init__(self, slices: Cache) -> None:
        self.slices = slices
        self.writes: list[str] = []
        self.body: dict[str, Any] = {}

    async def create(self, kind: Any, body: dict[str, Any], **how: Any) -> EndpointSlice:
        self.writes.append("create")
        return self._keep(body)

    async def patch(self, kind: Any, name: str, body: dict[str, Any], namespace: str, **how: Any) -> EndpointSlice:
        self.writes.append("patch")
        return self._keep({**self.body, **body})

    async def delete(self, kind: Any, name: str, namespace: str, **how: Any) -> None:
        self.writes.append("delete")
        self.slices.objects.pop(Key(namespace, name), None)

    def _keep(self, body: dict[str, Any]) -> EndpointSlice:
        self.body = body
        made = msgspec.convert(body, EndpointSlice)
        self.slices.objects[made.metadata.key] = made
        return made


class Around:
    """Namespaces and networks in one: one namespace of rome's, with or without a tunnel."""

    def __init__(self) -> None:
        self.tunnel = False
        self.tenant = "rome"

    def known_tenant(self, namespace: str) -> str:
        return self.tenant

    def is_terminating(self, namespace: str) -> bool:
        return False

    def has_tunnel(self, tenant: str) -> bool:
        return self.tunnel


class SliceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.services, self.slices, self.around = Cache(), Cache(), Around()
        self.api = Api(self.slices)
        self.place: Latest[Place | None] = Latest(HERE)
        self.controller = HomeApiSlices(
            cast(Any, self.api),
            Clock(),
            services=cast(Any, self.services),
            slices=cast(Any, self.slices),
            namespaces=cast(Any, self.around),
            networks=cast(Any, self.around),
            place=self.place,
        )
        self.service({HOME_API_LABEL: "true"})

    def service(self, labels: dict[str, str]) -> None:
        meta = {"name": SERVICE.name, "namespace": SERVICE.namespace, "uid": "u1", "labels": labels}
        self.services.objects[SERVICE] = msgspec.convert({"metadata": meta}, NameService)

    def step(self) -> EndpointSlice | None:
        """Reconcile, and return the slice that is there."""
        self.successResultOf(Deferred.fromCoroutine(self.controller.reconcile(SERVICE)))
        found: EndpointSlice | None = self.slices.get(slice_key(SERVICE))
        return found

    def test_it_leads_to_this_daemon(self) -> None:
        """Once: an equal slice is not written again."""
        self.step()
        body = self.api.body
        self.assertEqual((body["endpoints"][0]["addresses"], body["ports"][0]["port"]), (["192.0.2.1"], 5869))
        self.step()
        self.assertEqual(self.api.writes, ["create"])
        self.assertEqual(service_key(slice_key(SERVICE)), SERVICE)

    def test_another_daemon_leads(self) -> None:
        """The slice follows; while no daemon says where it is, it stays."""
        self.step()
        self.place.set(None)
        self.assertIsNotNone(self.step())
        self.place.set(("192.0.2.2", 5869))
        self.step()
        self.assertEqual(self.api.body["endpoints"][0]["addresses"], ["192.0.2.2"])

    def test_where_it_is_not_wanted(self) -> None:
        """With a tunnel, for another Service, in a namespace of no tenant: none, and one that is there goes."""
        for change in ("tunnel", "label", "tenant"):
            self.assertIsNotNone(self.step())
            if change == "tunnel":
                self.around.tunnel = True
            elif change == "label":
                self.service({})
            else:
                self.around.tenant = ""
            self.assertIsNone(self.step(), change)
            self.around.tunnel, self.around.tenant = False, "rome"
            self.service({HOME_API_LABEL: "true"})
