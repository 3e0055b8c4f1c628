"""Admission reviews: what is patched, what is let through as it is, and what is refused as malformed."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubesandbox.store.patch import json_patch as apply
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.node.tolerations import original_tolerations
from liqod.model.names import WEBHOOK_PROBE
from liqod.model.objects.node_selector import NodeRequirement, Term, selects
from liqod.model.records.offloading import BOTH, LOCAL, REMOTE, OffloadingPolicy
from liqod.webhook.placement import (
    MAX_EXPRESSIONS,
    MAX_TERMS,
    TOLERATION,
    TooManyTerms,
    hold_tolerations,
    mutations,
    tolerates,
    wanted_terms,
)
from liqod.webhook.review import ANSWERED, MAX_BODY, MalformedReview, answer
from liqod.webhook.runtime_class import runtime_class


def review(pod: Any, **more: Any) -> bytes:
    request = {
        "uid": "r-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": pod,
        **more,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def patch_of(body: bytes, policy: OffloadingPolicy | None = None) -> Any:
    response = msgspec.json.decode(answer(body, lambda _: policy or OffloadingPolicy()))["response"]
    assert response["allowed"] is True and response["uid"] == "r-1"
    return msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []


class PlacementTests(SynchronousTestCase):
    def test_the_toleration_is_appended(self) -> None:
        """A pod gets the toleration behind its own; one without any gets the list."""
        self.assertEqual(
            patch_of(review({"spec": {}})), [{"op": "add", "path": "/spec/tolerations", "value": [TOLERATION]}]
        )
        user = [{"key": "gpu", "operator": "Exists"}]
        self.assertEqual(
            patch_of(review({"spec": {"tolerations": user}})),
            [{"op": "add", "path": "/spec/tolerations/-", "value": TOLERATION}],
        )

    def test_what_tolerates_already(self) -> None:
        """Tolerations that match the taint for good need no company; others do."""
        key = "virtual-node.liqo.io/not-allowed"
        table: list[tuple[dict[str, Any], bool]] = [
            ({"key": key, "operator": "Exists", "effect": "NoExecute"}, True),
            ({"key": key, "operator": "Exists"}, True),
            ({"operator": "Exists"}, True),
            ({"key": key, "value": "true"}, True),
            ({"key": key, "operator": "Equal", "value": "false"}, False),
            ({"key": key, "operator": "Exists", "effect": "NoSchedule"}, False),
            ({"key": key, "operator": "Exists", "tolerationSeconds": 30}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({}, False),
        ]
        for toleration, expected in table:
            self.assertEqual(tolerates([toleration]), expected, toleration)

    @given(
        st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "operator": st.sampled_from(["Exists", "Equal"])}))
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_once_is_enough(self, tolerations: list[dict[str, Any]]) -> None:
        """After the patch no further patch is needed."""
        pod: dict[str, Any] = {"spec": {"tolerations": list(tolerations)}}
        for operation in mutations(pod):
            pod["spec"]["tolerations"].append(operation["value"])
        self.assertEqual(mutations(pod), [])
        self.assertEqual(pod["spec"]["tolerations"][: len(tolerations)], tolerations)


NODES = {
    "here": {"zone": "a"},
    "there": {"zone": "b"},
    "liqo-milan": {"liqo.io/type": "virtual-node", "region": "eu", "zone": "a"},
    "liqo-paris": {"liqo.io/type": "virtual-node", "region": "us"},
}
EU = Term(match_expressions=[NodeRequirement(key="region", operator="In", values=["eu"])])
PARIS = Term(match_fields=[NodeRequirement(key="metadata.name", operator="In", values=["liqo-paris"])])
_REQUIREMENTS = st.sampled_from(
    [
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "zone", "operator": "NotIn", "values": ["a"]},
        {"key": "region", "operator": "Exists"},
        {"key": "liqo.io/type", "operator": "DoesNotExist"},
    ]
)
_TERMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(_REQUIREMENTS, max_size=2),
            "matchFields": st.just([{"key": "metadata.name", "operator": "In", "values": ["there"]}]),
        },
    ),
    max_size=3,
)
_SELECTORS = st.sampled_from([None, (EU,), (PARIS,), (EU, PARIS), (Term(),)])
_POLICIES = st.builds(OffloadingPolicy, st.sampled_from([LOCAL, REMOTE, BOTH]), _SELECTORS)


def pod_with(terms: list[Any] | None, tolerations: list[Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": []}
    if terms is not None:
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if tolerations is not None:
        spec["tolerations"] = tolerations
    return {"spec": spec}


def patched(pod: dict[str, Any], policy: OffloadingPolicy) -> dict[str, Any]:
    changed: dict[str, Any] = apply(pod, mutations(pod, policy))
    return changed


def fits(pod: dict[str, Any]) -> set[str]:
    """Return the nodes that a scheduler would take for a pod, by taint and required affinity."""
    spec = pod["spec"]
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None if required is None else msgspec.convert(required["nodeSelectorTerms"], list[Term])
    return {
        name
        for name, labels in NODES.items()
        if (terms is None or selects(terms, name, labels))
        and ("liqo.io/type" not in labels or tolerates(spec.get("tolerations") or []))
    }


class AffinityTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """Where a plain pod may run, by placement and selector."""
        virtual = {"liqo-milan", "liqo-paris"}
        for policy, expected in (
            (OffloadingPolicy(LOCAL), {"here", "there"}),
            (OffloadingPolicy(LOCAL, (EU,)), {"here", "there"}),
            (OffloadingPolicy(BOTH), set(NODES)),
            (OffloadingPolicy(BOTH, (EU,)), {"here", "there", "liqo-milan"}),
            (OffloadingPolicy(BOTH, (EU, PARIS)), set(NODES)),
            (OffloadingPolicy(BOTH, (Term(),)), {"here", "there"}),
            (OffloadingPolicy(REMOTE), virtual),
            (OffloadingPolicy(REMOTE, (EU,)), {"liqo-milan"}),
            (OffloadingPolicy(REMOTE, (PARIS,)), {"liqo-paris"}),
            (OffloadingPolicy(REMOTE, (Term(),)), set()),
        ):
            self.assertEqual(fits(patched(pod_with(None), policy)), expected, policy)
        everything = [{"operator": "Exists"}]
        self.assertEqual(fits(patched(pod_with(None, everything), OffloadingPolicy(LOCAL))), {"here", "there"})

    def test_a_pod_that_asks_for_a_virtual_node(self) -> None:
        """What its RuntimeClass gives a pod stays, a selector holds beside it, and only Local leaves it as it is."""
        given = runtime_class()["scheduling"]
        asking = {"spec": {"runtimeClassName": "liqo", **given}}
        for policy in (OffloadingPolicy(LOCAL), OffloadingPolicy(LOCAL, (EU,)), OffloadingPolicy(BOTH)):
            self.assertEqual(patch_of(review(asking), policy), [])
        for policy, expected in (
            (OffloadingPolicy(BOTH, (EU,)), {"liqo-milan"}),
            (OffloadingPolicy(REMOTE), {"liqo-milan", "liqo-paris"}),
            (OffloadingPolicy(REMOTE, (PARIS,)), {"liqo-paris"}),
        ):
            made = patched(asking, policy)
            self.assertEqual((made["spec"]["nodeSelector"], made["spec"]["tolerations"]), (*given.values(),))
            found = {name for name in fits(made) if NODES[name].get("liqo.io/type") == "virtual-node"}
            self.assertEqual(found, expected, policy)
        # Another runtime class, or none, does not excuse a pod that tolerates everything.
        other = {"spec": {"runtimeClassName": "gvisor", "tolerations": [{"operator": "Exists"}]}}
        self.assertTrue(patch_of(review(other), OffloadingPolicy(LOCAL)))

    @given(_TERMS, _POLICIES, st.sampled_from([None, [{"operator": "Exists"}]]))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_both_hold(self, terms: list[Any], policy: OffloadingPolicy, tolerations: list[Any] | None) -> None:
        """A pod fits where its user's affinity and the policy both let it, and nowhere else; twice is like once."""
        pod = pod_with(terms, tolerations)
        if terms == []:
            return  # the API has no such pods
        after = patched(pod, policy)
        theirs = fits({"spec": {**pod["spec"], "tolerations": [{"operator": "Exists"}]}})
        self.assertEqual(fits(after), theirs & fits(patched(pod_with(None, tolerations), policy)))
        self.assertEqual(mutations(after, policy), [])

    def test_what_is_there_stays(self) -> None:
        """Preferences, affinity between pods and the rest of the node affinity are left as they are."""
        node_affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
        pod: dict[str, Any] = {"spec": {"affinity": {"podAffinity": {"x": 1}, "nodeAffinity": node_affinity}}}
        after = patched(pod, OffloadingPolicy(REMOTE))["spec"]["affinity"]
        self.assertEqual(after["podAffinity"], {"x": 1})
        self.assertEqual(
            set(after["nodeAffinity"]) - set(node_affinity), {"requiredDuringSchedulingIgnoredDuringExecution"}
        )
        self.assertEqual(
            patched({"spec": {"affinity": {}}}, OffloadingPolicy(REMOTE)),
            patched({"spec": {}}, OffloadingPolicy(REMOTE)),
        )

    @given(_POLICIES, st.sampled_from([None, [{"operator": "Exists"}]]))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_policy_holds_whatever_part_is_there(
        self, policy: OffloadingPolicy, tolerations: list[Any] | None
    ) -> None:
        """A pod whose affinity says something else, or nothing, runs where one without any affinity does."""
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
        plain = pod_with(None, tolerations)
        affinity: dict[str, Any]
        for affinity in ({}, {"podAffinity": {}}, {"nodeAffinity": {}}, {"nodeAffinity": preferred}):
            pod = {"spec": {**plain["spec"], "affinity": affinity}}
            after = patched(pod, policy)
            self.assertEqual(fits(after), fits(patched(plain, policy)), affinity)
            theirs = affinity.get("nodeAffinity") or {}
            ours = after["spec"]["affinity"].get("nodeAffinity") or {}
            self.assertEqual({key: ours[key] for key in theirs}, theirs)

    def test_each_term_of_the_pod_is_bound(self) -> None:
        """One that asks for virtual nodes itself does not free the others, of which any one is enough for a node."""
        virtual = {"matchExpressions": [{"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]}]}
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
        for terms in ([virtual, zone], [zone, virtual]):
            self.assertEqual(fits(patched(pod_with(terms), OffloadingPolicy(REMOTE))), {"liqo-milan", "liqo-paris"})

    def test_a_pod_with_a_node(self) -> None:
        """A pod whose node is chosen gets no affinity: its kubelet would turn it away."""
        pod = {"spec": {"nodeName": "here", "tolerations": [dict(TOLERATION)]}}
        self.assertEqual(mutations(pod, OffloadingPolicy(REMOTE)), [])

    def test_odd_shapes(self) -> None:
        """What is no affinity is left for the API server to refuse."""
        tolerant = [dict(TOLERATION)]
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        odd: tuple[Any, ...] = (
            "x",
            {"nodeAffinity": []},
            {"nodeAffinity": {required: 7}},
            {"nodeAffinity": {required: {"nodeSelectorTerms": "x"}}},
            {"nodeAffinity": {required: {"nodeSelectorTerms": ["x", None, {}]}}},
        )
        for affinity in odd:
            pod = {"spec": {"tolerations": tolerant, "affinity": affinity}}
            self.assertEqual(mutations(pod, OffloadingPolicy(REMOTE)), [], affinity)

    def test_enormous_affinities(self) -> None:
        """A pod whose affinity would become enormous is refused with a sentence; one below the bound is not."""
        terms = [
            {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(MAX_TERMS // 2)
        ]
        policy = OffloadingPolicy(REMOTE, (EU, PARIS))
        self.assertTrue(mutations(pod_with(terms), policy))
        with self.assertRaises(TooManyTerms):
            mutations(pod_with([*terms, terms[0]]), policy)
        response = msgspec.json.decode(answer(review(pod_with([*terms, terms[0]])), lambda _: policy))["response"]
        self.assertEqual((response["uid"], response["allowed"]), ("r-1", False))
        self.assertIn("TooManyTerms", response["status"]["message"])
        self.assertNotIn("patch", response)

    def test_what_is_written_is_counted_too(self) -> None:
        """Few terms with many requirements each, joined with each of the namespace's, are refused beyond a number."""
        policy = OffloadingPolicy(REMOTE, (EU, PARIS))
        ours = sum(len(parts) for term in wanted_terms(policy, tolerant=True) or [] for parts in term.values())
        most = (MAX_EXPRESSIONS - ours) // 2
        requirements = [{"key": f"k{number}", "operator": "Exists"} for number in range(most + 1)]
        self.assertTrue(mutations(pod_with([{"matchExpressions": requirements[:most]}]), policy))
        with self.assertRaisesRegex(TooManyTerms, f"{2 * most + 2 + ours} requirements"):
            mutations(pod_with([{"matchExpressions": requirements}]), policy)


class ReviewTests(SynchronousTestCase):
    def test_the_namespace_decides(self) -> None:
        """What is asked for is the policy of the request's own namespace."""
        asked: list[str] = []

        def policies(namespace: str) -> OffloadingPolicy:
            asked.append(namespace)
            return OffloadingPolicy(LOCAL)

        response = msgspec.json.decode(answer(review({"spec": {}}, namespace="shop"), policies))["response"]
        self.assertNotIn("patch", response)
        self.assertEqual(asked, ["shop"])

    def test_only_pods_being_created(self) -> None:
        """Updates, subresources, other kinds and absent objects are allowed as they are."""
        for more in (
            {"operation": "UPDATE"},
            {"operation": "DELETE", "object": None},
            {"subResource": "eviction"},
            {"kind": {"group": "apps", "kind": "Pod"}},
            {"kind": {"group": "", "kind": "Service"}},
        ):
            self.assertEqual(patch_of(review({"spec": {}}, **more)), [], more)
        for odd in ({}, {"spec": None}, {"spec": {"tolerations": "x"}}, None):
            self.assertEqual(patch_of(review(odd)), [])

    def test_malformed(self) -> None:
        """What is no review is refused with a sentence that says what is wrong."""
        for body in (
            b"",
            b"[]",
            b"\xff",
            b"{}",
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}',
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}',
            b" " * (MAX_BODY + 1),
            b"[" * 100000,
        ):
            with self.assertRaises(MalformedReview) as caught:
                answer(body)
            self.assertGreater(len(str(caught.exception)), 20)

    def test_what_it_was_instead_is_named(self) -> None:
        """Version and kind of what came, cut to a bounded length; or that it names neither."""
        for given_version, given_kind, reported in (
            ("admission.k8s.io/v1beta1", "AdmissionReview", "is admission.k8s.io/v1beta1 AdmissionReview"),
            ("v1", "Pod", "is v1 Pod"),
            ("", "", "is nothing of that"),
            ("v" * 99, "k" * 99, f"is {'v' * 60} {'k' * 60}"),
        ):
            body = msgspec.json.encode({"apiVersion": given_version, "kind": given_kind, "request": {"uid": "1"}})
            with self.assertRaises(MalformedReview) as caught:
                answer(body)
            self.assertTrue(str(caught.exception).endswith(reported), str(caught.exception))

    def test_what_is_to_be_created_is_an_object(self) -> None:
        """Text, a number or a list in the place of a pod is refused like any other malformed review."""
        odds: tuple[Any, ...] = ("pod", 7, True, [], [{"spec": {}}])
        for odd in odds:
            with self.assertRaises(MalformedReview) as caught:
                answer(review(odd))
            self.assertIn("not a pod", str(caught.exception))

    @given(st.binary(max_size=200))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_no_other_failure(self, body: bytes) -> None:
        """Whatever bytes come, the only failure is MalformedReview."""
        with contextlib.suppress(MalformedReview):
            answer(body)

    def test_a_trial(self) -> None:
        """A pod that is only tried is answered, besides all that it gets as any other; no other pod is."""
        usual = patch_of(review({"metadata": {"annotations": {"a": "b"}}, "spec": {}}))
        tried = patch_of(review({"metadata": {"annotations": {WEBHOOK_PROBE: "asked"}}, "spec": {}}))
        answered = {"op": "add", "path": "/metadata/annotations/liqo.io~1webhook-probe", "value": ANSWERED}
        self.assertEqual(tried, [*usual, answered])
        pod = {"metadata": {"annotations": {WEBHOOK_PROBE: "asked"}}, "spec": {}}
        self.assertEqual(apply(pod, tried)["metadata"]["annotations"], {WEBHOOK_PROBE: ANSWERED})


VIRTUAL_ONLY = {"liqo.io/type": "virtual-node"}
DEFAULTS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


class HoldTolerationsTests(SynchronousTestCase):
    """Pods that can only run on virtual nodes stay there also while no daemon runs to hold them."""

    def made(self, pod: dict[str, Any], policy: OffloadingPolicy, evict_after: float = 0.0) -> Any:
        first = mutations(pod, policy)
        return apply(pod, [*first, *hold_tolerations(pod, policy, evict_after)])

    def seconds(self, pod: dict[str, Any]) -> set[int | None]:
        found = [one for one in pod["spec"]["tolerations"] if one["key"].startswith("node.kubernetes.io/")]
        self.assertEqual(len(found), 2)
        return {one.get("tolerationSeconds") for one in found}

    def test_who_is_held(self) -> None:
        """Held are pods that go to other clusters only, by their namespace or by themselves; no others."""
        for policy, selector, expected in (
            (OffloadingPolicy(REMOTE), None, {None}),
            (OffloadingPolicy(), VIRTUAL_ONLY, {None}),
            (OffloadingPolicy(), None, {300}),
            (OffloadingPolicy(LOCAL), None, {300}),
            (OffloadingPolicy(), {"liqo.io/type": "other"}, {300}),
        ):
            spec: dict[str, Any] = {"tolerations": DEFAULTS, **({"nodeSelector": selector} if selector else {})}
            self.assertEqual(self.seconds(self.made({"spec": spec}, policy)), expected, (policy, selector))

    def test_for_how_long(self) -> None:
        """A cluster that evicts after a time lets pods stay for just that, and a pod's own word goes first."""
        for said, expected in (({}, {1000}), ({"liqo.io/evict-after": "20"}, {20}), ({"x": "y"}, {1000})):
            pod: dict[str, Any] = {"metadata": {"annotations": said}, "spec": {"tolerations": DEFAULTS}}
            self.assertEqual(self.seconds(self.made(pod, OffloadingPolicy(REMOTE), 1000.0)), expected)
        pod = {"metadata": {"annotations": {"liqo.io/evict-after": "0"}}, "spec": {"tolerations": DEFAULTS}}
        self.assertEqual(self.seconds(self.made(pod, OffloadingPolicy(REMOTE), 1000.0)), {None})

    def test_what_it_was_is_known(self) -> None:
        """The lender's pod gets the tolerations as they were, and once is enough."""
        user = {"key": "gpu", "operator": "Exists", "tolerationSeconds": 7}
        each: list[dict[str, Any]] = [{}, {"annotations": {}}, {"annotations": {"a": "b"}}]
        for metadata in each:
            pod: dict[str, Any] = {"metadata": metadata, "spec": {"tolerations": [user, *DEFAULTS]}}
            made = self.made(pod, OffloadingPolicy(REMOTE))
            self.assertEqual(made["spec"]["tolerations"][0], user)
            restored = original_tolerations(made["spec"]["tolerations"], made["metadata"]["annotations"])
            self.assertEqual(restored, [user, *DEFAULTS, TOLERATION])
            self.assertEqual(hold_tolerations(made, OffloadingPolicy(REMOTE), 0.0), [])
        self.assertEqual(hold_tolerations({"spec": {"tolerations": [user]}}, OffloadingPolicy(REMOTE), 0.0), [])

    @given(st.recursive(st.none() | st.text(max_size=5) | st.integers(), lambda deeper: st.lists(deeper, max_size=3)))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_odd_shapes(self, odd: Any) -> None:
        """Whatever somebody puts where tolerations or annotations go is left to the API server."""
        for pod in ({"spec": {"tolerations": odd}}, {"metadata": odd, "spec": {}}, {"spec": odd}):
            self.assertEqual(hold_tolerations(pod, OffloadingPolicy(REMOTE), 0.0), [])


class CostTests(SynchronousTestCase):
    """Reviews that are dear to answer, from anybody who reaches the port."""

    def answer(self, spec: dict[str, Any], **options: Any) -> dict[str, Any]:
        request = {"uid": "u", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": "any"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = msgspec.json.encode({**review, "request": {**request, "object": {"spec": spec}}})
        response: dict[str, Any] = msgspec.json.decode(answer(body, **options))["response"]
        return response

    def test_what_is_compared_is_counted_first(self) -> None:
        """Tolerations, requirements and values by the thousand are refused with a sentence, and no patch."""
        toleration = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 1}
        kinds: list[dict[str, Any]] = [
            {"nodeSelector": {"liqo.io/type": "virtual-node"}, "tolerations": [toleration] * 8000},
            self.affinity([{"key": "k", "operator": "Exists"}] * 20000),
            self.affinity([{"key": "k", "operator": "In", "values": ["v"] * 50000}]),
        ]
        for spec in kinds:
            response = self.answer(spec)
            self.assertFalse(response["allowed"])
            self.assertIn("TooManyTerms", response["status"]["message"])
            self.assertNotIn("patch", response)

    def test_other_namespaces_are_not_read(self) -> None:
        """A large pod of a namespace that is known not to be enabled costs nothing; a small one may be news."""
        large = self.affinity([{"key": "k" * 300000, "operator": "Exists"}])
        self.assertNotIn("patch", self.answer(large, is_enabled=lambda _: False))
        self.assertIn("patch", self.answer(large))
        self.assertIn("patch", self.answer({}, is_enabled=lambda _: False))

    def affinity(self, expressions: list[dict[str, Any]]) -> dict[str, Any]:
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
