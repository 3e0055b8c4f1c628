"""Whether a ShadowPod may run, what to do about it, and how soon."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.crash_backoff import Creations
from liqod.hosting.shadowpods import rejections
from liqod.hosting.shadowpods.admission import MAX_MESSAGE, Admit, Refuse, admit, sentence
from liqod.hosting.shadowpods.decide import (
    AwaitTermination,
    Create,
    Delete,
    FinishedPod,
    NameTaken,
    Nothing,
    RecordResult,
    Step,
    Terminate,
    Tracked,
    Update,
    decide,
    result_of,
)
from liqod.hosting.shadowpods.forge import MAX_GRACE
from liqod.hosting.shadowpods.pod_contract import restrict
from liqod.hosting.tenants.admission.pod_shape import MAX_CONTAINERS
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.views import FORGED_ANNOTATION, Pod
from liqod.kube.errors import from_status
from liqod.model.records.views import MAX_POD_BYTES, ShadowPod


def shadow(uid: str = "s-1", phase: str = "", deleting: bool = False, origin: str = "c1", pod: Any = None) -> ShadowPod:
    metadata = {"name": "web", "namespace": "ns", "uid": uid, "labels": {"offloading.liqo.io/origin": origin}}
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    spec = pod if pod is not None else {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"pod": msgspec.Raw(json.dumps(spec).encode())}, "status": {"phase": phase}},
        ShadowPod,
    )


def pod(
    *,
    owner: str = "s-1",
    phase: str = "Running",
    reason: str = "",
    policy: str | None = None,
    deleting: bool = False,
    managed: bool = True,
    disrupted: bool = False,
    forged: bool = False,
) -> Pod:
    owners = [{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "uid": owner, "controller": True}]
    metadata: dict[str, Any] = {
        "name": "web",
        "namespace": "ns",
        "uid": "p-1",
        "labels": {"liqo.io/managed-by": "shadowpod"},
        "ownerReferences": owners if managed else [],
        "annotations": {FORGED_ANNOTATION: "{}"} if forged else {},
    }
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    status: dict[str, Any] = {"phase": phase, "reason": reason}
    if disrupted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    return msgspec.convert(
        {"metadata": metadata, "spec": {"restartPolicy": policy} if policy else {}, "status": status}, Pod
    )


class AdmitTests(SynchronousTestCase):
    offered = {"cpu": Fraction(2)}

    def reason(self, verdict: Admit | Refuse) -> str:
        return verdict.reason if isinstance(verdict, Refuse) else ""

    def test_it_may_run(self) -> None:
        """A pod of the tenant whose namespace it is, that fits, is admitted with what it asks for."""
        self.assertEqual(admit(shadow(), "c1", self.offered, {}), Admit({"cpu": Fraction(1), "pods": Fraction(1)}))

    def test_only_in_its_own_namespaces(self) -> None:
        """A ShadowPod that claims another origin, or lies in a namespace that was not granted, is refused."""
        self.assertEqual(self.reason(admit(shadow(origin="c2"), "c1", self.offered, {})), "OriginMismatch")
        self.assertEqual(self.reason(admit(shadow(origin=""), "c1", self.offered, {})), "OriginMismatch")
        self.assertEqual(self.reason(admit(shadow(), "", self.offered, {})), "OriginMismatch")
        self.assertEqual(self.reason(admit(shadow(origin=""), "", self.offered, {})), "OriginMismatch")

    def test_a_wrong_origin_is_named(self) -> None:
        """The sentence says what the label says, also when it is not there, and whose the namespace is."""
        for origin, reported in (("c2", "says c2,"), ("", "says nothing,")):
            refused = admit(shadow(origin=origin), "c1", self.offered, {})
            assert isinstance(refused, Refuse)
            self.assertIn(reported, refused.message)
            self.assertIn("granted to c1", refused.message)

    def test_only_what_is_lent(self) -> None:
        """Without an offer nothing runs; with one, no more than that."""
        self.assertEqual(self.reason(admit(shadow(), "c1", None, {})), "NotLent")
        refused = admit(shadow(), "c1", self.offered, {"cpu": Fraction(3, 2)})
        self.assertEqual(self.reason(refused), "QuotaExceeded")
        assert isinstance(refused, Refuse)
        self.assertIn("asks cpu 1, 500m left of 2", refused.message)

    def test_only_pods(self) -> None:
        """What is not the spec of a pod is refused with where it is wrong."""
        deep = json.loads("[" * 900 + "]" * 900)
        cases: list[Any] = [
            [],
            {},
            {"containers": None},
            {"containers": [{"resources": []}]},
            {"containers": deep},
            "x",
        ]
        for hostile in cases:
            self.assertEqual(self.reason(admit(shadow(pod=hostile), "c1", self.offered, {})), "InvalidPod")

    def test_what_is_too_large_is_not_kept(self) -> None:
        """Of a pod above the limit the size is known, for the refusal, and nothing else is in memory."""
        image = "x" * MAX_POD_BYTES
        record = shadow(pod={"containers": [{"name": "main", "image": image}]})
        self.assertLess(len(bytes(record.spec.pod)), 20)
        self.assertGreater(record.spec.oversize, MAX_POD_BYTES)
        message = f"it has {record.spec.oversize} bytes"
        refused = admit(record, "c1", self.offered, {})
        assert isinstance(refused, Refuse)
        self.assertEqual((refused.reason, message in refused.message), ("InvalidPod", True))
        with self.assertRaisesRegex(ValueError, message):
            restrict(record, Contract())
        self.assertEqual(msgspec.structs.replace(record.spec).oversize, record.spec.oversize)
        at_the_limit = shadow(pod={"containers": [{"image": ""}]})
        room = MAX_POD_BYTES - len(bytes(at_the_limit.spec.pod))
        at_the_limit = shadow(pod={"containers": [{"image": "x" * room}]})
        self.assertEqual((len(bytes(at_the_limit.spec.pod)), at_the_limit.spec.oversize), (MAX_POD_BYTES, 0))

    def test_containers_of_all_kinds_are_counted_together(self) -> None:
        """A pod has at most 256, however they are called: each costs this cluster's node the same."""
        kinds = ("containers", "initContainers", "ephemeralContainers")
        for kind in kinds:
            for many, allowed in ((MAX_CONTAINERS - 2, True), (MAX_CONTAINERS - 1, False)):
                spec = {each: [{"name": f"{each}-0"}] for each in kinds}
                spec[kind] = [{"name": f"{kind}-{number}"} for number in range(many)]
                answer = admit(shadow(pod=spec), "c1", {"cpu": Fraction(1)}, {})
                self.assertEqual(isinstance(answer, Admit), allowed, (kind, many))

    def test_sentences_are_bounded(self) -> None:
        """What others wrote is kept to one printable line of bounded length."""
        self.assertEqual(sentence("a\nb\x1b[31m"), "a b [31m")
        self.assertEqual(len(Refuse("X", "y" * 5000).message), MAX_MESSAGE)


class DecideTests(SynchronousTestCase):
    def table(self, rows: list[tuple[ShadowPod | None, Pod | None, Step]]) -> None:
        for position, (record, seen, step) in enumerate(rows):
            self.assertEqual(decide(record, seen), step, f"row {position}")

    def test_pod_is_kept_real(self) -> None:
        """A missing pod is made, a running one followed, one that is ending awaited."""
        self.table(
            [
                (shadow(), None, Create()),
                (shadow(), pod(), Update()),
                (shadow(), pod(phase="Pending"), Update()),
                (shadow(), pod(deleting=True), AwaitTermination()),
                (None, None, Nothing()),
            ]
        )

    def test_without_a_shadow_pod(self) -> None:
        """The pod of a ShadowPod that is gone goes too; it is asked for first unless that was witnessed."""
        self.table(
            [
                (None, pod(), Delete("p-1", "s-1", certain=False)),
                (None, pod(deleting=True), Nothing()),
                (None, pod(managed=False), Nothing()),
                (shadow(deleting=True), pod(), Delete("p-1", "s-1", certain=True)),
                (shadow(deleting=True), None, Nothing()),
                (shadow(deleting=True), pod(deleting=True), AwaitTermination()),
                (shadow(phase="Succeeded"), pod(deleting=True), AwaitTermination()),
                (shadow("s-2"), pod(owner="s-1"), Delete("p-1", "s-1", certain=False)),
                (shadow("s-2"), pod(owner="s-1", deleting=True), AwaitTermination()),
            ]
        )
        self.assertEqual(decide(None, pod(), deleted_uid="s-1"), Delete("p-1", "s-1", certain=True))
        self.assertEqual(decide(None, pod(), deleted_uid="s-0"), Delete("p-1", "s-1", certain=False))

    def test_strangers_are_left_alone(self) -> None:
        """A pod that no ShadowPod controls is never touched, whatever its labels say."""
        self.assertEqual(decide(shadow(), pod(managed=False)), NameTaken())
        for record in (None, shadow(deleting=True), shadow(phase="Succeeded")):
            self.assertEqual(decide(record, pod(managed=False, deleting=True)), Nothing())

    def test_what_an_owner_left(self) -> None:
        """A pod that was made here and has no owner any more goes, also if its name is in use; confirmed first."""
        left = pod(managed=False, forged=True)
        for seen in (None, shadow(deleting=True), shadow("s-2")):
            self.assertEqual(decide(seen, left), Delete("p-1", "", certain=False))
        self.assertEqual(decide(None, pod(managed=False, forged=True, deleting=True)), Nothing())

    def test_finished_never_runs_again(self) -> None:
        """The end is recorded once; after that nothing is done, with or without the pod."""
        for policy in ("Never", "OnFailure", "Always"):
            self.assertEqual(decide(shadow(), pod(phase="Succeeded", policy=policy)), RecordResult("Succeeded"))
        self.assertEqual(
            decide(shadow(), pod(phase="Failed", policy="Never", reason="Error")), RecordResult("Failed", "Error")
        )
        self.assertEqual(decide(shadow(), pod(phase="Failed")), RecordResult("Failed"))
        late = pod(phase="Failed", reason="DeadlineExceeded", deleting=True)
        self.assertEqual(decide(shadow(), late), RecordResult("Failed", "DeadlineExceeded"))
        for seen in (None, pod(phase="Succeeded"), pod()):
            self.assertEqual(decide(shadow(phase="Succeeded"), seen), Nothing())

    def test_finished_before_it_was_recorded(self) -> None:
        """A pod that was seen to end and is gone before the record shows it is recorded, not run again."""
        self.assertEqual(decide(shadow(), None, result=RecordResult("Succeeded")), RecordResult("Succeeded"))

    def test_taken_away_is_not_finished(self) -> None:
        """A pod that was evicted, preempted or lost its node is removed and so made again, also one of a job."""
        again = Delete("p-1", "s-1", certain=True)
        for policy in (None, "Always", "OnFailure", "Never"):
            for reason in ("NodeLost", "Preempting", "Terminated", "OutOfcpu", "UnexpectedAdmissionError"):
                self.assertEqual(decide(shadow(), pod(phase="Failed", reason=reason, policy=policy)), again)
            for reason in ("", "Evicted"):
                low = pod(phase="Failed", reason=reason, disrupted=True, policy=policy)
                self.assertEqual(decide(shadow(), low), again)
            drained = pod(phase="Failed", disrupted=True, policy=policy, deleting=True)
            self.assertEqual(decide(shadow(), drained), AwaitTermination())
            self.assertIsNone(result_of(drained))
        done = pod(phase="Succeeded", disrupted=True, policy="Never", deleting=True)
        self.assertEqual(decide(shadow(), done), RecordResult("Succeeded"))

    def test_more_than_its_limits_allow(self) -> None:
        """A pod that was evicted for the storage it used itself has ended: made again, it would do the same."""
        for policy in (None, "Always", "OnFailure", "Never"):
            for deleting in (False, True):
                greedy = pod(phase="Failed", reason="Evicted", policy=policy, deleting=deleting)
                self.assertEqual(decide(shadow(), greedy), RecordResult("Failed", "Evicted"))
                self.assertEqual(result_of(greedy), RecordResult("Failed", "Evicted"))

    def test_the_borrower_saw_it_end(self) -> None:
        """A pod that is gone and that the borrower saw end is not made again; other notes mean nothing."""
        for reported, step in (
            ("Succeeded", RecordResult("Succeeded", "SeenByBorrower")),
            ("Failed", RecordResult("Failed", "SeenByBorrower")),
            ("Running", Create()),
            ("", Create()),
        ):
            noted = shadow()
            noted.metadata.annotations["offloading.liqo.io/finished"] = reported
            self.assertEqual(decide(noted, None), step)
            self.assertEqual(decide(noted, pod()), Update())

    def test_a_grace_to_end_with(self) -> None:
        """A pod ends with the seconds that its borrower says, once, and is not made again; nonsense means nothing."""

        def asked(text: str) -> ShadowPod:
            noted = shadow()
            noted.metadata.annotations["offloading.liqo.io/deletion-grace-period-seconds"] = text
            return noted

        def ends(left: int) -> Pod:
            ending = pod(deleting=True)
            return msgspec.structs.replace(
                ending, metadata=msgspec.structs.replace(ending.metadata, deletion_grace_period_seconds=left)
            )

        for text, grace in (("7", 7), ("0", 1), ("999999999", MAX_GRACE)):
            self.assertEqual(decide(asked(text), pod()), Terminate("p-1", grace))
        for text in ("", "-1", "soon", "1.5", "\u0661", "9999999999", " 7"):
            self.assertEqual(decide(asked(text), pod()), Update(), text)
        self.assertEqual(decide(asked("7"), ends(30)), Terminate("p-1", 7))
        for left in (7, 3, 0):
            self.assertEqual(decide(asked("7"), ends(left)), AwaitTermination())
        self.assertEqual(decide(asked("7"), None), Nothing())
        self.assertEqual(decide(asked("7"), pod(managed=False)), Nothing())
        self.assertEqual(decide(asked("7"), pod(owner="s-0")), Nothing())
        self.assertEqual(
            decide(asked("7"), pod(phase="Succeeded", policy="Never"), result=RecordResult("x")), RecordResult("x")
        )

    def test_ended_by_its_deletion_is_not_finished(self) -> None:
        """A kubelet ends a pod it is asked to delete: that says nothing about a pod that was to run for ever."""
        for phase in ("Succeeded", "Failed"):
            self.assertEqual(decide(shadow(), pod(phase=phase, deleting=True)), AwaitTermination())
            self.assertIsNone(result_of(pod(phase=phase, deleting=True)))
            self.assertEqual(decide(shadow(), pod(phase=phase, deleting=True, policy="Never")), RecordResult(phase))


class TrackedTests(SynchronousTestCase):
    """What is remembered of a name."""

    def test_a_result_is_of_one_shadow_pod(self) -> None:
        """How a pod finished counts for the ShadowPod that it was created for, not for a later one of that name."""
        finished = RecordResult("Succeeded")
        tracked = Tracked(observed=FinishedPod("s-1", finished))
        for asked, known in ((shadow("s-1"), finished), (shadow("s-2"), None), (None, None)):
            self.assertEqual(tracked.result_of(asked), known)
        self.assertIsNone(Tracked().result_of(shadow("s-1")))


class CreationsTests(SynchronousTestCase):
    def test_at_once_then_slower(self) -> None:
        """A pod that vanished is back at once, one that keeps vanishing ever later; a long life resets that."""
        creations, now = Creations(), 1000.0
        waits = []
        for _ in range(13):
            waits.append(wait := creations.wait(now))
            now += wait
            creations = creations.created(now)
        self.assertEqual(waits[:5], [0, 0, 1, 2, 4])
        self.assertEqual(waits[-1], 300)
        self.assertEqual(creations.wait(now + 601), 0)
        self.assertEqual(creations.created(now + 601), Creations(1, now + 601))


class RejectionsTests(SynchronousTestCase):
    def reason(self, code: int, message: str, **fields: Any) -> str:
        refusal = rejections.refusal(
            from_status(code, json.dumps({"message": message, "code": code, **fields}).encode())
        )
        return "" if refusal is None else refusal.reason

    def test_reasons(self) -> None:
        """The lender's own no becomes a reason; what passes by itself does not."""
        self.assertEqual(
            self.reason(403, 'pods "x" is forbidden: violates PodSecurity "baseline:latest": …'), "PodSecurity"
        )
        self.assertEqual(self.reason(403, 'pods "x" is forbidden: exceeded quota: q, requested: …'), "ResourceQuota")
        self.assertEqual(self.reason(403, 'pods is forbidden: User "liqod" cannot create'), "Forbidden")
        self.assertEqual(
            self.reason(400, 'admission webhook "policy.example" denied the request: no'), "AdmissionDenied"
        )
        self.assertEqual(self.reason(422, "Pod is invalid: spec.containers[0].image: Required value"), "InvalidPod")
        self.assertEqual(self.reason(500, 'Internal error: failed calling webhook "x"'), "AdmissionUnavailable")
        self.assertEqual(self.reason(403, 'error looking up service account a/default: "default" not found'), "")
        terminating = {"details": {"causes": [{"reason": "NamespaceTerminating", "message": "x"}]}}
        self.assertEqual(self.reason(403, "unable to create new content", **terminating), "")
        for code in (404, 409, 429, 500, 503):
            self.assertEqual(self.reason(code, "later"), "")
