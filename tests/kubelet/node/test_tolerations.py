"""How long pods stay on a virtual node that is not Ready."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import PODS
from kubesandbox.kinds.validation import check_change
from kubesandbox.store.patch import json_patch
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.views import Node
from liqod.kubelet.node.toleration_controller import tainted_since
from liqod.kubelet.node.tolerations import LEAD, Evict, Plan, Rest, Rewrite, original_tolerations, plan
from liqod.kubelet.pods.forge import digest_of, forge_spec
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.tolerations import EVICT_AFTER, HELD, TAINTS
from liqod.model.timestamps import parse_rfc3339

OURS = {"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"}
POD = Catalog().builtin(PODS)
CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("lender"), node_name="liqo-lender")


def usual(seconds: int | None = 300) -> list[dict[str, Any]]:
    """Return the tolerations that Kubernetes' admission gives every pod, with these seconds."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return [OURS, *({"key": taint, "operator": "Exists", "effect": "NoExecute", **limit} for taint in TAINTS)]


def when_added(taint: str, date: str) -> float | None:
    """Return the seconds of a date since 1970."""
    moment = parse_rfc3339(date)
    return None if moment is None else moment.timestamp()


def ask(
    tolerations: Sequence[Mapping[str, Any]],
    annotations: Mapping[str, str] | None = None,
    *,
    tainted_for: float = 0.0,
    temporary: bool = True,
    evict_after: float = 0.0,
) -> Plan:
    return plan(
        "u1", tolerations, annotations or {}, tainted_for=tainted_for, temporary=temporary, evict_after=evict_after
    )


def applied(step: Plan, tolerations: list[dict[str, Any]], annotations: dict[str, str]) -> dict[str, Any]:
    """Return the pod that a step makes of one, as an API server would; it must be one that Kubernetes allows."""
    assert isinstance(step, Rewrite | Evict), step
    metadata: dict[str, Any] = {"name": "web", "uid": "u1"}
    if annotations:
        metadata["annotations"] = annotations
    before = {"metadata": metadata, "spec": {"tolerations": tolerations, "containers": []}}
    after: dict[str, Any] = json_patch(json.loads(json.dumps(before)), step.patch)
    return after


class TolerationTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """Each situation gives the one step that is right for it."""
        table: list[tuple[str, Plan, type, float | None]] = [
            ("tainted just now", ask(usual()), Rest, 300 - LEAD),
            ("in time", ask(usual(), tainted_for=300 - LEAD), Rewrite, None),
            ("a short time is written at once", ask(usual(5)), Rewrite, None),
            ("tolerates for ever by itself", ask(usual(None), tainted_for=9000), Rest, None),
            ("no toleration at all", ask([OURS], tainted_for=9000), Rest, None),
            ("withdrawn, never held", ask(usual(), tainted_for=9000, temporary=False), Rest, None),
            ("withdrawn, held", ask(usual(None), {HELD: "{}"}, temporary=False), Rewrite, None),
            ("to be evicted later", ask(usual(), tainted_for=100, evict_after=3600), Rewrite, None),
            ("held, to be evicted", ask(usual(None), {HELD: "{}"}, tainted_for=100, evict_after=3600), Rest, 3500),
            ("evicted by the setting", ask(usual(None), {HELD: "{}"}, tainted_for=3600, evict_after=3600), Evict, None),
            ("sooner than Kubernetes would", ask(usual(), tainted_for=30, evict_after=30), Evict, None),
            ("for ever by itself, never evicted", ask(usual(None), tainted_for=9000, evict_after=30), Rest, None),
            ("evicted already", ask(usual(0), {HELD: "{}"}, tainted_for=60, evict_after=30), Rest, None),
            ("the pod says when", ask(usual(), {EVICT_AFTER: "20"}, tainted_for=20), Evict, None),
            ("the pod says never", ask(usual(), {EVICT_AFTER: "0"}, tainted_for=99, evict_after=30), Rewrite, None),
            ("the pod says nonsense", ask(usual(), {EVICT_AFTER: "soon"}, tainted_for=30, evict_after=30), Evict, None),
            ("the pod says nan", ask(usual(), {EVICT_AFTER: "nan"}, tainted_for=30, evict_after=30), Evict, None),
        ]
        for what, step, kind, again in table:
            with self.subTest(what):
                self.assertIsInstance(step, kind)
                if isinstance(step, Rest):
                    self.assertEqual(step.again, again)

    def test_there_and_back(self) -> None:
        """What was held can be given back, and Kubernetes' rules for updates of pods allow both."""
        before = usual()
        pod = applied(ask(before, tainted_for=100), before, {})
        held, notes = pod["spec"]["tolerations"], pod["metadata"]["annotations"]
        self.assertEqual(held, usual(None))
        self.assertEqual(check_change(POD, {"spec": {"tolerations": before}}, pod), [])
        self.assertEqual(original_tolerations(held, notes), before)
        again = applied(ask(held, notes, temporary=False), held, notes)
        self.assertEqual(again["spec"]["tolerations"], before)
        self.assertNotIn(HELD, again["metadata"]["annotations"])

    def test_evicted(self) -> None:
        """A pod to be evicted tolerates the taints for no second more, and remembers what it had."""
        pod = applied(ask(usual(), {"a": "b"}, tainted_for=60, evict_after=60), usual(), {"a": "b"})
        self.assertEqual(pod["spec"]["tolerations"], usual(0))
        self.assertEqual(original_tolerations(pod["spec"]["tolerations"], pod["metadata"]["annotations"]), usual())

    def test_the_lender_does_not_notice(self) -> None:
        """Whether a pod is held or not, the pod forged for the lender is the same, and needs no update."""
        pod = applied(ask(usual(), tainted_for=100), usual(), {})
        before = ObjectMeta(name="web", uid="u1")
        after = ObjectMeta(name="web", uid="u1", annotations=pod["metadata"]["annotations"])
        spec = {"containers": [], "tolerations": usual()}
        held = {"containers": [], "tolerations": pod["spec"]["tolerations"]}
        self.assertEqual(forge_spec(after, held, CONTEXT), forge_spec(before, spec, CONTEXT))
        self.assertEqual(digest_of(after, held, CONTEXT), digest_of(before, spec, CONTEXT))

    def test_any_tolerations(self) -> None:
        """Whatever a pod tolerates, holding it is settled after one write, loses nothing, and can be taken back."""
        one = st.fixed_dictionaries(
            {},
            optional={
                "key": st.sampled_from([*TAINTS, "other"]),
                "operator": st.sampled_from(["Exists", "Equal"]),
                "effect": st.sampled_from(["NoExecute", "NoSchedule"]),
                "tolerationSeconds": st.integers(-5, 400),
            },
        )

        @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(one, max_size=5), st.sampled_from([0.0, 30.0]))
        def check(tolerations: list[dict[str, Any]], evict_after: float) -> None:
            step = ask(tolerations, {"a": "b"}, tainted_for=500, evict_after=evict_after)
            if isinstance(step, Rest):
                return
            pod = applied(step, tolerations, {"a": "b"})
            new, notes = pod["spec"]["tolerations"], pod["metadata"]["annotations"]
            self.assertEqual(check_change(POD, {"spec": {"tolerations": tolerations}}, pod), [])
            self.assertEqual(ask(new, notes, tainted_for=500, evict_after=evict_after), Rest())
            self.assertEqual(original_tolerations(new, notes), tolerations)

        check()

    def test_unreadable_note(self) -> None:
        """A note that nobody can read is as none."""
        for note in ("", "[]", '{"0": 1}', "nonsense"):
            self.assertEqual(original_tolerations(usual(None), {HELD: note}), usual(None))

    def test_since_when(self) -> None:
        """The time counts from the first taint that evicts; one that does not say when counts from when it was seen."""
        not_ready, unreachable = TAINTS
        rows: list[tuple[list[dict[str, str]], float | None]] = [
            ([], None),
            ([{"key": not_ready, "effect": "NoSchedule", "timeAdded": "1970-01-01T00:01:00Z"}], None),
            ([{"key": "other", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:00Z"}], None),
            ([{"key": not_ready, "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:00Z"}], 60.0),
            ([{"key": not_ready, "effect": "NoExecute"}], 100.0),
            ([{"key": not_ready, "effect": "NoExecute", "timeAdded": "soon"}], 100.0),
            (
                [
                    {"key": unreachable, "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:10Z"},
                    {"key": not_ready, "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:00Z"},
                ],
                60.0,
            ),
        ]
        for taints, since in rows:
            node = msgspec.convert({"metadata": {"name": "n"}, "spec": {"taints": taints}}, Node)
            self.assertEqual(tainted_since(node, 100.0, when_added), since, taints)
        self.assertIsNone(tainted_since(None, 100.0, when_added))
