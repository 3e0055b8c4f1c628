"""What an offer tells besides capacity, and what a record tells about the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings, SharingSettings
from liqod.flow.tasks import Tasks
from liqod.kube.errors import Unreachable
from liqod.kube.resources import INGRESSCLASSES, STORAGECLASSES, Resource
from liqod.kube.version import ServerVersion
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.objects.storage_class import StorageClass
from liqod.peering.lending.cluster_info import ClusterInfo
from tests.peering.clusters import PairCase, PeerCluster, settings

DEFAULT: Final = {"storageclass.kubernetes.io/is-default-class": "true"}


class ClusterInfoTests(PairCase):
    """Version and classes of the lender."""

    async def offered(self, alpha: PeerCluster, beta: PeerCluster, storage: list[str], ingress: list[str]) -> str:
        async def check() -> str:
            offer = (await alpha.offer_record(beta)).spec.offer
            reported = (offer.storage_classes, offer.ingress_classes) == (storage, ingress)
            return offer.kubernetes_version if reported else ""

        return await self.becomes(check, f"the offer names {storage} and {ingress}")

    async def test_an_offer_names_version_and_classes(self) -> None:
        """The first offer is complete, and a class that comes or goes is reported."""
        joining = settings(autojoin_untrusted=True)
        alpha, beta = await self.pair(joining, msgspec.structs.replace(joining, sharing=SharingSettings(percentage=30)))
        storage = {"metadata": {"name": "fast"}, "provisioner": "example.com/disk"}
        await beta.admin.create(STORAGECLASSES, storage)
        await beta.admin.create(INGRESSCLASSES, {"metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/nginx"}})
        await self.pause(0.3)
        alpha.sees(beta)
        version = await self.offered(alpha, beta, ["fast"], ["nginx"])
        self.assertTrue(version.startswith("v1."), version)
        self.assertEqual((await alpha.offer_record(beta)).spec.seq, 1)
        await beta.admin.create(STORAGECLASSES, {**storage, "metadata": {"name": "slow"}})
        await self.offered(alpha, beta, ["fast", "slow"], ["nginx"])
        await beta.admin.delete(INGRESSCLASSES, "nginx")
        await self.offered(alpha, beta, ["fast", "slow"], [])

    async def test_an_offer_names_granted_classes_only(self) -> None:
        """Classes that a borrower's claims may not be of are not offered, not even the default one."""
        joining = settings(autojoin_untrusted=True)
        granting = msgspec.structs.replace(joining, hosting=HostingSettings(storage_classes=["slow", "none"]))
        alpha, beta = await self.pair(joining, granting)
        for name, marks in (("fast", DEFAULT), ("slow", {})):
            metadata = {"name": name, "annotations": marks}
            await beta.admin.create(STORAGECLASSES, {"metadata": metadata, "provisioner": "example.com/disk"})
        alpha.sees(beta)
        await self.offered(alpha, beta, ["slow"], [])


def storage_class(name: str, created: str = "", *, policy: str = "Delete", **annotations: str) -> StorageClass:
    metadata = {"name": name, "creationTimestamp": created, "annotations": annotations}
    body = {"metadata": metadata, "provisioner": "example.com/disk", "reclaimPolicy": policy}
    return msgspec.convert(body, StorageClass)


class Classes:
    """The cache of a kind of classes; setting one notifies."""

    synced = True

    def __init__(self) -> None:
        self._cached: dict[Key, Any] = {}
        self._subscribers: list[Callable[[Key, Any, Any], None]] = []

    def put(self, *classes: Object) -> None:
        for new in classes:
            old = self._cached.get(new.key)
            self._cached[new.key] = new
            for subscriber in self._subscribers:
                subscriber(new.key, old, new)

    def subscribe(self, subscriber: Callable[[Key, Any, Any], None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: None

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    def items(self) -> list[Any]:
        return list(self._cached.values())


class Unsteady:
    """An API server that fails to tell its version some times, and its caches of classes."""

    def __init__(self, failures: int) -> None:
        self.asked: list[float] = []
        self._failures = failures
        self.clock = Clock()
        self.version = ServerVersion(self.fetch)
        self.tells = "v1.35.0"
        self.storage, self.ingress = Classes(), Classes()

    async def fetch(self) -> bytes:
        self.asked.append(self.clock.seconds())
        if len(self.asked) <= self._failures:
            raise Unreachable("no answer")
        return msgspec.json.encode({"gitVersion": self.tells})

    def of(self, resource: Resource, view: object) -> Classes:
        return self.storage if resource is STORAGECLASSES else self.ingress


class StorageClassTests(SynchronousTestCase):
    """Which classes are offered, and when that is news."""

    def setUp(self) -> None:
        server = Unsteady(failures=0)
        self.storage = server.storage
        self.info = ClusterInfo(cast(Any, server), cast(Any, server), server.clock, Tasks())
        self.info.start()
        self.addCleanup(self.info.stop)

    def test_the_class_that_claims_get_is_the_first(self) -> None:
        """Of several default classes the newest, as in Kubernetes; the others follow by their names."""
        self.storage.put(storage_class("archive", "2026-01-01T00:00:00Z", **DEFAULT))
        self.storage.put(storage_class("fast", "2026-03-01T00:00:00Z", **DEFAULT))
        self.storage.put(storage_class("slow", "2026-02-01T00:00:00Z", **DEFAULT))
        self.storage.put(storage_class("bulk", "2026-04-01T00:00:00Z"))
        self.assertEqual(self.info.about().storage_classes, ("fast", "archive", "bulk", "slow"))

    def test_classes_that_keep_volumes(self) -> None:
        """Not even the default one is offered, unless it is granted by its name."""
        classes = [storage_class("fast"), storage_class("kept", policy="Retain", **DEFAULT)]
        for granted, offered in (((), ("fast",)), (("kept", "fast"), ("kept", "fast")), (("kept",), ("kept",))):
            server = Unsteady(failures=0)
            server.storage.put(*classes)
            info = ClusterInfo(cast(Any, server), cast(Any, server), server.clock, Tasks(), granted=granted)
            self.assertEqual(info.about().storage_classes, offered)

    def test_another_default_class_is_news(self) -> None:
        """When another class becomes the default one it is notified at once, and no change that the offer lacks is."""
        self.storage.put(storage_class("fast", **DEFAULT), storage_class("slow"))
        notified: list[tuple[str, ...]] = []
        self.info.state.subscribe(lambda _: notified.append(self.info.about().storage_classes))
        self.storage.put(storage_class("slow", **{"example.com/note": "x"}))
        self.assertEqual(notified, [])
        self.storage.put(storage_class("fast"), storage_class("slow", **DEFAULT))
        self.assertEqual(notified, [("slow", "fast")])


class IngressClassTests(SynchronousTestCase):
    """Which ingress classes are offered, and in which order."""

    def test_the_class_of_ingresses_without_one_is_the_first(self) -> None:
        """Borrowers take the first; the others follow by their names, and none is offered that is not granted."""
        expected: dict[tuple[str, ...], tuple[str, ...]] = {
            (): ("public", "haproxy", "nginx"),
            ("nginx", "public"): ("public", "nginx"),
            ("nginx",): ("nginx",),
        }
        for granted, offered in expected.items():
            server = Unsteady(failures=0)
            marked = {"name": "public", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
            for metadata in ({"name": "nginx"}, marked, {"name": "haproxy"}):
                server.ingress.put(msgspec.convert({"metadata": metadata}, Object))
            info = ClusterInfo(cast(Any, server), cast(Any, server), server.clock, Tasks(), granted_ingress=granted)
            self.assertEqual(info.about().ingress_classes, offered)


class VersionTests(SynchronousTestCase):
    """An API server that does not answer at the start."""

    def test_the_version_is_asked_for_until_it_is_known(self) -> None:
        """The first offer waits for one answer only, a later one has the version; it is asked seldom, and not again."""
        server = Unsteady(failures=20)
        clock, tasks = server.clock, Tasks()
        info = ClusterInfo(cast(Any, server), cast(Any, server), clock, tasks)
        info.start()
        self.assertTrue(info.known)
        self.assertEqual(info.about().version, "")
        before = info.state.value
        clock.pump([10.0] * 720)
        self.assertEqual((info.about().version, len(server.asked)), ("v1.35.0", 21))
        self.assertNotEqual(info.state.value, before)
        self.assertGreater(server.asked[-1] - server.asked[-2], 60)
        info.stop()

    def test_upgrade(self) -> None:
        """An offer follows the version as it is found later."""
        server = Unsteady(failures=0)
        info = ClusterInfo(cast(Any, server), cast(Any, server), server.clock, Tasks())
        info.start()
        self.assertEqual(info.state.value[1].version, "v1.35.0")
        server.tells = "v1.36.0"
        self.successResultOf(Deferred.fromCoroutine(server.version.ask()))
        self.assertEqual(info.state.value[1].version, "v1.36.0")
        info.stop()

    def test_a_term_that_ends_asks_no_more(self) -> None:
        """Nothing is left of the attempts when their tasks are cancelled."""
        server = Unsteady(failures=20)
        tasks = Tasks()
        info = ClusterInfo(cast(Any, server), cast(Any, server), server.clock, tasks)
        info.start()
        server.clock.advance(3.0)
        info.stop()
        self.successResultOf(tasks.stopService())
        self.assertEqual(server.clock.getDelayedCalls(), [])


class NextAttemptTests(PairCase):
    """When it is tried again."""

    async def test_a_record_says_within_which_time_it_is_dialled_again(self) -> None:
        """A peer that is not there is dialled again, and its record says so, without being written at each attempt."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        beta_seen = beta.seen()
        await beta.stop()
        alpha.peering.update_candidates([beta_seen])
        record = await self.phase(alpha, beta, "Suspect")
        self.assertRegex(record.status.message, r"it is dialled again within \d+ s$")
        await self.pause(2.5)
        settled = await alpha.cluster_record(beta)
        await self.pause(2.0)
        after = await alpha.cluster_record(beta)
        self.assertEqual(after.metadata.resource_version, settled.metadata.resource_version)
