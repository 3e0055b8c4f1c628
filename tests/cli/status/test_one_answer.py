"""Every command and page speaks of what is wrong as the one model of it does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import attrs
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent import state
from liqod.cli.console.findings import Finding, failed
from liqod.cli.network import netcheck
from liqod.cli.network.preflight import objection
from liqod.cli.setup import check, doctor
from liqod.cli.setup.archive.gather import summary
from liqod.cli.status.explain_other import explain_node, explain_peer
from liqod.cli.status.explain_pod import cluster_row, facts_for
from liqod.cli.status.first_screen import FirstScreen
from liqod.cli.status.peers import status_rows
from liqod.cli.web.view import Snapshot, overview
from liqod.fabric.agent.tunnel_status import Moment, TunnelDevice, tunnel_status
from liqod.fabric.state.report import NetworkReport, PodPath, ProbeResult, TunnelReport
from liqod.model.diagnosis.access import AccountFacts, NodeApiFacts, WebhookFacts
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts, diagnose, is_stranger, name_of, problems_of
from liqod.model.diagnosis.consistency import ORPHANS, QUOTAS
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.installation import (
    CLOCK,
    CRDS,
    KEYS,
    ClockFacts,
    DefinitionFacts,
    SecretFacts,
    Unmet,
    Unread,
    unread_problems,
)
from liqod.model.diagnosis.path import HostObservation, NotObserved, PathProbes, PodPings, SizeProbes
from liqod.model.diagnosis.problem import DAEMON, Diagnosis, Problem
from liqod.model.diagnosis.problem import PROCESSES as PROCESSES_TOPIC
from liqod.model.diagnosis.processes import ProcessFacts
from liqod.model.diagnosis.workloads import AskingPod, FullTenant, WaitingPod
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import Object, is_true
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, TunnelEndpoint, TunnelEndpointStatus
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import ForeignCluster, NamespaceNattingTable, VirtualNode
from tests.fabric.agent.test_plan import LINK

PEERS = ("c1", "c2", "c3")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUTE = "10.80.0.0/16"


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": one_of("Accepted", "Authenticated", "Ready", "DeletionsHeld"),
            "status": one_of("True", "False", "Unknown"),
            "reason": one_of("", "DecisionPending", "NoRoom", "NetworkDown", "MissingAtHome"),
            "message": one_of("", "it is so"),
        }
    ),
    max_size=3,
    unique_by=lambda one: one["type"],
)
CLUSTER = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries({"fingerprint": one_of("", "sha256:1", "sha256:2")}),
        "status": st.fixed_dictionaries(
            {
                "clusterName": one_of("", "milan", "turin"),
                "phase": one_of("", "Discovered", "Connecting", "TrustPending", "Refused", "Suspect", "Lost")
                | one_of("Authenticated", "Offered", "Accepted", "Ready", "Ready", "Withdrawing"),
                "reason": one_of("", "Unreachable", "WaitingForPeerTrust", "CannotAdmit", "Peered", "RefusedByUser"),
                "message": one_of("", "it is so"),
                "conditions": CONDITIONS,
            }
        ),
    }
)
NETWORK = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"remap": st.fixed_dictionaries({"podCIDRs": st.lists(one_of(ROUTE, "10.80.4.0/24", "odd"), max_size=2)})}
        ),
        "status": st.fixed_dictionaries(
            {
                "phase": one_of("", "None", "Agreed", "Pending"),
                "reason": one_of("HostLacks", "WaitingForPeer", "BadCIDR"),
            }
        ),
    }
)
NODE = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries({"unschedulable": st.booleans()}),
        "status": st.fixed_dictionaries({"conditions": CONDITIONS, "allocatable": st.just({"cpu": "4"})}),
    }
)
VIRTUAL_NODE = st.fixed_dictionaries(
    {"phase": one_of("", "Ready", "NotReady"), "reason": one_of("", "NetworkDown"), "conditions": CONDITIONS}
)
MAPPINGS = st.dictionaries(
    one_of("shop", "bank"),
    st.fixed_dictionaries({"phase": one_of("Ready", "Refused"), "reason": one_of("", "NameNotYours")}),
)


@st.composite
def tunnel_statuses(draw: st.DrawFn) -> TunnelEndpointStatus:
    """What the daemon writes about a tunnel, from any report of its host."""
    now, often = 100.0, one_of(True, True, True, False)
    answered = draw(one_of(None, 20.0, 99.0, 99.0))
    probes = {"c2": ProbeResult(draw(one_of(0.0, 97.0)), answered)} if draw(often) else {}
    tunnel = TunnelReport("192.0.2.1:5871", draw(one_of(0.0, 900.0, 990.0)), draw(one_of(0, 7)))
    link = attrs.evolve(LINK, peer=ClusterID("c2"))
    report = NetworkReport(
        implementation="kernel" if draw(often) else "",
        routes=frozenset(link.remote) if draw(often) else frozenset(),
        tunnels={link.public_key: tunnel} if draw(often) else {},
        probes=probes,
        pods={
            (ClusterID("c2"), version): PodPath(pod, 0.0, draw(one_of(None, 20.0, 99.0)))
            for version, pod in ((4, "10.80.0.9"), (6, "fd00::9"))
            if draw(often)
        },
    )
    before = TunnelEndpointStatus(phase=draw(one_of("", "Connected", "Error")))
    moment = Moment(now, datetime.fromtimestamp(1000, UTC))
    return tunnel_status(link, report, before, TunnelDevice("liqo", 5871), moment)


def named(body: dict[str, Any], name: str, view: type[Any]) -> Any:
    return msgspec.convert({**body, "metadata": {"name": name}}, view)


PROCESSES = st.lists(
    st.builds(
        ProcessFacts,
        role=one_of("all", "control", "network", "node", "names"),
        host=one_of("gw1", "gw2"),
        identity=one_of("one", "two"),
        lease=st.just(Key("liqo-system", "liqod-process")),
        state=one_of("begins", "works", "stands by", "waits", "ends"),
        age=st.just(9.0),
        silent=st.booleans(),
        skew=one_of(None, 0.0, -40.0, 400.0),
        unmet=one_of((), (), (Unmet("RightsMissing", "it is so"),), (Unmet("Starting", "it is so"),)),
    ),
    max_size=3,
)
WAITING = st.lists(
    st.builds(
        WaitingPod,
        key=st.builds(Key, st.just("shop"), one_of("web-1", "web-2")),
        node=one_of("liqo-c2", "worker"),
        code=one_of("ImageMissing", "QuotaExceeded"),
        words=one_of("", "it is so"),
    ),
    max_size=2,
)
ASKING = st.lists(
    st.builds(
        AskingPod,
        key=st.builds(Key, st.just("shop"), one_of("web-1", "web-2")),
        enabled=st.booleans(),
        tolerant=st.booleans(),
        words=st.just("no node"),
    ),
    max_size=2,
)
ACCESS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "webhook": st.none() | st.builds(WebhookFacts, st.just("https://a.example"), st.booleans(), st.just(False)),
        "node_apis": st.lists(st.just(NodeApiFacts("liqo-c2", "192.0.2.1", 5875, "refused")), max_size=1),
        "accounts": st.lists(
            st.builds(
                AccountFacts,
                name=st.just("liqo-system/liqod"),
                exists=st.booleans(),
                has_token=st.booleans(),
                is_bound=st.booleans(),
            ),
            max_size=1,
        ),
    }
)


@st.composite
def records(draw: st.DrawFn) -> ClusterRecords:
    """The records of a cluster, in any state, also such as no daemon would write; the peer c2 is always there."""
    virtual, nodes, tables, tunnels = [], [], [], []
    for peer in PEERS:
        name = f"liqo-{peer}"
        if draw(st.booleans()):
            spec = {"clusterID": peer, "nodeName": name}
            virtual.append(named({"spec": spec, "status": draw(VIRTUAL_NODE)}, peer, VirtualNode))
        if draw(st.booleans()):
            nodes.append(named(draw(NODE), name, Node))
        if draw(st.booleans()):
            spec = {"clusterID": peer, "nodeName": f"{name}-gpu"}
            virtual.append(named({"spec": spec, "status": draw(VIRTUAL_NODE)}, f"{peer}-gpu", VirtualNode))
            nodes.append(named(draw(NODE), f"{name}-gpu", Node))
        if draw(st.booleans()):
            tables.append(named({"status": {"mappings": draw(MAPPINGS)}}, peer, NamespaceNattingTable))
        if draw(one_of(True, True, peer == "c2", False)):
            ends = {"publicKey": "KEY", "allowedIPs": [ROUTE]}
            written = msgspec.to_builtins(draw(tunnel_statuses()))
            tunnels.append(named({"spec": ends, "status": written}, peer, TunnelEndpoint))
    offloading = {"metadata": {"name": draw(one_of("offloading", "mine")), "namespace": "shop"}}
    phase = {"offloadingPhase": draw(one_of("Ready", "SomeFailed", "NoClusterSelected"))}
    return ClusterRecords(
        leader=draw(st.none() | st.builds(LeaderFacts, st.just("one"), st.booleans(), st.just(3.0))),
        peers=[named(draw(CLUSTER), peer, ForeignCluster) for peer in PEERS if peer == "c2" or draw(st.booleans())],
        virtual_nodes=virtual,
        nodes=nodes,
        networks=[named(draw(NETWORK), peer, NetworkConfig) for peer in PEERS if draw(st.booleans())],
        tunnels=tunnels,
        tables=tables,
        offloadings=[msgspec.convert({**offloading, "status": phase}, NamespaceOffloading)],
        processes=draw(PROCESSES),
        agent=draw(st.none() | st.builds(LeaderFacts, one_of("", "one"), st.booleans(), st.just(3.0))),
        waiting=draw(st.none() | WAITING),
        asking=draw(ASKING),
        tenants=draw(st.none() | st.lists(st.just(FullTenant("c2", ("bytes",))), max_size=1)),
        **draw(ACCESS),
    )


UNOBSERVED = st.just(NotObserved("not as root", "as root"))
HOSTS = st.builds(
    HostObservation,
    routes=one_of(frozenset(), frozenset({ROUTE})),
    rules=one_of(None, 9),
    known=st.booleans(),
    handshake_age=one_of(None, 20.0, 400.0),
)
SIZES = st.tuples(*(st.builds(SizeProbes, st.just(n), st.just(2), one_of((), (0.1,), (0.1, 0.2))) for n in (64, 1420)))
PINGS = st.lists(st.builds(PodPings, one_of("10.80.0.9", "fd00::9"), st.booleans(), st.just("5 packets")), max_size=2)
PROBES = st.builds(
    PathProbes,
    peer=st.just("c2"),
    host=st.none() | UNOBSERVED | HOSTS,
    sizes=st.none() | UNOBSERVED | SIZES,
    pods=st.none() | UNOBSERVED | PINGS,
)
SECRETS = st.lists(
    st.builds(
        SecretFacts,
        name=one_of("liqod-identity", "liqod-webhook"),
        expired_token=st.booleans(),
        endless_token=st.booleans(),
        certificate_end=one_of(None, NOW - timedelta(1), NOW + timedelta(1), NOW + timedelta(99)),
    )
)
DEFINITIONS = st.lists(
    st.builds(
        DefinitionFacts,
        one_of("a", "b"),
        one_of("same", "missing", "not served", "other release", "later release"),
    )
)
SPACE = msgspec.convert({"metadata": {"name": "shop-c9", "labels": {"liqo.io/remote-cluster-id": "c9"}}}, Object)
UNMET = st.builds(Unmet, one_of("NotListening", "CachesIncomplete"), st.just("it is so"))
STATES = (
    st.builds(state.Waiting, one_of("APIUnreachable", "ClockSkew"), st.just("it is so"))
    | st.builds(state.Leading, st.lists(UNMET, max_size=3).map(tuple))
    | st.builds(state.Routing, st.just("3 networks"), st.booleans())
    | one_of(state.Starting(), state.Stopping(), state.Campaigning(), state.StandingBy("two"))
)
EVIDENCE = st.builds(
    Evidence,
    records=records(),
    unmet=st.none(),
    path=PROBES,
    spaces=st.none() | st.lists(st.just(SPACE), max_size=1),
    used=st.none() | st.just({"liqo-c2": {"cpu": Fraction(39, 10)}, "liqo-c1": {"cpu": Fraction(1)}}),
    secrets=st.none() | SECRETS,
    now=st.just(NOW),
    clock=st.none() | st.builds(ClockFacts, one_of(None, 0.0, -31.0, 301.0)),
    definitions=st.none() | DEFINITIONS,
    kubernetes=one_of(None, "", "v1.30.14", "v1.36.1"),
    unread=st.lists(st.builds(Unread, one_of("Keys", "Quotas"), st.just("LQ1005: no"), st.just("")), max_size=1),
)


def facts_of(evidence: Evidence) -> ClusterRecords:
    assert evidence.records is not None
    return evidence.records


def of_doctor(evidence: Evidence) -> Evidence:
    """Return what doctor looks at: the path to one peer is netcheck's."""
    return attrs.evolve(evidence, path=None)


def codes(found: Diagnosis) -> set[str]:
    return {one.code for one in found.problems}


def of_netcheck(evidence: Evidence) -> Evidence:
    """Return what netcheck looks at: records and probes of one peer."""
    return Evidence(records=netcheck.of_peer(facts_of(evidence), "c2"), path=evidence.path)


class OneAnswerTests(SynchronousTestCase):
    """For any state of records and probes."""

    def assert_honest(self, shown: Sequence[Finding], found: Sequence[Problem]) -> None:
        """Every problem is shown, as bad as it is; where one fails nothing is called well, but for another node."""
        expected = [(one.code, one.severity == "error") for one in found]
        self.assertEqual(sorted(expected), sorted((f.code, f.verdict == "bad") for f in shown if f.verdict != "good"))
        for problem in found:
            for one in shown:
                if problem.failing and one.verdict == "good" and one.group in (problem.hop, problem.topic):
                    self.assertTrue(one.group == QUOTAS and problem.name not in one.text, (problem, one))

    @given(EVIDENCE, STATES)
    @settings(max_examples=100, deadline=None)
    def test_codes_are_of_the_model(self, evidence: Evidence, process: state.DaemonState) -> None:
        """What status, explain, doctor, netcheck and /readyz name is among what the model finds from all evidence."""
        lines = state.unready(state.unmet(process))
        whole = codes(examine(attrs.evolve(evidence, unmet=state.unmet(process))))
        facts = facts_of(evidence)
        self.assertLessEqual({one.code for one in diagnose(facts)}, whole)
        self.assertLessEqual({line.partition(":")[0] for line in lines}, whole)
        self.assertLessEqual({one.code for one in doctor.findings(of_doctor(evidence))} - {""}, whole)
        self.assertLessEqual({one.code for one in netcheck.findings(examine(of_netcheck(evidence)))} - {""}, whole)
        for row in status_rows(facts, {}):
            if any(one.failing and one.peer == row["id"] for one in problems_of(facts, row["id"])):
                self.assertIn(row["why"].partition(":")[0], whole)

    @given(EVIDENCE)
    @settings(max_examples=100, deadline=None)
    def test_what_was_not_looked_at(self, evidence: Evidence) -> None:
        """It is not called well; what was looked at has a verdict."""
        found = examine(evidence)
        passed = {one.topic for one in found.passed}
        named = passed | {one.topic for one in found.problems}
        assert evidence.records is not None
        spaces = None if evidence.records.unread else evidence.spaces
        for topic, looked in (
            (ORPHANS, spaces),
            (CLOCK, evidence.clock),
            (KEYS, evidence.secrets),
            (CRDS, evidence.definitions),
        ):
            if looked is None:
                self.assertNotIn(topic, passed)
            else:
                self.assertIn(topic, named)

    @given(EVIDENCE)
    @settings(max_examples=100, deadline=None)
    def test_doctor(self, evidence: Evidence) -> None:
        """doctor shows every problem, and calls no topic well that has one."""
        shown = doctor.findings(of_doctor(evidence))
        found = [one for one in examine(of_doctor(evidence)).problems if one.failing]
        self.assert_honest(shown, found)
        self.assertEqual(failed(shown), any(one.severity == "error" for one in found))

    @given(EVIDENCE)
    @settings(max_examples=100, deadline=None)
    def test_netcheck(self, evidence: Evidence) -> None:
        """netcheck shows every problem of the path, of the records as well, and calls no hop well that has one."""
        diagnosis = examine(of_netcheck(evidence))
        found = [one for one in diagnosis.problems if one.hop or one.topic == "Daemon"]
        self.assert_honest(netcheck.findings(diagnosis), found)

    @given(records())
    @settings(max_examples=100, deadline=None)
    def test_status(self, facts: ClusterRecords) -> None:
        """No row, explanation or page says well of a peer, or of its node, with which something is wrong."""
        page = {peer.id: peer for peer in overview(Snapshot(home="rome", facts=facts)).peers}
        rows = {row["id"]: row for row in status_rows(facts, {})}
        for cluster in facts.peers:
            peer = cluster.metadata.name
            wrong = [one for one in problems_of(facts, peer) if one.failing]
            own = [one for one in wrong if one.peer == peer]
            if own:
                self.assertNotIn(rows[peer]["state"], ("Ready", "Accepted", "Authenticated"))
                self.assertTrue(rows[peer]["why"].startswith(own[0].code))
            if wrong and not is_stranger(cluster):
                self.assertIn(page[peer].tone, ("broken", "attention"))
                self.assertNotIn("nothing is wrong", explain_peer(facts, cluster)[-1]["why"])
            for record in facts.virtual_nodes:
                node = facts.node(record.spec.node_name)
                about = [one for one in wrong if one.kind != "node" or one.name == record.spec.node_name]
                if record.spec.cluster_id == peer and node is not None and about:
                    self.assertEqual(explain_node(facts, node, record)[-1]["state"], about[0].code)
                if record.spec.cluster_id == peer and node is not None and about:
                    pod = {"metadata": {"name": "web", "namespace": "shop"}}
                    row = cluster_row(facts_for(facts, pod, enabled=True), record)
                    self.assertNotIn(row["state"], ("Ready", "selected", "requested"))
                if record.spec.cluster_id == peer and (node is None or not is_true(node.status.conditions, "Ready")):
                    self.assertRegex(rows[peer]["node"], r"\((not ready|not created yet)\)")

    @given(EVIDENCE)
    @settings(max_examples=100, deadline=None)
    def test_check(self, evidence: Evidence) -> None:
        """check says of the processes, and of who reaches them, what status says of them."""
        facts = facts_of(evidence)
        shown = check.of_processes(FirstScreen(facts, unread=tuple(evidence.unread)))
        every = examine(Evidence(records=facts, unread=evidence.unread)).problems
        found = [one for one in every if one.topic in (DAEMON, PROCESSES_TOPIC)]
        self.assert_honest(shown, found)

    @given(
        records(), st.lists(st.builds(Unread, one_of("Keys", "Quotas"), st.just("LQ1005: no"), st.just("")), max_size=1)
    )
    @settings(max_examples=100, deadline=None)
    def test_gather(self, facts: ClusterRecords, unread: list[Unread]) -> None:
        """The first page of an archive names what the first screen of status does, as bad as it is."""
        text = summary(FirstScreen(facts, unread=tuple(unread)), NOW)
        wrong = [*diagnose(facts), *unread_problems(unread)]
        lines = text.partition("## What is wrong\n\n")[2].partition("\n\n")[0].splitlines()
        self.assertEqual(len(lines), max(1, len(wrong)))
        for line, problem in zip(lines, wrong, strict=False):
            self.assertTrue(line.startswith(f"* {problem.severity}: {problem.kind} {problem.name}: "), line)
            self.assertIn(problem.code, line)
        self.assertEqual(lines == ["* nothing"], not wrong)

    @given(records())
    @settings(max_examples=100, deadline=None)
    def test_test(self, facts: ClusterRecords) -> None:
        """``test`` starts no pods where the model knows an error, which it names, or where nothing is borrowed."""
        for cluster in facts.peers:
            peer = cluster.metadata.name
            wrong = [one for one in problems_of(facts, peer) if one.severity == "error"]
            refused = objection(facts, peer, name_of(cluster))
            borrowed = any(record.spec.cluster_id == peer for record in facts.virtual_nodes)
            self.assertEqual(refused is not None, bool(wrong) or not borrowed)
            if refused is not None:
                self.assertTrue(refused.advice)
                self.assertEqual(wrong[0].text if wrong else refused.cause, refused.cause)

    @given(STATES)
    def test_readiness(self, process: state.DaemonState) -> None:
        """/readyz is well where the model finds nothing of the process; the status line of a ready one says no but."""
        found = examine(Evidence(unmet=state.unmet(process)))
        lines = state.unready(state.unmet(process))
        self.assertCountEqual([one.text for one in found.problems], lines)
        self.assertEqual(bool(found.passed), not lines)

    @given(tunnel_statuses())
    @settings(max_examples=500, deadline=None)
    def test_conditions(self, status: TunnelEndpointStatus) -> None:
        """Where the condition of a tunnel is not True the model has its reason as a code, and else nothing failing."""
        tunnel = named({"status": msgspec.to_builtins(status)}, "c2", TunnelEndpoint)
        peer = named({"spec": {"fingerprint": "x"}, "status": {"phase": "Ready"}}, "c2", ForeignCluster)
        facts = ClusterRecords(leader=LeaderFacts("one", alive=True, age=1.0), peers=[peer], tunnels=[tunnel])
        (condition,) = status.conditions
        found = [one.code for one in diagnose(facts)]
        if condition.status != "True" or condition.reason != "PacketsCross":
            self.assertEqual(found, [condition.reason])
        else:
            self.assertEqual(found, [])
