"""Two lenders and three virtual nodes: one is removed under load, and nothing of the others moves."""

from __future__ import annotations

from functools import partial
from typing import Any

from kubesandbox.kinds.kinds import NAMESPACES, NODES, PODS, GroupResource, Json

from liqod.kube.resources import CONFIGMAPS, DEPLOYMENTS, FOREIGNCLUSTERS
from liqod.kube.resources import VIRTUALNODES as RECORDS
from liqod.model.names import remote_namespace, tenant_namespace
from tests.scenario.case import SHADOWPODS, SHOP, SMALL, ScenarioCase, Scene, deployment, live, node_ready, runs
from tests.scenario.side import Side

TABLES = GroupResource("virtualkubelet.liqo.io", "namespacenattingtables")
VIRTUALNODES = GroupResource("offloading.liqo.io", "virtualnodes")
MAPS = GroupResource("", "configmaps")
GPU = "liqo-milan-gpu"


class SeveralNodesTests(ScenarioCase):
    """A home without room, two lenders, and a second virtual node of the first of them."""

    def setUp(self) -> None:
        scene = self.stage = self.scene()
        self.rome = scene.side("rome", nodes=(SMALL,), peers=(2, 3))
        self.milan, self.turin = scene.side("milan"), scene.side("turin")
        for side in scene.sides:
            side.start()
        scene.acquaint((self.rome, self.milan), (self.rome, self.turin))
        for lender in (self.milan, self.turin):
            scene.becomes(f"the node of {lender.name} is ready", partial(node_ready, self.rome, lender))
        scene.enable(self.rome)
        self.second(scene)
        scene.becomes("the third node is ready", lambda: self.node_shows(GPU, "8"))
        for name, node in (("a", "liqo-milan"), ("b", GPU), ("c", "liqo-turin")):
            self.pinned(scene, name, node)
        scene.becomes("all run", lambda: all(self.counts(name, 4) for name in "abc"), 120)

    def second(self, scene: Scene) -> None:
        taint = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
        spec = {"clusterID": self.milan.id, "nodeName": GPU, "taints": [taint], "limits": {"cpu": "8"}}
        body = {"metadata": {"name": "milan-gpu"}, "spec": spec}
        scene.do(self.rome.client.create(RECORDS, body, tenant_namespace(self.milan.id), view=None))

    def pinned(self, scene: Scene, name: str, node: str) -> None:
        """Deploy four pods on a node."""
        body = deployment(name, 4)
        spec = body["spec"]["template"]["spec"]
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        spec["tolerations"] = [{"key": "example.com/gpu", "operator": "Exists"}]
        scene.do(self.rome.client.create(DEPLOYMENTS, body, SHOP, view=None))

    def node_shows(self, name: str, cpu: str) -> bool:
        node = self.rome.object(NODES, name) or {}
        return bool(node.get("status", {}).get("allocatable", {}).get("cpu") == cpu)

    def counts(self, app: str, count: int) -> bool:
        pods = live(self.rome, app).values()
        return len(pods) == count and all(map(runs, pods))

    def uids(self, app: str) -> dict[str, dict[str, str]]:
        """Return the UIDs and restarts of an application's pods, in each cluster."""
        found = {}
        for side in (self.rome, self.milan, self.turin):
            pods = live(side, app)
            found[side.name] = {name: f"{pod['metadata']['uid']} {restarts(pod)}" for name, pod in pods.items()}
        return found

    def shared(self, side: Side, kind: GroupResource) -> dict[str, str]:
        """Return the UIDs of what the pods in milan share there."""
        space = remote_namespace(SHOP, self.rome.id)
        items = side.objects(kind, space) if kind is MAPS else side.objects(kind)
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in items}

    def left(self) -> list[str]:
        """Return what is left of the third node's pods in milan."""
        shadows = [*self.milan.objects(SHADOWPODS), *self.milan.objects(PODS)]
        return [one["metadata"]["name"] for one in shadows if one["metadata"].get("labels", {}).get("app") == "b"]

    def remove(self, *, kill: bool) -> None:
        scene, space = self.stage, remote_namespace(SHOP, self.rome.id)
        body: dict[str, Any] = {"metadata": {"name": "conf"}, "data": {"key": "1"}}
        scene.do(self.rome.client.create(CONFIGMAPS, body, SHOP, view=None))
        scene.becomes("it is reflected", lambda: self.milan.object(MAPS, "conf", space))
        kept = {app: self.uids(app) for app in "ac"}
        things = {kind: self.shared(self.milan, kind) for kind in (MAPS, NAMESPACES)}
        table = (self.rome.object(TABLES, self.milan.id) or {})["metadata"]["uid"]
        # The load: one more application comes and grows on each of the other nodes meanwhile.
        for name, node in (("d", "liqo-milan"), ("e", "liqo-turin")):
            self.pinned(scene, name, node)
        scene.do(self.rome.client.delete(RECORDS, "milan-gpu", tenant_namespace(self.milan.id)))
        for name in "de":
            scene.scale(self.rome, name, 6)
        if kill:
            scene.world.run(1.0)
            self.rome.kill()
            scene.world.run(5.0)
            self.rome.start()
        scene.becomes("the node is gone", lambda: self.rome.object(NODES, GPU) is None, 120)
        scene.becomes("nothing of it is left", lambda: not self.left(), 120)
        scene.becomes("the others grow", lambda: self.counts("d", 6) and self.counts("e", 6), 120)
        scene.becomes("home sees that its pods wait", lambda: self.waiting("b") == 4, 120)
        scene.world.run(60)
        self.assertEqual({app: self.uids(app) for app in "ac"}, kept)
        for kind, before in things.items():
            self.assertEqual({name: self.shared(self.milan, kind).get(name) for name in before}, before)
        self.assertEqual((self.rome.object(TABLES, self.milan.id) or {})["metadata"]["uid"], table)
        self.assertTrue(all(node_ready(self.rome, lender) for lender in (self.milan, self.turin)))
        scene.do(self.rome.client.patch(CONFIGMAPS, "conf", {"data": {"key": "2"}}, SHOP, view=None))
        scene.becomes("reflection goes on", lambda: self.reflected(space) == {"key": "2"})

    def reflected(self, space: str) -> Json | None:
        return (self.milan.object(MAPS, "conf", space) or {}).get("data")

    def waiting(self, app: str) -> int:
        return sum(not pod["spec"].get("nodeName") for pod in live(self.rome, app).values())

    def test_one_is_removed_under_load(self) -> None:
        """Its pods go, at home and at the lender; pods, namespaces and objects of the other nodes stay."""
        self.remove(kill=False)

    def test_the_daemon_is_killed_meanwhile(self) -> None:
        """The next daemon removes the rest of the node, and nothing of the others."""
        self.remove(kill=True)

    def test_each_object_is_written_once(self) -> None:
        """A change at home is one write at each lender, however many virtual nodes it has."""
        scene, space = self.stage, remote_namespace(SHOP, self.rome.id)
        scene.do(self.rome.client.create(CONFIGMAPS, {"metadata": {"name": "conf"}}, SHOP, view=None))
        scene.becomes("it is reflected", lambda: self.milan.object(MAPS, "conf", space))
        scene.world.run(5)
        before = self.milan.door.writes()
        scene.do(self.rome.client.patch(CONFIGMAPS, "conf", {"data": {"key": "2"}}, SHOP, view=None))
        scene.becomes("it follows", lambda: self.reflected(space) == {"key": "2"})
        scene.world.run(5)
        more = self.milan.door.writes() - before
        self.assertEqual(more[("patch", "configmaps")], 1, more)

    def test_unpeered_with_both(self) -> None:
        """The end of a peering takes all virtual nodes of the lender, and nothing is left at either side."""
        scene = self.stage
        kept = self.uids("c")
        scene.do(self.rome.client.delete(FOREIGNCLUSTERS, self.milan.id))
        scene.becomes("both nodes are gone", lambda: not self.of_milan(), 300)
        scene.becomes("the namespace in milan is gone", lambda: not self.left() and self.is_released(), 300)
        self.assertIsNone(self.rome.object(NAMESPACES, tenant_namespace(self.milan.id)))
        scene.world.run(120)
        self.assertEqual(self.of_milan(), [])
        self.assertEqual(self.uids("c"), kept)

    def of_milan(self) -> list[str]:
        nodes = [one["metadata"]["name"] for one in self.rome.objects(NODES)]
        records = [one for one in self.rome.objects(VIRTUALNODES) if one["spec"]["clusterID"] == self.milan.id]
        tables = [self.milan.id] if self.rome.object(TABLES, self.milan.id) else []
        return [name for name in nodes if "milan" in name] + [one["metadata"]["name"] for one in records] + tables

    def is_released(self) -> bool:
        return self.milan.object(NAMESPACES, remote_namespace(SHOP, self.rome.id)) is None


def restarts(pod: Json) -> int:
    """Return how often the containers of a pod were restarted."""
    return sum(int(one.get("restartCount", 0)) for one in pod["status"].get("containerStatuses") or ())
