"""The classes of ingresses, load balancers and claims at a lender: from its offer, in its order, and kept."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.decide import Create, Keep, Patch, decide
from liqod.kubelet.reflection.forge.classes import Classes, ingress_classes, load_balancer_classes
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs
from liqod.kubelet.reflection.kinds import CLAIM, INGRESS, SERVICE, Kind
from liqod.kubelet.reflection.lender_classes import LenderClasses
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import ClusterID, Key
from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NamespaceOffloading, NamespaceOffloadingSpec
from liqod.model.records.views import Advertisement, AdvertisementSpec
from tests.kubelet.networks import LenderObjects
from tests.kubelet.reflection.sides import CONTEXT, Sides
from tests.kubelet.reflection.test_refusals import put, sides

BACKEND: Final = {"service": {"name": "web", "port": {"number": 80}}}
RULE: Final = {
    "host": "shop.example",
    "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]},
}
SPECS: Final[dict[Kind, dict[str, Any]]] = {
    INGRESS: {"ingressClassName": "mine", "rules": [RULE]},
    SERVICE: {"type": "LoadBalancer", "loadBalancerClass": "example.com/mine", "ports": [{"port": 80}]},
    CLAIM: {"volumeName": "pvc-1", "accessModes": ["ReadWriteOnce"], "storageClassName": "liqo"},
}
FIELDS: Final = {INGRESS: "ingressClassName", SERVICE: "loadBalancerClass", CLAIM: "storageClassName"}


def view(kind: type[Reflectable], body: dict[str, Any]) -> Reflectable:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def inputs(classes: Classes) -> ForgeInputs:
    objects = LenderObjects(volumes=("pvc-1",), storage=classes, ingress=classes, load_balancers=classes)
    return ForgeInputs(CONTEXT, home=objects)


def forged(kind: Kind, classes: Classes, **changes: Any) -> DesiredObject:
    """Return what is to be at the lender of an object whose class at home is another cluster's."""
    metadata = {"name": "x", "namespace": "shop", "uid": "h1"}
    home = view(kind.home_view, {"metadata": metadata, "spec": {**SPECS[kind], **changes}})
    desired = kind.forge(home, inputs(classes))
    assert isinstance(desired, DesiredObject)
    return desired


def step(kind: Kind, desired: DesiredObject, there: Reflectable | None) -> Any:
    return decide(kind, desired, there, name="x", namespace="shop-home", context=CONTEXT)


def at_lender(kind: Kind, desired: DesiredObject, **changes: Any) -> Reflectable:
    """Return the object that was created at the lender, with changes to its spec."""
    create = step(kind, evolve(desired, idle=False), None)
    assert isinstance(create, Create)
    body = {**create.body, "metadata": {**create.body["metadata"], "uid": "t1"}}
    return view(kind.there_view, {**body, "spec": {**body["spec"], **changes}})


def chosen(kind: Kind, desired: DesiredObject) -> str:
    found: str = desired.content["spec"].get(FIELDS[kind], "")
    return found


class ChoiceTests(SynchronousTestCase):
    """What a new object gets."""

    def test_the_first_of_the_offer(self) -> None:
        """The lender's order counts, and the class at home does not; without an offered class none is named."""
        for kind in FIELDS:
            self.assertEqual(chosen(kind, forged(kind, Classes(("b", "a")))), "b")
            self.assertEqual(chosen(kind, forged(kind, Classes(()))), "")
            self.assertIsInstance(step(kind, forged(kind, Classes(())), None), Create)

    def test_what_the_namespace_allows(self) -> None:
        """The first one of the offer that is allowed, whatever the order of those allowed."""
        for kind in (INGRESS, SERVICE):
            self.assertEqual(chosen(kind, forged(kind, Classes(("c", "b", "a"), ("a", "b"), "x"))), "b")

    def test_nothing_that_is_allowed(self) -> None:
        """The object is not made, and the reason has both lists and the field of the record."""
        for kind in (INGRESS, SERVICE):
            desired = forged(kind, Classes(("a", "b"), ("public",), "ingressClasses"))
            self.assertIsInstance(step(kind, desired, None), Keep)
            (why,) = desired.objections
            for word in ("public", "a, b", "ingressClasses"):
                self.assertIn(word, why)
            self.assertFalse(desired.incomplete)

    def test_long_lists(self) -> None:
        """Of many classes a few are named."""
        many = tuple(f"class-{number}" for number in range(64))
        self.assertIn("class-4 and 59 more", Classes((), many, "ingressClasses").objection)
        self.assertEqual(Classes(many, (), "ingressClasses").objection, "")

    def test_an_offer_that_is_not_known(self) -> None:
        """The object waits: the class of some could not be set later."""
        for kind in FIELDS:
            desired = forged(kind, Classes(None))
            self.assertIsInstance(step(kind, desired, None), Keep)
            self.assertEqual((desired.incomplete, desired.objections), (True, ()))

    def test_services_of_other_types(self) -> None:
        """The API server refuses a load balancer class at them."""
        for kind in ("ClusterIP", "NodePort"):
            desired = forged(SERVICE, Classes(("a",)), type=kind)
            self.assertEqual((chosen(SERVICE, desired), desired.classes), ("", None))

    def test_the_fields_of_the_record(self) -> None:
        """Each kind has a list of its own in the offer and in the namespace's record."""
        offer = Offer(ingress_classes=["i", "j"], load_balancer_classes=["k", "l"])
        spec = NamespaceOffloadingSpec(ingress_classes=["j"], load_balancer_classes=["l"])
        record = NamespaceOffloading(spec=spec)
        self.assertEqual(ingress_classes(offer, record).first, "j")
        self.assertEqual(load_balancer_classes(offer, record).first, "l")
        self.assertEqual(ingress_classes(offer, None).first, "i")
        self.assertIsNone(ingress_classes(None, record).offered)


class KeptTests(SynchronousTestCase):
    """What is at the lender keeps its class."""

    def test_another_offer(self) -> None:
        """Another order, other classes, none or an unknown offer: nothing is written and nothing deleted."""
        for kind in FIELDS:
            there = at_lender(kind, forged(kind, Classes(("a",))))
            for classes in (Classes(("b", "a")), Classes(("b",)), Classes(()), Classes(None)):
                self.assertIsInstance(step(kind, forged(kind, classes), there), Keep, f"{kind.setting}: {classes}")

    def test_another_namespace(self) -> None:
        """The namespace allows none of the offer any more: what is there stays."""
        for kind in (INGRESS, SERVICE):
            there = at_lender(kind, forged(kind, Classes(("a",))))
            desired = forged(kind, Classes(("a",), ("b",), "x"))
            self.assertIsInstance(step(kind, desired, there), Keep)

    def test_without_a_class(self) -> None:
        """An ingress gets one when one is offered; the class of a service or a claim cannot be set later."""
        for kind in FIELDS:
            there = at_lender(kind, forged(kind, Classes(())))
            found = step(kind, forged(kind, Classes(("a",))), there)
            if kind is INGRESS:
                self.assertEqual(found, Patch({"spec": {"ingressClassName": "a"}, "metadata": {"uid": "t1"}}))
            else:
                self.assertIsInstance(found, Keep)

    def test_a_service_that_cannot_be_made_again(self) -> None:
        """One that is to become a load balancer of a class that is not offered goes on as it was."""
        there = at_lender(SERVICE, forged(SERVICE, Classes(()), type="ClusterIP"))
        desired = forged(SERVICE, Classes(("a",), ("b",), "loadBalancerClasses"))
        self.assertIsInstance(step(SERVICE, desired, there), Keep)

    def test_claims_in_use(self) -> None:
        """A claim whose class vanished still grows, and the class is not touched."""
        there = at_lender(CLAIM, forged(CLAIM, Classes(("fast",))), volumeName="v")
        larger = forged(CLAIM, Classes(("slow",)), resources={"requests": {"storage": "2Gi"}})
        found = step(CLAIM, larger, there)
        assert isinstance(found, Patch)
        self.assertEqual(found.patch["spec"], {"resources": {"requests": {"storage": "2Gi"}}})


class LossTests(SynchronousTestCase):
    """A class that vanishes while in use."""

    def offer(self, both: Sides, *offered: str) -> None:
        both.inputs = inputs(Classes(offered))
        both.reflector.enqueue_all()
        both.pass_time(0.3)

    def test_a_reason_at_the_object(self) -> None:
        """One event at the object at home, with the class and what a new one gets; the lender gets no request."""
        for kind in FIELDS:
            both, lender, reported = sides(kind)
            self.offer(both, "a", "b")
            put(both.home, "x", spec=SPECS[kind])
            both.pass_time(0.3)
            self.assertEqual(lender.objects["x"]["spec"][FIELDS[kind]], "a")
            self.assertEqual(reported.seen, [])
            writes = list(lender.writes)
            self.offer(both, "b")
            self.offer(both, "b")
            ((name, reason, message),) = reported.seen
            self.assertEqual((name, reason), ("x", "ClassNotOffered"))
            self.assertIn("no longer offers the class a,", message)
            self.assertIn("a new one gets the class b", message)
            self.assertEqual((lender.writes, list(lender.objects)), (writes, ["x"]))
            # It comes back, and goes once more.
            self.offer(both, "b", "a")
            self.offer(both, "b")
            self.assertEqual(len(reported.seen), 2)
            both.crash()

    def test_the_last_class(self) -> None:
        """An empty list is a loss where the class was offered before, and else a lender that does not know its own."""
        both, lender, reported = sides(INGRESS)
        self.offer(both, "a")
        put(both.home, "x", spec=SPECS[INGRESS])
        both.pass_time(0.3)
        self.offer(both)
        self.assertIn("a new one gets the lender's default class", reported.seen[0][2])
        both.crash()
        both.inputs = inputs(Classes(()))
        both.begin()
        both.pass_time(0.3)
        self.assertEqual(len(reported.seen), 1)
        self.assertEqual(lender.objects["x"]["spec"]["ingressClassName"], "a")

    def test_a_class_of_the_users_choice(self) -> None:
        """A claim that names a class of the lender by its annotation does not speak of the offer."""
        annotations = {"liqo.io/remote-storage-class": "special"}
        metadata = {"name": "x", "namespace": "shop", "annotations": annotations}
        desired = CLAIM.forge(
            view(CLAIM.home_view, {"metadata": metadata, "spec": SPECS[CLAIM]}), inputs(Classes(("a",)))
        )
        assert isinstance(desired, DesiredObject)
        self.assertEqual((chosen(CLAIM, desired), desired.classes), ("special", None))


class Records:
    """A cache of records; ``put`` notifies."""

    synced = True

    def __init__(self) -> None:
        self.objects: dict[Key, Any] = {}
        self.subscriber: Any = None

    def get(self, key: Key) -> Any:
        return self.objects.get(key)

    def subscribe(self, subscriber: Any) -> Any:
        self.subscriber = subscriber
        return lambda: setattr(self, "subscriber", None)

    def put(self, key: Key, new: Any) -> None:
        old = self.objects.get(key)
        self.objects[key] = new
        if self.subscriber is not None:
            self.subscriber(key, old, new)


class LenderClassesTests(SynchronousTestCase):
    """What is read of the records, and which changes of them count."""

    def test_changes(self) -> None:
        """Another list of the lender's counts for all namespaces, one of a namespace for that; nothing else does."""
        offers, offloadings = Records(), Records()
        known: Any = (offers, offloadings)
        classes = LenderClasses(ClusterID("milan"), *known)
        changed: list[str] = []
        end = classes.subscribe(changed.append)
        self.assertIsNone(classes.ingress("shop").offered)

        def offer(peer: str, seq: int, *names: str) -> None:
            spec = AdvertisementSpec(cluster_id=peer, seq=seq, offer=Offer(ingress_classes=list(names)))
            offers.put(Key("", f"advertisement-{peer}"), Advertisement(spec=spec))

        def allow(name: str, *names: str) -> None:
            spec = NamespaceOffloadingSpec(ingress_classes=list(names))
            offloadings.put(Key("shop", name), NamespaceOffloading(spec=spec))

        offer("milan", 1, "a", "b")
        offer("milan", 2, "a", "b")
        offer("paris", 1, "c")
        self.assertEqual(changed, [""])
        allow("offloading", "b")
        allow("offloading", "b")
        allow("other", "c")
        self.assertEqual(changed, ["", "shop"])
        self.assertEqual((classes.ingress("shop").first, classes.ingress("bar").first), ("b", "a"))
        end()
        self.assertEqual((offers.subscriber, offloadings.subscriber), (None, None))
