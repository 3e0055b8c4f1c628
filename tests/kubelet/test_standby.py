"""What a daemon that stands by watches of virtual nodes, what it answers, and what a leader begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import Protocol

from liqod.config.schema import KubeletSettings, NetworkSettings, Settings
from liqod.flow.clocks import installed_reactor
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import CONFIGMAPS, NATTINGTABLES, VIRTUALNODES, Resource
from liqod.kubelet.lender import access
from liqod.kubelet.standby import StandbyKubelets
from liqod.model.ids import Key
from liqod.model.names import tenant_namespace
from tests.kubelet import cases
from tests.kubelet.reflection import sandboxes

READS = {"list", "watch", "get"}


class Recording(Client):
    """Notes what it lists, streamed or not."""

    lists: list[str]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lists = []

    async def watch(
        self, resource: Resource, namespace: str, parameters: Mapping[str, str], receiver: Protocol
    ) -> Callable[[], None]:
        if "sendInitialEvents" in parameters:
            self.lists.append(str(resource))
        return await super().watch(resource, namespace, parameters, receiver)


class StandbyTests(sandboxes.Sandboxes, cases.KubeletSides):
    """A standby beside a leader whose virtual node has pods."""

    standby: StandbyKubelets

    async def begin(self) -> None:
        await super().begin()
        await self.pod("web")
        await self.runs("web")
        data = {"metadata": {"name": "settings"}, "data": {"a": "1"}}
        await self.home.create(CONFIGMAPS, data, self.space)
        reactor = installed_reactor()
        self.second = Recording(self.home.config, reactor)
        self.addCleanup(self.second.close)
        self.lenders: list[Recording] = []
        self.patch(access, "Client", self.made)
        self.caches = Informers(self.second, reactor)
        kubelet = KubeletSettings(listen=self.listen, node_address="10.9.8.7", workers=8, lease_duration=12)
        self.standby = StandbyKubelets(
            reactor=reactor,
            home=self.second,
            informers=self.caches,
            settings=Settings(network=NetworkSettings(mode="none"), kubelet=kubelet),
            cluster_id=self.me,
            address="10.9.8.8",
        )
        self.caches.startService()
        self.standby.startService()
        self.addCleanup(self.end)
        self.web = Key(self.space, "web")

        async def knows() -> bool:
            route = self.standby.route(self.web)
            return route is not None and bool(route.there)

        await self.eventually(knows)

    def made(self, *args: Any, **options: Any) -> Recording:
        """Make a client of the lender."""
        client = Recording(*args, **options)
        self.lenders.append(client)
        return client

    async def end(self) -> None:
        if self.standby.running:
            await maybeDeferred(self.standby.stopService)
            await maybeDeferred(self.caches.stopService)

    async def test_what_it_answers(self) -> None:
        """Which pods there are, and the way to each, as the leader would; nothing is written for that anywhere."""
        self.assertEqual([one.metadata.name for one in self.standby.pods(self.node)], ["web"])
        self.assertEqual([one.metadata.name for one in self.standby.pods()], ["web"])
        self.assertEqual(list(self.standby.pods("another")), [])
        route = self.standby.route(self.web)
        assert route is not None and route.client is not None
        self.assertEqual((route.node, route.namespace, route.there), (self.node, self.remote, True))
        self.assertIsNone(self.standby.route(Key(self.space, "none")))
        (way,) = self.standby.accesses()
        self.assertEqual((way.node, way.client, way.namespaces), (self.node, route.client, {self.space: self.remote}))
        assert self.standby.api is not None
        self.assertGreater(self.standby.api.port, 0)
        await self.pause(1.0)
        for client in (self.second, *self.lenders):
            self.assertLessEqual({verb for verb, _ in client.requests}, READS)
        await self.pod("more")
        await self.runs("more")

        async def follows() -> bool:
            found = self.standby.route(Key(self.space, "more"))
            return found is not None and bool(found.there)

        await self.eventually(follows)

    async def test_what_it_follows(self) -> None:
        """A lender over its relay, a namespace that is released, and a record that goes are watched no longer."""
        await self.stop()
        (client,) = self.lenders
        where = tenant_namespace(self.peer)
        await self.home.patch(VIRTUALNODES, str(self.peer), {"status": {"api": "relay"}}, where, subresource="status")

        async def without_access() -> bool:
            return all(one.client is None for one in self.standby.accesses())

        await self.eventually(without_access)
        route = self.standby.route(self.web)
        assert route is not None
        self.assertEqual((route.client, route.namespace, route.there), (None, self.remote, None))
        await self.home.patch(VIRTUALNODES, str(self.peer), {"status": {"api": "direct"}}, where, subresource="status")

        async def with_access() -> bool:
            found = self.standby.route(self.web)
            return found is not None and bool(found.there)

        await self.eventually(with_access)
        self.assertIsNot(self.lenders[-1], client)
        refused = {"status": {"mappings": {self.space: {"phase": "Refused"}}}}
        await self.home.patch(NATTINGTABLES, str(self.peer), refused, subresource="status")

        async def without_namespace() -> bool:
            return self.standby.accesses()[0].namespaces == {}

        await self.eventually(without_namespace)
        await self.home.delete(VIRTUALNODES, str(self.peer), where)

        async def without_node() -> bool:
            return not list(self.standby.pods()) and not self.standby.accesses()

        await self.eventually(without_node)
        self.assertIsNone(self.standby.route(self.web))
        await self.start()

    async def test_what_a_leader_begins_with(self) -> None:
        """It lists none of what the standby watched, at home or at the lender, and goes on with the same pods."""
        there = await self.runs("web")
        await self.stop()
        self.second.kept.open()
        await self.end()
        self.second.kept.close()
        self.lenders.clear()

        def beginning(*args: Any) -> Recording:
            client = Recording(*args)
            client.kept = self.second.kept
            return client

        self.patch(cases, "Client", beginning)
        await self.start()
        await self.node_is("True")
        await self.pod("late")
        await self.runs("late")
        await self.settled()
        assert isinstance(self.client, Recording)
        watched = {"pods", "secrets", "configmaps", "virtualnodes", "shadowpods", "namespacenattingtables"}
        for client in (self.client, *self.lenders):
            self.assertEqual({kind.partition(".")[0] for kind in client.lists} & watched, set())
        after = await self.runs("web")
        self.assertEqual(after["metadata"]["uid"], there["metadata"]["uid"])
        self.assertEqual(after["status"]["containerStatuses"], there["status"]["containerStatuses"])
