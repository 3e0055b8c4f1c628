"""What is wrong with processes, pods, tenants and the ways of the API server, and that every command says so."""

from __future__ import annotations

import contextlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.options import Options
from liqod.cli.console.session import Output
from liqod.cli.setup import doctor
from liqod.cli.status.cluster_records import advice_of, agent_of, leader_of
from liqod.cli.status.explain_other import explain_code, explain_peer
from liqod.cli.status.first_screen import _of_proxy
from liqod.cli.status.peers import status_rows
from liqod.cli.status.reasons import reasons
from liqod.cli.status.status import PROBLEMS, daemon_line, show_problems
from liqod.cli.web.view import Snapshot, overview
from liqod.fabric.agent.tunnel_status import loss_range
from liqod.kube.errors import ServerError
from liqod.model.diagnosis.access import AccountFacts, NodeApiFacts, WebhookFacts, of_account, of_node_apis, of_webhook
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts, diagnose, problems_of
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.installation import Unmet
from liqod.model.diagnosis.problem import PROCESSES, WORKLOADS, Problem
from liqod.model.diagnosis.processes import (
    DURATION,
    RENEW,
    ProcessFacts,
    ProcessLease,
    lease_name,
    of_processes,
    process_of,
    without_agent,
)
from liqod.model.diagnosis.workloads import (
    AskingPod,
    FullTenant,
    PendingPod,
    UnplacedPod,
    WaitingPod,
    full_tenants,
    of_asking_pods,
    of_pods,
    waiting_pod,
)
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.records.network import NetworkConfig, NetworkGateway, TunnelEndpoint
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode
from liqod.model.timestamps import rfc3339, rfc3339_micro

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEADS = LeaderFacts("one", alive=True, age=1.0)


def process(role: str = "all", identity: str = "one", **more: Any) -> ProcessFacts:
    """Return a process that works, on a host of its own."""
    host = more.pop("host", f"host-{identity}")
    known: dict[str, Any] = {"state": "works", "age": 5.0, "lease": Key("liqo-system", lease_name(role, host)), **more}
    return ProcessFacts(role=role, identity=identity, host=host, **known)


def lease(name: str = "liqod-process-all-gw1", *, written: int | None = 0, renewed: int = 0) -> ProcessLease:
    """Return a Lease that was written, and says that it was renewed, some seconds ago; written None: nobody says."""
    said = {"role": "all", "host": "gw1", "state": "works"}
    stamps = [{"manager": "kubectl", "time": rfc3339(NOW)}]
    if written is not None:
        stamps.append({"manager": "liqod", "time": rfc3339(NOW - timedelta(seconds=written))})
    body = {
        "metadata": {
            "name": name,
            "namespace": "liqo-system",
            "labels": {"liqo.io/process": "all"},
            "annotations": {"liqo.io/process-state": msgspec.json.encode(said).decode()},
            "managedFields": stamps,
        },
        "spec": {
            "holderIdentity": "gw1-0a",
            "leaseDurationSeconds": DURATION,
            "renewTime": rfc3339_micro(NOW - timedelta(seconds=renewed)),
        },
    }
    return msgspec.convert(body, ProcessLease)


def peer(name: str = "c2", called: str = "milan") -> ForeignCluster:
    status = {"clusterName": called, "phase": "Ready"}
    body = {"metadata": {"name": name}, "spec": {"fingerprint": "x"}, "status": status}
    return msgspec.convert(body, ForeignCluster)


def pod(name: str = "web", node: str = "liqo-milan", age: float = 60.0, **status: Any) -> PendingPod:
    created = rfc3339(NOW - timedelta(seconds=age))
    body = {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": {"nodeName": node},
        "status": {"phase": "Pending", **status},
    }
    return msgspec.convert(body, PendingPod)


def container(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "web", "state": {"waiting": {"reason": reason, "message": message}}}]}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    one = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": None}
    return {"conditions": [one]}


class LeaseTests(SynchronousTestCase):
    """What a Lease says of its process, whatever clocks its host and this one have."""

    def test_age_and_clock(self) -> None:
        """The age is by the API server's dates, and so is the difference of the clock of the process's host."""
        for written, renewed, age, skew in (
            (5, 5, 5.0, 0.0),  # as it should be
            (5, -395, 5.0, 400.0),  # its host is ahead
            (5, 405, 5.0, -400.0),  # its host is behind
            (300, 300, 300.0, 0.0),  # it is silent
            (None, 5, 5.0, None),  # who does not keep dates tells nothing of the clock
            (None, -400, 0.0, 400.0),  # but for a renewal in the future
        ):
            found = process_of(lease(written=written, renewed=renewed), NOW)
            assert found is not None
            self.assertEqual((found.age, found.skew), (age, skew), (written, renewed))
            self.assertEqual(found.silent, age > DURATION)

    def test_others(self) -> None:
        """A Lease that was let go, one of something else, and one with the name of another role are no processes."""
        released = lease()
        spec = msgspec.structs.replace(released.spec, holder_identity="")
        self.assertIsNone(process_of(msgspec.structs.replace(released, spec=spec), NOW))
        self.assertIsNone(process_of(lease("liqod-process-network-gw1"), NOW))
        body = {"metadata": {"name": "liqod"}, "spec": msgspec.to_builtins(released.spec)}
        plain = msgspec.convert(body, ProcessLease)
        self.assertIsNone(process_of(plain, NOW))

    def test_names(self) -> None:
        """The process that answers for names has its own Lease, with another label."""
        labels = {"metadata": {"name": "liqod-names-1", "labels": {"liqo.io/name-service": "1"}}}
        spec = msgspec.to_builtins(lease(renewed=90).spec)
        found = process_of(msgspec.convert({**labels, "spec": spec}, ProcessLease), NOW)
        assert found is not None
        self.assertEqual((found.role, found.host, found.silent), ("names", "gw1-0a", True))

    def test_nonsense(self) -> None:
        """What is no state says nothing, and no name of a host makes a wrong name of a Lease."""
        broken = lease()
        meta = msgspec.structs.replace(broken.metadata, annotations={"liqo.io/process-state": "{"})
        self.assertIsNone(process_of(msgspec.structs.replace(broken, metadata=meta), NOW))
        self.assertEqual(lease_name("all", "GW_1.example."), "liqod-process-all-gw-1.example")
        self.assertEqual(lease_name("node", "§"), "liqod-process-node-host")

    def test_leader(self) -> None:
        """Who leads is known by the same dates; agents that let go of their lease are none, and were some."""
        self.assertEqual(leader_of(lease(written=5, renewed=900), NOW), LeaderFacts("gw1-0a", alive=True, age=5.0))
        self.assertEqual(leader_of(lease(written=500), NOW), LeaderFacts("gw1-0a", alive=False, age=500.0))
        self.assertIsNone(leader_of(None, NOW))
        released = lease()
        let_go = msgspec.structs.replace(released, spec=msgspec.structs.replace(released.spec, holder_identity=""))
        self.assertIsNone(leader_of(let_go, NOW))
        self.assertEqual((agent_of(None, NOW), agent_of(let_go, NOW)), (None, LeaderFacts("", alive=False, age=0.0)))

    def test_three_renewals(self) -> None:
        """Two renewals that fail make nobody silent."""
        self.assertGreaterEqual(DURATION, 3 * RENEW)


SILENT: tuple[tuple[str, list[ProcessFacts], bool, list[tuple[str, str, str]]], ...] = (
    ("the one that leads", [process(silent=True)], True, []),
    ("a standby", [process(), process(identity="two", silent=True)], True, [("daemon", "StandbySilent", "warning")]),
    (
        "everybody",
        [process(silent=True), process(identity="two", silent=True)],
        False,
        [("daemon", "DaemonSilent", "error")],
    ),
    ("the gateway's agent", [process("network", "n", silent=True)], True, [("host", "AgentSilent", "error")]),
    (
        "an agent that stood by",
        [process("network", "n"), process("network", "m", silent=True)],
        True,
        [("host", "StandbySilent", "warning")],
    ),
    (
        "a node's agent, beside that of another node",
        [process("node", "a"), process("node", "b", silent=True)],
        True,
        [("host", "AgentSilent", "error")],
    ),
    ("names alone", [process("names", "n", silent=True)], True, [("daemon", "NamesSilent", "error")]),
    (
        "one of two that answer for names",
        [process("names", "n", silent=True), process("names", "m")],
        True,
        [("daemon", "NamesSilent", "warning")],
    ),
)
"""Who is silent, all processes, whether somebody leads, and what is found: kind, code, severity."""


def unable(code: str, state: str = "waits", **more: Any) -> ProcessFacts:
    return process(state=state, unmet=(Unmet(code, "it is so"),), **more)


UNABLE: tuple[tuple[list[ProcessFacts], list[tuple[str, str]]], ...] = (
    ([unable("RightsMissing")], [("RightsMissing", "error")]),
    ([process(), unable("RightsMissing", identity="two")], [("RightsMissing", "warning")]),
    ([unable("WebhookNotConfigured", "works")], [("WebhookNotConfigured", "error")]),
    ([unable("Starting", "begins")], [("Starting", "info")]),
    ([unable("NetworkFailing", "works", role="node")], [("NetworkFailing", "error")]),
    ([process(skew=29.0)], []),
    ([process(skew=-31.0)], [("ClockSkew", "warning")]),
    ([process(skew=301.0)], [("ClockSkew", "error")]),
    ([attrs.evolve(unable("ClockSkew"), skew=301.0)], [("ClockSkew", "error")]),
    ([process(skew=301.0, silent=True, identity="two")], [("StandbySilent", "warning")]),
)
"""Processes, and what is found: code, severity."""


class ProcessTests(SynchronousTestCase):
    """What is wrong with processes."""

    def test_silent(self) -> None:
        """Who does not renew its Lease is missed, by what it does and who else does it."""
        for who, processes, leads, wanted in SILENT:
            found = [(one.kind, one.code, one.severity) for one in of_processes(processes, "one", leads=leads)]
            self.assertEqual(found, wanted, who)

    def test_unable(self) -> None:
        """Who cannot work says why, as bad as it is beside others; a clock is wrong once."""
        for processes, wanted in UNABLE:
            found = [(one.code, one.severity) for one in of_processes(processes, "one", leads=True)]
            self.assertEqual(found, wanted, processes)

    def test_object_and_advice(self) -> None:
        """The process is named with its host, and what is to be typed there."""
        (found,) = of_processes([process("node", "n", host="worker-7", silent=True)], "one", leads=True)
        self.assertEqual(found.name, "liqod-network on worker-7")
        self.assertIn("on worker-7: `systemctl status liqod-network`", found.advice)
        self.assertIn("kubectl -n liqo-system delete lease liqod-process-node-worker-7", found.advice)
        (unfit,) = of_processes([unable("RightsMissing")], "one", leads=True)
        self.assertIn("liqodctl install", advice_of(unfit))

    def test_no_agent(self) -> None:
        """Where control is a process of its own somebody has to make the network."""
        control, agent = process("control"), process("network", "n")
        for processes, holder, holds, codes in (
            ([control], "n", True, []),
            ([control], "n", False, ["NoNetworkAgent"]),
            ([control], "", False, ["NoNetworkAgent"]),
            ([control, attrs.evolve(agent, silent=True)], "n", False, []),  # AgentSilent
            ([control, attrs.evolve(agent, unmet=(Unmet("RightsMissing", "no"),))], "", False, []),
            ([process("all")], "n", False, []),  # left behind by an agent of former days
        ):
            found = [one.code for one in without_agent(processes, holder, holds=holds)]
            self.assertEqual(found, codes, (processes, holder, holds))

    def test_peers_are_not_concerned(self) -> None:
        """Of a standby or a node's agent nothing is said at a peer; of what works for all of them it is."""
        for silent, concerns in ((process("all", "two"), False), (process("node"), False), (process("network"), True)):
            facts = ClusterRecords(leader=LEADS, peers=[peer()], processes=[attrs.evolve(silent, silent=True)])
            self.assertTrue(diagnose(facts))
            self.assertEqual(bool(problems_of(facts, "c2")), concerns, silent.role)

    def test_line(self) -> None:
        """The first line says who leads, and who would take over."""
        standby = process(identity="two", state="stands by")
        facts = ClusterRecords(leader=LEADS, processes=[process(), standby])
        self.assertEqual(daemon_line(facts), "daemon one; standing by: host-two")
        gone = attrs.evolve(facts, processes=[process(), attrs.evolve(standby, silent=True)])
        self.assertEqual(daemon_line(gone), "daemon one")


WAITING: tuple[tuple[PendingPod, str, str], ...] = (
    (pod(**container("ImagePullBackOff", "no such image")), "ImageMissing", "ImagePullBackOff: no such image"),
    (pod(age=1, **container("ErrImagePull", "denied")), "ImageMissing", "ErrImagePull: denied"),
    (pod(**condition("liqo.io/Offloaded", "False", "QuotaExceeded", "cpu")), "QuotaExceeded", "QuotaExceeded: cpu"),
    (pod(**condition("liqo.io/Offloaded", "False", "MadeUp", "no")), "PodRefused", "MadeUp: no"),
    (pod(**condition("liqo.io/Offloaded", "True", "Sent")), "", ""),
    (pod(**container("RunContainerError", "no secret")), "PodWaiting", "RunContainerError: no secret"),
    (pod(age=5, **container("RunContainerError")), "", ""),
    (pod(**condition("PodScheduled", "False", "Unschedulable", "0/3")), "PodWaiting", "Unschedulable: 0/3"),
    (pod(**container("ContainerCreating")), "", ""),
    (pod(age=900, **container("ContainerCreating")), "PodWaiting", "ContainerCreating: it has been waiting for 900 s"),
    (pod(age=900), "PodWaiting", "it has been waiting for 900 s"),
    (pod(phase="Running", **container("CrashLoopBackOff")), "", ""),
    (pod(node="", **container("ErrImagePull")), "", ""),
)
"""Pods, and what is found: code and words; none for those that run, begin, or are on no node."""


class WorkloadTests(SynchronousTestCase):
    """Pods that do not run, and tenants that are full."""

    def test_reasons(self) -> None:
        """Each pod has one code, and its lender's words."""
        for one, code, words in WAITING:
            found = waiting_pod(one, NOW)
            self.assertEqual((found.code, found.words) if found is not None else ("", ""), (code, words), one)

    def test_counted(self) -> None:
        """Pods of one lender that wait for the same are one problem: how many, three names, and the lender's words."""
        pods = [
            attrs.evolve(one, key=Key("shop", f"web-{number}"), words="QuotaExceeded: cpu")
            for number in range(7)
            for one in waits("QuotaExceeded")
        ]
        real = attrs.evolve(pods[0], node="worker-1")
        (found,) = of_pods([*reversed(pods), real], {"liqo-milan": "milan"})
        self.assertEqual((found.kind, found.name, found.severity), ("pod", "shop/web-0", "warning"))
        self.assertEqual(
            found.cause,
            "7 pods do not run (shop/web-0, shop/web-1, shop/web-2 and 4 more), says milan: QuotaExceeded: cpu",
        )
        self.assertIn("liqodctl explain web-0 -n shop", found.advice)
        (alone,) = of_pods(pods[:1], {"liqo-milan": "milan"})
        self.assertEqual(alone.cause, "it does not run, says milan: QuotaExceeded: cpu")

    def test_who_asks(self) -> None:
        """A pod asks for virtual nodes by a label that these alone have, or by its RuntimeClass alone."""
        term = {"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        for spec, asks in (
            ({"nodeSelector": {"liqo.io/type": "virtual-node"}}, True),
            ({"affinity": {"nodeAffinity": required}}, True),
            ({"runtimeClassName": "liqo"}, True),
            ({"nodeSelector": {"kubernetes.io/os": "linux", "liqo.iota/type": "x"}, "runtimeClassName": "kata"}, False),
            ({"affinity": {"podAntiAffinity": {}}, "nodeSelector": None}, False),
            ({}, False),
        ):
            self.assertEqual(msgspec.convert({"spec": spec}, UnplacedPod).asks, asks, spec)

    def test_asking(self) -> None:
        """Pods of one namespace that ask in vain are one problem: with the namespace, or the scheduler's words."""
        pods = [asking(f"early-{number}", enabled=False, tolerant=False) for number in range(5)]
        (found,) = of_asking_pods(pods)
        self.assertEqual((found.code, found.kind, found.name), ("NamespaceNotOffloaded", "pod", "shop/early-0"))
        self.assertEqual(
            found.cause,
            "5 pods (early-0, early-1, early-2 and 2 more) ask for virtual nodes, and the namespace shop is not "
            "offloaded",
        )
        self.assertIn("liqodctl offload namespace shop", found.advice)
        (lacks,) = of_asking_pods([asking("web", enabled=True, tolerant=False)])
        (full,) = of_asking_pods([asking("web", enabled=True, tolerant=True)])
        self.assertEqual({lacks.code, full.code}, {"PodUnplaced"})
        self.assertIn("without the toleration", lacks.cause)
        self.assertIn("0/2 nodes are available", full.cause)

    def test_hostile_words(self) -> None:
        """Words of a lender are bounded, and nothing in them is obeyed."""
        found = waiting_pod(pod(**container("ErrImagePull", "\x1b[31m" + "x" * 5000)), NOW)
        assert found is not None
        self.assertTrue(found.words.isprintable())
        self.assertLessEqual(len(found.words), 300)

    def test_tenants(self) -> None:
        """A tenant is full of what the labels of its namespaces say; labels on other namespaces say nothing."""
        granted = {"annotations": {"liqo.io/original-name": "shop"}}
        labels = {"liqo.io/remote-cluster-id": "c2", "offloading.liqo.io/full": "bytes.shadowpods"}
        labels["offloading.liqo.io/full-contents"] = "growth"
        full = {"metadata": {"name": "shop-c2", **granted, "labels": labels}}
        others = [
            {"metadata": {"name": "own", "labels": {"offloading.liqo.io/full": "bytes"}}},
            {"metadata": {"name": "web-c3", **granted, "labels": {"liqo.io/remote-cluster-id": "c3"}}},
        ]
        found = full_tenants([msgspec.convert(one, Object) for one in (full, *others)])
        self.assertEqual(found, [FullTenant("c2", ("bytes", "growth", "shadowpods"))])
        (problem,) = diagnose(ClusterRecords(leader=LEADS, peers=[peer()], tenants=found))
        self.assertEqual((problem.code, problem.name), ("TenantFull", "milan"))
        self.assertIn("bytes of records, config maps and secrets, shadowpods", problem.cause)


ACCOUNT = AccountFacts(name="liqo-system/liqod", exists=True, has_token=True, is_bound=True)


class AccessTests(SynchronousTestCase):
    """What the API server has of the daemon."""

    def test_account(self) -> None:
        """Token, account and rights; who never had the account works with other credentials."""
        cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
            ({}, []),
            ({"has_token": False}, ["TokenMissing"]),
            ({"lacks": ("list foreignclusters",)}, ["RightsMissing"]),
            ({"has_token": False, "lacks": ("a", "b", "c", "d")}, ["TokenMissing", "RightsMissing"]),
            ({"exists": False, "has_token": False}, ["AccountMissing"]),
            ({"exists": False, "has_token": False, "is_bound": False, "lacks": ("a",)}, []),
            ({"works": True, "has_token": False, "lacks": ("a",)}, ["RightsMissing"]),
            ({"works": True, "exists": False, "has_token": False}, []),
        )
        for changes, codes in cases:
            found = list(of_account(attrs.evolve(ACCOUNT, **changes)))
            self.assertEqual([one.code for one in found], codes, changes)
            self.assertTrue(all("install" in one.advice for one in found))

    def test_webhook(self) -> None:
        """A configuration that is missing, and one that leads nowhere; what was not tried is not wrong."""
        where = "https://192.0.2.1:5873/mutate/pod"
        for configured, answered, codes in (
            (True, True, []),
            (True, None, []),
            (True, False, ["WebhookUnreachable"]),
            (False, None, ["WebhookNotConfigured"]),
        ):
            found = list(of_webhook(WebhookFacts(where, configured, answered)))
            self.assertEqual([one.code for one in found], codes)
        (closed,) = of_webhook(WebhookFacts(where, configured=True, answered=False))
        self.assertIn("TCP port 5873 of 192.0.2.1", closed.advice)
        (service,) = of_webhook(WebhookFacts("liqo-system/liqod", configured=True, answered=False))
        self.assertIn("the Service liqo-system/liqod", service.advice)

    def test_node_apis(self) -> None:
        """A node whose API is not reached is named with its port."""
        found = list(of_node_apis([NodeApiFacts("liqo-milan", "192.0.2.1", 5875, "refused"), NodeApiFacts("b", "", 1)]))
        self.assertEqual([(one.code, one.name) for one in found], [("NodeAPIUnreachable", "liqo-milan")])
        self.assertIn("TCP port 5875 of 192.0.2.1", found[0].advice)

    def test_words_of_the_proxy(self) -> None:
        """What the API server says of a node that it does not reach is known from other failures."""
        refused = "error trying to reach service: dial tcp 192.0.2.1:5875: connect: connection refused"
        for code, text, wanted in (
            (503, refused, "dial tcp 192.0.2.1:5875: connect: connection refused"),
            (502, "bad gateway", "bad gateway"),
            (503, "etcd is away", None),
        ):
            self.assertEqual(_of_proxy(ServerError(code, "", text)), wanted)


def tunnel(mtu: int = 0, **status: str) -> TunnelEndpoint:
    body = {"metadata": {"name": "c2"}, "status": {"phase": "Connected", "pathMTU": mtu, **status}}
    return msgspec.convert(body, TunnelEndpoint)


def config(local: int, remote: int) -> NetworkConfig:
    body = {"spec": {"local": {"mtu": local}}, "status": {"phase": "Agreed", "remote": {"mtu": remote}}}
    return msgspec.convert({"metadata": {"name": "c2"}, **body}, NetworkConfig)


def offer(ahead: int) -> Advertisement:
    body = {"spec": {"epoch": int(NOW.timestamp()) + ahead}, "status": {"receivedAt": rfc3339(NOW)}}
    return msgspec.convert({"metadata": {"name": "advertisement-c2"}, **body}, Advertisement)


class PeerTests(SynchronousTestCase):
    """What records show of the path and the clock of a peer."""

    def test_path_mtu(self) -> None:
        """A path that takes less than both ends, by more than it is measured to."""
        for ends, measured, wrong in (
            ((1420, 1420), 1420, False),
            ((1420, 1420), 1413, False),
            ((1420, 1420), 1412, True),
            ((1420, 1280), 1280, False),
            ((0, 0), 576, False),
            ((1420, 1420), 0, False),
        ):
            facts = ClusterRecords(leader=LEADS, peers=[peer()], networks=[config(*ends)], tunnels=[tunnel(measured)])
            self.assertEqual([one.code for one in diagnose(facts)], ["PathMTUReduced"] * wrong, (ends, measured))

    def test_loss(self) -> None:
        """A tunnel that loses more than a tenth, as far as anything comes back."""
        for loss, phase, wrong in (
            (loss_range(0.0), "Connected", False),
            (loss_range(0.1), "Connected", False),
            (loss_range(0.2), "Connected", True),
            (loss_range(0.8), "Connected", True),
            (loss_range(0.8), "Connecting", False),
            ("", "Connected", False),
        ):
            facts = ClusterRecords(leader=LEADS, peers=[peer()], tunnels=[tunnel(phase=phase, loss=loss)])
            self.assertEqual([one.code for one in diagnose(facts)], ["PacketLoss"] * wrong, (loss, phase))

    def test_clock(self) -> None:
        """An offer that was begun after it came is of a clock that is ahead."""
        for ahead, wrong in ((-9000, False), (29, False), (30, True)):
            facts = ClusterRecords(leader=LEADS, peers=[peer()], offers=[offer(ahead)])
            self.assertEqual([one.code for one in diagnose(facts)], ["PeerClockAhead"] * wrong)


def facts_of(**more: Any) -> ClusterRecords:
    record = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2", "nodeName": "liqo-milan"}}
    ready = msgspec.convert({**record, "status": {"phase": "Ready"}}, VirtualNode)
    known: dict[str, Any] = {"leader": LEADS, "peers": [peer()], "virtual_nodes": [ready], **more}
    return ClusterRecords(**known)


def waits(code: str) -> list[WaitingPod]:
    return [WaitingPod(key=Key("shop", "web"), node="liqo-milan", code=code, words="no")]


def asking(name: str, *, enabled: bool, tolerant: bool) -> AskingPod:
    words = "0/2 nodes are available"
    return AskingPod(key=Key("shop", name), enabled=enabled, tolerant=tolerant, words=words)


LACKING = msgspec.convert({"status": {"lacking": "the program nft is missing"}}, NetworkGateway)
CASES: dict[str, ClusterRecords] = {
    "StandbySilent": facts_of(processes=[process(), process(identity="two", silent=True)]),
    "DaemonSilent": facts_of(leader=None, processes=[process(identity="two", silent=True)]),
    "AgentSilent": facts_of(processes=[process("node", "n", silent=True)]),
    "NamesSilent": facts_of(processes=[process("names", "n", silent=True)]),
    "NoNetworkAgent": facts_of(processes=[process("control")], agent=LeaderFacts("n", alive=False, age=99.0)),
    "RightsMissing": facts_of(leader=None, processes=[unable("RightsMissing")]),
    "ClockSkew": facts_of(processes=[process(skew=400.0)]),
    "NetworkFailing": facts_of(processes=[unable("NetworkFailing", "works", role="network")]),
    "HostLacks": facts_of(gateways=[LACKING], networks=[config(0, 0)]),
    "TokenMissing": facts_of(leader=None, accounts=[attrs.evolve(ACCOUNT, has_token=False)]),
    "AccountMissing": facts_of(leader=None, accounts=[attrs.evolve(ACCOUNT, exists=False)]),
    "WebhookUnreachable": facts_of(webhook=WebhookFacts("https://192.0.2.1:5873/x", configured=True, answered=False)),
    "WebhookNotConfigured": facts_of(webhook=WebhookFacts("https://192.0.2.1:5873/x", configured=False)),
    "NodeAPIUnreachable": facts_of(node_apis=[NodeApiFacts("liqo-milan", "192.0.2.1", 5875, "refused")]),
    "ImageMissing": facts_of(waiting=waits("ImageMissing")),
    "QuotaExceeded": facts_of(waiting=waits("QuotaExceeded")),
    "PodRefused": facts_of(waiting=waits("PodRefused")),
    "PodWaiting": facts_of(waiting=waits("PodWaiting")),
    "NamespaceNotOffloaded": facts_of(asking=[asking("web", enabled=False, tolerant=False)]),
    "PodUnplaced": facts_of(asking=[asking("web", enabled=True, tolerant=True)]),
    "TenantFull": facts_of(tenants=[FullTenant("c2", ("bytes",))]),
    "PathMTUReduced": facts_of(networks=[config(1420, 1420)], tunnels=[tunnel(1300)]),
    "PacketLoss": facts_of(tunnels=[tunnel(loss="under 50 %")]),
    "SizesLost": facts_of(tunnels=[tunnel(reason="SizesLost", message="packets of 1420 bytes")]),
    "ForwardingOff": facts_of(processes=[unable("ForwardingOff", "forwards")]),
    "NetworkUndone": facts_of(processes=[unable("NetworkUndone", "works")]),
    "PeerClockAhead": facts_of(offers=[offer(900)]),
}
"""Records of a cluster with which one thing is wrong, by its code."""


def printed(problems: list[Problem]) -> str:
    """Return what people see of problems."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show_problems(Output(Options()), problems)
    return out.getvalue()


class EveryCodeTests(SynchronousTestCase):
    """Each code, through all that speaks of it."""

    def test_everywhere(self) -> None:
        """status, explain, doctor and the page have each code, its object and what to type next."""
        for code, facts in CASES.items():
            found = [one for one in diagnose(facts) if one.code == code]
            self.assertEqual(len(found), 1, (code, diagnose(facts)))
            (problem,) = found
            self.assertTrue(problem.failing and problem.name and advice_of(problem), problem)
            screen = printed(diagnose(facts))
            for text in (code, f"{problem.kind} {problem.name}", advice_of(problem)):
                self.assertIn(text, screen)
            self.assertIn(code, [one.code for one in doctor.findings(Evidence(records=facts))])
            steps = [step for step in overview(Snapshot(home="rome", facts=facts)).steps if code in step.text]
            self.assertEqual([step.advice for step in steps], [advice_of(problem)], code)
            rows = explain_code(reasons()[code])
            self.assertTrue(rows[0]["why"] and rows[-1]["why"] != "nothing to do", code)

    def test_nothing_is_well_beside_it(self) -> None:
        """What was looked at is called well where nothing is wrong with it, and not else."""
        well = facts_of(processes=[process()], waiting=[], tenants=[])
        self.assertLessEqual({PROCESSES, WORKLOADS}, {one.topic for one in examine(Evidence(records=well)).passed})
        for code in ("StandbySilent", "ImageMissing"):
            found = examine(Evidence(records=attrs.evolve(CASES[code], tenants=[])))
            (problem,) = (one for one in found.problems if one.code == code)
            self.assertNotIn(problem.topic, {one.topic for one in found.passed})

    def test_of_a_peer(self) -> None:
        """What is about one peer stands in its row and its explanation; what is about a pod or a process does not."""
        for code, facts in CASES.items():
            (row,) = status_rows(facts, {})
            about = code in ("PacketLoss", "PathMTUReduced", "PeerClockAhead", "SizesLost")
            self.assertEqual(code in row["why"], about, code)
            self.assertEqual(row["state"], "Ready,degraded" if about else "Ready", code)
            if about:
                self.assertIn(code, explain_peer(facts, facts.peers[0])[-1]["why"])

    def test_many(self) -> None:
        """Twenty problems are shown, the others counted; a program gets all."""
        nodes = [process("node", f"n{number:03}", silent=True) for number in range(PROBLEMS + 7)]
        problems = diagnose(facts_of(processes=nodes))
        screen = printed(problems)
        self.assertEqual(screen.count("AgentSilent"), PROBLEMS)
        self.assertTrue(screen.endswith("and 7 more; `liqodctl status -o json` has all of them\n"), screen)
        self.assertNotIn("more;", printed(problems[:PROBLEMS]))
