"""Home first: what admission adds to pods of a namespace that spills over, and how far ahead own nodes are."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kubesandbox.store.patch import json_patch as apply
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.pods.affinity import spread_constraints
from liqod.model.objects.node_selector import NodeRequirement, Term
from liqod.model.records.offloading import BOTH, LOCAL, REMOTE, OffloadingPolicy
from liqod.model.records.spillover import HOME_FIRST, NO_SPREAD, NONE, RETURN, Spillover, SpilloverPeer, preferences
from liqod.webhook.placement import mutations
from liqod.webhook.preference import MAX_PREFERENCES, prefer_home
from tests.webhook.test_review import patch_of, review

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EU = Term(match_expressions=[NodeRequirement(key="region", operator="In", values=["eu"])])
MINE: dict[str, Any] = {
    "weight": 7,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
}
HOME: dict[str, str] = {"region": "eu"}


def policy(*peers: SpilloverPeer, mode: str = HOME_FIRST, placement: str = BOTH, terms: Any = None) -> OffloadingPolicy:
    return OffloadingPolicy(placement, terms, "", Spillover(mode=mode, peers=list(peers)))


def virtual(cluster: str, **labels: str) -> dict[str, str]:
    return {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": cluster, **labels}


def admitted(pod: dict[str, Any], wanted: OffloadingPolicy) -> dict[str, Any]:
    """Return the pod as the webhook lets it in."""
    made = apply(pod, patch_of(review(pod), wanted))
    assert isinstance(made, dict)
    return made


def preferred(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    return found


def points(terms: list[dict[str, Any]], labels: dict[str, str]) -> int:
    """Return the sum of the weights of the terms that match, as the scheduler's NodeAffinity adds them."""

    def holds(one: dict[str, Any]) -> bool:
        among = labels.get(one["key"]) in one["values"]
        return among if one["operator"] == "In" else not among

    return sum(term["weight"] for term in terms if all(map(holds, term["preference"]["matchExpressions"])))


_PEERS = st.lists(
    st.builds(
        SpilloverPeer,
        cluster=st.sampled_from(["", "milan", "paris"]),
        match_labels=st.sampled_from([{}, {"region": "eu"}, {"region": "eu", "tier": "gold"}]),
        weight=st.integers(min_value=-5, max_value=120),
    ),
    max_size=20,
)


class PreferenceTests(SynchronousTestCase):
    def test_who_prefers_home(self) -> None:
        """Pods that may run here and elsewhere, where spillover is on; others are left as they are."""
        for wanted, expected in (
            (policy(), True),
            (policy(mode=RETURN), True),
            (policy(mode=NONE), False),
            (OffloadingPolicy(), False),
            (policy(placement=LOCAL), False),
            (policy(placement=REMOTE), False),
        ):
            self.assertEqual(bool(prefer_home({"spec": {}}, wanted)), expected, wanted)
        for spec in ({"nodeName": "here"}, {"nodeSelector": {"liqo.io/type": "virtual-node"}}):
            self.assertEqual(prefer_home({"spec": spec}, policy()), [], spec)
        for selector in ({}, {"disk": "ssd"}, {"liqo.io/type": "other"}, ["liqo.io/type"], None):
            self.assertTrue(prefer_home({"spec": {"nodeSelector": selector}}, policy()), selector)

    def test_the_order(self) -> None:
        """Own nodes are first, then peers by weight, then those that are not listed."""
        wanted = policy(
            SpilloverPeer(cluster="milan", weight=20),
            SpilloverPeer(cluster="paris", weight=99),
            SpilloverPeer(match_labels={"region": "us"}, weight=60),
        )
        terms = preferred(admitted({"spec": {}}, wanted))
        nodes = [HOME, virtual("paris"), virtual("boston", region="us"), virtual("milan"), virtual("oslo")]
        sums = [points(terms, labels) for labels in nodes]
        self.assertEqual(sums, sorted(sums, reverse=True))
        self.assertEqual(len(set(sums)), len(sums))

    @given(_PEERS)
    def test_home_is_far_ahead(self, peers: list[SpilloverPeer]) -> None:
        """Whatever peers are listed, no virtual node gets half of what own nodes have; each weight is as allowed."""
        terms = preferences(tuple(peers))
        for term in terms:
            self.assertTrue(1 <= term["weight"] <= 100)
        home = points(terms, {**HOME, "tier": "gold"})
        self.assertEqual(home, 100)
        for cluster in ("milan", "paris", "oslo"):
            self.assertLess(points(terms, virtual(cluster, region="eu", tier="gold")), home / 2)
        self.assertLessEqual(len(terms), 17)

    def test_the_user_is_kept(self) -> None:
        """What a pod asks for itself is in it unchanged, before what is added, and also with a clusterSelector."""
        required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
        pod_affinity = {"x": 1}
        affinities: list[dict[str, Any] | None] = [
            None,
            {},
            {"podAffinity": pod_affinity},
            {"nodeAffinity": {}},
            {"nodeAffinity": {PREFERRED: []}},
            {"nodeAffinity": {PREFERRED: [MINE]}},
            {"nodeAffinity": {REQUIRED: required, PREFERRED: [MINE]}, "podAffinity": pod_affinity},
        ]
        for affinity in affinities:
            for terms in (None, (EU,)):
                wanted = policy(SpilloverPeer(cluster="milan", weight=50), terms=terms)
                pod: dict[str, Any] = {"spec": {} if affinity is None else {"affinity": affinity}}
                after = admitted(pod, wanted)
                plain = admitted(pod, OffloadingPolicy(BOTH, terms))
                theirs = ((affinity or {}).get("nodeAffinity") or {}).get(PREFERRED, [])
                self.assertEqual(preferred(after), [*theirs, *preferences(tuple(wanted.spillover.peers))])
                rest = {**after["spec"]["affinity"]["nodeAffinity"]}
                del rest[PREFERRED]
                before = (plain["spec"].get("affinity") or {}).get("nodeAffinity") or {}
                self.assertEqual(rest, {key: value for key, value in before.items() if key != PREFERRED})
                self.assertEqual(after["spec"]["affinity"].get("podAffinity"), (affinity or {}).get("podAffinity"))
                self.assertEqual(mutations(after, wanted), [])
                self.assertEqual(prefer_home(after, wanted), [])

    def test_again_after_another_webhook(self) -> None:
        """A webhook that puts a preference of its own between ours makes nothing be added twice."""
        wanted = policy(SpilloverPeer(cluster="milan", weight=50))
        after = admitted({"spec": {}}, wanted)
        preferred(after).insert(1, MINE)
        self.assertEqual(prefer_home(after, wanted), [])
        del preferred(after)[0]
        self.assertEqual(len(prefer_home(after, wanted)), 1)

    def test_spreading(self) -> None:
        """A pod without spread constraints gets one that ranks all nodes alike, at home alone; own ones stay."""
        after = admitted({"spec": {}}, policy())
        self.assertEqual(after["spec"]["topologySpreadConstraints"], [NO_SPREAD])
        self.assertEqual(spread_constraints(after["spec"]["topologySpreadConstraints"], {}), [])
        own = {**NO_SPREAD, "labelSelector": {"matchLabels": {"app": "web"}}}
        kept = admitted({"spec": {"topologySpreadConstraints": [own]}}, policy())
        self.assertEqual(kept["spec"]["topologySpreadConstraints"], [own])
        self.assertEqual(spread_constraints([own], {}), [own])

    @given(st.recursive(st.none() | st.text(max_size=5) | st.integers(), lambda deeper: st.lists(deeper, max_size=3)))
    def test_odd_shapes(self, odd: Any) -> None:
        """Whatever somebody puts where an affinity goes is left to the API server; no other failure."""
        for spec in (
            {"affinity": odd},
            {"affinity": {"nodeAffinity": odd}},
            {"affinity": {"nodeAffinity": {PREFERRED: odd}}},
        ):
            for operation in prefer_home({"spec": spec}, policy()):
                self.assertEqual(operation["op"], "add")
        self.assertEqual(prefer_home({"spec": odd}, policy()), [])

    def test_bounded(self) -> None:
        """A pod with hundreds of preferences of its own gets no more."""
        pod = {"spec": {"affinity": {"nodeAffinity": {PREFERRED: [MINE] * (MAX_PREFERENCES + 1)}}}}
        self.assertEqual(prefer_home(pod, policy()), [])
