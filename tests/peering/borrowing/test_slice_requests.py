"""A borrower's slices: asked for in each session, shown by virtual nodes, and given back in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.kube.errors import Invalid, NotFound
from liqod.kube.resources import NODES, RESOURCESLICES, VIRTUALNODES, Resource
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.model.ids import ClusterID, Key
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod
from liqod.model.records.offer import Offer
from liqod.model.records.views import (
    Advertisement,
    AdvertisementSpec,
    AdvertisementStatus,
    ForeignCluster,
    ResourceSlice,
    VirtualNode,
)
from liqod.peering.borrowing.slice_plan import FINALIZER
from liqod.peering.borrowing.slice_requests import SliceRequests
from liqod.peering.controller import PACE
from liqod.wire.events import AskSlice, RemoveSlice, SliceDecided
from tests.peering.clusters import context_of

V = TypeVar("V")
ROME = ClusterID("rome")
SPACE = "liqo-system"
OFFER = Advertisement(
    spec=AdvertisementSpec(cluster_id=ROME, offer=Offer(resources={"cpu": "10", "nvidia.com/gpu": "2"})),
    status=AdvertisementStatus(phase="Accepted"),
)


class Home:
    """The API server of home, whose watches are never late; ``refuses`` makes it take no VirtualNode."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], dict[str, Any]] = {}
        self.version = 1
        self.refuses = False

    def put(self, resource: Resource, name: str, body: dict[str, Any], namespace: str = SPACE) -> None:
        self.version += 1
        meta = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(self.version)}
        held = {**body, "metadata": {**meta, **body.get("metadata", {})}}
        self.objects[resource.plural, Key(namespace, name)] = held

    def informer(self, resource: Resource, view: type[V]) -> Any:
        def found() -> dict[Key, V]:
            held = [(key, body) for (plural, key), body in self.objects.items() if plural == resource.plural]
            return {key: msgspec.convert(body, view) for key, body in held}

        return SimpleNamespace(
            get=lambda key: found().get(key),
            items=lambda: list(found().values()),
            keys=lambda: list(found()),
            synced=True,
        )

    async def create(self, resource: Resource, body: dict[str, Any], namespace: str, *, view: type[V]) -> V:
        if self.refuses:
            raise Invalid(422, "Invalid", "spec.taints: no")
        self.put(resource, body["metadata"]["name"], body, namespace)
        return msgspec.convert(self.objects[resource.plural, Key(namespace, body["metadata"]["name"])], view)

    async def patch(
        self, resource: Resource, name: str, patch: dict[str, Any], namespace: str, *, view: type[V], **more: str
    ) -> V:
        key = resource.plural, Key(namespace, name)
        if key not in self.objects:
            raise NotFound(404, "NotFound", name)
        self.version += 1
        patch = {**patch, "metadata": {**patch["metadata"], "resourceVersion": str(self.version)}}
        body = self.objects[key] = apply_merge_patch(self.objects[key], patch)
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            del self.objects[key]
        return msgspec.convert(body, view)

    async def delete(self, resource: Resource, name: str, namespace: str, *, uid: str) -> None:
        self.objects.pop((resource.plural, Key(namespace, name)), None)


class Session:
    """A session with a lender of some minor; ``sent`` is what it gets."""

    def __init__(self, minor: int = 2) -> None:
        self.minor = minor
        self.writable = True
        self.sent: list[AskSlice | RemoveSlice] = []

    def send(self, event: AskSlice | RemoveSlice) -> bool:
        self.sent.append(event)
        return True

    def said(self) -> list[AskSlice | RemoveSlice]:
        """Return what was said since the last look."""
        sent, self.sent = self.sent, []
        return sent


class RequestTests(SynchronousTestCase):
    """Slices of one lender."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.home = Home()
        self.session = Session()
        self.offer: Advertisement | None = OFFER
        self.peer = SimpleNamespace(id=ROME, session=self.session)
        self.cluster: ForeignCluster | None = ForeignCluster()
        records = SimpleNamespace(get=lambda peer: self.cluster, offer_of=lambda peer: self.offer)
        self.requests = SliceRequests(
            context_of(self.clock, {ROME: cast(Any, self.peer)}, self.home),
            records=cast(Any, records),
            slices=self.home.informer(RESOURCESLICES, ResourceSlice),
            virtual_nodes=self.home.informer(VIRTUALNODES, VirtualNode),
            nodes=self.home.informer(NODES, Node),
            pods=self.home.informer(Resource("", "v1", "pods", "Pod", True), Pod),
        )

    def make(self, name: str, cpu: str = "4", *, generation: int = 1) -> None:
        spec = {"providerClusterID": ROME, "resources": {"cpu": cpu}, "virtualNode": {"labels": {"pool": name}}}
        self.home.put(RESOURCESLICES, name, {"metadata": {"generation": generation}, "spec": spec})

    def step(self) -> After | None:
        self.clock.advance(PACE)
        return self.successResultOf(Deferred.fromCoroutine(self.requests.reconcile(ROME)))

    def hears(self, *events: SliceDecided) -> None:
        for event in events:
            self.requests.decision_received(cast(Any, self.peer), event)
        self.step()

    def status(self, name: str) -> tuple[str, str, dict[str, str]]:
        status = self.home.objects["resourceslices", Key(SPACE, name)].get("status", {})
        return status.get("phase", ""), status.get("reason", ""), status.get("resources", {})

    def node(self, name: str) -> dict[str, Any] | None:
        body = self.home.objects.get(("virtualnodes", Key(SPACE, name)))
        return None if body is None else body["spec"]

    def granted(self, *names: str) -> None:
        for name in names:
            self.make(name)
        self.step()
        self.hears(*(SliceDecided(name, 1, "Granted", {"cpu": "4"}) for name in names))
        self.session.said()

    def test_asked_and_shown(self) -> None:
        """The finalizer is there before anything is asked; the node comes with the grant, and follows it."""
        self.make("gpu")
        self.step()
        self.assertEqual(self.session.said(), [AskSlice("gpu", "default", {"cpu": "4"}, 1)])
        self.assertEqual(self.home.objects["resourceslices", Key(SPACE, "gpu")]["metadata"]["finalizers"], [FINALIZER])
        self.assertEqual((self.status("gpu"), self.node("gpu")), (("Pending", "Asked", {}), None))
        self.hears(SliceDecided("gpu", 1, "Reduced", {"cpu": "3"}, "ClassLimit", "as much as there is"))
        self.assertEqual(self.status("gpu"), ("Reduced", "ClassLimit", {"cpu": "3"}))
        spec = self.node("gpu")
        assert spec is not None
        self.assertEqual(spec["limits"], {"cpu": "3", "nvidia.com/gpu": "0"})
        self.assertEqual((spec["nodeName"], spec["labels"], spec["clusterID"]), ("gpu", {"pool": "gpu"}, ROME))
        self.hears(SliceDecided("gpu", 1, "Granted", {"cpu": "4"}))
        self.assertEqual((self.node("gpu") or {})["limits"]["cpu"], "4")
        self.assertEqual(self.session.said(), [])

    def test_asked_again_in_each_session(self) -> None:
        """And not of a release that does not know slices; what was granted stays meanwhile."""
        self.granted("gpu")
        for session, sent in ((None, 0), (Session(minor=1), 0), (Session(), 1)):
            self.peer.session = session
            self.step()
            self.assertEqual(len(session.said()) if session is not None else 0, sent)
            self.assertEqual(self.status("gpu"), ("Granted", "", {"cpu": "4"}))
            self.assertEqual((self.node("gpu") or {})["limits"]["cpu"], "4")

    def test_a_decision_about_nothing(self) -> None:
        """One about a slice that there is not, or that another revision asked for, changes nothing."""
        self.granted("gpu")
        self.hears(SliceDecided("other", 1, "Granted", {"cpu": "1"}), SliceDecided("gpu", 7, "Granted", {"cpu": "1"}))
        self.assertEqual(self.status("gpu"), ("Granted", "", {"cpu": "4"}))
        self.assertIsNone(self.node("other"))

    def test_given_back_in_order(self) -> None:
        """The VirtualNode, then the Node, then the amount; the record goes last, and nothing of the other changes."""
        self.granted("one", "two")
        others = {key: body for key, body in self.home.objects.items() if key[1].name == "two"}
        labels = {REMOTE_CLUSTER_LABEL: ROME, TYPE_LABEL: VIRTUAL_NODE_TYPE}
        self.home.put(NODES, "one", {"metadata": {"labels": labels}}, "")
        held = self.home.objects["resourceslices", Key(SPACE, "one")]
        held["metadata"] = {**held["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}
        self.step()
        self.assertEqual((self.node("one"), self.session.said()), (None, []))
        self.step()
        self.assertEqual((self.status("one")[:2], self.session.said()), (("Removing", "Draining"), []))
        del self.home.objects["nodes", Key("", "one")]
        self.step()
        self.assertEqual(self.session.said(), [RemoveSlice("one", 1)])
        self.assertEqual(self.status("one"), ("Removing", "WaitingForLender", {"cpu": "4"}))
        self.hears(SliceDecided("one", 1, "Removed"))
        self.assertNotIn(("resourceslices", Key(SPACE, "one")), self.home.objects)
        self.assertEqual({key: body for key, body in self.home.objects.items() if key[1].name == "two"}, others)

    def test_given_back_without_a_lender(self) -> None:
        """A record waits for a lender that is away, and not for one whose peering or offer ended."""
        for end in ("cluster", "offer", "old"):
            self.setUp()
            self.granted("one")
            held = self.home.objects["resourceslices", Key(SPACE, "one")]
            held["metadata"] = {**held["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}
            self.peer.session = None
            self.step()
            self.step()
            self.assertEqual(self.status("one")[:2], ("Removing", "WaitingForLender"))
            if end == "cluster":
                self.cluster = None
            elif end == "offer":
                self.offer = msgspec.structs.replace(OFFER, status=AdvertisementStatus(phase="Withdrawn"))
            else:
                self.peer.session = Session(minor=1)
            self.step()
            self.assertNotIn(("resourceslices", Key(SPACE, "one")), self.home.objects, end)

    def test_a_node_that_is_refused(self) -> None:
        """It is said on the record, once, and holds up no other slice."""
        self.make("one")
        self.step()
        self.home.refuses = True
        self.hears(SliceDecided("one", 1, "Granted", {"cpu": "4"}))
        self.step()
        self.assertEqual(self.status("one"), ("Granted", "NodeRefused", {"cpu": "4"}))
        self.home.refuses = False
        self.granted("two")
        self.assertIsNotNone(self.node("two"))
        self.assertEqual(self.status("one")[:2], ("Granted", "NodeRefused"))
