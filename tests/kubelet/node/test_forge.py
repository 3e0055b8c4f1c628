"""The Node object of a lender: labels, taint, resources, conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.views import Node
from liqod.kubelet.node.forge import (
    APPLIED_LABELS,
    APPLIED_RESOURCES,
    APPLIED_TAINTS,
    NodeFacts,
    applied_resources,
    forge_node,
    is_foreign,
    node_addresses,
    node_patch,
    status_patch,
)
from liqod.model.names import TAINT_KEY
from liqod.model.records.offer import RECLAIMED, RECLAIMED_BY, Offer, reclaim_label
from liqod.model.records.views import NodeTaint

NOW = "2026-01-01T00:00:00Z"


class NodeTests(SynchronousTestCase):
    offer = Offer(resources={"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}, labels={"topology/zone": "z"})

    def facts(self, **more: Any) -> NodeFacts:
        readiness = Readiness(ready=True, reason="Ready", message="fine")
        return NodeFacts(
            **{
                "name": "liqo-lender",
                "cluster_id": "lender",
                "address": "10.0.0.1",
                "readiness": readiness,
                "offer": self.offer,
                **more,
            }
        )

    def node(self, body: dict[str, Any]) -> Node:
        return msgspec.convert(body, Node)

    def test_created_empty_and_tainted(self) -> None:
        """The node starts without resources, with its labels and its taint."""
        body = forge_node(self.facts(labels={"liqo.io/type": "mine", "rack": "r"}))
        self.assertNotIn("status", body)
        self.assertEqual(body["metadata"]["labels"]["liqo.io/type"], "virtual-node")
        self.assertEqual(body["metadata"]["labels"]["rack"], "r")
        self.assertEqual(body["metadata"]["labels"]["topology/zone"], "z")
        self.assertEqual(body["spec"]["taints"][0]["effect"], "NoExecute")
        node = self.node(body)
        self.assertEqual(node_patch(node, self.facts(labels={"rack": "r"})), {})
        self.assertFalse(is_foreign(node, "lender"))
        self.assertTrue(is_foreign(node, "other"))

    def test_addresses(self) -> None:
        """The address is of the type that the cluster needs; while that is not known the node keeps what it shows."""
        internal = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "liqo-lender"}]
        literal = [{"type": "Hostname", "address": "10.0.0.1"}]
        name = [{"type": "Hostname", "address": "liqo-lender"}]
        for present, kind, address, expected in (
            ([], "InternalIP", "10.0.0.1", internal),
            (literal, "InternalIP", "10.0.0.1", internal),
            ([], "Hostname", "10.0.0.1", literal),
            (internal, "Hostname", "10.0.0.1", literal),
            ([], "", "10.0.0.1", name),
            (literal, "", "10.0.0.1", literal),
            (internal, "", "10.0.0.1", internal),
            (internal, "Hostname", "", name),
        ):
            facts = self.facts(address_type=kind, address=address)
            self.assertEqual(node_addresses({"addresses": present}, facts), expected, (present, kind, address))

    def test_no_cloud_controller_deletes_it(self) -> None:
        """The node names a provider of its own and a label of Azure's; a node from before gets them, once."""
        body = forge_node(self.facts())
        self.assertEqual(body["spec"]["providerID"], "liqod://lender/liqo-lender")
        self.assertEqual(body["metadata"]["labels"]["kubernetes.azure.com/managed"], "false")
        before = {**body, "spec": {"taints": body["spec"]["taints"]}}
        patch = node_patch(self.node(before), self.facts())
        self.assertEqual(patch, {"spec": {"providerID": "liqod://lender/liqo-lender"}})
        other = {**body, "spec": {**body["spec"], "providerID": "other://x"}}
        self.assertEqual(node_patch(self.node(other), self.facts()), {})

    def test_labels_follow_the_offer(self) -> None:
        """A label that vanishes from the offer vanishes from the node; one that others set stays."""
        body = forge_node(self.facts())
        body["metadata"]["labels"]["theirs"] = "kept"
        patch = node_patch(self.node(body), self.facts(offer=Offer(labels={"new": "1"})))
        self.assertEqual(patch["metadata"]["labels"], {"new": "1", "topology/zone": None})
        self.assertEqual(patch["metadata"]["annotations"], {APPLIED_LABELS: "new", APPLIED_RESOURCES: None})
        self.assertEqual(node_patch(self.node(apply_merge_patch(body, patch)), self.facts(offer=None)), {})

    def test_extended_resources_of_others(self) -> None:
        """What an administrator adds to the capacity can be requested; what the offer had goes with the offer."""
        body = forge_node(self.facts())
        gpu, own = {"nvidia.com/gpu": "1"}, {"example.com/dongle": "3", "scheduling.k8s.io/foo": "5"}
        lent = {"cpu": "4", "memory": "8Gi"}

        def written(facts: NodeFacts) -> dict[str, str]:
            """Write the node and then its status, as the controller does; return what can be allocated."""
            for _ in range(2):
                body.update(apply_merge_patch(body, node_patch(self.node(body), facts)))
                node = self.node(body)
                body.update(apply_merge_patch(body, status_patch(node.status, facts, NOW, applied_resources(node))))
            node = self.node(body)
            self.assertEqual(node_patch(node, facts), {})
            self.assertEqual(status_patch(node.status, facts, NOW, applied_resources(node)), {})
            self.assertEqual(body["status"]["capacity"], body["status"]["allocatable"])
            return dict(body["status"]["allocatable"])

        self.assertEqual(written(self.facts()), {**lent, **gpu})
        body["status"]["capacity"] = {**lent, **gpu, **own, "hugepages-2Mi": "1"}
        self.assertEqual(written(self.facts()), {**lent, **gpu, **own})
        without = self.facts(offer=Offer(resources=lent, labels=self.offer.labels))
        self.assertEqual(written(without), {**lent, **own})
        self.assertNotIn(APPLIED_RESOURCES, body["metadata"]["annotations"])
        body["status"]["capacity"] = lent
        self.assertEqual(written(without), lent)

    def test_the_platform_follows_the_offer(self) -> None:
        """Architecture and system are the lender's where it offers them, in the labels and in the node's status."""
        arch, arm = "kubernetes.io/arch", self.facts(offer=Offer(labels={"kubernetes.io/arch": "arm64"}))
        body = forge_node(arm)
        self.assertEqual(body["metadata"]["labels"][arch], "arm64")
        self.assertEqual(node_patch(self.node(body), arm), {})
        self.assertEqual(node_patch(self.node(body), self.facts(offer=None)), {})
        self.assertEqual(node_patch(self.node(body), self.facts())["metadata"]["labels"][arch], "amd64")
        status = apply_merge_patch({}, status_patch({}, arm, NOW)["status"])
        self.assertEqual(status["nodeInfo"]["architecture"], "arm64")
        self.assertEqual(status_patch(status, self.facts(offer=None), "later"), {})

    def test_the_taint_comes_back(self) -> None:
        """A removed taint is put back without losing those of others, guarded by the version."""
        body = forge_node(self.facts())
        body["metadata"]["resourceVersion"] = "7"
        body["spec"]["taints"] = [{"key": "other", "effect": "NoSchedule"}]
        patch = node_patch(self.node(body), self.facts())
        self.assertEqual([taint["key"] for taint in patch["spec"]["taints"]], ["other", TAINT_KEY])
        self.assertEqual(patch["metadata"], {"resourceVersion": "7"})

    def test_taints_of_the_record(self) -> None:
        """The record's taints are on the node; one that is changed or removed there is on the node, others stay."""
        gpu = NodeTaint(key="example.com/gpu", value="yes", effect="NoSchedule")
        spot = NodeTaint(key="spot", effect="PreferNoSchedule")
        body = forge_node(self.facts(taints=[gpu, spot]))
        self.assertEqual([taint["key"] for taint in body["spec"]["taints"]], [TAINT_KEY, "example.com/gpu", "spot"])
        self.assertEqual(node_patch(self.node(body), self.facts(taints=[spot, gpu])), {})
        body["spec"]["taints"].append({"key": "theirs", "effect": "NoSchedule"})
        other = NodeTaint(key="example.com/gpu", value="no", effect="NoSchedule")
        patch = node_patch(self.node(body), self.facts(taints=[other]))
        expected = [(TAINT_KEY, "true"), ("theirs", ""), ("example.com/gpu", "no")]
        self.assertEqual([(taint["key"], taint.get("value", "")) for taint in patch["spec"]["taints"]], expected)
        self.assertEqual(patch["metadata"]["annotations"], {APPLIED_TAINTS: "example.com/gpu:NoSchedule"})
        after = apply_merge_patch(body, patch)
        self.assertEqual(node_patch(self.node(after), self.facts(taints=[other])), {})
        patch = node_patch(self.node(after), self.facts())
        self.assertEqual([taint["key"] for taint in patch["spec"]["taints"]], [TAINT_KEY, "theirs"])
        self.assertEqual(node_patch(self.node(apply_merge_patch(after, patch)), self.facts()), {})

    def test_resources_that_vanish(self) -> None:
        """A resource offered no more is patched away; an unknown offer and an equal one change nothing."""
        first = status_patch({}, self.facts(), NOW)["status"]
        status = apply_merge_patch({}, first)
        self.assertEqual(status["capacity"], status["allocatable"])
        self.assertEqual(status_patch(status, self.facts(), "later"), {})
        lent = self.facts(offer=Offer(resources={"cpu": "4", "memory": "8Gi"}))
        less = status_patch(status, lent, "later", ["nvidia.com/gpu"])["status"]
        self.assertEqual(less["capacity"], {"nvidia.com/gpu": None})
        self.assertEqual(less["allocatable"], {"nvidia.com/gpu": None})
        self.assertNotIn("conditions", less)
        self.assertEqual(status_patch(status, self.facts(offer=None), "later"), {})

    def test_not_ready_says_why_and_yields_to_unknown(self) -> None:
        """Losing readiness is written at once with its reason; an Unknown of the node controller is left standing."""
        status = apply_merge_patch({}, status_patch({}, self.facts(), NOW)["status"])
        lost = self.facts(readiness=Readiness(ready=False, reason="PeerUnreachable", message="no answer"))
        patch = status_patch(status, lost, "later")["status"]
        ready = patch["conditions"][0]
        self.assertEqual((ready["status"], ready["reason"]), ("False", "PeerUnreachable"))
        self.assertEqual(ready["lastTransitionTime"], "later")
        unknown = [{**condition, "status": "Unknown"} for condition in status["conditions"]]
        unknown.append({"type": "NetworkUnavailable", "status": "False"})
        self.assertEqual(status_patch({**status, "conditions": unknown}, lost, "later"), {})
        back = status_patch({**status, "conditions": unknown}, self.facts(), "later")["status"]["conditions"]
        self.assertEqual([c["status"] for c in back], ["True", "False", "False", "False", "False"])

    def test_the_network_is_a_condition_of_its_own(self) -> None:
        """Whether packets cross is reported once it is known, and not at all where there is no network between
        clusters.
        """

        def reported(**facts: Any) -> list[tuple[str, str]]:
            found = status_patch({}, self.facts(**facts), NOW)["status"]["conditions"]
            return [(c["status"], c["reason"]) for c in found if c["type"] == "NetworkUnavailable"]

        down = Readiness(ready=False, reason="NetworkDown", message="cut")
        self.assertEqual(reported(), [])
        self.assertEqual(reported(network=Readiness(ready=False, reason="Unknown", message="", known=False)), [])
        self.assertEqual(reported(network=down), [("True", "NetworkDown")])
        up = Readiness(ready=True, reason="NetworkReady", message="packets cross")
        self.assertEqual(reported(network=up), [("False", "NetworkReady")])

    def test_an_offer_that_is_taken_back(self) -> None:
        """The node has nothing left and says why and when, by a condition and not a label, until the lender lends
        again; while the offer is not known the condition stays.
        """
        by = datetime(2030, 1, 1, 0, 10, tzinfo=UTC)
        offer = Offer(resources={"cpu": "0", "pods": "0"}, labels={"region": "eu", **reclaim_label(by)})
        facts = self.facts(offer=offer)
        self.assertNotIn(RECLAIMED_BY, forge_node(facts)["metadata"]["labels"])
        status = apply_merge_patch({}, status_patch({}, facts, NOW)["status"])
        self.assertEqual(status["allocatable"], {"cpu": "0", "pods": "0"})
        (found,) = [one for one in status["conditions"] if one["type"] == RECLAIMED]
        self.assertEqual((found["status"], found["reason"]), ("True", RECLAIMED))
        self.assertIn("2030-01-01T00:10:00Z", found["message"])
        self.assertEqual(status_patch(status, facts, "later"), {})
        self.assertEqual(status_patch(status, self.facts(offer=None), "later"), {})
        after = apply_merge_patch(status, status_patch(status, self.facts(), "later")["status"])
        self.assertNotIn(RECLAIMED, [one["type"] for one in after["conditions"]])
        self.assertEqual(after["allocatable"], self.offer.resources)

    def test_a_label_that_is_no_date(self) -> None:
        """A lender that sets the label to something else reclaims nothing."""
        for text in ("", "soon", "20301301T000000Z", "2030-01-01T00:00:00Z", "20300101T001000"):
            offer = Offer(resources={"cpu": "1"}, labels={RECLAIMED_BY: text})
            self.assertIsNone(offer.reclaimed_by, text)
            kinds = [one["type"] for one in status_patch({}, self.facts(offer=offer), NOW)["status"]["conditions"]]
            self.assertNotIn(RECLAIMED, kinds, text)

    def test_a_network_that_is_given_up_leaves_no_condition(self) -> None:
        """What was said of the network goes when there is none any more; what others say of theirs stays."""
        down = Readiness(ready=False, reason="NetworkDown", message="cut")
        status = apply_merge_patch({}, status_patch({}, self.facts(network=down), NOW)["status"])
        left = status_patch(status, self.facts(), "later")["status"]["conditions"]
        self.assertNotIn("NetworkUnavailable", [condition["type"] for condition in left])
        others = [*left, {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]
        self.assertEqual(status_patch({**status, "conditions": others}, self.facts(), "later"), {})
