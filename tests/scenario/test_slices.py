"""Slices of two lenders as three virtual nodes of different size: one is removed under load, and the others stay."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from kubesandbox.kinds.kinds import NODES, PODS, GroupResource, Json

from liqod.config import schema
from liqod.config.schema import Settings
from liqod.kube.resources import DEPLOYMENTS, RESOURCESLICES
from tests.scenario.case import FOREIGN, SHADOWPODS, SHOP, SMALL, ScenarioCase, deployment, live, node_ready, runs
from tests.scenario.side import Side

SLICES = GroupResource("sharing.liqo.io", "resourceslices")
VIRTUALNODES = GroupResource("offloading.liqo.io", "virtualnodes")
TAINT = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}


def with_classes(settings: Settings) -> Settings:
    """Return the settings of a lender with two classes."""
    classes: dict[str, dict[str, str]] = {"default": {}, "small": {"cpu": "5"}}
    return msgspec.structs.replace(settings, sharing=schema.SharingSettings(slice_classes=classes))


class SliceTests(ScenarioCase):
    """A home without room, two lenders, and slices of both."""

    def setUp(self) -> None:
        scene = self.stage = self.scene()
        self.rome = scene.side("rome", nodes=(SMALL,), peers=(2, 3))
        self.milan, self.turin = scene.side("milan", change=with_classes), scene.side("turin")
        self.space = self.rome.settings.kubernetes.namespace
        for side in scene.sides:
            side.start()
        scene.acquaint((self.rome, self.milan), (self.rome, self.turin))
        for lender in (self.milan, self.turin):
            scene.becomes(f"the node of {lender.name} is ready", partial(node_ready, self.rome, lender))
        scene.enable(self.rome)

    def ask(self, name: str, lender: Side, cpu: str, **more: Any) -> None:
        node = {"labels": {"pool": name}, **more.pop("virtualNode", {})}
        spec = {"providerClusterID": lender.id, "resources": {"cpu": cpu}, "virtualNode": node, **more}
        body = {"metadata": {"name": name}, "spec": spec}
        self.stage.do(self.rome.client.create(RESOURCESLICES, body, self.space, view=None))

    def change(self, name: str, cpu: str) -> None:
        patch = {"spec": {"resources": {"cpu": cpu}}}
        self.stage.do(self.rome.client.patch(RESOURCESLICES, name, patch, self.space, view=None))

    def answer(self, name: str) -> tuple[str, str, str]:
        """Return phase, reason and CPU of a slice."""
        status = (self.rome.object(SLICES, name, self.space) or {}).get("status", {})
        return status.get("phase", ""), status.get("reason", ""), status.get("resources", {}).get("cpu", "")

    def lent(self, lender: Side) -> dict[str, str]:
        """Return the CPU of each slice that a lender has on record."""
        record: Json = lender.object(FOREIGN, self.rome.id) or {}
        slices = record.get("status", {}).get("lent", {}).get("slices") or []
        return {one["name"]: one["resources"]["cpu"] for one in slices}

    def shows(self, name: str, cpu: str) -> bool:
        node = self.rome.object(NODES, name) or {}
        return bool(node.get("status", {}).get("allocatable", {}).get("cpu") == cpu)

    def pinned(self, name: str, node: str, count: int = 3) -> None:
        """Deploy pods on a node."""
        body = deployment(name, count)
        spec = body["spec"]["template"]["spec"]
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        spec["tolerations"] = [{"key": "example.com/gpu", "operator": "Exists"}]
        self.stage.do(self.rome.client.create(DEPLOYMENTS, body, SHOP, view=None))

    def counts(self, app: str, count: int) -> bool:
        pods = live(self.rome, app).values()
        return len(pods) == count and all(map(runs, pods))

    def uids(self, app: str) -> dict[str, dict[str, str]]:
        """Return the UIDs of an application's pods, in each cluster."""
        return {
            side.name: {name: pod["metadata"]["uid"] for name, pod in live(side, app).items()}
            for side in (self.rome, self.milan, self.turin)
        }

    def is_granted(self, name: str, cpu: str) -> bool:
        return self.answer(name) == ("Granted", "", cpu)

    def left(self) -> list[str]:
        """Return what is left in milan of the pods of the slice that is removed."""
        shadows = [*self.milan.objects(SHADOWPODS), *self.milan.objects(PODS)]
        return [one["metadata"]["name"] for one in shadows if one["metadata"].get("labels", {}).get("app") == "b"]

    def remove(self, *, kill: bool) -> None:
        scene = self.stage
        self.ask("one", self.milan, "4")
        self.ask("two", self.milan, "6", virtualNode={"taints": [TAINT]})
        self.ask("three", self.turin, "8")
        for name, cpu in (("one", "4"), ("two", "6"), ("three", "8")):
            scene.becomes(f"{name} is granted", partial(self.is_granted, name, cpu))
            scene.becomes(f"{name} has its node", partial(self.shows, name, cpu), 120)
        self.assertEqual((self.lent(self.milan), self.lent(self.turin)), ({"one": "4", "two": "6"}, {"three": "8"}))
        for app, node in (("a", "one"), ("b", "two"), ("c", "three")):
            self.pinned(app, node)
        scene.becomes("all run", lambda: all(self.counts(app, 3) for app in "abc"), 120)
        kept = {app: self.uids(app) for app in "ac"}
        nodes = {name: (self.rome.object(NODES, name) or {})["metadata"]["uid"] for name in ("one", "three")}
        # The load: an application grows on each lender's own node meanwhile.
        for app, node in (("d", "liqo-milan"), ("e", "liqo-turin")):
            self.pinned(app, node, 1)
        scene.do(self.rome.client.delete(RESOURCESLICES, "two", self.space))
        for app in "de":
            scene.scale(self.rome, app, 4)
        if kill:
            scene.world.run(1.0)
            self.rome.kill()
            scene.world.run(5.0)
            self.rome.start()
        scene.becomes("its node is gone", lambda: self.rome.object(NODES, "two") is None, 180)
        scene.becomes("nothing of it is left", lambda: not self.left(), 120)
        scene.becomes("the lender has it back", lambda: self.lent(self.milan) == {"one": "4"}, 120)
        scene.becomes("the record is gone", lambda: self.rome.object(SLICES, "two", self.space) is None, 120)
        scene.becomes("the others grow", lambda: self.counts("d", 4) and self.counts("e", 4), 120)
        scene.world.run(60)
        self.assertEqual({app: self.uids(app) for app in "ac"}, kept)
        now = {name: (self.rome.object(NODES, name) or {}).get("metadata", {}).get("uid") for name in nodes}
        self.assertEqual(now, nodes)
        for name, cpu in (("one", "4"), ("three", "8")):
            self.assertEqual((self.answer(name), self.shows(name, cpu)), (("Granted", "", cpu), True))

    def test_one_is_removed_under_load(self) -> None:
        """Its pods and its node go, and the lender has the amount back; pods and nodes of the others stay."""
        self.remove(kill=False)

    def test_the_daemon_is_killed_meanwhile(self) -> None:
        """The next daemon goes on with the removal: the record waits for it."""
        self.remove(kill=True)

    def test_what_is_refused_and_reduced(self) -> None:
        """A class bounds, the offer bounds, and a change takes nothing that pods use."""
        scene = self.stage
        self.ask("wide", self.milan, "7", **{"class": "small"})
        scene.becomes("it is reduced", lambda: self.answer("wide") == ("Reduced", "ClassLimit", "5"))
        self.ask("huge", self.milan, "1000")
        scene.becomes("it is refused", lambda: self.answer("huge") == ("Refused", "TooLarge", ""))
        self.ask("other", self.turin, "1", **{"class": "small"})
        scene.becomes("it is unknown", lambda: self.answer("other") == ("Refused", "UnknownClass", ""))
        self.assertIsNone(self.rome.object(VIRTUALNODES, "huge", self.space))
        scene.becomes("the node is there", lambda: self.shows("wide", "5"), 120)
        self.pinned("a", "wide")
        scene.becomes("all run", lambda: self.counts("a", 3), 120)
        self.change("wide", "2")
        scene.becomes("it keeps what it had", lambda: self.answer("wide") == ("Refused", "InUse", "5"))
        self.assertTrue(self.shows("wide", "5"))
        scene.scale(self.rome, "a", 1)
        scene.becomes("it is smaller", lambda: self.answer("wide") == ("Granted", "", "2"), 180)
        scene.becomes("and so is the node", lambda: self.shows("wide", "2"))
        self.assertTrue(self.counts("a", 1))
