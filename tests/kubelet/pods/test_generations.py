"""Which generation of a home pod its status says was observed."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow
from liqod.kubelet.pods.decide import Decision, Keep, Patch, WriteStatus, decide
from liqod.kubelet.pods.forge import forge_patch, forge_shadow
from liqod.kubelet.pods.restarts import Tally
from liqod.model.ids import ClusterID
from liqod.model.names import HOME_SPEC_ANNOTATION
from liqod.model.objects.meta import ObjectMeta

CONTEXT = Context(home=ClusterID("rome"), lender=ClusterID("milan"), node_name="liqo-milan", node_address="10.0.0.9")
NOW = "2026-01-01T00:00:00Z"
BEFORE: dict[str, Any] = {"containers": [{"name": "main", "image": "web:1"}]}
AFTER: dict[str, Any] = {"containers": [{"name": "main", "image": "web:2"}]}
META: dict[str, Any] = {"name": "web", "namespace": "shop", "uid": "u1"}


def made(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the ShadowPod, and of the pod, that are up to date with a spec."""
    metadata: dict[str, Any] = forge_shadow(ObjectMeta(**META), spec, "shop-rome", CONTEXT)["metadata"]
    return {**metadata, "uid": "s1"}


def status(generation: int | None, *conditions: dict[str, Any]) -> dict[str, Any]:
    """Return a status that observed a generation."""
    seen = {} if generation is None else {"observedGeneration": generation}
    return {"phase": "Running", **seen, "conditions": list(conditions)}


def condition(kind: str, generation: int | None, value: str = "True") -> dict[str, Any]:
    """Return a condition that observed a generation."""
    seen = {} if generation is None else {"observedGeneration": generation}
    return {"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": NOW, **seen}


class GenerationTests(SynchronousTestCase):
    def ask(
        self,
        home: tuple[int, dict[str, Any], dict[str, Any]],
        remote: tuple[int, dict[str, Any], dict[str, Any]],
        shadow: dict[str, Any] | None = None,
    ) -> Decision:
        """Decide for a home pod and a remote one, each with its generation, the spec that it has, and its status."""
        generation, spec, seen = home
        body = {"metadata": {**META, "generation": generation}, "spec": spec, "status": seen}
        there = {"metadata": {**made(remote[1]), "uid": "r1", "generation": remote[0]}, "status": remote[2]}
        return decide(
            msgspec.json.decode(msgspec.json.encode(body), type=HomePod),
            msgspec.convert({"metadata": made(shadow or spec)}, Shadow),
            msgspec.json.decode(msgspec.json.encode(there), type=RemotePod),
            context=CONTEXT,
            namespace="shop-rome",
            tally=Tally("r1", {}, {}),
            now=NOW,
        )

    def test_the_table(self) -> None:
        """The home generation is observed once the remote pod has that spec, and its kubelet has looked at it."""
        old = status(2, condition("Ready", 2))
        table: list[tuple[str, Any, Any, int | None]] = [
            ("the kubelet has looked", (3, AFTER, old), (7, AFTER, status(7)), 3),
            ("it looked at a later one, which the lender's admission made", (3, AFTER, old), (7, AFTER, status(8)), 3),
            ("it has not looked yet", (3, AFTER, old), (7, AFTER, status(6)), 2),
            ("it has never looked", (1, AFTER, status(None)), (1, AFTER, status(None)), None),
            ("the pod has an older spec", (3, AFTER, old), (6, BEFORE, status(6)), 2),
            ("the lender counts no generations", (3, AFTER, old), (0, AFTER, status(None)), 3),
            ("home counts none", (0, AFTER, status(None)), (7, AFTER, status(7)), None),
        ]
        for name, home, remote, wanted in table:
            decision = self.ask(home, remote)
            new = decision.status if isinstance(decision, WriteStatus) else home[2]
            self.assertEqual(new.get("observedGeneration"), wanted, name)

    def test_conditions(self) -> None:
        """Conditions follow likewise; that of a resize keeps the generation that the resize began with."""
        home = status(2, condition("Ready", 2), condition("PodResizeInProgress", 2), condition("PodScheduled", 1))
        seen = status(
            7, condition("Ready", 7, "False"), condition("PodResizeInProgress", 5), condition("PodScheduled", 7)
        )
        decision = self.ask((3, AFTER, home), (7, AFTER, seen))
        assert isinstance(decision, WriteStatus)
        found = {one["type"]: one.get("observedGeneration") for one in decision.status["conditions"]}
        self.assertEqual(found, {"Ready": 3, "PodResizeInProgress": 2, "PodScheduled": 3})

    def test_written_once(self) -> None:
        """A status that was written is not written again, whatever the remote pod counts."""
        seen = status(7, condition("Ready", 7), condition("PodResizePending", 5), condition("PodScheduled", None))
        home = status(None, condition("PodScheduled", 1))
        for remote in ((7, AFTER, seen), (8, AFTER, seen), (7, BEFORE, seen)):
            decision = self.ask((3, AFTER, home), remote)
            assert isinstance(decision, WriteStatus)
            self.assertIsInstance(self.ask((3, AFTER, decision.status), remote), Keep)

    def test_a_change_that_is_not_for_the_lender(self) -> None:
        """A generation that grows by what the lender never sees (a toleration of virtual nodes) costs it no request."""
        spec = {**AFTER, "tolerations": [{"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists"}]}
        decision = self.ask((4, spec, status(3)), (7, AFTER, status(7)), shadow=AFTER)
        assert isinstance(decision, WriteStatus)
        self.assertEqual(decision.status["observedGeneration"], 4)
        self.assertIsInstance(self.ask((4, AFTER, status(3)), (7, BEFORE, status(7)), shadow=BEFORE), Patch)

    def test_resources_of_the_pod(self) -> None:
        """A resize of the pod as a whole goes to the lender like one of its containers."""
        spec = {**AFTER, "resources": {"requests": {"cpu": "1"}}}
        resized = {**AFTER, "resources": {"requests": {"cpu": "2"}}}
        patch = forge_patch(ObjectMeta(**META), resized, msgspec.convert(made(spec), ObjectMeta), CONTEXT)
        self.assertEqual(patch["spec"]["pod"]["resources"], {"requests": {"cpu": "2"}})
        self.assertIn(HOME_SPEC_ANNOTATION, patch["metadata"]["annotations"])
