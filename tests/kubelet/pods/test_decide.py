"""What is decided about one pod, and about one namespace."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.writing.merge_patch import apply_merge_patch, merge_patch
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import Egress, EgressRule
from liqod.kubelet.common.meta import FORGED_ANNOTATION
from liqod.kubelet.common.network import NoNetwork
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded
from liqod.kubelet.namespaces import plan
from liqod.kubelet.pods.decide import (
    GRACE_DEADLINE,
    Create,
    Decision,
    DeleteHome,
    DeleteShadow,
    Keep,
    Patch,
    Skip,
    WriteStatus,
    decide,
    decide_network_down,
    decide_not_offloaded,
    decide_refused,
    decide_unreachable,
)
from liqod.kubelet.pods.forge import forge_shadow
from liqod.kubelet.pods.restarts import tally
from liqod.model.ids import ClusterID
from liqod.model.records.views import MappingStatus
from tests.kubelet.networks import HomeNetworks

CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("lender"), node_name="liqo-lender", node_address="10.0.0.1")
NOW = "2026-01-01T00:00:00Z"
OUTSIDE = "label it liqo.io/enabled=true"
SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}], "nodeName": "liqo-lender"}
PENDING = {"phase": "Pending"}
RUNNING = {
    "phase": "Running",
    "podIP": "10.9.0.1",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW}],
    "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": {"running": {}}}],
}


def home(status: dict[str, Any] = PENDING, **meta: Any) -> HomePod:
    body = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1", **meta}, "spec": SPEC, "status": status}
    return msgspec.json.decode(msgspec.json.encode(body), type=HomePod)


def shadow(pod: HomePod | None = None, status: dict[str, Any] | None = None, **meta: Any) -> Shadow:
    body = forge_shadow((pod or home()).metadata, SPEC, "shop-home", CONTEXT)
    body["metadata"].update({"uid": "s1", **meta})
    return msgspec.convert({"metadata": body["metadata"], "status": status or {}}, Shadow)


def remote(status: dict[str, Any] = RUNNING, **meta: Any) -> RemotePod:
    made = shadow().metadata
    labelled = {"name": "web", "uid": "r1", "labels": made.labels, "annotations": made.annotations, **meta}
    return msgspec.json.decode(msgspec.json.encode({"metadata": labelled, "status": status}), type=RemotePod)


def ask(pod: HomePod | None, there: Shadow | None, runs: RemotePod | None, **more: Any) -> Decision:
    count = None
    if pod is not None and runs is not None:
        count = tally(None, decoded(pod.status), runs.metadata.uid, decoded(runs.status))
    return decide(pod, there, runs, context=CONTEXT, namespace="shop-home", tally=count, now=NOW, **more)


DELETING: dict[str, Any] = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}
FOREIGN: dict[str, Any] = {"labels": {"app": "theirs"}}


class DecideTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """Each situation gives the one decision that is right for it."""
        aborted = home({"phase": "Failed", "reason": "OffloadingAborted"})
        held: dict[str, Any] = {**DELETING, "deletionGracePeriodSeconds": 0, "finalizers": ["x/y"]}
        other_node: dict[str, Any] = {"labels": {**shadow().metadata.labels, "offloading.liqo.io/nodename": "another"}}
        table: list[tuple[str, Any, Any, Any, type]] = [
            ("new pod", home(), None, None, Create),
            ("nothing at all", None, None, None, Keep),
            ("orphan", None, shadow(), remote(), DeleteShadow),
            ("orphan that goes already", None, shadow(deletionTimestamp=NOW), remote(), Keep),
            ("foreign ShadowPod", home(), shadow(**FOREIGN), None, Skip),
            ("foreign ShadowPod without a home pod", None, shadow(**FOREIGN), None, Keep),
            ("ShadowPod without a home pod, foreign pod", None, shadow(), remote(**FOREIGN), DeleteShadow),
            ("foreign pod", home(), None, remote(**FOREIGN), Skip),
            ("ShadowPod of another node, without a home pod", None, shadow(**other_node), None, Keep),
            ("leftover pod", home(), None, remote(), Keep),
            ("predecessor's ShadowPod", home(uid="u2"), shadow(), remote(), DeleteShadow),
            ("predecessor's, going", home(uid="u2"), shadow(deletionTimestamp=NOW), remote(), Keep),
            ("labels changed", home(labels={"new": "1"}), shadow(), remote(), Patch),
            ("runs", home(), shadow(), remote(), WriteStatus),
            ("not yet there", home(), shadow(), None, Keep),
            ("vanished", home(RUNNING), shadow(), None, WriteStatus),
            ("going away at the lender", home(RUNNING), shadow(), remote(deletionTimestamp=NOW), WriteStatus),
            (
                "refused",
                home(),
                shadow(status={"phase": "Pending", "reason": "Quota", "message": "m"}),
                None,
                WriteStatus,
            ),
            ("ended, pod gone", home(RUNNING), shadow(status={"phase": "Succeeded"}), None, WriteStatus),
            ("finished", home({"phase": "Succeeded"}), shadow(), remote(), Keep),
            ("finished, gone at the lender", home({"phase": "Succeeded"}), shadow(), None, Patch),
            ("finished, the lender knows", home({"phase": "Failed"}), shadow(status={"phase": "Failed"}), None, Keep),
            ("finished, ShadowPod gone", home({"phase": "Succeeded"}), None, None, Keep),
            ("aborted", aborted, shadow(aborted), remote(), DeleteShadow),
            ("aborted, gone", aborted, None, None, Keep),
            ("deleted, runs", home(**DELETING), shadow(), remote(), DeleteShadow),
            ("deleted, ends", home(**DELETING), shadow(deletionTimestamp=NOW), remote(), Keep),
            ("deleted, pod left", home(**DELETING), None, remote(), Keep),
            ("deleted, ended", home(RUNNING, **DELETING), None, remote({"phase": "Failed"}), WriteStatus),
            ("deleted, gone", home(**DELETING), None, None, DeleteHome),
            ("deleted, held by finalizers", home({"phase": "Failed"}, **held), None, None, Keep),
        ]
        for what, pod, there, runs, expected in table:
            self.assertIsInstance(ask(pod, there, runs), expected, f"{what}")

    def test_reclaimed(self) -> None:
        """A pod whose lender takes back what it lent has failed once its pod there goes; a controller makes another."""
        over = shadow(status={"phase": "Failed", "reason": "Reclaimed", "message": "taken back"})
        for there in (remote(deletionTimestamp=NOW), None):
            step = ask(home(RUNNING), over, there)
            assert isinstance(step, WriteStatus)
            self.assertEqual((step.status["phase"], step.status["reason"]), ("Failed", "Reclaimed"))
            self.assertIsInstance(ask(home(step.status), over, there), Keep)

    def test_a_pod_that_may_not_leave(self) -> None:
        """It is neither made nor changed there, whatever is there already: one that never left waits and says why, one
        that did fails, and what is there of it goes; its deletion takes the usual way.
        """
        egress = Egress((EgressRule(number=3, verdict="deny", kinds=frozenset({"pod"})),))
        kept = attrs.evolve(CONTEXT, egress=Latest(egress))

        def step(pod: HomePod | None, there: Shadow | None, runs: RemotePod | None) -> Decision:
            return decide(pod, there, runs, context=kept, namespace="shop-home", tally=None, now=NOW)

        first = step(home(), None, None)
        assert isinstance(first, WriteStatus) and first.report is not None
        self.assertEqual((first.status["phase"], first.report.reason), ("Pending", "EgressDenied"))
        self.assertIn("rule 3", first.report.message)
        self.assertIsInstance(step(home(first.status), None, None), Keep)
        for pod, there in ((home(RUNNING), shadow()), (home(), shadow()), (home(RUNNING), None)):
            ended = step(pod, there, remote() if there is not None else None)
            assert isinstance(ended, WriteStatus)
            self.assertEqual((ended.status["phase"], ended.status["reason"]), ("Failed", "OffloadingAborted"))
            if there is not None:
                self.assertIsInstance(step(home(ended.status), there, remote()), DeleteShadow)
        self.assertIsInstance(step(home(uid="u2"), shadow(), remote()), DeleteShadow)
        self.assertIsInstance(step(home(**DELETING), shadow(), remote()), DeleteShadow)

    def test_an_update_that_must_wait(self) -> None:
        """An update that is held back holds nothing else back: statuses, ends and other updates go on."""
        changed = {"labels": {"new": "1"}}
        update = ask(home(RUNNING, **changed), shadow(), remote())
        assert isinstance(update, Patch)
        held, old = update.patch["metadata"]["annotations"][FORGED_ANNOTATION], home(PENDING, **changed)
        restarted = {**RUNNING, "podIP": "10.9.0.2"}
        table: list[tuple[str, Any, Any, Any, Any]] = [
            ("nothing is held", old, remote(), None, Patch),
            ("an earlier one is held", old, remote(), "another digest", Patch),
            ("a note is held", old, remote(), "", Patch),
            ("it starts", old, remote(), held, WriteStatus),
            ("it changes", home(RUNNING, **changed), remote(restarted), held, WriteStatus),
            ("it ends", home(RUNNING, **changed), remote({"phase": "Succeeded"}), held, WriteStatus),
            ("it is gone", home(RUNNING, **changed), None, held, WriteStatus),
            ("it is deleted", home(RUNNING, **changed, **DELETING), remote(), held, DeleteShadow),
        ]
        for what, pod, runs, digest, expected in table:
            self.assertIsInstance(ask(pod, shadow(), runs, held=digest), expected, f"{what}")

    def test_grace(self) -> None:
        """A grace that home gave instead of the pod's own is reported first; the ShadowPod goes when it is heeded."""
        key = "offloading.liqo.io/deletion-grace-period-seconds"
        usual, other = home(**DELETING), home(**{**DELETING, "deletionGracePeriodSeconds": 7})
        gone = DeleteShadow("s1")
        reported = Patch({"metadata": {"uid": "s1", "annotations": {key: "7"}}})
        annotations = shadow().metadata.annotations
        knows = shadow(annotations={**annotations, key: "7"})
        knew = shadow(annotations={**annotations, key: "30"})
        table: list[tuple[str, Any, Any, Any, Any]] = [
            ("its own", usual, shadow(), remote(), gone),
            ("another", other, shadow(), remote(), reported),
            ("it changed", other, knew, remote(), reported),
            ("no pod yet", other, shadow(), None, gone),
            ("heeded", other, knows, remote(deletionTimestamp=NOW), gone),
            ("it leaves anyway", other, shadow(), remote(deletionTimestamp=NOW), gone),
            ("a predecessor's", home(**{**DELETING, "deletionGracePeriodSeconds": 7}, uid="u2"), knew, remote(), gone),
        ]
        for what, pod, there, runs, expected in table:
            self.assertEqual(ask(pod, there, runs), expected, what)
        waits = ask(other, knows, remote())
        self.assertIsInstance(waits, Keep)
        self.assertEqual(waits.again, GRACE_DEADLINE)  # type: ignore[union-attr]
        self.assertEqual(ask(other, knows, remote(), grace_ignored=True), gone)

    def test_a_grace_of_zero_is_one_second(self) -> None:
        """A pod whose spec says 0 is deleted with 1 by the API server: that is its own grace, and nothing is
        reported.
        """
        for own, grace, reported in ((0, 1, False), (1, 1, False), (0, 2, True), (0, 30, True), (None, 30, False)):
            body = {**SPEC, **({} if own is None else {"terminationGracePeriodSeconds": own})}
            meta = {"name": "web", "namespace": "shop", "uid": "u1", **DELETING, "deletionGracePeriodSeconds": grace}
            encoded = msgspec.json.encode({"metadata": meta, "spec": body, "status": PENDING})
            decision = ask(msgspec.json.decode(encoded, type=HomePod), shadow(), remote())
            self.assertIsInstance(decision, Patch if reported else DeleteShadow, f"{own}, {grace}")

    def test_a_refused_address(self) -> None:
        """It is reported with the write of the status, and in no other."""
        own = HomeNetworks("10.96.0.0/12")
        context = attrs.evolve(CONTEXT, network=NoNetwork(own))
        for address, reasons in (("10.96.0.1", ["AddressRefused"]), ("10.202.0.9", [])):
            pod, there = home(), remote({**RUNNING, "podIP": address})
            count = tally(None, decoded(pod.status), "r1", decoded(there.status))
            found = decide(pod, shadow(), there, context=context, namespace="shop-home", tally=count, now=NOW)
            assert isinstance(found, WriteStatus)
            self.assertEqual([found.report.reason] if found.report else [], reasons)
            self.assertEqual(found.status.get("podIP"), None if reasons else address)

    def test_unreachable(self) -> None:
        """While the lender does not answer no pod becomes ready; after long none is, and no status is written twice."""
        ready, pending = home(RUNNING), home(PENDING)
        stale = ask(home(PENDING), shadow(), remote())
        self.assertIsInstance(stale, WriteStatus)
        self.assertIsInstance(decide_unreachable(pending, stale, NOW, silent=False), Keep)
        self.assertIsInstance(decide_unreachable(ready, Keep(), NOW, silent=False), Keep)
        written = decide_unreachable(ready, Keep(), NOW, silent=True)
        assert isinstance(written, WriteStatus)
        (said,) = written.status["conditions"]
        self.assertEqual((said["type"], said["status"], said["reason"]), ("Ready", "False", "LenderUnreachable"))
        for silent in (False, True):
            again = decide_unreachable(home(written.status), stale, NOW, silent=silent)
            self.assertIsInstance(again, Keep)
        for decision in (DeleteHome("u1"), Create({}), WriteStatus({"phase": "Succeeded"})):
            self.assertEqual(decide_unreachable(ready, decision, NOW, silent=True), decision)
        leaving = home(RUNNING, deletionTimestamp=NOW)
        self.assertEqual(decide_unreachable(leaving, Keep("x"), NOW, silent=True), Keep("x"))

    def test_cut_off(self) -> None:
        """While no packet crosses no pod is ready, and says why; all else is reported, and nothing is written again."""
        written = decide_network_down(home(RUNNING), Keep(), NOW)
        assert isinstance(written, WriteStatus)
        (said,) = written.status["conditions"]
        self.assertEqual((said["status"], said["reason"]), ("False", "NetworkDown"))
        self.assertFalse(written.status["containerStatuses"][0]["ready"])
        later = "2026-01-01T00:10:00Z"
        seen = home({**written.status, "podIPs": [{"ip": "10.9.0.1"}]})
        wanted = ask(seen, shadow(), remote())
        self.assertIsInstance(wanted, WriteStatus)
        self.assertIsInstance(decide_network_down(seen, wanted, later), Keep)
        restarted = [{"name": "main", "ready": True, "restartCount": 3, "state": {"running": {}}}]
        news = decide_network_down(seen, WriteStatus({**RUNNING, "containerStatuses": restarted}), later)
        assert isinstance(news, WriteStatus)
        self.assertEqual(news.status["containerStatuses"][0]["restartCount"], 3)
        self.assertEqual(news.status["conditions"], written.status["conditions"])
        for decision in (DeleteHome("u1"), Create({}), WriteStatus({"phase": "Succeeded"}), WriteStatus(PENDING)):
            self.assertEqual(decide_network_down(home(RUNNING), decision, NOW), decision)
        self.assertEqual(decide_network_down(home(RUNNING, deletionTimestamp=NOW), Keep("x"), NOW), Keep("x"))

    def test_lost_peer(self) -> None:
        """A deleted pod that waited long enough for an unreachable lender goes, whatever is still seen there."""
        self.assertEqual(ask(home(**DELETING), shadow(), remote(), lender_lost=True), DeleteHome("u1"))

    def test_a_deleted_pod_whose_name_another_has(self) -> None:
        """It ends when nothing of its own is left at the lender, and nothing of another's is deleted for it."""
        other: dict[str, Any] = {"labels": {**shadow().metadata.labels, "offloading.liqo.io/nodename": "another"}}
        theirs: dict[str, Any] = {**other, "annotations": {"offloading.liqo.io/home-pod-uid": "u0"}}
        gone = DeleteHome("u1")
        table: list[tuple[str, Any, Any, Any]] = [
            ("another node's ShadowPod", shadow(**theirs), None, gone),
            ("and its pod", shadow(**theirs), remote(**theirs), gone),
            ("a foreign ShadowPod", shadow(**FOREIGN), None, gone),
            ("a foreign pod", None, remote(**FOREIGN), gone),
            ("both foreign", shadow(**FOREIGN), remote(**FOREIGN), gone),
            ("its own ShadowPod, a foreign pod", shadow(), remote(**FOREIGN), DeleteShadow("s1")),
            ("its own goes, a foreign pod", shadow(deletionTimestamp=NOW), remote(**FOREIGN), None),
            ("a foreign ShadowPod, its own pod", shadow(**FOREIGN), remote(), None),
            ("another node's ShadowPod, its own pod", shadow(**theirs), remote(), None),
        ]
        for what, there, runs, expected in table:
            for lost in (False, True):
                found = ask(home(**DELETING), there, runs, lender_lost=lost)
                if lost or expected is not None:
                    self.assertEqual(found, gone if lost else expected, (what, lost))
                else:
                    self.assertIsInstance(found, Keep, f"{what}")

    def test_preconditions(self) -> None:
        """Deletions name the object they mean."""
        self.assertEqual(ask(None, shadow(), None), DeleteShadow("s1"))
        self.assertEqual(ask(home(**DELETING), None, None), DeleteHome("u1"))
        patch = ask(home(labels={"new": "1"}), shadow(), None)
        assert isinstance(patch, Patch)
        self.assertEqual(patch.patch["metadata"]["uid"], "s1")

    def test_the_lender_learns_of_an_end_that_it_missed(self) -> None:
        """When the lender did not see a pod end that is gone there, its ShadowPod gets a note, once."""
        done = home({"phase": "Succeeded"})
        patch = ask(done, shadow(), None)
        note = {"offloading.liqo.io/finished": "Succeeded"}
        self.assertEqual(patch, Patch({"metadata": {"uid": "s1", "annotations": note}}))
        noted = shadow(annotations={**shadow().metadata.annotations, **note})
        self.assertIsInstance(ask(done, noted, None), Keep)

    def test_the_last_sight_of_a_pod_that_ended(self) -> None:
        """A job's pod that ended and was removed at once has ended; one taken away, or to run for ever, has not."""
        job = {**SPEC, "restartPolicy": "Never"}
        succeeded, failed = {"phase": "Succeeded"}, {"phase": "Failed", "reason": "Error"}
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        evicted = {"phase": "Failed", "reason": "Evicted", "conditions": disrupted}
        greedy = {"phase": "Failed", "reason": "Evicted"}
        rows: list[tuple[dict[str, Any], RemotePod, str]] = [
            (job, remote(succeeded), "Succeeded"),
            (job, remote(succeeded, deletionTimestamp=NOW), "Succeeded"),
            (job, remote(failed), "Failed"),
            (job, remote(failed, deletionTimestamp=NOW), "Running"),
            (job, remote(evicted), "Running"),
            (job, remote(greedy), "Failed"),
            (SPEC, remote(succeeded), "Running"),
            (job, remote(succeeded, annotations={"offloading.liqo.io/home-pod-uid": "u0"}), "Running"),
        ]
        for spec, last, phase in rows:
            body = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": spec, "status": RUNNING}
            pod = msgspec.json.decode(msgspec.json.encode(body), type=HomePod)
            made = msgspec.convert({**forge_shadow(pod.metadata, spec, "s", CONTEXT)}, Shadow)
            count = tally(None, RUNNING, "r1", decoded(last.status))
            step = decide(pod, made, None, context=CONTEXT, namespace="s", tally=count, now=NOW, ended=last)
            assert isinstance(step, WriteStatus), step
            self.assertEqual(step.status["phase"], phase)

    def test_how_containers_end_after_their_pod(self) -> None:
        """A pod whose deadline has passed is Failed before its containers end; how they ended is reported as well,
        once.
        """
        late = {"phase": "Failed", "reason": "DeadlineExceeded"}
        done = {"name": "main", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}
        reported = home({**RUNNING, **late})
        self.assertIsInstance(ask(reported, shadow(), remote({**RUNNING, **late})), Keep)
        ended = remote({**late, "containerStatuses": [done]})
        decision = ask(reported, shadow(), ended)
        assert isinstance(decision, WriteStatus)
        self.assertEqual((decision.status["phase"], decision.status["reason"]), ("Failed", "DeadlineExceeded"))
        self.assertEqual(decision.status["containerStatuses"], [done])
        self.assertIsInstance(ask(home(decision.status), shadow(), ended), Keep)
        other = remote({"phase": "Succeeded", "containerStatuses": [done]})
        self.assertIsInstance(ask(reported, shadow(), other), Keep)
        earlier = remote({**late, "containerStatuses": [done]}, annotations={"offloading.liqo.io/home-pod-uid": "u0"})
        self.assertIsInstance(ask(reported, shadow(), earlier), Keep)

    def test_a_refusal_is_reported_once(self) -> None:
        """The lender's words become a condition and an event; seeing them again is no news."""
        said = {"phase": "Pending", "reason": "QuotaExceeded", "message": "2 cpu\nleft"}
        decision = ask(home(), shadow(status=said), None)
        assert isinstance(decision, WriteStatus) and decision.report is not None
        self.assertEqual((decision.report.reason, decision.report.message), ("QuotaExceeded", "2 cpu left"))
        self.assertEqual(decision.status["phase"], "Pending")
        self.assertIsInstance(ask(home(decision.status), shadow(status=said), None), Keep)

    def test_hostile_words(self) -> None:
        """A reason that is not one word is replaced, and a huge message is cut."""
        decision = decide_refused(home(), "not a reason!", "x" * 100000, NOW)
        assert isinstance(decision, WriteStatus) and decision.report is not None
        self.assertEqual(decision.report.reason, "Refused")
        self.assertEqual(len(decision.report.message), 1024)

    def test_a_final_phase_on_the_way_out_is_not_believed(self) -> None:
        """A pod that is Failed because the lender is deleting it will be re-created; home stays Running, not ready."""
        decision = ask(home(RUNNING), shadow(), remote({"phase": "Failed"}, deletionTimestamp=NOW))
        assert isinstance(decision, WriteStatus)
        self.assertEqual(decision.status["phase"], "Running")
        self.assertEqual(decision.status["conditions"][0]["status"], "False")

    def test_an_eviction_at_the_lender_is_not_the_end(self) -> None:
        """A pod evicted there comes back, so home stays Running, not ready; one that failed by itself, or was evicted
        for using more storage than its limits allow, has failed.
        """
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        low = {"phase": "Failed", "reason": "Evicted", "conditions": disrupted}
        evicted = ask(home(RUNNING), shadow(), remote(low))
        drained = ask(home(RUNNING), shadow(), remote({"phase": "Failed", "conditions": disrupted}))
        for decision in (evicted, drained):
            assert isinstance(decision, WriteStatus)
            self.assertEqual(decision.status["phase"], "Running")
            self.assertEqual(decision.status["conditions"][0]["status"], "False")
        for reason in ("Error", "Evicted"):
            failed = ask(home(RUNNING), shadow(), remote({"phase": "Failed", "reason": reason}))
            assert isinstance(failed, WriteStatus)
            self.assertEqual((failed.status["phase"], failed.status["reason"]), ("Failed", reason))

    def test_the_predecessors_pod_tells_nothing(self) -> None:
        """The status of a remote pod made for an earlier home pod of the same name is not taken over."""
        old = remote(annotations={"offloading.liqo.io/home-pod-uid": "u0"})
        self.assertIsInstance(ask(home(), shadow(), old), Keep)

    def test_outside(self) -> None:
        """A pod of a namespace that is not offloaded gets one event, aborted if it ran, and let go when deleted."""
        decision = decide_not_offloaded(home(), OUTSIDE, NOW)
        assert isinstance(decision, WriteStatus) and decision.report is not None
        self.assertEqual(decision.report.reason, "OffloadingBackOff")
        self.assertEqual(decision.report.message, OUTSIDE)
        asking = msgspec.Raw(msgspec.json.encode({**SPEC, "runtimeClassName": "liqo"}))
        asked = decide_not_offloaded(msgspec.structs.replace(home(), spec=asking), OUTSIDE, NOW)
        assert isinstance(asked, WriteStatus) and asked.report is not None
        self.assertIn("runtimeClassName liqo asks for virtual nodes", asked.report.message)
        self.assertIn("liqo.io/enabled=true", decision.report.message)
        self.assertIsInstance(decide_not_offloaded(home(decision.status), OUTSIDE, "later"), Keep)
        ran = decide_not_offloaded(home(RUNNING), OUTSIDE, NOW)
        assert isinstance(ran, WriteStatus)
        self.assertEqual(ran.status["reason"], "OffloadingAborted")
        self.assertIsInstance(decide_not_offloaded(home(ran.status), OUTSIDE, NOW), Keep)
        self.assertIsInstance(decide_not_offloaded(home(**DELETING), OUTSIDE, NOW), DeleteHome)

    @given(
        pod=st.sampled_from(["none", "pending", "running", "succeeded", "deleting", "successor"]),
        there=st.sampled_from(["none", "ours", "stale", "deleting"]),
        runs=st.sampled_from(["none", "running", "pending", "deleting"]),
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_it_converges(self, pod: str, there: str, runs: str) -> None:
        """From any state, carrying out decisions reaches rest within a few steps, and a live pod ends up running."""
        world = World(pod, there, runs)
        for _ in range(20):
            if not world.step():
                break
        else:
            self.fail(f"no rest: {world.log}")
        if pod in ("pending", "running", "successor"):
            assert world.home is not None
            self.assertEqual(decoded(world.home.status)["phase"], "Running", world.log)
            assert world.shadow is not None
            self.assertEqual(world.log.count("Create") <= 1, True)
        if pod in ("none", "deleting"):
            self.assertEqual((world.home, world.shadow), (None, None), world.log)


class World:
    """Both clusters around one pod: what a decision changes, and what the lender then does."""

    def __init__(self, pod: str, there: str, runs: str) -> None:
        pods: dict[str, HomePod | None] = {
            "none": None,
            "pending": home(),
            "running": home(RUNNING),
            "succeeded": home({"phase": "Succeeded"}),
            "deleting": home(**DELETING),
            "successor": home(uid="u2"),
        }
        self.home = pods[pod]
        shadows = {
            "none": None,
            "ours": shadow(),
            "stale": shadow(home(labels={"old": "1"})),
            "deleting": shadow(deletionTimestamp=NOW),
        }
        self.shadow = shadows[there]
        remotes = {
            "none": None,
            "running": remote(),
            "pending": remote(PENDING),
            "deleting": remote(deletionTimestamp=NOW),
        }
        self.remote = remotes[runs]
        self.log: list[str] = []

    def step(self) -> bool:
        decision = ask(self.home, self.shadow, self.remote)
        self.log.append(type(decision).__name__)
        match decision:
            case Create(body):
                body["metadata"]["uid"] = "s2"
                self.shadow = msgspec.convert({"metadata": body["metadata"]}, Shadow)
            case Patch(patch):
                assert self.shadow is not None
                old = msgspec.to_builtins(self.shadow.metadata)
                self.shadow = msgspec.convert({"metadata": apply_merge_patch(old, patch["metadata"])}, Shadow)
            case DeleteShadow():
                self.shadow = None
            case DeleteHome():
                self.home = None
            case WriteStatus(status):
                assert self.home is not None
                body = {"metadata": msgspec.to_builtins(self.home.metadata), "spec": SPEC}
                old = decoded(self.home.status)
                assert merge_patch(old, status), "an equal status was written"
                body["status"] = apply_merge_patch(old, merge_patch(old, status))
                self.home = msgspec.json.decode(msgspec.json.encode(body), type=HomePod)
            case Keep() | Skip():
                return self.lender()
        return True

    def lender(self) -> bool:
        if self.shadow is not None and self.shadow.metadata.deleting:
            self.shadow = None
        elif self.remote is not None and (self.shadow is None or self.remote.metadata.deleting):
            self.remote = None
        elif self.shadow is not None and self.remote is None:
            made = self.shadow.metadata
            self.remote = remote(labels=made.labels, annotations=made.annotations)
        elif self.remote is not None and decoded(self.remote.status) == PENDING:
            self.remote = remote()
        else:
            return False
        return True


class NamespacePlanTests(SynchronousTestCase):
    def plan(self, **more: Any) -> plan.Step:
        facts: dict[str, Any] = {
            "enabled": True,
            "pods": True,
            "table": {"shop": "shop-home"},
            "reverse": {"shop-home": "shop"},
            "status": MappingStatus(phase="Ready"),
            "asked": False,
            "home": ClusterID("home"),
        }
        return plan.plan("shop", **{**facts, **more})

    def test_the_table(self) -> None:
        """The translation comes before the question, the pods leave before the namespace is given back."""
        remote = "shop-home"
        self.assertEqual(self.plan(), plan.Serve(remote))
        self.assertEqual(self.plan(pods=False), plan.Serve(remote))
        self.assertEqual(self.plan(table={}, reverse={}), plan.WriteEntry(remote))
        self.assertEqual(self.plan(table={}, reverse={}, pods=False), plan.Rest())
        self.assertEqual(self.plan(table={}, reverse={}, enabled=False), plan.Rest())
        self.assertEqual(self.plan(status=None), plan.Ask(remote))
        self.assertEqual(self.plan(asked=True), plan.Ask(remote))
        self.assertEqual(self.plan(status=MappingStatus(phase="Refused")), plan.Ask(remote))
        self.assertEqual(self.plan(status=MappingStatus(phase="Refused"), pods=False), plan.Rest())
        self.assertEqual(self.plan(enabled=False), plan.Drain(remote))
        self.assertEqual(self.plan(enabled=False, pods=False), plan.Release(remote))

    @given(
        st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["", "market"])), min_size=1, max_size=6),
        st.dictionaries(st.sampled_from(["shop-home", "market"]), st.sampled_from(["Ready", "Refused"])),
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_change_of_mind(self, changes: list[tuple[bool, bool, str]], answers: dict[str, str]) -> None:
        """Whatever users change: what was granted keeps its name, nothing goes under pods, and it comes to rest."""
        entry: str | None = None
        status: MappingStatus | None = None
        for included, pods, wanted in changes:
            for _ in range(6):
                step = self.plan(
                    enabled=included,
                    pods=pods,
                    table={"shop": entry} if entry else {},
                    reverse={entry: "shop"} if entry else {},
                    status=status,
                    wanted=wanted,
                )
                match step:
                    case plan.WriteEntry(remote):
                        self.assertFalse(status is not None and status.phase == "Ready", "a granted name was replaced")
                        entry, status = remote, None
                    case plan.Ask(remote):
                        self.assertEqual(remote, entry)
                        status = MappingStatus(phase=answers.get(remote, "Refused"), reason="NameNotYours")
                    case plan.Drain():
                        self.assertTrue(pods and not included)
                        pods = False
                    case plan.Release():
                        self.assertFalse(pods or included)
                        entry = status = None
            settled = isinstance(step, plan.Serve | plan.Rest) or (
                isinstance(step, plan.Ask) and status is not None and status.phase == "Refused"
            )
            self.assertTrue(settled, step)
            self.assertTrue(included or entry is None)

    def test_names_that_users_choose(self) -> None:
        """A chosen name is asked for; it replaces another one only if the lender will not give that one."""
        free: dict[str, Any] = {"table": {}, "reverse": {}, "wanted": "market"}
        self.assertEqual(self.plan(**free), plan.WriteEntry("market"))
        self.assertEqual(self.plan(**{**free, "reverse": {"market": "bazaar"}}), plan.Rest())
        self.assertEqual(self.plan(wanted="market"), plan.Serve("shop-home"))
        for reason, expected in (
            ("NameNotYours", plan.WriteEntry("market")),
            ("NamespaceTaken", plan.WriteEntry("market")),
            ("NotLending", plan.Ask("shop-home")),
            ("Internal", plan.Ask("shop-home")),
        ):
            refused = MappingStatus(phase="Refused", reason=reason)
            self.assertEqual(self.plan(wanted="market", status=refused), expected, reason)
            self.assertEqual(self.plan(wanted="market", status=refused, pods=False), plan.Rest(), reason)
            self.assertEqual(self.plan(status=refused), plan.Ask("shop-home"), reason)
