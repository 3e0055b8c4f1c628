"""``liqodctl offload``, ``unoffload`` and ``explain``: what they ask for, what they find, and as programs."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.errors import CliError
from liqod.cli.status.explain_other import explain_namespace
from liqod.cli.status.explain_pod import PodFacts, facts_for, findings
from liqod.cli.workloads.dry_run import cluster_rows, leaving_of, lenders_of, object_rows, pod_rows, pods_at
from liqod.cli.workloads.offload import row_of, wanted_spec
from liqod.config.schema import EgressRuleSettings, EgressSettings, Settings
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACEOFFLOADINGS, NAMESPACES, NATTINGTABLES, NODES, PODS
from liqod.kubelet.reflection.kinds import INGRESS, SECRET, Kind
from liqod.kubelet.reflection.views import Reflectable, Secret, WithSpec
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts, problems_of_node
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.node import Node
from liqod.model.records.offloading import NamespaceOffloading, OffloadingPolicy, policy_of
from liqod.model.records.views import (
    Advertisement,
    ForeignCluster,
    NamespaceNattingTable,
    VirtualNode,
    VirtualNodeStatus,
)
from tests.cli.cluster_case import ClusterCase

TOLERATION = {"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"}
MILAN = msgspec.convert({"spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}, VirtualNode)


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
MILAN_FACTS = ClusterRecords(
    leader=LeaderFacts("one", alive=True, age=1.0),
    peers=[
        msgspec.convert(
            {
                "metadata": {"name": "c2"},
                "spec": {"fingerprint": "x"},
                "status": {"clusterName": "milan", "phase": "Ready"},
            },
            ForeignCluster,
        )
    ],
    virtual_nodes=[MILAN],
    nodes=[msgspec.convert({"metadata": {"name": "liqo-milan"}, "status": READY}, Node)],
)
"""milan, with which all is well."""


class OptionsTests(SynchronousTestCase):
    def test_options(self) -> None:
        """Options become the fields of a NamespaceOffloading; without any, none is made."""
        self.assertEqual(wanted_spec(None, None, "", ()), {})
        self.assertEqual(wanted_spec("Remote", None, "", ()), {"podOffloadingStrategy": "Remote"})
        named = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "market"}
        self.assertEqual(wanted_spec(None, None, "market", ()), named)
        self.assertEqual(wanted_spec(None, "SelectedName", "market", ()), named)
        self.assertEqual(wanted_spec(None, "EnforceSameName", "", ()), {"namespaceMappingStrategy": "EnforceSameName"})
        terms = wanted_spec(None, None, "", ("region=eu,tier in (a, b)", "!spot,x!=1"))["clusterSelector"]
        self.assertEqual(
            terms["nodeSelectorTerms"],
            [
                {
                    "matchExpressions": [
                        {"key": "region", "operator": "In", "values": ["eu"]},
                        {"key": "tier", "operator": "In", "values": ["a", "b"]},
                    ]
                },
                {
                    "matchExpressions": [
                        {"key": "spot", "operator": "DoesNotExist"},
                        {"key": "x", "operator": "NotIn", "values": ["1"]},
                    ]
                },
            ],
        )

    def test_what_does_not_go_together(self) -> None:
        """Contradictions and selectors that are none are refused as wrong usage."""
        for wrong in (
            (None, "SelectedName", "", ()),
            (None, "EnforceSameName", "market", ()),
            (None, None, "", ("=",)),
            (None, None, "", ("  ",)),
        ):
            with self.assertRaises(CliError) as caught:
                wanted_spec(*wrong)
            self.assertEqual(caught.exception.status, 2)


class AnswersTests(SynchronousTestCase):
    def test_a_label_that_was_just_set(self) -> None:
        """Who has just enabled a namespace is not advised to enable it; who has not, is."""
        found = msgspec.convert(
            {"status": {"offloadingPhase": "NotEnabled", "message": "label it"}}, NamespaceOffloading
        )
        for label, phase in (("true", "InProgress"), ("false", "NotEnabled")):
            space = msgspec.convert({"metadata": {"name": "shop", "labels": {"liqo.io/enabled": label}}}, Object)
            row = row_of(space, found)
            self.assertEqual((row["namespace"], row["phase"]), ("shop", phase))
            self.assertEqual(row["why"] == "label it", phase == "NotEnabled")


def pod(node: str = "", tolerations: Any = (TOLERATION,), phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"nodeName": node, "tolerations": list(tolerations)},
        "status": {"phase": phase, **status},
    }


def offloading(**spec: Any) -> NamespaceOffloading:
    return msgspec.convert({"metadata": {"name": "offloading", "namespace": "shop"}, "spec": spec}, NamespaceOffloading)


def table(phase: str, reason: str = "", message: str = "") -> dict[str, NamespaceNattingTable]:
    body = {
        "spec": {"nattingTable": {"shop": "shop-rome"}},
        "status": {"mappings": {"shop": {"phase": phase, "reason": reason, "message": message}}},
    }
    return {"c2": msgspec.convert(body, NamespaceNattingTable)}


class DryRunTests(SynchronousTestCase):
    def test_a_pod_that_asks_for_virtual_nodes(self) -> None:
        """It runs at a lender or nowhere; another pod like it may run here, too."""
        labels = {"liqo.io/type": "virtual-node"}
        body = {
            "metadata": {"name": "liqo-milan", "labels": labels},
            "status": {"allocatable": {"pods": "10"}, **READY},
        }
        milan = msgspec.convert(body, Node)
        facts = ClusterRecords(leader=LeaderFacts("one", alive=True, age=1.0), nodes=[milan])
        asking = {"metadata": {"name": "web"}, "spec": {"runtimeClassName": "liqo", "nodeSelector": labels}}
        other = {"metadata": {"name": "web"}, "spec": {}}
        for given, placement, then in (
            (asking, "LocalAndRemote", "a new one: liqo-milan"),
            (other, "LocalAndRemote", "a new one: here or liqo-milan"),
            (asking, "Remote", "a new one: liqo-milan"),
            (asking, "Local", "a new one: nowhere"),
            (other, "Local", "a new one: here"),
        ):
            (row,) = pod_rows(facts, OffloadingPolicy(placement), [given])
            self.assertEqual(row["then"], then)
            self.assertEqual("asks for virtual nodes" in row["why"], then.endswith("nowhere"))

    def test_nodes_that_take_none(self) -> None:
        """A node that is cordoned, not ready or tainted is no place for a new pod, and the row says which it is."""
        asking = {"metadata": {"name": "web"}, "spec": {"tolerations": [{"key": "mine", "operator": "Exists"}]}}
        gpu = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
        for spec, status, why in (
            ({}, READY, ""),
            ({"taints": [{**gpu, "key": "mine"}]}, READY, ""),
            ({"taints": [{**gpu, "effect": "PreferNoSchedule"}]}, READY, ""),
            ({"unschedulable": True}, READY, "liqo-milan is cordoned"),
            ({}, {}, "liqo-milan is not ready"),
            ({"taints": [gpu]}, READY, "liqo-milan has the taint gpu, which the pod does not tolerate"),
        ):
            allocatable = {"allocatable": {"pods": "10"}}
            body = {"metadata": {"name": "liqo-milan"}, "spec": spec, "status": {**allocatable, **status}}
            facts = ClusterRecords(nodes=[msgspec.convert(body, Node)])
            (row,) = pod_rows(facts, OffloadingPolicy(), [asking])
            self.assertEqual(row["why"], why)
            self.assertEqual(row["then"], "a new one: here" if why else "a new one: here or liqo-milan")


EU = {"region": "eu"}
TURIN = msgspec.convert({"spec": {"clusterID": "c3", "nodeName": "liqo-turin"}}, VirtualNode)
TWO = ClusterRecords(
    peers=msgspec.convert(
        [
            {"metadata": {"name": peer}, "status": {"clusterName": name}}
            for peer, name in (("c2", "milan"), ("c3", "turin"))
        ],
        list[ForeignCluster],
    ),
    virtual_nodes=[MILAN, TURIN],
    nodes=msgspec.convert(
        [
            {"metadata": {"name": name, "labels": labels}, "status": {**READY, "allocatable": {"pods": "10"}}}
            for name, labels in (("liqo-milan", {}), ("liqo-turin", EU))
        ],
        list[Node],
    ),
    offers=[
        msgspec.convert(
            {"metadata": {"name": "advertisement-c2"}, "spec": {"offer": {"ingressClasses": ["nginx"]}}}, Advertisement
        )
    ],
)
"""Two lenders, of which one tells its classes."""
NAMING: dict[str, Any] = {"containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "db"}}]}]}
DB = Secret(metadata=ObjectMeta(name="db", namespace="shop"))


def denied(**rule: Any) -> Settings:
    """Return settings with one rule under [egress]."""
    return Settings(egress=EgressSettings(rules=[EgressRuleSettings(verdict="deny", **rule)]))


class LeavingTests(SynchronousTestCase):
    """What a dry run says of what would leave home, for each of two lenders."""

    def rows(
        self, kind: Kind, one: Reflectable, settings: Settings, pods: list[dict[str, Any]], **spec: Any
    ) -> list[tuple[str, str]]:
        """Return what would become of an object, and why."""
        offloading = msgspec.convert({"spec": spec}, NamespaceOffloading)
        policy = policy_of("shop", offloading)
        leaving = leaving_of(TWO, Object(metadata=ObjectMeta(name="shop")), settings)
        lenders = [
            attrs.evolve(lender, pods=pods_at(lender, TWO, policy, pods, leaving))
            for lender in lenders_of(TWO, policy, offloading, "rome", leaving)
        ]
        return [(row["then"], row["why"]) for row in object_rows(kind, [one], lenders, settings)]

    def test_named_contents(self) -> None:
        """With contents = "named" a secret goes only where a new pod could run that names it."""
        named = Settings(egress=EgressSettings(contents="named"))
        meta: dict[str, Any] = {"name": "web", "namespace": "shop"}
        of_set = {**meta, "ownerReferences": [{"kind": "DaemonSet"}]}
        nobody = "no pod there names it"
        cases: list[tuple[list[dict[str, Any]], list[tuple[str, str]]]] = [
            ([], [("stays", nobody)]),
            ([{"metadata": meta, "spec": {"containers": []}}], [("stays", nobody)]),
            ([{"metadata": meta, "spec": NAMING}], [("copied", "")]),
            ([{"metadata": of_set, "spec": NAMING}], [("stays", nobody)]),
            (
                [{"metadata": meta, "spec": {**NAMING, "nodeSelector": EU}}],
                [("stays (milan)", nobody), ("copied (turin)", "")],
            ),
        ]
        for pods, rows in cases:
            self.assertEqual(self.rows(SECRET, DB, named, pods), rows)
            self.assertEqual(self.rows(SECRET, DB, Settings(), pods), [("copied", "")])

    def test_rules_for_a_peer(self) -> None:
        """A rule about one peer holds for that one alone."""
        why = "rule 1 under [egress] keeps it in this cluster (secret in namespace shop)"
        found = self.rows(SECRET, DB, denied(kinds=["secret"], peers=["c2"]), [])
        self.assertEqual(found, [("stays (milan)", why), ("copied (turin)", "")])

    def test_a_namespace_that_stays(self) -> None:
        """A lender for which the namespace may not leave gets nothing: no pods and no objects are shown for it."""
        settings = denied(kinds=["namespace"], peers=["c2"])
        why = "rule 1 under [egress] keeps it in this cluster (namespace shop)"
        leaving = leaving_of(TWO, Object(metadata=ObjectMeta(name="shop")), settings)
        milan, turin = cluster_rows(TWO, OffloadingPolicy(), "rome", leaving)
        self.assertEqual((milan["then"], milan["why"]), ("nothing", why))
        self.assertEqual(turin["then"], "namespace shop-rome with the first pod")
        (row,) = pod_rows(TWO, OffloadingPolicy(), [{"metadata": {"name": "web"}, "spec": {}}], leaving)
        self.assertEqual(row["then"], "a new one: here or liqo-turin")
        self.assertEqual(row["why"], f"on liqo-milan it would wait: {why}")
        self.assertEqual(self.rows(SECRET, DB, settings, []), [("copied", "")])

    def test_pods_that_stay(self) -> None:
        """A pod that may not leave is not said to go, and what it names does not go for it."""
        settings = Settings(
            egress=EgressSettings(
                contents="named", rules=[EgressRuleSettings(verdict="deny", kinds=["pod"], labels="tier=gold")]
            )
        )
        leaving = leaving_of(TWO, Object(metadata=ObjectMeta(name="shop")), settings)
        for labels, stays in (({"tier": "gold"}, True), ({}, False)):
            pods: list[dict[str, Any]] = [{"metadata": {"name": "web", "labels": labels}, "spec": NAMING}]
            (row,) = pod_rows(TWO, OffloadingPolicy(), pods, leaving)
            self.assertEqual(row["then"] == "a new one: here", stays, row)
            self.assertEqual(self.rows(SECRET, DB, settings, pods)[0][0], "stays" if stays else "copied")

    def test_classes(self) -> None:
        """Where a lender offers none of the classes that the namespace allows, an ingress is said to stay, and why."""
        body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"defaultBackend": {"service": {}}}}
        ingress = msgspec.json.decode(msgspec.json.encode(body), type=WithSpec)
        for allowed, milan in ((["nginx"], "copied (milan)"), (["traefik"], "stays (milan)")):
            first, second = self.rows(INGRESS, ingress, Settings(), [], ingressClasses=allowed)
            self.assertEqual(first[0], milan)
            self.assertEqual("offers none of the classes" in first[1], milan.startswith("stays"))
            self.assertEqual(second[0], "stays (turin)")
            self.assertIn("offers none of the classes that the namespace allows", second[1])


class FindingsTests(SynchronousTestCase):
    def test_by_the_runtime_class(self) -> None:
        """What lets a pod onto virtual nodes is its RuntimeClass, whatever its namespace says."""
        body = pod()
        body["spec"]["runtimeClassName"] = "liqo"
        for more in ({"enabled": False}, {"enabled": True}, {"enabled": True, "offloading": offloading()}):
            rows = findings(PodFacts(pod=body, **more))
            (row,) = (row for row in rows if row["what"] == "toleration and affinity")
            self.assertEqual(row["state"], "by its RuntimeClass liqo")

    def test_a_pod_of_which_nothing_is_known(self) -> None:
        """A pod without spec and status is shown as one that has no node yet."""
        rows = findings(PodFacts(pod={"metadata": {"name": "web", "namespace": "shop"}}, enabled=True))
        states = {row["what"]: row["state"] for row in rows}
        self.assertEqual((states["pod"], states["node"]), ("Unknown", "none yet"))

    def ask(self, body: dict[str, Any], **facts: Any) -> dict[str, str]:
        given = {"enabled": True, "records": [MILAN], "nodes": {"liqo-milan": {}}, "tables": table("Ready"), **facts}
        rows = findings(PodFacts(pod=body, **given))
        self.assertTrue(all(set(row) == {"what", "state", "why"} for row in rows))
        return rows[-1]

    def test_answers(self) -> None:
        """The last row says where the pod is and why, from all that is known."""
        unplaced: dict[str, Any] = {
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "U", "message": "0/3 nodes"}]
        }
        refused: dict[str, Any] = {
            "conditions": [
                {"type": "liqo.io/Offloaded", "status": "False", "reason": "PodSecurity", "message": "privileged"}
            ]
        }
        local, remote = offloading(podOffloadingStrategy="Local"), offloading(podOffloadingStrategy="Remote")
        none = offloading(
            clusterSelector={"nodeSelectorTerms": [{"matchFields": [{"key": "x", "operator": "Exists"}]}]}
        )
        cases: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
            (pod("liqo-milan"), {}, "offloaded", "shop-rome/web"),
            (pod("liqo-milan", phase="Pending", **refused), {}, "not offloaded", "PodSecurity: privileged"),
            (
                pod("liqo-milan"),
                {"tables": table("Refused", "NameNotYours", "no")},
                "not offloaded yet",
                "NameNotYours",
            ),
            (pod("liqo-milan"), {"tables": {}}, "not offloaded yet", "not requested"),
            (pod("liqo-milan"), {"records": []}, "not offloaded", "peering has ended"),
            (pod("here"), {"enabled": False}, "runs in this cluster", "not offloaded"),
            (pod("here"), {"offloading": local}, "runs in this cluster", "Local"),
            (pod("here", tolerations=()), {}, "runs in this cluster", "does not tolerate"),
            (pod("here"), {"offloading": remote}, "runs in this cluster", "Remote"),
            (pod("here"), {}, "runs in this cluster", "preferred this node"),
            (pod(phase="Pending", **unplaced), {}, "waits for a node", "0/3 nodes"),
            (pod(phase="Pending", **unplaced), {"offloading": none}, "waits for a node", "no virtual node is selected"),
        ]
        for body, facts, state, words in cases:
            answer = self.ask(body, **facts)
            self.assertEqual(answer["state"], state, (body, facts, answer))
            self.assertIn(words, answer["why"])

    def test_a_pod_that_is_being_deleted(self) -> None:
        """The answer says what it waits for: finalizers, its node, the daemon, the lender or its pod there."""
        away = {"phase": "NotReady", "reason": "PeerUnreachable", "message": "no answer"}
        gone = msgspec.structs.replace(MILAN, status=msgspec.convert(away, VirtualNodeStatus))
        lost = attrs.evolve(MILAN_FACTS, virtual_nodes=[gone])
        owner = {"kind": "StatefulSet", "controller": True}
        held = {"finalizers": ["example.com/wait"]}
        ended = {**held, "deletionGracePeriodSeconds": 0}
        silent = attrs.evolve(MILAN_FACTS, leader=None)
        refused = table("Refused", "NameNotYours", "no")
        cases: list[tuple[ClusterRecords, dict[str, Any], dict[str, Any], list[str]]] = [
            (MILAN_FACTS, {}, {}, ["pod shop-rome/web at the lender", "until 2026-01-01T00:00:30Z", "60 s after"]),
            (MILAN_FACTS, held, {}, ["pod shop-rome/web", "then for its finalizers (example.com/wait)"]),
            (MILAN_FACTS, ended, {"phase": "Failed"}, ["for its finalizers (example.com/wait)", "no process"]),
            (MILAN_FACTS, ended, {"phase": "Running"}, ["pod shop-rome/web", "then for its finalizers"]),
            (silent, {}, {}, ["the daemon", "NoDaemon"]),
            (lost, {}, {}, ["the lender, until 2026-01-01T00:01:00Z", "PeerUnreachable: no answer", "is back"]),
            (lost, {"ownerReferences": [owner]}, {}, ["without limit", "kubectl delete pod web -n shop --force"]),
            (lost, held, {}, ["PeerUnreachable", "then for its finalizers (example.com/wait)"]),
        ]
        for known, meta, status, words in cases:
            body = pod("liqo-milan", **status)
            body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", **meta}
            facts = attrs.evolve(facts_for(known, body, enabled=True), tables=table("Ready"))
            answer = findings(facts)[-1]
            self.assertEqual(answer["state"], "is being deleted")
            self.assertEqual([word for word in words if word not in answer["why"]], [], answer["why"])
        body = pod("liqo-milan")
        body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "ownerReferences": [owner]}
        self.assertIn("NameNotYours", self.ask(body, tables=refused)["why"])
        self.assertIn("without limit", self.ask(body, tables=refused)["why"])
        self.assertIn("no namespace", self.ask(body, tables={})["why"])
        self.assertIn("no VirtualNode", self.ask(body, records=[])["why"])
        body["spec"]["nodeName"] = "here"
        self.assertIn("the kubelet of here", self.ask(body)["why"])
        body["spec"]["nodeName"] = ""
        self.assertIn("waits for nothing", self.ask(body)["why"])

    def test_a_lender_that_is_not_ready(self) -> None:
        """Of a cluster with which something is wrong the row of its node, and the result, say what; a refusal stays."""
        ready = {"metadata": {"name": "liqo-milan"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        status = {"phase": "TrustPending", "reason": "WaitingForPeerTrust", "message": "milan does not trust us"}
        for peers, code, kind in (([], "", ""), ([status], "WaitingForPeerTrust", "peer milan")):
            bodies = [
                {"metadata": {"name": "c2"}, "spec": {"fingerprint": "x"}, "status": {"clusterName": "milan", **one}}
                for one in peers
            ]
            known = ClusterRecords(
                leader=LeaderFacts("one", alive=True, age=1.0),
                peers=msgspec.convert(bodies, list[ForeignCluster]),
                virtual_nodes=[MILAN],
                nodes=[msgspec.convert(ready, Node)],
            )
            facts = facts_for(known, pod("liqo-milan"), enabled=True)
            for phase in ("Ready", "Pending", "Refused"):
                *rows, result = findings(attrs.evolve(facts, tables=table(phase, "NameNotYours", "no")))
                (row,) = (one for one in rows if one["what"] == "cluster liqo-milan")
                shown = code if code and phase != "Refused" else phase
                self.assertEqual(row["state"], shown)
                self.assertIn(kind if shown == code else "NameNotYours", row["why"])
                self.assertIn(code if shown == code else "", result["why"])
            (*_, last) = explain_namespace(attrs.evolve(facts, tables=table("Ready")))
            self.assertEqual(last["state"], code or "offloaded")

    def test_what_is_no_failure_of_a_lender(self) -> None:
        """That a peer is no more than discovered is said of the peer; it is no problem of its node."""
        ready = {"metadata": {"name": "liqo-milan"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        peer = {"metadata": {"name": "c2"}, "spec": {"fingerprint": "x"}, "status": {"phase": "Discovered"}}
        known = ClusterRecords(
            leader=LeaderFacts("one", alive=True, age=1.0),
            peers=msgspec.convert([peer], list[ForeignCluster]),
            virtual_nodes=[MILAN],
            nodes=[msgspec.convert(ready, Node)],
        )
        self.assertTrue(problems_of_node(known, MILAN))
        self.assertEqual(facts_for(known, pod("liqo-milan"), enabled=True).problems, {})

    def test_an_earlier_setting(self) -> None:
        """A pod whose own affinity excludes every selected cluster is to be deleted, however right its namespace is."""
        eu = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
        body = pod(phase="Pending")
        body["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [eu]}}
        }
        answer = self.ask(body)
        self.assertEqual(answer["state"], "waits for a node")
        self.assertIn("delete it", answer["why"])
        self.assertEqual(self.ask(body, nodes={"liqo-milan": {"region": "eu"}})["why"], "it has not been scheduled yet")
        body = pod(phase="Pending")
        body["spec"]["nodeSelector"] = {"disk": "ssd"}
        self.assertIn("delete it", self.ask(body)["why"])


class ProgramsTests(ClusterCase):
    """The commands against a cluster of the sandbox."""

    timeout = 120

    async def test_offload(self) -> None:
        """offload labels a namespace and says how; again with other options it changes them; unoffload ends both."""
        await manifests.ensure(self.client)
        self.assertIn("LQ2101", await self.liqodctl("offload", "namespace", "shop", status=1))
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        self.assertIn("LQ1007", await self.liqodctl("offload", "namespace", "kube-system", status=1))
        shown = json.loads(await self.liqodctl("offload", "namespace", "shop", "-o", "json"))
        self.assertEqual((shown[0]["enabled"], shown[0]["placement"]), (True, "LocalAndRemote"))
        with self.assertRaises(NotFound):
            await self.client.get(NAMESPACEOFFLOADINGS, "offloading", "shop")
        await self.liqodctl("offload", "namespace", "shop", "--placement=Remote", "--selector=region=eu")
        await self.liqodctl("offload", "namespace", "shop", "--placement=Local")
        spec = (await self.client.get(NAMESPACEOFFLOADINGS, "offloading", "shop"))["spec"]
        self.assertEqual(spec["podOffloadingStrategy"], "Local")
        self.assertEqual(spec["clusterSelector"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"], ["eu"])
        late = await self.liqodctl("offload", "namespace", "shop", "--wait", "--timeout=1", status=1)
        self.assertIn("LQ3001", late)
        command = ("offload", "namespace", "shop", "--placement=Remote", "--wait")
        generation = (await self.client.get(NAMESPACEOFFLOADINGS, "offloading", "shop"))["metadata"]["generation"] + 1
        for observed, phase, settled in ((0, "Ready", 0), (1, "InProgress", 0), (1, "Ready", 1)):
            # What the daemon has written when the command begins to wait.
            status = {"observedGeneration": generation - 1 + observed, "offloadingPhase": phase}
            patch = {"status": status}
            await self.client.patch(NAMESPACEOFFLOADINGS, "offloading", patch, "shop", subresource="status")
            printed = await self.liqodctl(*command, "--timeout=1", status=1 - settled)
            self.assertEqual("LQ3001" not in printed, bool(settled), status)
        await self.liqodctl("offload", "ns", "shop", "--placement=local", "--selector=")
        spec = (await self.client.get(NAMESPACEOFFLOADINGS, "offloading", "shop"))["spec"]
        self.assertNotIn("clusterSelector", spec)
        body = {"metadata": {"name": "c2"}, "spec": {"nattingTable": {"shop": "shop-rome"}}}
        await self.client.create(NATTINGTABLES, body)
        self.assertIn("shop-rome", await self.liqodctl("offload", "ns", "shop", "--remote-name=x", status=1))
        self.assertIn(
            "LQ3001", await self.liqodctl("unoffload", "namespace", "shop", "--wait", "--timeout=1", status=1)
        )
        await self.client.delete(NATTINGTABLES, "c2")
        shown = json.loads(await self.liqodctl("unoffload", "namespace", "shop", "--wait", "-o", "json"))
        self.assertFalse(shown[0]["enabled"])
        self.assertNotIn("liqo.io/enabled", (await self.client.get(NAMESPACES, "shop"))["metadata"].get("labels", {}))
        with self.assertRaises(NotFound):
            await self.client.get(NAMESPACEOFFLOADINGS, "offloading", "shop")

    async def test_explain(self) -> None:
        """explain shows what was found, with the answer, as a table or for programs."""
        await manifests.ensure(self.client)
        self.assertIn("LQ2102", await self.liqodctl("explain", "pod", "web", status=1))
        labels = {"liqo.io/type": "virtual-node"}
        await self.client.create(NODES, {"metadata": {"name": "liqo-milan", "labels": labels}})
        container = {"name": "main", "image": "x"}
        body = {"metadata": {"name": "web"}, "spec": {"nodeName": "liqo-milan", "containers": [container]}}
        await self.client.create(PODS, body, "default")
        self.assertIn("not enabled", await self.liqodctl("explain", "web"))
        document = json.loads(await self.liqodctl("explain", "web", "-n", "default", "-o", "json"))
        self.assertEqual(document["pod"], "default/web")
        self.assertEqual(document["answer"]["state"], "not offloaded")
