"""The final phase of a deleted pod that finalizers hold."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.views import HomePod, decoded
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.pods.decide import (
    Create,
    DeleteHome,
    DeleteShadow,
    Keep,
    WriteStatus,
    decide,
    decide_not_offloaded,
    decide_refused,
)
from liqod.kubelet.pods.restarts import tally
from liqod.model.ids import Key
from tests.kubelet.pods.test_controller import Case
from tests.kubelet.pods.test_decide import CONTEXT, DELETING, NOW, PENDING, RUNNING, SPEC, ask, home, remote, shadow

JOB = ["batch.kubernetes.io/job-tracking"]


class DecideTests(SynchronousTestCase):
    def test_it_is_written_first(self) -> None:
        """Its final phase is written before it is let go, once: the Job controller counts no pod without one."""
        deleting: dict[str, Any] = {**DELETING, "finalizers": JOB}
        held = {**deleting, "deletionGracePeriodSeconds": 0}
        rows: list[tuple[Any, Any, Any, bool]] = [
            (home(PENDING, **deleting), None, None, False),
            (home(RUNNING, **deleting), None, None, False),
            (home(PENDING, **held), None, None, False),
            (home(RUNNING, **held), None, None, False),
            (home(RUNNING, **deleting), shadow(), remote(), True),
        ]
        for pod, there, runs, lost in rows:
            decision = ask(pod, there, runs, lender_lost=lost)
            assert isinstance(decision, WriteStatus), decision
            self.assertEqual((decision.status["phase"], decision.report), ("Failed", None))
            ends = [one["state"]["terminated"]["exitCode"] for one in decision.status.get("containerStatuses", [])]
            self.assertEqual(ends, [137] * len(ends))
            meta = msgspec.to_builtins(pod.metadata)
            after = ask(home(decision.status, **meta), there, runs, lender_lost=lost)
            let_go = Keep if pod.metadata.deletion_grace_period_seconds == 0 else DeleteHome
            self.assertIsInstance(after, let_go)
        for meta, expected in ((deleting, WriteStatus), (DELETING, DeleteHome)):
            self.assertIsInstance(decide_refused(home(**meta), "NotLending", "no", NOW), expected)
            self.assertIsInstance(decide_not_offloaded(home(**meta), "no", NOW), expected)

    def test_it_is_the_one_at_the_lender(self) -> None:
        """The phase in which it ended there is written before its ShadowPod goes; without finalizers none is."""
        job: dict[str, Any] = {**DELETING, "finalizers": JOB}
        done = remote({"phase": "Succeeded"})
        knows = shadow(status={"phase": "Succeeded"})
        earlier = remote({"phase": "Succeeded"}, annotations={"offloading.liqo.io/home-pod-uid": "u0"})
        count = tally(None, RUNNING, "r1", {"phase": "Succeeded"})
        rows: list[tuple[str, dict[str, Any], Any, Any, Any, Any]] = [
            ("it ended", job, shadow(), done, None, "Succeeded"),
            ("it is gone", job, shadow(), None, done, "Succeeded"),
            ("it is gone, the ShadowPod goes", job, shadow(deletionTimestamp=NOW), None, done, "Succeeded"),
            ("the lender alone saw it", job, knows, None, None, "Succeeded"),
            ("a predecessor's", job, shadow(), None, earlier, DeleteShadow),
            ("a predecessor's ShadowPod", {**job, "uid": "u2"}, knows, None, None, DeleteShadow),
            ("no finalizers", DELETING, shadow(), done, None, DeleteShadow),
            ("no finalizers, gone", DELETING, shadow(), None, done, DeleteShadow),
            ("no finalizers, the lender saw it", DELETING, knows, None, None, DeleteShadow),
        ]
        for what, meta, there, runs, ended, expected in rows:
            found = decide(
                home(RUNNING, **meta),
                there,
                runs,
                context=CONTEXT,
                namespace="shop-home",
                tally=count,
                now=NOW,
                ended=ended,
            )
            if isinstance(expected, str):
                assert isinstance(found, WriteStatus), (what, found)
                self.assertEqual(found.status["phase"], expected, what)
                after = ask(home(found.status, **meta), there, runs, ended=ended)
                self.assertIsInstance(after, Keep if there.metadata.deleting else DeleteShadow, f"{what}")
            else:
                self.assertIsInstance(found, expected, f"{what}")

    def test_its_shadow_pod_is_gone(self) -> None:
        """A pod whose ShadowPod goes before its end is written has ended all the same, and is not run again; one that
        was taken away is, as is one that is to run for ever.
        """
        job, held = {**SPEC, "restartPolicy": "Never"}, {**DELETING, "finalizers": JOB}
        succeeded, failed = {"phase": "Succeeded"}, {"phase": "Failed", "reason": "Error"}
        taken = remote(failed, deletionTimestamp=NOW)
        earlier = remote(succeeded, annotations={"offloading.liqo.io/home-pod-uid": "u0"})
        rows: list[tuple[dict[str, Any], dict[str, Any], Any, str | type]] = [
            (job, {}, remote(succeeded), "Succeeded"),
            (job, {}, remote(succeeded, deletionTimestamp=NOW), "Succeeded"),
            (job, {}, remote(failed), "Failed"),
            (job, {}, taken, Create),
            (job, {}, earlier, Create),
            (SPEC, {}, remote(succeeded), Create),
            (job, held, remote(succeeded), "Succeeded"),
            (job, DELETING, remote(succeeded), DeleteHome),
        ]
        for spec, meta, last, expected in rows:
            body = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1", **meta}, "spec": spec}
            pod = msgspec.json.decode(msgspec.json.encode({**body, "status": RUNNING}), type=HomePod)
            for runs, ended in ((None, last), (last, None)):
                count = tally(None, RUNNING, "r1", decoded(last.status))
                found = decide(pod, None, runs, context=CONTEXT, namespace="s", tally=count, now=NOW, ended=ended)
                if isinstance(expected, str):
                    assert isinstance(found, WriteStatus), found
                    self.assertEqual(found.status["phase"], expected)
                elif runs is None:
                    self.assertIsInstance(found, expected)
                else:
                    self.assertIsInstance(found, Keep | WriteStatus)


class RemoteTests(SynchronousTestCase):
    """What a remote namespace remembers of a pod that had terminated."""

    def test_whichever_goes_first(self) -> None:
        """Its last state is there until it is forgotten, whether its ShadowPod or the pod itself goes first."""
        for order in (("shadow", "pod"), ("pod", "shadow")):
            there = RemoteNamespace(Clock(), cast(Any, None), "shop-home", CONTEXT)
            for informer in (there._shadows, there._pods):
                self.patch(type(informer), "synced", True)
            key, last = Key("shop-home", "web"), remote({"phase": "Succeeded"})
            for one in order:
                if one == "pod":
                    there._pod_changed(key, last, None)
                else:
                    there._shadow_changed(key, shadow(), None)
            self.assertEqual(there.ended("web"), last)
            there.forget_ended("web")
            self.assertIsNone(there.ended("web"))


class ControllerTests(Case):
    """When it is written."""

    def test_it_does_not_wait(self) -> None:
        """It is written at once, since the lender's pod is gone a moment later; other statuses wait for more."""
        for meta, written in (({**DELETING, "finalizers": JOB}, ["status"]), (DELETING, [])):
            self.begin(home(RUNNING, **meta), None, remote({"phase": "Succeeded"}))
            self.controller._delay = 0.05
            self.step()
            self.assertEqual(self.home.requests, written)
