"""Pods that end while nobody looks: what has ended is never run again, and what was taken away is."""

from __future__ import annotations

import attrs
from kubesandbox.kinds.kinds import PODS

from liqod.kube.resources import PODS as POD
from liqod.model.names import remote_namespace
from tests.scenario.case import BIG, SHOP, SMALL, ScenarioCase, Scene, all_of, live, node_ready, offloaded
from tests.scenario.kills import Ledger, finishing
from tests.scenario.side import Side

JOB = "job"


class EndTests(ScenarioCase):
    def begin(self) -> tuple[Scene, Side, Side]:
        """Have a peering that has offloaded before."""
        scene = self.scene()
        rome, milan = scene.peered()
        scene.deploy(rome, "steady", 1)
        scene.becomes("it runs", lambda: bool(all_of(milan, "steady")))
        return scene, rome, milan

    def phase(self, side: Side) -> str:
        found = all_of(side, JOB)
        return str(found[0]["status"].get("phase")) if found else ""

    def graces(self, side: Side, name: str) -> list[int | None]:
        """Return the seconds with which the pods of an app are being deleted, None for those that are not."""
        return [pod["metadata"].get("deletionGracePeriodSeconds") for pod in all_of(side, name)]

    def test_finished_and_deleted_unseen(self) -> None:
        """A pod that ends and is deleted while the lender's daemon is down is not run again, whenever that began."""
        for stage in ("created", "running", "finished", "reported"):
            for borrower_dies in (False, True):
                with self.subTest(stage=stage, borrower_dies=borrower_dies):
                    self.one_end(stage, borrower_dies=borrower_dies)

    def one_end(self, stage: str, *, borrower_dies: bool) -> None:
        scene, rome, milan = self.begin()
        ledger = Ledger(milan)
        scene.do(rome.client.create(POD, finishing(JOB), SHOP, view=None))
        waits = {
            "created": lambda: bool(all_of(milan, JOB)),
            "running": lambda: self.phase(milan) == "Running",
            "finished": lambda: self.phase(milan) == "Succeeded",
            "reported": lambda: self.phase(rome) == "Succeeded",
        }
        scene.becomes(stage, waits[stage])
        milan.kill()
        scene.becomes("it has ended there", waits["finished"], 30)
        if borrower_dies:
            # It was reported at home, and that is all that is left of it.
            scene.becomes("it is reported", waits["reported"], 30)
            rome.kill()
        space = remote_namespace(SHOP, rome.id)
        scene.do(milan.client.delete(POD, JOB, space, grace=0))
        scene.becomes("it is gone there", lambda: not all_of(milan, JOB), 30)
        if borrower_dies:
            rome.start()
            scene.world.run(30)
        milan.start()
        scene.world.run(300)
        self.assertEqual(self.phase(rome), "Succeeded")
        self.assertEqual(all_of(milan, JOB), [])
        self.assertEqual([uids for name, uids in ledger.uids.items() if name[1] == JOB and len(uids) != 1], [])
        self.assertEqual(len(all_of(rome, JOB)), 1)
        rome.kill()
        milan.kill()

    def test_the_end_costs_no_request(self) -> None:
        """Where the lender's daemon sees a pod end, the borrower writes nothing for it at the lender."""
        scene, rome, milan = self.begin()
        before = milan.door.writes("liqod")
        scene.do(rome.client.create(POD, finishing(JOB), SHOP, view=None))
        scene.becomes("it has ended", lambda: self.phase(rome) == "Succeeded", 60)
        scene.do(milan.client.delete(POD, JOB, remote_namespace(SHOP, rome.id)))
        scene.becomes("it is gone there", lambda: not all_of(milan, JOB), 30)
        scene.world.run(120)
        self.assertEqual((milan.door.writes("liqod") - before)["patch", "shadowpods"], 0)
        self.assertEqual(rome.object(PODS, JOB, SHOP)["status"]["phase"], "Succeeded")  # type: ignore[index]

    def test_the_grace_of_a_deletion(self) -> None:
        """A pod ends at the lender with the grace that it was deleted with at home, longer or shorter than its own; if
        nobody there heeds it, with its own.
        """
        scene = self.scene()
        rome = scene.side("rome", nodes=(SMALL,), peers=(2,))
        milan = scene.side("milan", nodes=(attrs.evolve(BIG, stop_delay=1000.0),))
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        scene.enable(rome)
        self.one_grace(scene, rome, milan, "longer", asked=90, given=90)
        self.one_grace(scene, rome, milan, "shorter", asked=5, given=5)
        self.one_grace(scene, rome, milan, "usual", asked=30, given=30)
        self.one_grace(scene, rome, milan, "unheeded", asked=7, given=30)

    def one_grace(self, scene: Scene, rome: Side, milan: Side, name: str, *, asked: int, given: int) -> None:
        spec = {"nodeSelector": {"liqo.io/type": "virtual-node"}, "containers": [{"name": "x", "image": "x"}]}
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        scene.do(rome.client.create(POD, body, SHOP, view=None))
        scene.becomes("it runs", lambda: offloaded(rome, milan, name, 1))
        if asked != given:
            milan.kill()
        scene.do(rome.client.delete(POD, name, SHOP, grace=asked))
        scene.becomes("it ends", lambda: self.graces(milan, name) != [None], 40)
        self.assertEqual(self.graces(milan, name), [given], name)
        began = scene.world.now
        scene.becomes("it is gone", lambda: not all_of(milan, name), 120)
        self.assertGreater(scene.world.now - began, given - 3, name)
        scene.becomes("it is gone at home", lambda: not all_of(rome, name), 60)

    def test_a_lost_node(self) -> None:
        """Pods on a node of the lender that is lost run on another one; one of a StatefulSet is left to people."""
        scene = self.scene()
        rome = scene.side("rome", nodes=(SMALL,), peers=(2,))
        milan = scene.side("milan", nodes=(BIG, attrs.evolve(BIG, name="other")))
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        scene.enable(rome)
        scene.deploy(rome, "web", 4)
        unique = {"app": "db", "statefulset.kubernetes.io/pod-name": "db"}
        spec = {"nodeSelector": {"liqo.io/type": "virtual-node"}, "containers": [{"name": "db", "image": "db"}]}
        scene.do(rome.client.create(POD, {"metadata": {"name": "db", "labels": unique}, "spec": spec}, SHOP, view=None))
        scene.becomes("all run", lambda: offloaded(rome, milan, "web", 4) and offloaded(rome, milan, "db", 1))
        before = {name: pod["metadata"]["uid"] for name, pod in live(rome, "web").items()}
        (place,) = {pod["spec"]["nodeName"] for pod in all_of(milan, "db")}
        milan.cluster.nodes.silence(place)
        scene.becomes("they are evicted there", lambda: not live(milan, "db"), 600)
        scene.becomes("all run elsewhere", lambda: offloaded(rome, milan, "web", 4), 300)
        self.assertEqual({name: pod["metadata"]["uid"] for name, pod in live(rome, "web").items()}, before)
        scene.world.run(600)
        self.assertTrue(all_of(milan, "db"))
        milan.cluster.nodes.resume(place)
        scene.becomes("it runs again as well", lambda: offloaded(rome, milan, "db", 1), 300)
