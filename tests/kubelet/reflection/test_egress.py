"""What may not leave home does not: pure decisions, and between two sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import EgressRuleSettings, EgressSettings
from liqod.flow.observe import Latest
from liqod.kube.errors import NotFound
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS, PODS, SECRETS, SHADOWPODS, Resource
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import Egress, egress_to
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.reflection.decide import Delete, Keep, decide, desired_of
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld
from liqod.kubelet.reflection.kinds import CLAIM, CONFIGMAP, ENDPOINTSLICE, KINDS, SECRET, SERVICE, Kind
from liqod.kubelet.reflection.named import NamedContents, references
from liqod.kubelet.reflection.views import Reflectable
from liqod.kubelet.tokens.projection import secret_name
from liqod.model.ids import ClusterID, Key
from tests.hosting.shadowpods.test_controller import Cache
from tests.kubelet import cases
from tests.kubelet.networks import LenderObjects
from tests.kubelet.reflection import sandboxes

OURS = {"offloading.liqo.io/origin": "home", "offloading.liqo.io/destination": "lender"}


def context(*rules: EgressRuleSettings, default: Any = "allow", **labels: str) -> Context:
    egress = egress_to("lender", labels, EgressSettings(default=default, rules=list(rules)))
    return Context(ClusterID("home"), ClusterID("lender"), "liqo-lender", egress=Latest(egress))


def thing(kind: Kind, name: str = "x", **fields: Any) -> Reflectable:
    metadata = {"name": name, "namespace": "shop", "uid": "h1", **fields.pop("metadata", {})}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata, **fields}), type=kind.home_view)


def there(kind: Kind) -> Reflectable:
    metadata = {"name": "x", "namespace": "shop-home", "uid": "t1", "labels": OURS}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata}), type=kind.there_view)


def step(kind: Kind, desired: DesiredObject | Withheld | None, present: Reflectable | None) -> Any:
    return decide(kind, desired, present, name="x", namespace="shop-home", context=context())


class RuleTests(SynchronousTestCase):
    """Reflected objects that rules keep at home."""

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(KINDS), st.sampled_from(["", "liqo.io/allow-reflection"]))
    def test_nothing_leaves(self, kind: Kind, annotation: str) -> None:
        """Without a rule that lets it, an object of no kind leaves, whatever its annotations say; what left before is
        taken back, but for data.
        """
        annotations = {annotation: "true"} if annotation else {}
        desired = desired_of(kind, thing(kind, metadata={"annotations": annotations}), _inputs(default="deny"))
        assert isinstance(desired, Withheld)
        self.assertTrue(desired.recorded)
        self.assertIn("[egress]", desired.why)
        self.assertIsInstance(step(kind, desired, None), Keep)
        self.assertIsInstance(step(kind, desired, there(kind)), Keep if kind is CLAIM else Delete)

    def test_a_slice_stays_with_its_service(self) -> None:
        """Addresses of a service that stays at home do not leave by its slices, also where only it has the label."""
        rule = EgressRuleSettings(verdict="deny", kinds=["service"], labels="tier=inner")
        service = thing(SERVICE, "db", metadata={"labels": {"tier": "inner"}})
        home: Any = LenderObjects()
        home.service = {Key("shop", "db"): service}.get
        inputs = ForgeInputs(context(rule), home=home, has_services=True)
        labels = {"kubernetes.io/service-name": "db"}
        piece = thing(ENDPOINTSLICE, metadata={"labels": labels}, endpoints=[{"addresses": ["10.0.0.1"]}])
        desired = desired_of(ENDPOINTSLICE, piece, inputs)
        assert isinstance(desired, Withheld)
        self.assertIn("rule 1", desired.why)
        self.assertIsInstance(desired_of(ENDPOINTSLICE, piece, ForgeInputs(context(), home=home)), DesiredObject)

    def test_the_ca_goes_with_tokens(self) -> None:
        """The CA of this cluster is no config map to rules: without tokens it is of no use there."""
        ca = thing(CONFIGMAP, "kube-root-ca.crt", data={"ca.crt": "x"})
        config = EgressRuleSettings(verdict="deny", kinds=["configmap"])
        tokens = EgressRuleSettings(verdict="deny", kinds=["serviceaccount"])
        self.assertIsInstance(desired_of(CONFIGMAP, ca, _inputs(config)), DesiredObject)
        self.assertIsInstance(desired_of(CONFIGMAP, ca, _inputs(tokens)), Withheld)


def _inputs(*rules: EgressRuleSettings, default: Any = "allow") -> ForgeInputs:
    return ForgeInputs(context(*rules, default=default))


POD: dict[str, Any] = {
    "imagePullSecrets": [{"name": "pull"}],
    "initContainers": [{"envFrom": [{"secretRef": {"name": "from-env"}}, {"configMapRef": {"name": "conf-env"}}]}],
    "containers": [
        {
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "conf-key", "key": "k", "optional": True}}},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "D", "value": "plain"},
            ]
        }
    ],
    "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
    "volumes": [
        {"name": "a", "secret": {"secretName": "volume"}},
        {"name": "b", "configMap": {"name": "conf-volume"}},
        {"name": "c", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "conf-part"}}]}},
        {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "driver"}}},
        {"name": "e", "azureFile": {"secretName": "share", "shareName": "x"}},
        {"name": "f", "cephfs": {"secretRef": {"name": "ceph"}}},
        {"name": "g", "emptyDir": {}},
        {"name": "h", "persistentVolumeClaim": {"claimName": "no-secret"}},
    ],
}
SECRETS_NAMED = {"pull", "from-env", "key", "debug", "volume", "part", "driver", "share", "ceph"}
CONFIGS_NAMED = {"conf-env", "conf-key", "conf-volume", "conf-part"}


def pod(name: str = "web", spec: dict[str, Any] | None = None, **labels: str) -> HomePod:
    body = {"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels}, "spec": spec or POD}
    return msgspec.json.decode(msgspec.json.encode(body), type=HomePod)


class Pods(Cache):
    """An informer of pods."""


class NamedTests(SynchronousTestCase):
    """Config maps and secrets that go where pods name them."""

    def setUp(self) -> None:
        self.named = NamedContents()
        self.egress: Latest[Egress] = Latest(Egress())
        self.changes: list[tuple[str, Key]] = []
        self.named.subscribe(lambda kind, key: self.changes.append((kind, key)))

    def join(self, node: str, *pods: HomePod) -> tuple[Any, Any]:
        informer: Any = Pods()
        for one in pods:
            informer.put(one)
        return informer, self.named.join(node, informer, self.egress)

    def asks(self, name: str, kind: str = "secret", nodes: tuple[str, ...] = ("one",)) -> bool | None:
        return self.named.names(kind, Key("shop", name), nodes)

    def test_every_way_to_name_one(self) -> None:
        """Volumes of every kind, environment of every container, credentials for images, and nothing else."""
        found = references(POD)
        self.assertEqual({name for kind, name in found if kind == "secret"}, SECRETS_NAMED)
        self.assertEqual({name for kind, name in found if kind == "configmap"}, CONFIGS_NAMED)

    def test_a_pod_that_says_little(self) -> None:
        """Fields that are absent or null name nothing."""
        specs: list[dict[str, Any]] = [
            {},
            {"containers": None, "volumes": None},
            {"containers": [{"env": None, "envFrom": [{}]}]},
        ]
        for spec in specs:
            self.assertEqual(references(spec), frozenset())

    def test_as_long_as_one_does(self) -> None:
        """An object is named while any pod on any node names it; who counts on that is notified of the first and the
        last one.
        """
        first, _ = self.join("one", pod("a"))
        second, leave = self.join("two", pod("b"))
        both = ("one", "two")
        self.assertTrue(self.asks("key", nodes=both))
        self.assertIs(self.asks("other", nodes=both), False)
        self.changes.clear()
        first.remove(Key("shop", "a"))
        self.assertTrue(self.asks("key", nodes=both))
        self.changes.clear()
        second.put(pod("b", {"containers": []}))
        self.assertIs(self.asks("key", nodes=both), False)
        self.assertEqual({key.name for kind, key in self.changes if kind == "secret"}, SECRETS_NAMED)
        leave()

    def test_what_is_not_known(self) -> None:
        """While the pods of a node are not known nothing counts as unnamed: a restart, or a node that stops, deletes
        nothing at the lender.
        """
        self.assertIsNone(self.asks("key"))
        informer, leave = self.join("one", pod("a", {"containers": []}))
        informer.synced = False
        self.assertIsNone(self.asks("key"))
        informer.synced = True
        self.assertIs(self.asks("key"), False)
        self.assertIsNone(self.asks("key", nodes=("one", "two")))
        leave()
        self.assertIsNone(self.asks("key"))

    def test_pods_that_stay(self) -> None:
        """What a pod names that may not leave home does not leave for it; a rule that changes counts at once."""
        informer, _ = self.join("one", pod("a", stay="yes"))
        self.assertTrue(self.asks("key"))
        rule = EgressRuleSettings(verdict="deny", kinds=["pod"], labels="stay")
        self.egress.set(egress_to("lender", {}, EgressSettings(rules=[rule])))
        self.assertIs(self.asks("key"), False)
        informer.put(pod("a"))
        self.assertTrue(self.asks("key"))

    def test_what_is_made_of_it(self) -> None:
        """What no pod names stays, unless it is annotated; what is not known is neither made nor taken back; all other
        kinds go as before.
        """
        allowed = {"annotations": {"liqo.io/allow-reflection": "true"}}
        answers: dict[bool | None, type] = {True: DesiredObject, False: Withheld, None: Withheld}
        for answer, expected in answers.items():
            inputs = ForgeInputs(context(), named=_answering(answer))
            for kind in (SECRET, CONFIGMAP):
                desired = desired_of(kind, thing(kind), inputs)
                self.assertIsInstance(desired, expected, str(answer))
                if answer is not True:
                    self.assertIsInstance(step(kind, desired, None), Keep)
                    self.assertIsInstance(step(kind, desired, there(kind)), Delete if answer is False else Keep)
                self.assertIsInstance(desired_of(kind, thing(kind, metadata=allowed), inputs), DesiredObject)
            self.assertIsInstance(desired_of(SERVICE, thing(SERVICE, spec={}), inputs), DesiredObject)


def _answering(answer: bool | None) -> Callable[[str, Key], bool | None]:
    return lambda kind, key: answer


class EgressTests(sandboxes.Sandboxes, cases.KubeletSides):
    """A borrower with rules."""

    async def rules(self, *rules: EgressRuleSettings, **more: Any) -> None:
        """Start the borrower's daemon once more, with rules."""
        await self.stop()
        self.egress = EgressSettings(rules=list(rules), **more)
        await self.start()

    async def there(self, resource: Resource, name: str) -> dict[str, Any]:
        return await self.eventually(lambda: self.lender.get(resource, name, self.remote))

    async def absent(self, resource: Resource, name: str) -> None:
        await self.pause(1.0)
        with self.assertRaises(NotFound):
            await self.lender.get(resource, name, self.remote)

    async def secret(self, name: str, **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "data": {"k": "dg=="}}
        await self.home.create(SECRETS, body, self.space)

    async def says(self, name: str) -> dict[str, Any]:
        """Wait until a home pod says that it may not leave; return its status."""

        async def look() -> dict[str, Any]:
            found = await self.home.get(PODS, name, self.space)
            said = cases.condition(found, "liqo.io/Offloaded")
            self.assertEqual((said["status"], said["reason"]), ("False", "EgressDenied"))
            self.assertIn("rule 1 under [egress]", said["message"])
            return dict(found["status"])

        return await self.eventually(look)

    async def test_labels_of_the_peer(self) -> None:
        """A secret leaves for a peer with a label that an administrator here gave it, and returns with the label."""
        allow = EgressRuleSettings(verdict="allow", kinds=["secret"], peer_labels="trusted=yes")
        deny = EgressRuleSettings(verdict="deny", kinds=["secret"], labels="tier=gold")
        await self.rules(allow, deny)
        await self.pod("first")
        await self.runs("first")
        await self.secret("gold", tier="gold")
        await self.secret("plain")
        await self.there(SECRETS, "plain")
        await self.absent(SECRETS, "gold")
        self.assertIn(("gold", "EgressDenied"), [(name, reason) for name, reason, _ in self.events.seen])
        spec = {"clusterID": str(self.peer), "fingerprint": "sha256:" + "1" * 64}
        labelled = {"metadata": {"name": str(self.peer), "labels": {"trusted": "yes"}}, "spec": spec}
        await self.home.create(FOREIGNCLUSTERS, labelled)
        await self.there(SECRETS, "gold")
        await self.home.patch(FOREIGNCLUSTERS, str(self.peer), {"metadata": {"labels": {"trusted": None}}})
        await self.gone(self.lender, SECRETS, "gold", self.remote)
        await self.there(SECRETS, "plain")

    async def test_pods(self) -> None:
        """A pod that may not leave is not made there, nor are its tokens, and it says so; one that left ends; it leaves
        when it may.
        """
        await self.rules(EgressRuleSettings(verdict="deny", kinds=["pod"], labels="stay"))
        await self.pod("first")
        await self.runs("first")
        await self.pod("kept", labels={"stay": "here"})
        status = await self.says("kept")
        self.assertEqual(status["phase"], "Pending")
        for resource, name in ((SHADOWPODS, "kept"), (SECRETS, secret_name("kept"))):
            await self.absent(resource, name)
        await self.home.patch(PODS, "kept", {"metadata": {"labels": {"stay": None}}}, self.space)
        await self.runs("kept")
        await self.there(SECRETS, secret_name("kept"))
        await self.home.patch(PODS, "first", {"metadata": {"labels": {"stay": "here"}}}, self.space)
        status = await self.says("first")
        self.assertEqual((status["phase"], status["reason"]), ("Failed", "OffloadingAborted"))
        await self.gone(self.lender, PODS, "first", self.remote)

    async def test_namespaces(self) -> None:
        """Of a namespace that may not leave not even the name is known to the lender."""
        pattern = f"{self.space[:5]}*"
        await self.rules(EgressRuleSettings(verdict="deny", kinds=["namespace"], namespaces=[pattern]))
        await self.pod("first")

        async def says() -> bool:
            found = await self.home.get(PODS, "first", self.space)
            return "rule 1 under [egress]" in cases.condition(found, "liqo.io/Offloaded")["message"]

        await self.eventually(says)
        self.assertEqual(self.session.asked, [])

    async def test_only_what_pods_name(self) -> None:
        """Secrets and config maps go when a pod there names them, stay over a restart, and return with the last one."""
        await self.rules(contents="named")
        for name in ("mine", "other"):
            await self.secret(name)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, self.space)
        volumes = [{"name": "m", "secret": {"secretName": "mine"}}, {"name": "c", "configMap": {"name": "conf"}}]
        await self.pod("first", volumes=volumes)
        mine = await self.there(SECRETS, "mine")
        await self.there(CONFIGMAPS, "conf")
        await self.runs("first")
        await self.absent(SECRETS, "other")
        await self.stop()
        await self.start()
        await self.pause(2.0)
        self.assertEqual((await self.there(SECRETS, "mine"))["metadata"]["uid"], mine["metadata"]["uid"])
        note = {"metadata": {"annotations": {"liqo.io/allow-reflection": "true"}}}
        await self.home.patch(SECRETS, "other", note, self.space)
        await self.there(SECRETS, "other")
        await self.pod("second")
        await self.runs("second")
        await self.home.delete(PODS, "first", self.space)
        await self.gone(self.lender, SECRETS, "mine", self.remote)
        await self.gone(self.lender, CONFIGMAPS, "conf", self.remote)
