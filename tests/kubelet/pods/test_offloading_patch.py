"""The offloading patch of a virtual node: what it adds to pods at the lender, and which pods it contradicts."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import FORGED_ANNOTATION
from liqod.kubelet.common.views import Shadow
from liqod.kubelet.pods.decide import Create, DeleteShadow, Keep, Patch, WriteStatus, decide
from liqod.kubelet.pods.forge import digest_of, digest_of_spec, forge_patch, forge_shadow, forge_spec
from liqod.kubelet.pods.offloading_patch import PATCHED_ANNOTATION, contradiction, placement_digest
from liqod.kubelet.pods.restarts import tally
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node_selector import Term, rules_out, selects
from liqod.model.records.views import OffloadingPatch
from tests.kubelet.pods import test_decide as cases
from tests.kubelet.pods.test_forge import CONTEXT, container, meta

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = {"key": "example.com/gpu", "operator": "Exists"}
SSD = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
SPEC: dict[str, Any] = {"containers": [container()]}
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from("abc"),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": st.lists(st.sampled_from("xyz"), min_size=1, max_size=2),
    }
)
TERMS = st.lists(st.builds(lambda some: {"matchExpressions": some}, st.lists(EXPRESSIONS, max_size=3)), max_size=3)


def patch(**fields: Any) -> OffloadingPatch:
    return msgspec.convert(fields, OffloadingPatch)


def affinity(terms: list[Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def with_patch(context: Context = CONTEXT, **fields: Any) -> Context:
    return attrs.evolve(context, patch=Latest(patch(**fields)))


class ForgeTests(SynchronousTestCase):
    def test_everything_is_added(self) -> None:
        """Selector, tolerations, node affinity and runtime class of the patch are in the pod, and nothing is shared."""
        context = with_patch(
            nodeSelector={"pool": "a"}, tolerations=[GPU], affinity=affinity(SSD), runtimeClassName="kata"
        )
        own = {"key": "own", "operator": "Exists"}
        spec = {**SPEC, "tolerations": [own], "nodeSelector": {"zone": "rome"}, "affinity": affinity([])}
        before = copy.deepcopy((spec, context.patch.value))
        forged = forge_spec(meta(), spec, context)
        self.assertEqual(forged["nodeSelector"], {"pool": "a"})
        self.assertEqual(forged["tolerations"], [own, GPU])
        self.assertEqual(forged["affinity"], affinity(SSD))
        self.assertEqual(forged["runtimeClassName"], "kata")
        self.assertEqual((spec, context.patch.value), before)

    def test_without_a_patch(self) -> None:
        """An empty patch changes neither the pod nor its digests, so that pods of an older daemon stay as they are."""
        shadow = forge_shadow(meta(), SPEC, "shop-home", CONTEXT)
        self.assertEqual(shadow, forge_shadow(meta(), SPEC, "shop-home", with_patch(labelsNotReflected=["x"])))
        self.assertNotIn(PATCHED_ANNOTATION, shadow["metadata"]["annotations"])
        for field in ("nodeSelector", "tolerations", "affinity", "runtimeClassName"):
            self.assertNotIn(field, shadow["spec"]["pod"])

    def test_a_preset_and_the_patch(self) -> None:
        """Pods are kept apart by their preset, on the nodes of the patch."""
        spread = meta(annotations={"liqo.io/anti-affinity-preset": "hard"})
        forged = forge_spec(spread, SPEC, with_patch(affinity=affinity(SSD)))["affinity"]
        self.assertEqual(forged["nodeAffinity"], affinity(SSD)["nodeAffinity"])
        self.assertTrue(forged["podAntiAffinity"][REQUIRED])

    def test_a_toleration_of_both(self) -> None:
        """A toleration that the pod has already is not there twice."""
        forged = forge_spec(meta(), {**SPEC, "tolerations": [GPU]}, with_patch(tolerations=[GPU]))
        self.assertEqual(forged["tolerations"], [GPU])

    def test_runtime_classes(self) -> None:
        """The annotation counts before the pod's own class, that before the patch's; liqo means none."""
        for annotated, own, patched, expected in (
            ("kata", "gvisor", "runc", "kata"),
            ("", "gvisor", "runc", "gvisor"),
            ("", "liqo", "runc", "runc"),
            ("", "", "runc", "runc"),
            ("", "", "liqo", None),
            ("", "liqo", "", None),
            ("liqo", "gvisor", "runc", None),
            ("", "", "", None),
        ):
            notes = {"liqo.io/remote-runtime-class-name": annotated} if annotated else {}
            spec = {**SPEC, "runtimeClassName": own} if own else SPEC
            forged = forge_spec(meta(annotations=notes), spec, with_patch(runtimeClassName=patched))
            self.assertEqual(forged.get("runtimeClassName"), expected, (annotated, own, patched))

    def test_what_reaches_a_pod_that_exists(self) -> None:
        """A changed patch makes its ShadowPod follow with tolerations alone, and keeps what decided over its nodes."""
        old = with_patch(nodeSelector={"pool": "a"})
        shadow = forge_shadow(meta(), SPEC, "shop-home", old)["metadata"]
        known = ObjectMeta(uid="s1", labels=shadow["labels"], annotations=shadow["annotations"])
        elsewhere = with_patch(nodeSelector={"pool": "b"}, runtimeClassName="kata", affinity=affinity(SSD))
        self.assertEqual(digest_of(meta(), SPEC, elsewhere), shadow["annotations"][FORGED_ANNOTATION])
        tolerant = with_patch(nodeSelector={"pool": "b"}, tolerations=[GPU])
        self.assertNotEqual(digest_of(meta(), SPEC, tolerant), shadow["annotations"][FORGED_ANNOTATION])
        change = forge_patch(meta(), SPEC, known, tolerant)
        self.assertEqual(change["spec"]["pod"]["tolerations"], [GPU])
        self.assertNotIn("nodeSelector", change["spec"]["pod"])
        written = change["metadata"]["annotations"]
        self.assertEqual(list(written), [FORGED_ANNOTATION])
        self.assertEqual(written[FORGED_ANNOTATION], digest_of(meta(), SPEC, tolerant))

    def test_the_patch_is_not_part_of_the_home_spec(self) -> None:
        """What the lender observed of the home pod's spec does not depend on the patch (observedGeneration)."""
        forged = forge_shadow(meta(), SPEC, "shop-home", with_patch(tolerations=[GPU]))
        noted = forged["metadata"]["annotations"]["offloading.liqo.io/home-spec"]
        self.assertEqual(noted, digest_of_spec(meta(), SPEC))


class ContradictionTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """Two requirements on the same label that no node has together contradict each other; names of nodes do not."""
        arm = {"kubernetes.io/arch": "arm64"}
        table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
            ({}, {}, ""),
            ({"nodeSelector": arm}, {}, ""),
            ({"nodeSelector": arm}, {"nodeSelector": arm}, ""),
            ({"nodeSelector": arm}, {"nodeSelector": {"kubernetes.io/arch": "amd64"}}, "kubernetes.io/arch=arm64"),
            ({"nodeSelector": arm}, {"nodeSelector": {"disk": "ssd"}}, ""),
            ({"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "linux"}}, "kubernetes.io/os=windows"),
            ({"os": {"name": "linux"}}, {"nodeSelector": {"kubernetes.io/os": "linux"}}, ""),
            (
                {"nodeSelector": {"kubernetes.io/hostname": "liqo-milan", "liqo.io/type": "virtual-node"}},
                {"nodeSelector": {"kubernetes.io/hostname": "worker-1", "liqo.io/type": "real"}},
                "",
            ),
            ({"affinity": affinity(SSD)}, {"nodeSelector": {"disk": "hdd"}}, "node affinity"),
            ({"affinity": affinity([*SSD, {"matchExpressions": []}])}, {"nodeSelector": {"disk": "hdd"}}, ""),
            ({"affinity": affinity(SSD)}, {"nodeSelector": {"disk": "ssd"}}, ""),
            ({"nodeSelector": {"disk": "hdd"}}, {"affinity": affinity(SSD)}, "offloadingPatch.affinity"),
            ({"nodeSelector": {"disk": "ssd"}}, {"affinity": affinity(SSD)}, ""),
            ({"nodeSelector": {"disk": "hdd"}}, {"tolerations": [GPU], "runtimeClassName": "kata"}, ""),
            ({"runtimeClassName": "gvisor"}, {"runtimeClassName": "kata"}, ""),
        ]
        for spec, fields, words in table:
            said = contradiction({**SPEC, **spec}, patch(**fields))
            self.assertEqual(bool(said), bool(words), (spec, fields, said))
            self.assertIn(words, said)

    @given(TERMS, LABELS, LABELS)
    def test_no_node_is_left(self, terms: list[Any], known: dict[str, str], more: dict[str, str]) -> None:
        """Where terms are ruled out by some labels, they select no node that has these, whatever else it has."""
        parsed = msgspec.convert(terms, list[Term])
        if rules_out(parsed, known):
            self.assertFalse(selects(parsed, "node", {**more, **known}))

    @given(LABELS, LABELS, TERMS, TERMS)
    def test_contradictions_are_mutual(
        self, ours: dict[str, str], theirs: dict[str, str], mine: list[Any], other: list[Any]
    ) -> None:
        """A pod that some node fulfils together with the patch is never said to contradict it."""
        node = {**theirs, **ours}
        both = [msgspec.convert(terms, list[Term]) for terms in (mine, other)]
        if {**ours, **theirs} == node and all(not terms or selects(terms, "node", node) for terms in both):
            spec = {**SPEC, "nodeSelector": ours, "affinity": affinity(mine)}
            self.assertEqual(contradiction(spec, patch(nodeSelector=theirs, affinity=affinity(other))), "")


class DecideTests(SynchronousTestCase):
    def ask(self, status: dict[str, Any] | None, pod: dict[str, Any] | None, made: Context, now: Context) -> Any:
        """Return the decision about a home pod whose ShadowPod was ``made`` with another patch than there is now."""
        home = cases.home()
        body = forge_shadow(home.metadata, cases.SPEC, "shop-home", made)["metadata"]
        there = msgspec.convert({"metadata": {**body, "uid": "s1"}, "status": status or {}}, Shadow)
        runs = None if pod is None else cases.remote(pod)
        count = None if runs is None else tally(None, cases.PENDING, "r1", pod or {})
        return decide(home, there, runs, context=now, namespace="shop-home", tally=count, now=cases.NOW)

    def test_a_contradiction_is_said_at_the_pod(self) -> None:
        """A pod that contradicts the patch is not created, waits with a reason, and is created when it fits."""
        home = msgspec.structs.replace(
            cases.home(), spec=msgspec.Raw(msgspec.json.encode({**cases.SPEC, "nodeSelector": {"disk": "hdd"}}))
        )
        for wanted, expected in (("ssd", WriteStatus), ("hdd", Create)):
            context = with_patch(cases.CONTEXT, nodeSelector={"disk": wanted})
            found = decide(home, None, None, context=context, namespace="n", tally=None, now=cases.NOW)
            self.assertIsInstance(found, expected)
            if isinstance(found, WriteStatus):
                assert found.report is not None
                self.assertEqual(found.report.reason, "PatchContradicts")
                self.assertEqual(found.status["phase"], "Pending")

    def test_who_is_created_again(self) -> None:
        """Only a pod that was refused, or waits for a node, is created with the new patch; others are left alone."""
        refused = {"phase": "Pending", "reason": "Invalid", "message": "m"}
        waits = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
        starts = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        old, new = (with_patch(cases.CONTEXT, nodeSelector={"pool": one}) for one in "ab")
        none, more = with_patch(cases.CONTEXT), with_patch(cases.CONTEXT, tolerations=[GPU])
        for status, pod, made, now, expected in (
            (refused, None, old, new, DeleteShadow),
            (refused, None, old, none, DeleteShadow),
            (refused, None, none, new, DeleteShadow),
            (refused, None, new, new, WriteStatus),
            (refused, None, none, more, Patch),
            (None, None, old, new, Keep),
            ({"phase": "Failed", "reason": "x"}, None, old, new, WriteStatus),
            (None, waits, old, new, DeleteShadow),
            (None, waits, new, new, WriteStatus),
            (None, starts, old, new, WriteStatus),
            (None, cases.RUNNING, old, new, WriteStatus),
            (None, cases.RUNNING, none, more, Patch),
        ):
            self.assertIsInstance(self.ask(status, pod, made, now), expected, str((status, pod)))

    def test_the_digest(self) -> None:
        """Only what cannot change in an existing pod is in the digest, which an empty patch does not have."""
        self.assertEqual(placement_digest(patch(tolerations=[GPU], labelsNotReflected=["x"])), "")
        some = [
            placement_digest(patch(**fields))
            for fields in ({"nodeSelector": {"a": "b"}}, {"runtimeClassName": "a"}, {"affinity": affinity(SSD)})
        ]
        self.assertEqual(len({*some}), 3)
