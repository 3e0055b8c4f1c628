"""Where pods run by their virtual node's offloading patch and by their RuntimeClass, with a daemon that is killed."""

from __future__ import annotations

from typing import Any

from liqod.kube.resources import DEPLOYMENTS, NAMESPACES, RUNTIMECLASSES, VIRTUALNODES
from liqod.model.names import tenant_namespace
from liqod.webhook.runtime_class import runtime_class
from tests.scenario.case import SHOP, ScenarioCase, Scene, condition, deployment, live, offloaded
from tests.scenario.side import Side


def waiting(side: Side, app: str, count: int) -> bool:
    """Tell whether so many pods of an application are on a virtual node, and have no node at the lender."""
    pods = live(side, app).values()
    waits = [pod for pod in pods if pod["spec"].get("nodeName") and condition(pod, "PodScheduled") == "False"]
    return len(waits) == len(pods) == count


class PlacementTests(ScenarioCase):
    def patch_node(self, scene: Scene, side: Side, other: Side, patch: dict[str, Any] | None) -> None:
        change = {"spec": {"offloadingPatch": patch}}
        scene.do(side.client.patch(VIRTUALNODES, other.id, change, tenant_namespace(other.id), view=None))

    def test_a_patch_without_a_node(self) -> None:
        """Pods that wait for a node run once the patch is mended, also while no daemon ran; those that run go on."""
        scene = self.scene()
        rome, milan = scene.peered()
        scene.deploy(rome, "before", 2)
        scene.becomes("two run", lambda: offloaded(rome, milan, "before", 2))
        ran = {name: pod["metadata"]["uid"] for name, pod in live(milan, "before").items()}
        self.patch_node(scene, rome, milan, {"nodeSelector": {"pool": "none"}})
        scene.deploy(rome, "web", 3)
        scene.becomes("three wait", lambda: waiting(rome, "web", 3))
        known = {name: pod["metadata"]["uid"] for name, pod in live(rome, "web").items()}
        rome.kill()
        self.patch_node(scene, rome, milan, {"nodeSelector": {"pool": "nowhere-either"}})
        rome.start()
        scene.becomes("the daemon leads", lambda: rome.daemon.ready.is_open)
        scene.world.run(30)
        self.assertTrue(waiting(rome, "web", 3))
        rome.kill()
        self.patch_node(scene, rome, milan, None)
        rome.start()
        scene.becomes("they run", lambda: offloaded(rome, milan, "web", 3), 120)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(rome, "web").items()}, known)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(milan, "before").items()}, ran)

    def test_a_pod_that_asks_for_a_virtual_node(self) -> None:
        """With the RuntimeClass it is on a virtual node at once, and runs when its namespace is enabled."""
        scene = self.scene()
        rome, milan = scene.peered()
        scene.do(rome.client.create(RUNTIMECLASSES, runtime_class(), view=None))
        scene.do(rome.client.create(NAMESPACES, {"metadata": {"name": "later"}}, view=None))
        body = deployment("web", 1)
        body["spec"]["template"]["spec"]["runtimeClassName"] = "liqo"
        for namespace in (SHOP, "later"):
            name = f"web-{namespace}"
            labelled: dict[str, Any] = {"app": name}
            template = {**body["spec"]["template"], "metadata": {"labels": labelled}}
            spec = {**body["spec"], "selector": {"matchLabels": labelled}, "template": template}
            scene.do(
                rome.client.create(
                    DEPLOYMENTS, {**body, "metadata": {"name": name}, "spec": spec}, namespace, view=None
                )
            )
        scene.becomes("one runs", lambda: offloaded(rome, milan, f"web-{SHOP}", 1))
        scene.becomes("the other one waits", lambda: self.reasons(rome, "web-later") == ["OffloadingBackOff"])
        known = live(rome, "web-later").keys()
        (copy,) = live(milan, f"web-{SHOP}").values()
        self.assertFalse({"runtimeClassName", "nodeSelector"} & copy["spec"].keys())
        rome.kill()
        labels = {"metadata": {"labels": {"liqo.io/enabled": "true"}}}
        scene.do(rome.client.patch(NAMESPACES, "later", labels, view=None))
        rome.start()
        scene.becomes("it runs", lambda: offloaded(rome, milan, "web-later", 1), 120)
        self.assertEqual(live(rome, "web-later").keys(), known)

    def reasons(self, side: Side, app: str) -> list[str]:
        return [pod["status"].get("reason", "") for pod in live(side, app).values()]
