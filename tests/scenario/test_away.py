"""A lender that is away for long: Kubernetes would evict its pods after five minutes, and does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from kubesandbox.kinds.kinds import NODES, PODS, Key
from kubesandbox.store.state import Change
from twisted.web.server import NOT_DONE_YET, Request

from liqod.config.schema import Settings
from liqod.fabric.control.records import is_peered
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NAMESPACEOFFLOADINGS, Resource
from liqod.kube.resources import PODS as POD
from liqod.kubelet.pods.status import is_ready
from liqod.model.objects.meta import Condition
from liqod.model.records.views import ForeignCluster
from tests.scenario.case import FOREIGN, SHOP, ScenarioCase, Scene, all_of, live, node_ready, offloaded, unchanged
from tests.scenario.side import Side

AWAY = {"nodeSelector": {"liqo.io/type": "virtual-node"}, "tolerations": [{"operator": "Exists"}]}


def evicting(seconds: float) -> Callable[[Settings], Settings]:
    """Return a change of settings by which pods are evicted after so long."""

    def change(settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, kubelet=msgspec.structs.replace(settings.kubelet, evict_after=seconds))

    return change


def directly(settings: Settings) -> Settings:
    """Return settings by which lenders are not reached over their relay."""
    return msgspec.structs.replace(settings, peering=msgspec.structs.replace(settings.peering, api="direct"))


class AwayTests(ScenarioCase):
    def begin(self, change: Callable[[Settings], Settings] = unchanged) -> tuple[Scene, Side, Side]:
        """Have a peering with three pods that tolerate an unready node as long as all pods do."""
        scene = self.scene()
        rome, milan = scene.peered(change)
        scene.deploy(rome, "web", 3)
        scene.becomes("it runs", lambda: offloaded(rome, milan, "web", 3))
        return scene, rome, milan

    def part(self, scene: Scene, rome: Side, milan: Side) -> None:
        for address in (milan.address, milan.api_address):
            scene.network.part(rome.address, address)

    def uids(self, side: Side) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in live(side, "web").items()}

    def seconds(self, side: Side) -> set[int | None]:
        """Return for how long the pods tolerate that their node is not ready or not reached."""
        return {
            one.get("tolerationSeconds")
            for pod in live(side, "web").values()
            for one in pod["spec"]["tolerations"]
            if one["key"].startswith("node.kubernetes.io/")
        }

    def test_an_hour(self) -> None:
        """After an hour without the lender the same pods run on both sides, for one write to each at home."""
        scene, rome, milan = self.begin()
        before = self.uids(rome), self.uids(milan)
        specs = {name: pod["spec"] for name, pod in live(milan, "web").items()}
        writes = rome.door.writes()
        self.part(scene, rome, milan)
        scene.becomes("the pods are held", lambda: self.seconds(rome) == {None}, 300)
        scene.world.run(3600)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)
        self.assertEqual((rome.door.writes() - writes)["patch", "pods"], 3)
        scene.network.heal()
        scene.becomes("it runs again", lambda: node_ready(rome, milan) and offloaded(rome, milan, "web", 3), 300)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)
        self.assertEqual({name: pod["spec"] for name, pod in live(milan, "web").items()}, specs)
        scene.world.run(600)
        self.assertEqual((rome.door.writes() - writes)["patch", "pods"], 3)

    def test_a_minute(self) -> None:
        """An interruption that is soon over costs no pod a write."""
        scene, rome, milan = self.begin()
        writes = rome.door.writes()
        self.part(scene, rome, milan)
        scene.becomes("the node is not ready", lambda: not node_ready(rome, milan), 60)
        scene.world.run(30)
        scene.network.heal()
        scene.becomes("it runs again", lambda: node_ready(rome, milan) and offloaded(rome, milan, "web", 3), 300)
        scene.world.run(600)
        self.assertEqual((rome.door.writes() - writes)["patch", "pods"], 0)

    def ready(self, side: Side) -> set[bool]:
        """Return whether pods are ready at home, each value once."""
        return {is_ready(pod["status"]) for pod in live(side, "web").values()}

    def test_no_endpoints_meanwhile(self) -> None:
        """Before long the pods of a silent lender are not ready at home, for a write each at most, and later are again.

        A daemon that is started meanwhile comes to the same.
        """
        scene, rome, milan = self.begin()
        writes = rome.door.writes()
        self.part(scene, rome, milan)
        scene.becomes("they are not ready", lambda: self.ready(rome) == {False}, 120)
        scene.world.run(600)
        self.assertEqual(self.ready(rome), {False})
        self.assertLessEqual((rome.door.writes() - writes)["patch", "pods/status"], 3)
        rome.kill()
        rome.start()
        scene.world.run(120)
        self.assertEqual(self.ready(rome), {False})
        scene.network.heal()
        scene.becomes("they are ready", lambda: self.ready(rome) == {True} and offloaded(rome, milan, "web", 3), 300)

    def cut(self, scene: Scene, rome: Side, milan: Side) -> None:
        """Drop everything between the sides for over a minute; what TCP keeps arrives as late again."""
        scene.world.run(40)
        self.part(scene, rome, milan)
        scene.becomes("they are not ready", lambda: self.ready(rome) == {False}, 120)
        scene.world.run(35)
        scene.network.heal(late=60)

    def test_back_from_a_cut(self) -> None:
        """Pods are ready at home within seconds of the lender's return, though TCP sends what it kept a minute later;
        each watch at the lender begins once more for it.
        """
        scene, rome, milan = self.begin(directly)
        before = self.uids(rome), self.uids(milan)
        watches = self.watches(milan)
        self.cut(scene, rome, milan)
        self.assertLess(scene.becomes("they are ready", lambda: self.ready(rome) == {True}, 120), 10)
        # The session is not left to its turn to be dialled, either, which may be half a minute later.
        session = lambda: (rome.object(FOREIGN, milan.id) or {})["status"]["phase"] == "Ready"  # noqa: E731
        self.assertLess(scene.becomes("there is a session", session, 120), 10)
        scene.world.run(60)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)
        begun = self.watches(milan) - watches
        self.assertEqual((begun["pods"], begun["shadowpods"]), (1, 1))
        # Secrets are watched twice: those that are reflected, and those with tokens.
        self.assertLessEqual(max(begun.values()), 2)

    def watches(self, side: Side) -> Counter[str]:
        """Return how often watching each kind began."""
        found: Counter[str] = Counter()
        for (who, verb, what), count in side.door.requests.items():
            if verb == "watch" and who == "liqod":
                found[what] += count
        return found

    def test_never_ready_by_hearsay(self) -> None:
        """Pods that became unready while nobody saw it are not shown as ready for a moment when the lender is back."""
        scene, rome, milan = self.begin()
        shown: list[bool] = []

        def note(change: Change) -> None:
            shown.append(is_ready(change.new.object.get("status") or {}))

        milan.cluster.nodes.silence("node")
        self.cut(scene, rome, milan)
        self.assertEqual(self.ready(milan), {False})
        self.addCleanup(rome.cluster.store.subscribe(PODS, note))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 60)
        scene.world.run(120)
        self.assertNotIn(True, shown)
        milan.cluster.nodes.resume("node")
        scene.becomes("they are ready", lambda: self.ready(rome) == {True}, 120)
        self.assertIn(True, shown)

    def test_a_lost_answer(self) -> None:
        """A pod whose request lost its connection is offloaded all the same, though the lender answers all others."""
        scene, rome, milan = self.begin(directly)
        lost: list[bytes] = []
        render = milan.door.render

        def lose_one(request: Request) -> Any:
            if not lost and request.method == b"POST" and request.path.endswith(b"/shadowpods"):
                lost.append(request.path)
                request.channel.loseConnection()
                return NOT_DONE_YET
            return render(request)

        self.patch(milan.door, "render", lose_one)
        scene.scale(rome, "web", 4)
        scene.becomes("they run", lambda: offloaded(rome, milan, "web", 4), 60)
        self.assertTrue(lost)

    def test_the_daemon_comes_late(self) -> None:
        """A daemon that is started while the lender is away holds the pods, counting from when Kubernetes began."""
        scene, rome, milan = self.begin()
        before = self.uids(rome), self.uids(milan)
        self.part(scene, rome, milan)
        rome.kill()
        scene.world.run(200)
        self.assertEqual(self.seconds(rome), {300})
        rome.start()
        scene.world.run(1800)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)

    def test_no_daemon_at_home(self) -> None:
        """Pods that may only run at others stay there while no daemon runs at home for an hour; what may run at home as
        well goes as from any node.
        """
        scene, rome, milan = self.begin()
        body = {"metadata": {"name": "offloading", "namespace": SHOP}, "spec": {"podOffloadingStrategy": "Remote"}}
        scene.do(rome.client.create(NAMESPACEOFFLOADINGS, body, view=None))
        scene.world.run(5)
        scene.deploy(rome, "far", 2)
        scene.becomes("they run", lambda: offloaded(rome, milan, "far", 2))
        before = {name: pod["metadata"]["uid"] for name, pod in live(rome, "far").items()}
        anywhere = set(self.uids(rome).values())
        rome.kill()
        scene.world.run(3600)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(rome, "far").items()}, before)
        rome.start()
        scene.becomes("they are reported", lambda: node_ready(rome, milan) and offloaded(rome, milan, "far", 2), 300)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(rome, "far").items()}, before)
        self.assertFalse(anywhere & set(self.uids(rome).values()))
        tolerations = [pod["spec"]["tolerations"] for pod in live(milan, "far").values()]
        self.assertEqual({one.get("tolerationSeconds") for each in tolerations for one in each}, {300})

    def test_evicted(self) -> None:
        """Where pods are to be evicted after a time they are then, not before, and the lender's go when it is back."""
        scene, rome, milan = self.begin(evicting(1000))
        before = set(self.uids(rome))
        self.part(scene, rome, milan)
        scene.world.run(980)
        self.assertEqual(set(self.uids(rome)), before)
        scene.becomes("they are evicted", lambda: not set(self.uids(rome)) & before, 300)
        scene.network.heal()
        scene.becomes("others run", lambda: offloaded(rome, milan, "web", 3), 300)
        self.assertFalse(set(self.uids(milan)) & before)

    def test_never_begun(self) -> None:
        """A pod that never got to the lender is left to Kubernetes, which lets its owner make another one."""
        scene, rome, milan = self.begin()
        self.part(scene, rome, milan)
        scene.scale(rome, "web", 4)
        scene.becomes("a fourth is there", lambda: len(live(rome, "web")) == 4, 30)
        (new,) = set(self.uids(rome)) - set(self.uids(milan))
        # Long before the node is known to be away.
        scene.becomes("it is bound", lambda: (rome.object(PODS, new, SHOP) or {}).get("spec", {}).get("nodeName"), 10)
        self.assertTrue(node_ready(rome, milan))
        scene.becomes("it is given up", lambda: new not in live(rome, "web"), 600)
        self.assertEqual(set(self.uids(rome)) & set(self.uids(milan)), set(self.uids(milan)))

    def test_node_deleted(self) -> None:
        """A node that is deleted while its lender is away comes back, and its pods are held as before."""
        scene, rome, milan = self.begin()
        before = self.uids(rome), self.uids(milan)
        self.part(scene, rome, milan)
        scene.world.run(120)
        rome.cluster.store.remove(NODES, Key("", "liqo-milan"))
        scene.world.run(1800)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)

    def test_date_set_meanwhile(self) -> None:
        """A pod deleted while the lender is away keeps its grace period when the date of the host is set forward."""
        scene, rome, milan = self.begin()
        self.part(scene, rome, milan)
        scene.world.run(120)
        name = min(self.uids(rome))
        scene.do(rome.client.delete(POD, name, SHOP, grace=600))
        scene.world.run(60)
        assert rome.process is not None
        rome.process.skew += 3600
        scene.do(rome.client.patch(POD, name, {"metadata": {"annotations": {"a": "b"}}}, SHOP, view=None))
        scene.world.run(500)
        self.assertIsNotNone(rome.object(PODS, name, SHOP))
        scene.becomes("it is given up", lambda: rome.object(PODS, name, SHOP) is None, 120)

    def test_offer_deleted(self) -> None:
        """The networks of a lender whose Advertisement is deleted stay, while it is away and when it is back."""
        scene, rome, milan = self.begin()
        before = self.uids(rome), self.uids(milan)
        seen: list[bool | None] = []

        def looked(seconds: int) -> None:
            for _ in range(seconds):
                scene.world.run(1)
                record = scene.do(rome.client.get(FOREIGNCLUSTERS, milan.id, view=ForeignCluster))
                # As where nothing is lent in the other direction.
                states = [one for one in record.status.conditions if one.type != "Lending"]
                states.append(Condition(type="Lending", status="False", reason="PeeringDisabled"))
                status = msgspec.structs.replace(record.status, conditions=states)
                seen.append(is_peered(msgspec.structs.replace(record, status=status)))

        scene.do(rome.client.delete(ADVERTISEMENTS, f"advertisement-{milan.id}"))
        looked(30)
        self.assertNotIn(False, seen)
        self.part(scene, rome, milan)
        # A daemon that received the offer writes it again; one that was started since did not receive it.
        rome.kill()
        rome.start()
        scene.world.run(30)
        scene.do(rome.client.delete(ADVERTISEMENTS, f"advertisement-{milan.id}"))
        looked(120)
        self.assertIn(None, seen)
        self.assertNotIn(False, seen)
        scene.network.heal()
        looked(120)
        self.assertNotIn(False, seen)
        self.assertIs(seen[-1], True)
        scene.becomes("it runs again", lambda: node_ready(rome, milan) and offloaded(rome, milan, "web", 3), 300)
        self.assertEqual((self.uids(rome), self.uids(milan)), before)

    def test_deleted_meanwhile(self) -> None:
        """Pods deleted while the lender is away go in bounded time, one of a StatefulSet when it answers or by force;
        at the lender they all end when it is back.
        """
        scene, rome, milan = self.begin()
        template: Any = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db"}]}}
        spec = {"selector": {"matchLabels": {"app": "db"}}, "template": template}
        sets = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
        made = scene.do(rome.client.create(sets, {"metadata": {"name": "db"}, "spec": spec}, SHOP))
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"]}
        for name in ("db-0", "db-1", "plain"):
            owners = [{**owner, "controller": True}] if name != "plain" else []
            metadata = {"name": name, "labels": {"app": name}, "ownerReferences": owners}
            scene.do(rome.client.create(POD, {"metadata": metadata, "spec": template["spec"] | AWAY}, SHOP, view=None))
        names = ("db-0", "db-1", "plain")
        scene.becomes("they run", lambda: all(offloaded(rome, milan, name, 1) for name in names))
        self.part(scene, rome, milan)
        scene.becomes("the node is not ready", lambda: not node_ready(rome, milan), 90)
        for name in names:
            scene.do(rome.client.delete(POD, name, SHOP))
        scene.becomes("the plain one is gone", lambda: not all_of(rome, "plain"), 90)
        scene.world.run(600)
        self.assertTrue(all_of(rome, "db-0") and all_of(rome, "db-1"))
        scene.do(rome.client.delete(POD, "db-1", SHOP, grace=0))
        self.assertFalse(all_of(rome, "db-1"))
        self.assertTrue(all(live(milan, name) for name in names))
        scene.network.heal()
        scene.becomes("none is left", lambda: not any(all_of(side, n) for side in scene.sides for n in names), 300)
