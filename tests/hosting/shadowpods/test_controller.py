"""When the pods of ShadowPods are created, and in which order, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from liqod.audit.events import NO_AUDIT, Audit
from liqod.hosting.shadowpods.controller import RETRY_RECLAIMED, SETTLING, ShadowPods
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.reclaim_orders import ReclaimOrders
from liqod.hosting.views import Pod
from liqod.kube.errors import AlreadyExists, NotFound, from_status
from liqod.kube.resources import PODS, Resource
from liqod.model.ids import ClusterID, Key
from liqod.model.names import ORIGIN_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.node import Node
from liqod.model.objects.tenant_nodes import CONTROL_PLANE
from liqod.model.records.views import ForeignCluster, Reclaim, ShadowPod, ShadowPodSpec, ShadowPodStatus

KEY = Key("shop", "web")
REQUEST = 0.01
"""Seconds that the server takes to answer a request."""


class Cache:
    """An informer that holds what it is given."""

    def __init__(self) -> None:
        self.held: dict[Key, Any] = {}
        self.synced = True
        self.subscribers: list[Callable[[Key, Any, Any], None]] = []

    def get(self, key: Key) -> Any:
        return self.held.get(key)

    def items(self) -> list[Any]:
        return list(self.held.values())

    def keys(self) -> list[Key]:
        return list(self.held)

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    def subscribe(self, subscriber: Callable[[Key, Any, Any], None]) -> Callable[[], None]:
        for key, value in self.held.items():
            subscriber(key, None, value)
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def put(self, new: Any) -> None:
        """Change an object and notify the subscribers."""
        key = new.metadata.key
        old = self.held.get(key)
        self.held[key] = new
        for subscriber in list(self.subscribers):
            subscriber(key, old, new)

    def remove(self, key: Key) -> None:
        """Remove an object and notify the subscribers."""
        old = self.held.pop(key)
        for subscriber in list(self.subscribers):
            subscriber(key, old, None)


class Server:
    """Answers requests after a while: creates every pod, stores every status, and has no nodes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.created: list[tuple[str, float]] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.deleted: list[tuple[str, int | None]] = []
        self.patches = 0
        self.statuses: list[Any] = []
        self.drops_whole = False
        """Whether ``spec.resources`` of a pod is dropped, as before Kubernetes 1.34."""
        self.failing = 0
        """Deletions that will fail."""
        self.pods: Cache | None = None
        """Where a watch shows the pods that are created and deleted; None: nowhere."""
        self.shadows: Cache | None = None
        """Where a watch shows statuses; None: nowhere."""
        self.hidden: Pod | None = None
        """A pod that has the name although no watch shows it."""

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str, **options: Any) -> Pod:
        await deferLater(self.clock, REQUEST)
        if self.hidden is not None:
            raise cast(AlreadyExists, from_status(409, b'{"reason": "AlreadyExists", "message": "it is there"}'))
        self.created.append((body["metadata"]["name"], self.clock.seconds()))
        self.bodies.append(body)
        uid = f"p{len(self.bodies)}"
        made = {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": "9"}}
        if self.drops_whole:
            made["spec"] = {name: value for name, value in body["spec"].items() if name != "resources"}
        pod = msgspec.convert(made, Pod)
        if self.pods is not None:
            self.pods.put(pod)
        return pod

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str, **options: Any) -> ShadowPod:
        await deferLater(self.clock, REQUEST)
        self.patches += 1
        self.statuses.append(body.get("status"))
        if self.shadows is not None:
            held = self.shadows.get(Key(namespace, name))
            metadata = msgspec.structs.replace(held.metadata, resource_version=str(self.patches + 1))
            merged = {**msgspec.to_builtins(held.status), **body["status"]}
            status = msgspec.convert({k: v for k, v in merged.items() if v is not None}, ShadowPodStatus)
            new: ShadowPod = msgspec.structs.replace(held, metadata=metadata, status=status)
            self.shadows.put(new)
            return new
        meta = ObjectMeta(name=name, namespace=namespace, uid=body["metadata"]["uid"], resource_version="99")
        return ShadowPod(metadata=meta)

    async def get(self, resource: Resource, name: str, namespace: str = "", **options: Any) -> Any:
        if resource is PODS and self.hidden is not None:
            return self.hidden
        raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))

    async def delete(self, resource: Resource, name: str, namespace: str, **options: Any) -> None:
        assert resource is PODS
        if self.failing:
            self.failing -= 1
            raise from_status(500, b'{"message": "etcd is elsewhere"}')
        if self.pods is not None:
            self.pods.remove(Key(namespace, name))
        self.deleted.append((name, options["grace"]))
        self.hidden = None


class Events:
    """Keeps the reasons of what is recorded."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: Any = None
    ) -> None:
        self.reasons.append(reason)


def shadow(key: Key = KEY, tenant: str = "borrower", **fields: Any) -> ShadowPod:
    """Return a ShadowPod as a watch shows it."""
    spec = {"containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}], **fields}
    meta = ObjectMeta(
        name=key.name, namespace=key.namespace, uid=f"u-{key}", resource_version="1", labels={ORIGIN_LABEL: tenant}
    )
    return ShadowPod(metadata=meta, spec=ShadowPodSpec(pod=msgspec.Raw(msgspec.json.encode(spec))))


def running(key: Key = KEY, **metadata: Any) -> Pod:
    """Return the pod that runs for the ShadowPod of its name."""
    owner = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "uid": f"u-{key}", "controller": True}
    whole = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": f"p-{key}",
        "resourceVersion": "2",
        "labels": {"liqo.io/managed-by": "shadowpod"},
        "ownerReferences": [owner],
        **metadata,
    }
    return msgspec.convert({"metadata": whole, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}, Pod)


def namespace(name: str, tenant: str) -> Object:
    """Return a namespace that was granted to a tenant."""
    labels, annotations = {REMOTE_CLUSTER_LABEL: tenant}, {ORIGINAL_NAME_ANNOTATION: name}
    return Object(metadata=ObjectMeta(name=name, labels=labels, annotations=annotations))


def offer(tenant: str, cpu: str) -> ForeignCluster:
    """Return the record of a tenant to which CPU is lent."""
    return msgspec.convert(
        {"metadata": {"name": tenant}, "status": {"lent": {"resources": {"cpu": cpu}}}}, ForeignCluster
    )


class ControllerCases(SynchronousTestCase):
    """A controller with caches, a server and a clock of its own; no case."""

    workers = 1
    audit: Audit = NO_AUDIT
    name_servers: Any = None

    def setUp(self) -> None:
        self.clock = Clock()
        self.shadows, self.pods, self.namespaces, self.foreign, self.nodes = (Cache() for _ in range(5))
        self.server = Server(self.clock)
        self.events = Events()
        self.date = datetime(2030, 1, 1, tzinfo=UTC)
        self.namespaces.held[Key("", "shop")] = namespace("shop", "borrower")
        self.foreign.held[Key("", "borrower")] = offer("borrower", "5")

    def start(self) -> None:
        client: Any = self.server
        caches: list[Any] = [self.shadows, self.pods, self.namespaces, self.foreign, self.nodes]
        self.controller = ShadowPods(
            client,
            self.clock,
            shadows=caches[0],
            pods=caches[1],
            nodes=caches[4],
            namespaces=Namespaces(client, caches[2], Contract(), [], peers=tuple),
            offers=TenantOffers(caches[3]),
            orders=ReclaimOrders(caches[3], self.clock, lambda: self.date),
            recorder=self.events,
            workers=self.workers,
            name_servers=self.name_servers,
            wall=lambda: self.date,
            audit=self.audit,
        )
        self.addCleanup(self.controller.stopService)
        self.controller.startService()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in steps that are short beside what is waited for."""
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.clock.advance(min(REQUEST / 4, end - self.clock.seconds()))
        self.clock.pump([0.0] * 4)


class WholePodTests(ControllerCases):
    """Requests and limits of a pod as a whole."""

    WHOLE: Final[dict[str, Any]] = {"limits": {"cpu": "1"}}

    def put(self) -> None:
        self.server.pods, self.server.shadows = self.pods, self.shadows
        self.shadows.put(shadow(resources=self.WHOLE, containers=[{"name": "main", "image": "web:1"}]))
        self.start()

    def test_an_api_server_that_drops_them(self) -> None:
        """The pod would have no limit: it is deleted, and refused; not created again before some minutes."""
        self.server.drops_whole = True
        self.put()
        self.pass_time(60.0)
        self.assertEqual((len(self.server.created), self.server.deleted), (1, [("web", 1)]))
        self.assertEqual(self.pods.held, {})
        reported = self.server.statuses[-1]
        self.assertEqual((reported["phase"], reported["reason"]), ("Pending", "InvalidPod"))
        self.assertIn("spec.resources", reported["message"])
        self.assertEqual(self.controller.capacity.used(ClusterID("borrower")).get("cpu", 0), 0)
        # Others of the kind need not be created to know that.
        self.shadows.put(shadow(Key("shop", "other"), resources=self.WHOLE))
        self.pass_time(10.0)
        self.assertEqual(len(self.server.created), 1)
        self.assertEqual(self.server.statuses[-1]["reason"], "InvalidPod")

    def test_a_deletion_that_fails(self) -> None:
        """It is tried again until the pod is gone."""
        self.server.drops_whole, self.server.failing = True, 3
        self.put()
        self.pass_time(60.0)
        self.assertEqual((len(self.server.created), self.server.deleted), (1, [("web", 1)]))

    def test_an_upgrade(self) -> None:
        """Once the API server keeps them the pod runs; and others run everywhere."""
        self.server.drops_whole = True
        self.put()
        self.pass_time(10.0)
        self.server.drops_whole = False
        self.shadows.put(shadow(Key("shop", "other")))
        self.pass_time(600.0)
        self.assertEqual(set(self.pods.held), {Key("shop", "web"), Key("shop", "other")})
        self.assertEqual(self.server.deleted, [("web", 1)])


class ControlPlaneTests(ControllerCases):
    """Whether a pod may be placed on the control plane is decided when it is created."""

    def created_with(self, *nodes: dict[str, str]) -> str:
        """Return the node affinity of a pod that is created in a cluster with nodes of these labels."""
        for number, labels in enumerate(nodes):
            made = {"metadata": {"name": f"n{number}", "labels": labels}}
            self.nodes.put(msgspec.convert(made, Node))
        self.shadows.put(shadow())
        self.start()
        self.pass_time(1.0)
        (body,) = self.server.bodies
        return str(body["spec"]["affinity"]["nodeAffinity"])

    def test_the_only_node(self) -> None:
        """It is used although it is the control plane's."""
        self.assertNotIn("control-plane", self.created_with({CONTROL_PLANE[0]: ""}))

    def test_with_another_node(self) -> None:
        """Where there is another one, the control plane's is not."""
        self.assertIn("control-plane", self.created_with({CONTROL_PLANE[0]: ""}, {}))


class FollowingTests(ControllerCases):
    """A pod follows its ShadowPod; a pod that was compared is not compared again before something changed."""

    def setUp(self) -> None:
        super().setUp()
        self.patches: list[Any] = []

        async def patch(resource: Resource, name: str, body: Any, namespace: str, **options: Any) -> Any:
            await deferLater(self.clock, REQUEST)
            self.patches.append(body)

        self.server.patch = patch  # type: ignore[method-assign]

    def labelled(self, value: str) -> ShadowPod:
        one = shadow()
        labels = {**one.metadata.labels, "step": value}
        return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))

    def shown(self, **metadata: Any) -> Pod:
        """Return the pod as the API server made it, in another state."""
        (body,) = self.server.bodies
        changed = {**body["metadata"], "uid": "p1", "resourceVersion": "10", **metadata}
        return msgspec.convert({**body, "metadata": changed, "status": {"phase": "Running"}}, Pod)

    def test_a_pod_that_follows_is_left_alone(self) -> None:
        """Its own events change nothing; a change of the ShadowPod does, and one of what it was made from."""
        self.shadows.put(shadow())
        self.start()
        self.pass_time(1.0)
        self.pods.put(self.shown())
        self.pass_time(1.0)
        self.assertEqual(self.patches, [])
        self.shadows.put(self.labelled("1"))
        self.pass_time(1.0)
        (patch,) = self.patches
        self.assertIn({"op": "add", "path": "/metadata/labels/step", "value": "1"}, patch)
        self.shadows.put(shadow())
        self.pass_time(1.0)
        self.assertEqual(len(self.patches), 1, "the pod is shown as it was made")
        self.pods.put(self.shown(annotations={}))
        self.pass_time(1.0)
        self.assertEqual(len(self.patches), 2, "somebody took away what it was made from")

    def test_a_change_while_the_pod_is_created(self) -> None:
        """What the ShadowPod became while the request was under way is not taken for what the pod was made from."""
        self.shadows.put(shadow())
        self.start()
        self.pass_time(REQUEST / 2)
        self.shadows.put(self.labelled("2"))
        self.pass_time(REQUEST)
        self.pods.put(self.shown())
        self.pass_time(1.0)
        (patch,) = self.patches
        self.assertIn({"op": "add", "path": "/metadata/labels/step", "value": "2"}, patch)


class SettlingTests(ControllerCases):
    """The garbage collector sees a ShadowPod before it sees the pod."""

    def test_a_new_one_settles(self) -> None:
        """The pod of a ShadowPod that appears is created once, when the moment is over and not before."""
        self.start()
        self.pass_time(1.0)
        self.shadows.put(shadow())
        self.pass_time(SETTLING / 2)
        self.assertEqual(self.server.created, [])
        self.pass_time(SETTLING + REQUEST)
        self.assertEqual([name for name, _ in self.server.created], ["web"])
        self.pass_time(1.0)
        self.assertEqual(len(self.server.created), 1)

    def test_what_was_there_before_has_settled(self) -> None:
        """What a daemon finds when it starts waits for nothing."""
        self.shadows.put(shadow())
        self.start()
        self.pass_time(REQUEST + REQUEST / 2)
        self.assertEqual(len(self.server.created), 1)
        self.assertEqual(self.events.reasons, ["CreatedPod"], "it is created as it was asked for")

    def test_a_pod_that_no_watch_shows(self) -> None:
        """A pod that was created counts as there for half a minute; lost without a trace it is created again."""
        self.shadows.put(shadow())
        self.start()
        self.pass_time(25.0)
        self.assertEqual(len(self.server.created), 1)
        self.pass_time(10.0)
        self.assertEqual(len(self.server.created), 2)


class NameTests(ControllerCases):
    """The name has a pod already, which no watch shows."""

    def hide(self, owner: str, managed: bool = True) -> None:
        """Let a pod of a ShadowPod with this UID have the name."""
        controller = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "uid": owner, "controller": True}
        labels = {"liqo.io/managed-by": "shadowpod"} if managed else {}
        metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": "p0", "resourceVersion": "2", "labels": labels}
        self.server.hidden = msgspec.convert({"metadata": {**metadata, "ownerReferences": [controller]}}, Pod)
        self.shadows.put(shadow())
        self.start()
        self.pass_time(5.0)

    def test_of_an_earlier_shadow_pod(self) -> None:
        """It goes, as its ShadowPod went, and the pod that is wanted takes its place."""
        self.hide("u-earlier")
        self.assertEqual([name for name, _ in self.server.deleted], ["web"])
        self.assertEqual([name for name, _ in self.server.created], ["web"])

    def test_of_this_shadow_pod(self) -> None:
        """It is the one that is wanted: nothing is deleted, and nothing created beside it."""
        self.hide(f"u-{KEY}")
        self.assertEqual((self.server.deleted, self.server.created), ([], []))

    def test_of_somebody_else(self) -> None:
        """It stays, and the ShadowPod says that its name is taken."""
        self.hide("u-earlier", managed=False)
        self.assertEqual((self.server.deleted, self.server.created), ([], []))
        self.assertEqual(self.server.statuses[0]["reason"], "NameTaken")


class ReclaimedTests(ControllerCases):
    """A tenant of which everything is taken back gets no new pods here."""

    def order(self, by: str | None) -> None:
        record = offer("borrower", "5")
        spec = msgspec.structs.replace(record.spec, reclaim=None if by is None else Reclaim(by=by))
        self.foreign.put(msgspec.structs.replace(record, spec=spec))

    def test_until_the_order_is_taken_back(self) -> None:
        """A pod is neither created nor, when its eviction is over, created again; without the order it is."""
        self.start()
        self.shadows.put(shadow(Key("shop", "early")))
        self.order("2030-01-01T00:01:00Z")
        self.pass_time(2 * SETTLING)
        self.assertEqual([name for name, _ in self.server.created], ["early"], "the notice is not over")
        self.order("2030-01-01T00:00:00Z")
        self.shadows.put(shadow(Key("shop", "late")))
        self.pass_time(2 * SETTLING + 2 * RETRY_RECLAIMED)
        self.assertEqual([name for name, _ in self.server.created], ["early"])
        self.order(None)
        self.pass_time(RETRY_RECLAIMED + 1.0)
        self.assertEqual([name for name, _ in self.server.created], ["early", "late"])


class FairnessTests(ControllerCases):
    """Tenants take turns."""

    def test_a_thousand_refused_ones_delay_nobody(self) -> None:
        """With a thousand ShadowPods of one tenant being refused, another tenant's pod is created within two turns."""
        self.namespaces.held[Key("", "other")] = namespace("other", "second")
        self.foreign.held[Key("", "second")] = offer("second", "5")
        self.foreign.held[Key("", "borrower")] = offer("borrower", "0")
        self.start()
        for number in range(1000):
            self.shadows.put(shadow(Key("shop", f"greedy-{number}")))
        self.pass_time(2 * SETTLING)
        begun = self.clock.seconds()
        self.shadows.put(shadow(Key("other", "modest"), "second"))
        self.pass_time(SETTLING + 10 * REQUEST)
        ((name, at),) = self.server.created
        self.assertEqual(name, "modest")
        self.assertLessEqual(at - begun, SETTLING + 4 * REQUEST)
        self.assertLess(self.server.patches, 100, "the other tenant still waits for its turns")

    def test_what_is_new_after_a_restart(self) -> None:
        """A pod that is to start, or to end, is not behind the hundreds of its own tenant that run."""
        taken: list[str] = []

        async def reconcile(_: ShadowPods, key: Key) -> None:
            taken.append(key.name)
            await deferLater(self.clock, REQUEST)

        self.patch(ShadowPods, "reconcile", reconcile)
        for number in range(300):
            key = Key("shop", f"runs-{number}")
            self.shadows.put(shadow(key))
            self.pods.put(running(key))
        # What has ended has no pod, and needs none.
        for number in range(300):
            ended = shadow(Key("shop", f"ended-{number}"))
            self.shadows.put(replace(ended, status=ShadowPodStatus(phase="Succeeded")))
        self.shadows.put(shadow(Key("shop", "zz-new")))
        self.pods.put(running(Key("shop", "zz-orphan")))
        self.start()
        self.pass_time(8 * REQUEST)
        for name in ("zz-new", "zz-orphan"):
            self.assertIn(name, taken[:5])
        self.pass_time(1000 * REQUEST)
        self.assertEqual((len(taken), len(set(taken))), (602, 602))


class LostNodeTests(ControllerCases):
    """A pod whose node is lost gives its name free."""

    def terminating(self) -> Pod:
        return running(deletionTimestamp="2030-01-01T00:00:10Z")

    def test_after_its_grace_and_a_minute(self) -> None:
        """It is force-deleted a minute after the date at which its grace period ends, whatever the clock says."""
        self.shadows.put(shadow())
        self.pods.put(self.terminating())
        self.start()
        self.pass_time(0.1)
        self.assertEqual(self.server.deleted, [])
        self.date = datetime(2030, 1, 1, 0, 1, 11, tzinfo=UTC)
        self.clock.advance(70.0)
        self.pass_time(0.1)
        self.assertEqual(self.server.deleted, [("web", 0)])

    def test_a_pod_of_others(self) -> None:
        """A pod that no ShadowPod controls is left to others, also where a ShadowPod of its name is deleted or done."""
        record, own = shadow(), self.terminating()
        foreign = replace(own, metadata=replace(own.metadata, labels={}))
        self.pods.put(foreign)
        self.start()
        deleted = replace(record.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
        for one in (replace(record, metadata=deleted), replace(record, status=ShadowPodStatus(phase="Succeeded"))):
            self.shadows.put(one)
            self.controller.enqueue(KEY)
            self.pass_time(0.1)
            self.date = datetime(2030, 1, 1, 1, tzinfo=UTC)
            self.clock.advance(200.0)
            self.pass_time(0.1)
            self.assertEqual(self.server.deleted, [])

    def test_the_date_is_set(self) -> None:
        """It keeps that time when the date is set forward meanwhile."""
        self.shadows.put(shadow())
        self.pods.put(self.terminating())
        self.start()
        self.pass_time(0.1)
        self.date = datetime(2030, 1, 1, 1, tzinfo=UTC)
        self.controller.enqueue(KEY)
        self.pass_time(65.0)
        self.assertEqual(self.server.deleted, [])
        self.pass_time(10.0)
        self.assertEqual(self.server.deleted[:1], [("web", 0)])
