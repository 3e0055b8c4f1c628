"""The provisioner's queue on the sandbox's API server: one lender that does not answer, and all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import TestCase

from liqod.config.schema import StorageSettings
from liqod.demo.access import client_config
from liqod.flow.clocks import installed_reactor
from liqod.flow.controller import Outcome
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import NotFound, ServerError, from_status
from liqod.kube.resources import NODES, PERSISTENTVOLUMES, STORAGECLASSES, Resource
from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.volume_provisioner import LenderStorage, VolumeProvisioner
from liqod.model.ids import ClusterID, Key
from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL, PROVISIONER, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from tests.hosting.side import Events
from tests.waiting import becomes


class LenderApi:
    """A lender's API server that has no claim any more; a slow one answers when the test says so."""

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow
        self.asked: list[Deferred[None]] = []
        self.most = 0

    async def get(self, resource: object, name: str, namespace: str, *, view: object) -> Object:
        if self.slow:
            waiting: Deferred[None] = Deferred()
            self.asked.append(waiting)
            self.most = max(self.most, len(self.asked))
            try:
                await waiting
            finally:
                self.asked.remove(waiting)
        raise NotFound(404, "NotFound", f"{name} not found")


class FailingApi(LenderApi):
    """A lender's API server that is up, and fails."""

    async def get(self, resource: object, name: str, namespace: str, *, view: object) -> Object:
        raise ServerError(503, "ServiceUnavailable", "etcd is away")


class Gate:
    """Lets everything be deleted; a closed one holds what it is asked for."""

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed
        self.held: set[str] = set()

    def observe_deletion(self, *about: object, **more: object) -> None:
        """Note nothing."""

    register = observe_deletion

    def forget(self, kind: str, key: Key, *, gone: bool = False) -> None:
        self.held.discard(key.name)

    def may_delete(self, kind: str, key: Key) -> bool:
        if self.closed:
            self.held.add(key.name)
        return not self.closed


class Steps:
    """Counts the steps of the provisioner."""

    def __init__(self) -> None:
        self.taken = 0

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        self.taken += 1


class Lenders:
    """Lenders by their cluster ID."""

    synced = True

    def __init__(self, apis: Mapping[str, LenderApi]) -> None:
        self.apis = apis
        self.gate = Gate()

    def storage_of(self, peer: ClusterID) -> LenderStorage:
        context = Context(ClusterID("home"), peer, str(peer))
        return LenderStorage(context, {"shop": "shop-home"}, cast(Any, self.apis[peer]), cast(Any, self.gate))

    def is_lender(self, peer: ClusterID) -> bool:
        return peer in self.apis

    def storage_classes(self, peer: str) -> list[str]:
        return []

    def is_offloaded(self, namespace: str) -> bool:
        return True


class SlowLenderTests(TestCase):
    """Many volumes to delete."""

    timeout = 60

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        cluster = SandboxCluster(reactor, "home", [])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.client = Client(client_config(cluster), reactor)
        informers = Informers(self.client, reactor)
        self.apis = {"slow": LenderApi(slow=True), "quick": LenderApi(slow=False)}
        self.lenders = Lenders(self.apis)
        self.steps = Steps()
        self.provisioner = VolumeProvisioner(
            installed_reactor(),
            self.client,
            informers,
            settings=StorageSettings(),
            nodes=informers.of(NODES, Object),
            recorder=Events(),
            lenders=self.lenders,
            metrics=self.steps,
        )

        async def end() -> None:
            self.apis["slow"].slow = False
            for waiting in list(self.apis["slow"].asked):
                waiting.callback(None)
            await self.provisioner.stopService()
            await informers.stopService()
            await self.client.close()

        self.addCleanup(end)
        informers.startService()

    async def volume(self, name: str, lender: str) -> None:
        """Create a volume whose claim is gone."""
        labels = {MANAGED_BY_LABEL: FIELD_MANAGER, REMOTE_CLUSTER_LABEL: lender}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/none"},
            "claimRef": {"namespace": "shop", "name": name, "uid": name},
        }
        await self.client.create(PERSISTENTVOLUMES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        status = {"status": {"phase": "Released"}}
        await self.client.patch(PERSISTENTVOLUMES, name, status, subresource="status")

    async def left(self) -> set[str]:
        return {one["metadata"]["name"] for one in (await self.client.list(PERSISTENTVOLUMES)).items}

    async def looked_at(self, number: int) -> None:
        """Wait until so many steps ended; that of a lender that does not answer goes on."""

        async def enough() -> bool:
            return self.steps.taken >= number

        await becomes(enough, "every volume was looked at", 20)

    async def test_a_class_that_is_not_made_at_first(self) -> None:
        """Where the API server fails the class for claims is created later."""
        create, failed = self.client.create, list[str]()

        async def failing(resource: Resource, *given: Any, **options: Any) -> Any:
            if resource is STORAGECLASSES and not failed:
                failed.append(resource.plural)
                raise from_status(500, b'{"message": "etcd is elsewhere"}')
            return await create(resource, *given, **options)

        self.patch(self.client, "create", failing)
        self.provisioner.startService()

        async def made() -> bool:
            return StorageSettings().virtual_class in [
                one["metadata"]["name"] for one in (await self.client.list(STORAGECLASSES)).items
            ]

        await becomes(made, "the class is there", 10)

    async def test_the_newest_default_class_decides(self) -> None:
        """Of several default classes a claim without one gets the newest, as in Kubernetes."""
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        for name, provisioner in (("ours", PROVISIONER), ("disk", "example.com/disk"), ("last", PROVISIONER)):
            metadata = {"name": name, "annotations": default if name != "last" else {}}
            await self.client.create(STORAGECLASSES, {"metadata": metadata, "provisioner": provisioner})
        self.provisioner.startService()

        async def known() -> bool:
            return self.provisioner.follows("last")

        await becomes(known, "all classes are in the cache", 10)
        self.assertTrue(self.provisioner.follows("ours"))
        self.assertFalse(self.provisioner.follows(""))

    async def test_others_do_not_wait(self) -> None:
        """Twenty volumes of a lender that does not answer keep one worker; those of another one go, and then theirs."""
        slow = {f"a{number}" for number in range(20)}
        for name in sorted(slow):
            await self.volume(name, "slow")
        await self.volume("z", "quick")
        self.provisioner.startService()

        async def gone() -> bool:
            return await self.left() == slow

        await becomes(gone, "the other lender's volume is deleted", 10)
        self.assertEqual(self.apis["slow"].most, 1)
        self.apis["slow"].slow = False
        for waiting in list(self.apis["slow"].asked):
            waiting.callback(None)

        async def empty() -> bool:
            return not await self.left()

        await becomes(empty, "all volumes are deleted", 20)

    async def test_another_node_of_the_lender_is_asked(self) -> None:
        """A volume that waits at one virtual node does not when another one, which is asked instead, lets it go."""
        first = self.lenders.gate = Gate(closed=True)
        await self.volume("z", "quick")
        self.provisioner.startService()

        async def waits() -> bool:
            return first.held == {"z"}

        await becomes(waits, "the deletion is held", 10)
        self.lenders.gate = Gate()
        self.provisioner.enqueue(Key("", "z"))

        async def gone() -> bool:
            return not await self.left()

        await becomes(gone, "the volume is deleted", 10)
        self.assertEqual(first.held, set())

    async def test_a_refusal_is_logged_once(self) -> None:
        """A lender that refuses again and again is one warning for each volume, not one for each attempt."""
        self.apis["quick"] = FailingApi(slow=False)
        await self.volume("z", "quick")
        with capturedLogs() as events:
            self.provisioner.startService()
            for attempt in range(1, 4):
                await self.looked_at(attempt)
                self.provisioner.enqueue(Key("", "z"))
        refused = [one for one in events if one.get("name") == "z"]
        self.assertEqual([one["log_level"] for one in refused], [LogLevel.warn])

    async def test_waiting_costs_nothing(self) -> None:
        """Hundreds of volumes of a lender that does not answer wait without being looked at; then all of them go."""
        for number in range(500):
            await self.volume(f"a{number:03}", "slow")
        self.provisioner.startService()
        await self.looked_at(499)
        await deferLater(installed_reactor(), 5.0)
        self.assertLess(self.steps.taken, 600)
        self.assertEqual(self.apis["slow"].most, 1)
        self.apis["slow"].slow = False
        for waiting in list(self.apis["slow"].asked):
            waiting.callback(None)

        async def empty() -> bool:
            return not await self.left()

        await becomes(empty, "all volumes are deleted", 30)

    async def test_a_turn_that_is_not_taken(self) -> None:
        """Volumes that are kept, or gone, when their turn comes do not stop those behind them."""
        for name in ("a", "b", "c", "d"):
            await self.volume(name, "slow")
        self.provisioner.startService()
        await self.looked_at(3)
        await self.client.patch(PERSISTENTVOLUMES, "b", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
        await self.client.delete(PERSISTENTVOLUMES, "c")
        self.apis["slow"].slow = False
        for waiting in list(self.apis["slow"].asked):
            waiting.callback(None)

        async def kept() -> bool:
            return await self.left() == {"b"}

        await becomes(kept, "the last one is deleted", 10)

    async def test_stopped_while_volumes_wait(self) -> None:
        """A provisioner that is started again deletes what waited when it was stopped."""
        for name in ("a", "b", "c"):
            await self.volume(name, "slow")
        self.provisioner.startService()
        await self.looked_at(2)
        await self.provisioner.stopService()
        self.apis["slow"].slow = False
        self.provisioner.startService()

        async def empty() -> bool:
            return not await self.left()

        await becomes(empty, "all volumes are deleted", 10)
