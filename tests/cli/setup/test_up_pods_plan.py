"""Which steps ``up --in-cluster`` plans, and what it says of pods while it waits: tables."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.setup.up.plan import Invitation, is_needed, refused
from liqod.cli.setup.up.pods.plan import HOPELESS, FoundInCluster, plan, progress, telling
from liqod.cli.setup.up.pods.wanted import Choices, Present, choose

DONE = FoundInCluster(keyed=True)
BARE = FoundInCluster(objects=("ClusterRole liqod",), pods=("Deployment liqo-system/liqod", "Service liqo-system/w"))
COMPONENT = "app.kubernetes.io/component"


def states(found: FoundInCluster) -> dict[str, str]:
    """Return the state of each step, in their order."""
    return {step.name: step.state for step in plan(found)}


def workload(kind: str = "Deployment", ready: int = 0, wanted: int = 1, **status: Any) -> dict[str, Any]:
    """Return a workload of the daemon."""
    counts = (
        {"numberReady": ready, "updatedNumberScheduled": ready, "desiredNumberScheduled": wanted}
        if kind == "DaemonSet"
        else {"readyReplicas": ready, "updatedReplicas": ready}
    )
    return {
        "kind": kind,
        "metadata": {"name": "liqod", "generation": 2},
        "spec": {"replicas": wanted, "template": {"metadata": {"labels": {COMPONENT: "daemon"}}}},
        "status": {"observedGeneration": 2, **counts, **status},
    }


def pod(*, waiting: dict[str, str] | None = None, ready: bool = False, **status: Any) -> dict[str, Any]:
    """Return a pod of the daemon."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}, *status.pop("conditions", [])]
    statuses = [{"state": {"waiting": waiting}}] if waiting else []
    return {
        "metadata": {"name": "liqod-1", "labels": {COMPONENT: "daemon"}},
        "status": {"phase": "Pending", "conditions": conditions, "containerStatuses": statuses, **status},
    }


def daemon(image: str) -> dict[str, Any]:
    """Return the Deployment of an installation that is there."""
    return {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}


class ImageTests(SynchronousTestCase):
    def test_whose(self) -> None:
        """The image given counts, else that of what is there, of this release where it was of one, else the usual."""
        usual = Choices("liqod", "rome")
        for given, there, chosen in (
            ("", None, "liqod"),
            ("mine:1", None, "mine:1"),
            ("mine:1", daemon("theirs:test"), "mine:1"),
            ("", daemon("registry:5000/liqod:test"), "registry:5000/liqod:test"),
            ("", daemon("registry:5000/liqod:0.9.1"), "registry:5000/liqod"),
        ):
            self.assertEqual(choose(Present(there), image=given, nodes=1, usual=usual).image, chosen, (given, there))


class StepTests(SynchronousTestCase):
    def test_bare(self) -> None:
        """In a bare cluster records and rights come before pods, and nothing is of the host."""
        self.assertEqual(states(BARE), {"check": "done", "cluster": "needed", "pods": "needed", "ready": "needed"})
        self.assertIn("1 Deployment, 1 Service", plan(BARE)[2].why)

    def test_complete(self) -> None:
        """Where everything is there nothing is needed."""
        self.assertEqual(set(states(DONE).values()), {"done"})
        self.assertFalse(is_needed(plan(DONE)))

    def test_one_missing(self) -> None:
        """What is missing is done, and waited for; nothing else."""
        for changed, needed in (
            ({"objects": ("ClusterRole liqod",)}, {"cluster"}),
            ({"pods": ("Deployment a/b",)}, {"pods", "ready"}),
            ({"waiting": ("liqod: 0 of 1 ready",)}, {"ready"}),
            ({"keyed": False}, {"ready"}),
            ({"invitation": Invitation("milan")}, {"peering"}),
            ({"invitation": Invitation("milan", trusted=True)}, set()),
        ):
            found = attrs.evolve(DONE, **changed)
            self.assertEqual({name for name, state in states(found).items() if state == "needed"}, needed, changed)

    def test_refused(self) -> None:
        """What is in the way is refused, with its reason."""
        for changed, reason in (
            ({"failed": ("too old",)}, "too old"),
            ({"obstacles": ("the Helm release mine",)}, "the Helm release mine"),
            ({"invitation": Invitation("milan", problem="no answer")}, "no answer"),
        ):
            self.assertEqual(refused(plan(attrs.evolve(BARE, **changed))), [reason])


class ProgressTests(SynchronousTestCase):
    def test_counts(self) -> None:
        """A workload is waited for until so many of its newest pods are ready as it wants, by the newest spec."""
        for one, waits in (
            (workload(ready=1), False),
            (workload(ready=1, wanted=2), True),
            (workload(ready=1, observedGeneration=1), True),
            (workload(ready=2, wanted=2, updatedReplicas=1), True),
            (workload("DaemonSet", 3, 3), False),
            (workload("DaemonSet", 0, 0), False),
            (workload("DaemonSet", 3, 3, updatedNumberScheduled=2), True),
            (workload("StatefulSet", 2, 2), False),
        ):
            self.assertEqual(bool(progress([one], []).waiting), waits, one)
        on_delete = workload("DaemonSet", 3, 3, updatedNumberScheduled=0)
        on_delete["spec"]["updateStrategy"] = {"type": "OnDelete"}
        self.assertEqual(progress([on_delete], []).waiting, ())

    def test_phases(self) -> None:
        """What pods that are not ready do is said; those of other workloads are not counted."""
        other = pod()
        other["metadata"]["labels"] = {COMPONENT: "node"}
        for one, said in (
            (pod(waiting={"reason": "ContainerCreating"}), "ContainerCreating"),
            (pod(phase="Running"), "starting"),
            (pod(), "pending"),
            (
                pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no node"}]),
                "not scheduled: no node",
            ),
        ):
            (line,) = progress([workload(wanted=2)], [one, pod(ready=True), other]).waiting
            self.assertEqual(line, f"liqod: 0 of 2 ready (1 {said})")

    def test_log(self) -> None:
        """Of the pods that are not ready one is named whose container was started: it may have written why."""
        crashed = {"waiting": {"reason": "CrashLoopBackOff"}}
        for status, named in (
            ({"state": {"running": {}}}, "liqod-1"),
            ({"state": {"terminated": {}}}, "liqod-1"),
            ({"state": crashed, "lastState": {"terminated": {}}}, "liqod-1"),
            ({"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}}, ""),
        ):
            one = pod(containerStatuses=[status])
            self.assertEqual(progress([workload()], [pod(ready=True), one]).unready, named, status)
        self.assertEqual(
            progress([workload()], [pod(ready=True, containerStatuses=[{"state": {"running": {}}}])]).unready, ""
        )

    def test_telling(self) -> None:
        """Of a log the last warnings are shown, in either form; where it has none, its last lines."""
        text = ["2026-01-01T00:00:00+0000 [liqod.wire#warn] no port", *[f"[liqod.wire#info] {n}" for n in range(9)]]
        self.assertEqual(telling("\n".join(text)), text[:1])
        later = text[0].replace("00:00:00", "00:00:10")
        self.assertEqual(telling("\n".join([*text, "[a#error] other", later])), ["[a#error] other", later])
        document = ['{"level":"error","message":"no"}', '{"level":"info","message":"warn"}']
        self.assertEqual(telling("\n".join(document)), document[:1])
        self.assertEqual(telling("\n".join(text[1:])), text[5:])
        self.assertEqual(telling(""), [])

    def test_hopeless(self) -> None:
        """What does not go away by waiting ends the wait, with its message; a pod that is being replaced does not."""
        for reason in HOPELESS:
            one = pod(waiting={"reason": reason, "message": "why"})
            found = progress([workload()], [one])
            self.assertIn(f"{reason}: why", found.hopeless)
            one["metadata"]["deletionTimestamp"] = "2026-11-27T00:00:00Z"
            self.assertEqual(progress([workload()], [one]).hopeless, "")
        old = pod(waiting={"reason": "CrashLoopBackOff"})
        old["spec"] = {"containers": [{"image": "earlier"}]}
        self.assertEqual(progress([workload()], [old]).hopeless, "")
        condition = {"type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity"}
        self.assertIn("violates PodSecurity", progress([workload(conditions=[condition])], []).hopeless)
