"""NamespaceOffloadings: their status as a table, and what virtual kubelets make of them between two sandboxes."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACEOFFLOADINGS, NAMESPACES, NATTINGTABLES, NODES, PODS, SHADOWPODS
from liqod.kubelet.namespaces.offloading_forge import MappedLender, forge_status
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import to_dict
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import MappingStatus
from tests.kubelet import cases, test_service

EU = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}]}
US = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["us"]}]}]}


def offloading(status: Any = None, name: str = "offloading", **spec: Any) -> NamespaceOffloading:
    metadata = {"name": name, "namespace": "shop", "generation": 3}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, NamespaceOffloading)


def lender(name: str, entry: str | None = None, phase: str = "", reason: str = "", **more: Any) -> MappedLender:
    mapping = MappingStatus(phase=phase, reason=reason, message="in its words" if reason else "") if phase else None
    facts: dict[str, Any] = {"labels": {"region": "eu"}, "entry": entry, "mapping": mapping}
    return MappedLender(name, f"liqo-{name}", **{**facts, **more})


def status(found: NamespaceOffloading, *lenders: MappedLender, enabled: bool = True, now: str = "t1") -> dict[str, Any]:
    found_status: dict[str, Any] = to_dict(
        forge_status(found, enabled=enabled, lenders=lenders, home=ClusterID("rome"), now=now)
    )
    return found_status


class StatusTests(SynchronousTestCase):
    def test_phases(self) -> None:
        """The phase sums up the selected clusters."""
        idle, ready = lender("milan"), lender("milan", "shop-rome", "Ready")
        asked = lender("paris", "shop-rome", "Pending", "PeerUnreachable")
        new = lender("paris", "shop-rome", "Pending")
        refused = lender("paris", "shop", "Refused", "NameNotYours")
        missing = lender("milan", labels=None)
        table: list[tuple[dict[str, Any], tuple[MappedLender, ...], str]] = [
            ({}, (), "NoClusterSelected"),
            ({}, (idle,), "Ready"),
            ({}, (ready,), "Ready"),
            ({}, (ready, new), "InProgress"),
            ({}, (ready, asked), "SomeFailed"),
            ({}, (ready, refused), "SomeFailed"),
            ({}, (refused,), "AllFailed"),
            ({"clusterSelector": US}, (ready,), "NoClusterSelected"),
            ({"clusterSelector": EU}, (ready,), "Ready"),
            ({"clusterSelector": EU}, (missing,), "Ready"),
            ({"podOffloadingStrategy": "Local"}, (ready,), "NoClusterSelected"),
        ]
        for spec, lenders, expected in table:
            got = status(offloading(**spec), *lenders)
            self.assertEqual(got["offloadingPhase"], expected, (spec, lenders, got))
            self.assertTrue(got["message"])
            self.assertEqual(got["observedGeneration"], 3)
        self.assertEqual(status(offloading(), ready, enabled=False)["offloadingPhase"], "NotEnabled")
        self.assertEqual(status(offloading(name="other"), ready)["offloadingPhase"], "Ignored")

    def test_messages(self) -> None:
        """A namespace that is ready for its first pod says so, not that it is nowhere."""
        chosen = "1 of 1 clusters selected"
        idle, ready = lender("milan"), lender("milan", "shop-rome", "Ready")
        self.assertEqual(
            status(offloading(), idle)["message"], f"{chosen}; the namespace is made there with the first pod"
        )
        self.assertEqual(status(offloading(), ready)["message"], f"{chosen}, offloaded to 1")

    def test_conditions(self) -> None:
        """Each cluster has two conditions with reasons; those of clusters that went away go too."""

        def reasons(found: NamespaceOffloading, one: MappedLender) -> list[tuple[str, str]]:
            reported = status(found, one)["remoteNamespacesConditions"][one.cluster_id]
            return [(condition["status"], condition["reason"]) for condition in reported]

        self.assertEqual(reasons(offloading(), lender("milan")), [("True", "ClusterSelected"), ("Unknown", "NoPodYet")])
        left = lender("milan", "shop-rome", "Ready")
        out = offloading(clusterSelector=US)
        self.assertEqual(reasons(out, left), [("False", "ClusterNotSelected"), ("False", "Draining")])
        self.assertEqual(reasons(out, lender("milan"))[1], ("False", "ClusterNotSelected"))
        same = offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="market")
        used = lender("milan", taken={"market": "bazaar"})
        self.assertEqual(reasons(same, used)[1], ("False", "RemoteNameInUse"))
        before = status(offloading(), lender("milan"), lender("paris"))
        self.assertEqual(sorted(before["remoteNamespacesConditions"]), ["milan", "paris"])
        after = status(offloading(before), lender("milan"))
        self.assertEqual(sorted(after["remoteNamespacesConditions"]), ["milan"])

    def test_several_nodes_of_one_cluster(self) -> None:
        """A cluster is selected where one of its nodes is, in whichever order they come; else what is unknown stays."""
        chosen = lender("milan", "shop-rome", "Ready")
        others = [lender("milan", "shop-rome", "Ready", labels=labels) for labels in ({"region": "us"}, None)]
        left, unknown = (attrs.evolve(one, node=f"a-{number}") for number, one in enumerate(others))
        found = offloading(clusterSelector=EU)
        for nodes, wanted in (((chosen, left), chosen), ((chosen, unknown), chosen), ((left, unknown), unknown)):
            expected = status(found, wanted)
            for order in (nodes, nodes[::-1]):
                self.assertEqual(status(found, *order), expected, order)

    def test_names(self) -> None:
        """The name elsewhere is the strategy's; with Local there is none."""
        self.assertEqual(status(offloading())["remoteNamespaceName"], "shop-rome")
        same = offloading(namespaceMappingStrategy="EnforceSameName")
        self.assertEqual(status(same)["remoteNamespaceName"], "shop")
        self.assertEqual(status(offloading(podOffloadingStrategy="Local")).get("remoteNamespaceName", ""), "")

    def test_spillover(self) -> None:
        """The condition says whether own nodes come first, and what is wrong; without spillover there is none."""
        milan = {"cluster": "milan", "weight": 9}
        eu, us = ({"matchLabels": {"region": region}, "weight": 9} for region in ("eu", "us"))
        table: list[tuple[dict[str, Any], str, str, str]] = [
            ({"spillover": {}}, "True", "HomeFirst", "own nodes"),
            ({"spillover": {"mode": "Return", "peers": [milan, eu]}}, "True", "Return", "own nodes"),
            ({"spillover": {"mode": "None"}}, "False", "None", "no nodes"),
            ({"spillover": {}, "podOffloadingStrategy": "Local"}, "False", "StrategyContradicts", "is Local"),
            ({"spillover": {}, "podOffloadingStrategy": "Remote"}, "False", "StrategyContradicts", "is Remote"),
            ({"spillover": {"mode": "None"}, "podOffloadingStrategy": "Local"}, "False", "None", "no nodes"),
            ({"spillover": {"peers": [milan, {**milan, "cluster": "oslo"}]}}, "True", "PeerUnknown", "oslo"),
            ({"spillover": {"peers": [us]}}, "True", "PeerUnknown", "region=us"),
            ({"spillover": {"peers": [{**milan, "weight": 100}]}}, "True", "PeerInvalid", "weight 100 of milan"),
            ({"spillover": {"peers": [{**milan, "weight": 0}]}}, "True", "PeerInvalid", "weight 0"),
            ({"spillover": {"peers": [{**milan, **eu}]}}, "True", "PeerInvalid", "by cluster or"),
        ]
        for spec, expected, reason, words in table:
            (condition,) = status(offloading(**spec), lender("milan"))["conditions"]
            self.assertEqual((condition["status"], condition["reason"]), (expected, reason), spec)
            self.assertEqual(condition["type"], "Spillover")
            self.assertIn(words, condition["message"])
        (condition,) = status(offloading(spillover={"peers": [us]}), lender("milan", labels=None))["conditions"]
        self.assertEqual(condition["reason"], "HomeFirst")  # the labels are not known, so nothing is said about them
        self.assertNotIn("conditions", status(offloading(), lender("milan")))

    def test_no_news(self) -> None:
        """What is written once is not written again later."""
        first = status(offloading(), lender("milan", "shop-rome", "Ready"))
        again = status(offloading(first), lender("milan", "shop-rome", "Ready"), now="t2")
        self.assertEqual(first, again)
        spec: dict[str, Any] = {"spillover": {"peers": [{"cluster": "oslo", "weight": 1}]}}
        first = status(offloading(**spec), lender("milan"))
        self.assertEqual(first, status(offloading(first, **spec), lender("milan"), now="t2"))


class OffloadingStatusTests(cases.KubeletSides):
    """Virtual kubelets and NamespaceOffloadings between two sandboxes."""

    setUp = test_service.KubeletTests.setUp  # type: ignore[assignment]
    _set_up = test_service.KubeletTests._set_up
    _cluster = test_service.KubeletTests._cluster
    run_remote = test_service.KubeletTests.run_remote
    way = test_service.KubeletTests.way

    async def want(self, **spec: Any) -> None:
        """Have the namespace offloaded like this from now on."""
        try:
            await self.home.get(NAMESPACEOFFLOADINGS, "offloading", self.space)
        except NotFound:
            body = {"metadata": {"name": "offloading", "namespace": self.space}, "spec": spec}
            await self.home.create(NAMESPACEOFFLOADINGS, body)
        else:
            await self.home.patch(NAMESPACEOFFLOADINGS, "offloading", {"spec": spec}, self.space)

    async def phase_is(self, phase: str) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            found = await self.home.get(NAMESPACEOFFLOADINGS, "offloading", self.space)
            self.assertEqual(found.get("status", {}).get("offloadingPhase"), phase, found)
            return found

        return await self.eventually(look)

    async def label(self, region: str | None) -> None:
        await self.node_is("True")
        await self.home.patch(NODES, self.node, {"metadata": {"labels": {"region": region}}})

    async def backs_off(self, name: str, words: str) -> None:
        async def reported() -> bool:
            found = (await self.home.get(PODS, name, self.space))["status"]
            self.assertIn(words, str(found.get("conditions")), found)
            return bool(found.get("reason") == "OffloadingBackOff")

        await self.eventually(reported)

    async def test_the_selector_follows_labels(self) -> None:
        """Pods run where the selector selects the node; when it no longer does they leave and the namespace goes."""
        await self.label("eu")
        await self.want(clusterSelector=EU)
        await self.phase_is("Ready")
        await self.pod("web")
        await self.runs("web")
        found = await self.phase_is("Ready")
        self.assertEqual(found["status"]["remoteNamespaceName"], self.remote)
        conditions = found["status"]["remoteNamespacesConditions"][str(self.peer)]
        self.assertIn(("Ready", "True"), {(one["type"], one["status"]) for one in conditions})
        await self.label("us")
        await self.gone(self.home, PODS, "web", self.space)
        await self.gone(self.lender, NAMESPACES, self.remote)
        await self.phase_is("NoClusterSelected")
        await self.pod("late")
        await self.backs_off("late", "does not select the node")
        await self.label("eu")
        await self.runs("late")

    async def test_local(self) -> None:
        """With Local nothing is asked of any lender; when it becomes Local the pods leave."""
        await self.want(podOffloadingStrategy="Local")
        await self.pod("web")
        await self.backs_off("web", "podOffloadingStrategy is Local")
        self.assertEqual(self.session.asked, [])
        await self.want(podOffloadingStrategy="LocalAndRemote")
        await self.runs("web")
        await self.want(podOffloadingStrategy="Local")
        await self.gone(self.home, PODS, "web", self.space)
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_a_name_that_the_lender_refuses(self) -> None:
        """A name that the lender will not give is said with its words; without that the default name is used."""
        await self.want(namespaceMappingStrategy="EnforceSameName")
        await self.pod("web")

        async def refused() -> bool:
            found = await self.phase_is("AllFailed")
            return bool("NameNotYours" in found["status"]["message"])

        await self.eventually(refused)
        await self.home.delete(NAMESPACEOFFLOADINGS, "offloading", self.space)
        await self.runs("web")
        table = await self.home.get(NATTINGTABLES, str(self.peer))
        self.assertEqual(table["spec"]["nattingTable"], {self.space: self.remote})
        self.assertEqual(table["spec"]["deNattingTable"], {self.remote: self.space})

    async def test_a_foreign_namespace_of_that_name(self) -> None:
        """A namespace of the lender's own is never used or touched; once it is gone the pod runs."""
        await self.lender.create(NAMESPACES, {"metadata": {"name": self.remote, "labels": {"mine": "yes"}}})
        await self.want()
        await self.pod("web")

        async def refused() -> bool:
            found = await self.phase_is("AllFailed")
            return bool("NamespaceTaken" in found["status"]["message"])

        await self.eventually(refused)
        await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": None}}})
        await self.phase_is("NotEnabled")
        await self.gone(self.home, PODS, "web", self.space)
        foreign = await self.lender.get(NAMESPACES, self.remote)
        self.assertEqual(foreign["metadata"]["labels"].get("mine"), "yes")
        self.assertNotIn("liqo.io/remote-cluster-id", foreign["metadata"]["labels"])
        self.assertEqual((await self.lender.list(SHADOWPODS, self.remote)).items, [])

    async def test_what_is_claimed_in_a_namespace_that_is_refused(self) -> None:
        """Nothing is where the lender refuses the name: what its pods reach is known when the refused pods are gone."""
        await self.lender.create(NAMESPACES, {"metadata": {"name": self.remote, "labels": {"mine": "yes"}}})
        await self.pod("web")

        async def refused() -> bool:
            found = await self.home.get(NATTINGTABLES, str(self.peer))
            return bool(found["status"]["mappings"][self.space]["reason"] == "NamespaceTaken")

        await self.eventually(refused)
        await self.home.delete(PODS, "web", self.space)
        await self.gone(self.home, PODS, "web", self.space)

        async def known() -> bool:
            return self.kubelets.export_requests(self.peer).complete

        await self.eventually(known)

    async def test_two_namespaces_one_name(self) -> None:
        """Two namespaces never share one at the lender: the second learns which name to change."""
        self.hosting._namespaces._names = ("market",)
        await self.want(namespaceMappingStrategy="SelectedName", remoteNamespaceName="market")
        await self.pod("web")
        self.remote = "market"
        self.addCleanup(self.lender.delete, NAMESPACES, "market")
        await self.runs("web")
        other = f"other-{self.space}"
        await self.namespace(other, {"liqo.io/enabled": "true"})
        self.addCleanup(self.home.delete, NAMESPACES, other)
        spec = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "market"}
        body = {"metadata": {"name": "offloading", "namespace": other}, "spec": spec}
        await self.home.create(NAMESPACEOFFLOADINGS, body)
        await self.pod("web", namespace=other)

        async def reported() -> bool:
            found = await self.home.get(PODS, "web", other)
            return "is mapped to the namespace" in str(found["status"].get("conditions"))

        await self.eventually(reported)

    async def test_written_once(self) -> None:
        """A status that tells no news is not written: a label of the node that no selector names changes nothing."""
        await self.label("eu")
        await self.want(clusterSelector=EU)
        found = await self.phase_is("Ready")
        await self.home.patch(NODES, self.node, {"metadata": {"labels": {"other": "x"}}})
        await self.pause(0.5)
        again = await self.phase_is("Ready")
        self.assertEqual(found["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"])
