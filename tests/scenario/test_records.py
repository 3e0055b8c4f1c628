"""A peering and offloading by records alone, as in ``examples/gitops``: in any order, before and after the daemons."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from kubesandbox.kinds.kinds import NODES, PODS

from liqod.config import schema
from liqod.config.schema import Settings
from liqod.identity.certs import generate
from liqod.identity.store import to_secret
from liqod.kube import manifests
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    RESOURCESLICES,
    SEARCHDOMAINS,
    SECRETS,
    VIRTUALNODES,
)
from liqod.kube.writing.merge_patch import apply_merge_patch, merge_patch
from liqod.model.ids import ClusterID
from tests.scenario.case import OFFERS, SHOP, SMALL, ScenarioCase, Scene, condition, node_ready
from tests.scenario.side import PEER_PORT, Side

EXAMPLES = Path(__file__).parents[2] / "examples" / "gitops"
RECORDS = (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NAMESPACES,
    RESOURCESLICES,
    SEARCHDOMAINS,
    VIRTUALNODES,
)
KINDS = {one.kind: one for one in RECORDS}
NAMES = {"milan-6a1f": "cluster-2", "rome-93c2": "cluster-1"}
"""The cluster IDs of the examples, and those of the sides."""


def manual(settings: Settings) -> Settings:
    """Let nothing be accepted but by the user's decision."""
    acceptance = msgspec.convert({"policy": "Manual"}, schema.AcceptanceSettings)
    return msgspec.structs.replace(settings, acceptance=acceptance)


class RecordTests(ScenarioCase):
    def sides(self, scene: Scene) -> tuple[Side, Side]:
        """Have two clusters that know nothing of each other; their keys exist already."""
        rome = scene.side("rome", nodes=(SMALL,), change=manual)
        milan = scene.side("milan", change=manual)
        self.keys = {}
        for side in (rome, milan):
            key = generate(ClusterID(side.id), datetime.now(UTC))
            self.keys[side.id] = key.fingerprint
            scene.do(manifests.ensure(side.client))
            scene.do(side.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}}, view=None))
            body = {"metadata": {"name": "liqod-identity"}, "data": to_secret(key)}
            scene.do(side.client.create(SECRETS, body, "liqo-system", view=None))
        return rome, milan

    def records(self, folder: str, address: str = "") -> list[dict[str, Any]]:
        """Return the records of an example, with the IDs, keys and addresses of the sides."""
        found = []
        for file in sorted((EXAMPLES / folder).glob("*.yaml")):
            text = file.read_text()
            for name, cluster in NAMES.items():
                text = text.replace(name, cluster)
            found += list(yaml.safe_load_all(text))
        for one in found:
            if one["kind"] == "ForeignCluster":
                one["spec"]["fingerprint"] = self.keys[one["metadata"]["name"]]
                if "endpoints" in one["spec"]:
                    one["spec"]["endpoints"] = [{"address": address, "source": "Manual"}]
        return found

    def by_records(self, seed: int) -> None:
        scene = self.scene(seed)
        rome, milan = self.sides(scene)
        steps = [(rome, one) for one in self.records("borrower", f"{milan.address}:{PEER_PORT}")]
        steps += [(rome, one) for one in self.records("offloading")]
        steps += [(milan, one) for one in self.records("lender")]
        chance = random.Random(seed)
        chance.shuffle(steps)
        # Kubernetes refuses an object whose namespace is missing, and the tool that applies it tries again.
        steps.sort(key=lambda step: step[1]["kind"] == "NamespaceOffloading")
        started = chance.randrange(len(steps))
        for number, (side, record) in enumerate(steps):
            if number == started:
                rome.start()
                milan.start()
            if number >= started:
                scene.world.run(chance.choice((0.0, 1.0, 20.0)))
            kind = KINDS[record["kind"]]
            scene.do(side.client.apply(kind, record, manager="git", view=None))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan), 120)
        scene.becomes("the slice and the further node are there", lambda: further_nodes(rome), 120)
        scene.deploy(rome, "web", 6)
        scene.becomes("pods run at the lender", lambda: running(milan), 120)
        self.assertFalse(node_ready(milan, rome), "milan borrows nothing")
        self.assertEqual({one["metadata"]["name"] for one in rome.objects(OFFERS)}, {f"advertisement-{milan.id}"})
        # What git says stands as it is: the daemon did not write over it.
        for side, record in steps:
            kind, meta = KINDS[record["kind"]], record["metadata"]
            live = scene.do(side.client.get(kind, meta["name"], meta.get("namespace", "")))
            self.assertEqual(merge_patch(live.get("spec", {}), apply_merge_patch(live, record).get("spec", {})), {})

    def test_any_order(self) -> None:
        """The records of both sides, applied in any order, before or after the daemons start, make the peering."""
        for seed in (1, 2, 3):
            self.by_records(seed)


def running(side: Side) -> bool:
    """Return whether a pod of the namespace runs in another cluster."""
    return any(
        one["metadata"]["namespace"].startswith(SHOP) and one["status"].get("phase") == "Running"
        for one in side.objects(PODS)
    )


def further_nodes(side: Side) -> bool:
    """Return whether the nodes of the slice and of the VirtualNode in git are ready, with the amounts that git says."""
    nodes = {name: side.object(NODES, name) for name in ("milan-small", "milan-batch")}
    amounts = [((one or {}).get("status") or {}).get("allocatable", {}).get("cpu") for one in nodes.values()]
    return amounts == ["2", "4"] and all(condition(one, "Ready") == "True" for one in nodes.values())
