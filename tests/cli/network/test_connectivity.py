"""Which ways ``test`` tries, what their answers mean, what it makes, and what earlier runs left."""

from __future__ import annotations

import operator
import os
import subprocess
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as Xml

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.network.connectivity import leftovers, objects, origin, scripts
from liqod.cli.network.connectivity.cases import HOME, WAYS, Case, TestedPeer, cases, clients, servers
from liqod.cli.network.connectivity.command import withheld
from liqod.cli.network.connectivity.junit import junit
from liqod.cli.network.connectivity.observations import (
    CaseOutcome,
    ContainerStateTerminated,
    ProbePod,
    Stopped,
    is_over,
    is_serving,
    observed,
    of_end,
    refusals,
    why_stopped,
)
from liqod.cli.network.connectivity.space import Space
from liqod.cli.network.connectivity.verdicts import Result, TestFindings, results
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.names import CONNECTIVITY_TEST_BY, HOME_API, HOME_SERVICES, REMOTE_CLUSTER_LABEL, TYPE_LABEL
from liqod.model.objects.node import Node
from liqod.model.records.views import VirtualNode

MILAN, TURIN = TestedPeer("c2", "milan", 0), TestedPeer("c3", "turin", 1)
ALL = cases([MILAN], WAYS, node=True, ingress=True)
YES, NO = CaseOutcome(True, "answered"), CaseOutcome(False, "no answer")
Which = Callable[[Case], bool]


def healthy(wanted: Iterable[Case]) -> dict[Case, CaseOutcome]:
    """Return what is seen where all is well and policies are enforced."""
    return {one: NO if one.silence else YES for one in wanted}


def judged(broken: Which, wanted: Iterable[Case] = ALL, **more: Any) -> list[Result]:
    """Return the results where some cases come to the opposite of what is right."""
    wanted = list(wanted)
    seen = {one: ({YES: NO, NO: YES}[was] if broken(one) else was) for one, was in healthy(wanted).items()}
    return results(TestFindings(peers=[MILAN, TURIN], seen=seen, node="n1", ingress_class="nginx", **more), wanted)


def begins(way: str, source: str) -> Which:
    """Select a way from one side."""
    return lambda case: (case.way, case.source) == (way, source)


def unheeded(answered: Collection[tuple[str, str]]) -> Which:
    """Select the denied cases from and to some clusters."""
    return lambda case: case.silence and (case.source, case.target) in answered


def failed(found: Iterable[Result]) -> list[Result]:
    return [one for one in found if one.outcome == "failed"]


class CasesTests(SynchronousTestCase):
    """Which ways there are."""

    def test_both_directions(self) -> None:
        """Each way is tried in both directions; the API server and ClusterIPs from the peer, ingresses from home."""
        for way in ("pod", "service", "dns", "headless", "nodeport", "large"):
            ends = {(one.source, one.target) for one in ALL if one.way == way}
            self.assertEqual(ends, {(HOME, "c2"), ("c2", HOME)}, way)
        for way in ("api", "clusterip"):
            self.assertEqual([one.source for one in ALL if one.way == way], ["c2"])
        self.assertEqual([one.source for one in ALL if one.way == "ingress"], [HOME])
        policies = [(one.source, one.target, one.silence) for one in ALL if one.way == "policy"]
        self.assertEqual(len(policies), len(set(policies)))
        for target in (HOME, "c2"):
            self.assertEqual({silence for _, to, silence in policies if to == target}, {True, False})

    def test_what_is_not_offered(self) -> None:
        """Without a node's address or a class of ingresses the way is not tried from home."""
        found = cases([MILAN], WAYS, node=False, ingress=False)
        self.assertEqual([one.source for one in found if one.way == "nodeport"], ["c2"])
        self.assertNotIn("ingress", {one.way for one in found})

    def test_only(self) -> None:
        """Some ways alone; silence is tried with the way whose answer it is compared to."""
        self.assertEqual({one.way for one in cases([MILAN], ["dns"], node=True, ingress=True)}, {"dns"})
        self.assertEqual({one.way for one in cases([MILAN], ["policy"], node=True, ingress=True)}, {"policy", "pod"})

    def test_onward(self) -> None:
        """Of several peers each calls the service of a pod at the next one; of one peer nobody does."""
        found = cases([MILAN, TURIN], WAYS, node=True, ingress=True)
        onward = [(one.source, one.target) for one in found if HOME not in (one.source, one.target)]
        self.assertTrue({("c2", "c3"), ("c3", "c2")} <= set(onward))
        self.assertEqual({one.target for one in ALL}, {HOME, "c2"})

    def test_names(self) -> None:
        """Containers of a pod have names of their own that Kubernetes takes, and the pods of a run differ."""
        found = cases([MILAN, TURIN], WAYS, node=True, ingress=True)
        for name, each in clients(found).items():
            names = [one.name for one in each]
            self.assertEqual(len(names), len(set(names)), name)
            self.assertEqual(len({one.source for one in each}), 1, name)
            for one in names:
                self.assertRegex(one, r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
        self.assertFalse({name for name, _ in servers([MILAN, TURIN], found)} & set(clients(found)))


class VerdictTests(SynchronousTestCase):
    """What answers mean."""

    def test_all_is_well(self) -> None:
        """Where every answer is right everything is good, and there is nothing to do."""
        for one in judged(lambda case: False):
            self.assertEqual((one.outcome, one.subject, one.next), ("good", "", ""), one)

    def test_one_way(self) -> None:
        """One way that fails, and what relies on it: the object and the command are those of the way itself."""
        table = (
            ("pod", HOME, "tunnel to milan", "netcheck milan"),
            ("pod", "c2", "tunnel to milan", "netcheck milan"),
            ("service", HOME, "kube-proxy of home", "kubectl"),
            ("service", "c2", "EndpointSlice of here at milan", "explain peer milan"),
            ("dns", HOME, "DNS of home", "k8s-app=kube-dns"),
            ("dns", "c2", "DNS of milan", "at milan"),
            ("headless", HOME, "DNS of home", "k8s-app=kube-dns"),
            ("nodeport", HOME, "node n1", "kubectl"),
            ("nodeport", "c2", "nodes of milan", "at milan"),
            ("ingress", HOME, "IngressClass nginx", "describe ingressclass nginx"),
            ("api", "c2", "HomeAPI", "explain peer milan"),
            ("clusterip", "c2", "HomeServices", "explain peer milan"),
            ("large", HOME, "MTU of the tunnel to milan", "netcheck milan"),
            ("large", "c2", "MTU of the tunnel to milan", "netcheck milan"),
        )
        for way, source, subject, advice in table:
            found = failed(judged(begins(way, source)))
            self.assertEqual(len(found), 1, (way, source, found))
            self.assertIn(subject, found[0].subject)
            self.assertIn(advice, found[0].next)
            self.assertIn("no answer", found[0].cause)

    def test_what_follows(self) -> None:
        """Where pods do not reach each other at all, every other way follows from that, and policies say nothing."""
        found = judged(lambda case: (case.source, case.target) == (HOME, "c2") and not case.silence)
        ways = {one.way for one in failed(found)}
        self.assertEqual(ways, {"pod", "service", "dns", "headless", "nodeport", "ingress", "large"})
        for one in failed(found):
            self.assertEqual(one.subject, "tunnel to milan")
            self.assertEqual(one.cause.startswith("follows from the path pod"), one.way != "pod", one)
        silent = [
            one for one in found if one.way == "policy: denied" and one.source == "home" and one.target == "milan"
        ]
        self.assertEqual([one.outcome for one in silent], ["skipped"])

    def test_no_tunnel(self) -> None:
        """Where liqod carries nothing, that is what is said."""
        peers = [attrs.evolve(MILAN, tunnel=False)]
        seen = {one: NO if one.way == "pod" or one.silence else YES for one in ALL}
        found = failed(results(TestFindings(peers=peers, seen=seen), ALL))
        self.assertIn("which liqod does not carry", found[0].subject)

    def test_policies(self) -> None:
        """Who is answered though a policy denies it is a fault only where pods beside the server are denied."""
        table: tuple[tuple[set[tuple[str, str]], set[str]], ...] = (
            # Answered though denied: from and to; the outcomes of all denied cases by that.
            (set(), {"good"}),
            ({(HOME, HOME), ("c2", HOME)}, {"skipped", "good"}),
            ({("c2", "c2"), (HOME, "c2")}, {"skipped", "good"}),
            ({("c2", HOME)}, {"failed", "good"}),
            ({(HOME, "c2")}, {"failed", "good"}),
        )
        for answered, outcomes in table:
            found = judged(unheeded(answered))
            self.assertEqual({one.outcome for one in found if one.way == "policy: denied"}, outcomes, answered)
        found = failed(judged(lambda case: case.way == "policy" and not case.silence and case.source == HOME))
        self.assertEqual([one.way for one in found], ["policy: allowed"])

    def test_silence_of_all(self) -> None:
        """A server that answers nobody shows nothing of a policy."""
        found = judged(lambda case: case.way == "policy" and not case.silence)
        self.assertEqual({one.outcome for one in found if one.way == "policy: denied"}, {"skipped"})

    def test_pods_that_do_not_run(self) -> None:
        """A pod that does not run is one failure, which what needs it does not repeat."""
        seen = {one: was for one, was in healthy(ALL).items() if MILAN.there not in (one.server, one.client)}
        refused = Stopped("PoliciesNotEnforced: no plugin", "`liqodctl explain peer milan`")
        found = results(TestFindings(peers=[MILAN], seen=seen, stopped={MILAN.closed_there: refused}), [])
        self.assertEqual([(one.outcome, "PoliciesNotEnforced" in one.cause) for one in found], [("skipped", True)])
        run = TestFindings(peers=[MILAN], seen=seen, stopped={MILAN.there: Stopped("ErrImagePull: no", "--image")})
        found = results(run, ALL)
        (one,) = failed(found)
        self.assertEqual((one.way, one.subject, one.next), ("start", "pod there-0 at milan", "--image"))
        self.assertTrue(any(one.outcome == "skipped" and "there-0 does not run" in one.cause for one in found))

    def test_lenders_words(self) -> None:
        """What a lender refused is said in its words: a port of nodes is skipped, a service is a failure."""
        back = {"nodeport": "skipped", "service": "failed"}
        for way, outcome in back.items():
            case = next(one for one in ALL if one.way == way and one.source == "c2")
            found = judged(partial(operator.is_, case), refused={case.subject: "not reflected to milan: quota"})
            (one,) = [one for one in found if one.outcome != "good"]
            self.assertEqual((one.way, one.outcome), (way, outcome))
            self.assertIn("quota", one.cause)

    def test_not_offered(self) -> None:
        """Pods that get no API server of home are not asked for it; an ingress without an address is skipped."""
        (one,) = [
            one
            for one in judged(lambda case: False, withheld={("api", "c2"): "Disabled: off"})
            if one.outcome != "good"
        ]
        self.assertEqual((one.way, one.outcome), ("api", "skipped"))
        seen = {one: was for one, was in healthy(ALL).items() if one.way != "ingress"}
        found = results(TestFindings(peers=[MILAN], seen=seen, no_ingress="no address"), ALL)
        self.assertEqual([(one.way, one.cause) for one in found if one.outcome != "good"], [("ingress", "no address")])

    def test_conditions(self) -> None:
        """The virtual node's conditions say which ways its pods do not have; what is not known yet is tried."""
        conditions = [
            {"type": HOME_API, "status": "False", "reason": "NoTunnel", "message": "no"},
            {"type": HOME_SERVICES, "status": "Unknown", "reason": "", "message": ""},
        ]
        body = {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}, "status": {"conditions": conditions}}
        record = msgspec.convert(body, VirtualNode)
        self.assertEqual(withheld(ClusterRecords(virtual_nodes=[record])), {("api", "c2"): "NoTunnel: no"})
        # It is exported for the first offloaded namespace, which may be that of the test.
        conditions[0]["reason"] = "NotExportedYet"
        self.assertEqual(withheld(ClusterRecords(virtual_nodes=[msgspec.convert(body, VirtualNode)])), {})

    def test_conditions_of_several_nodes(self) -> None:
        """A way is left out when no virtual node that a pod of the test can run on has it, whatever their order."""

        def record(name: str, status: str, **spec: Any) -> VirtualNode:
            conditions = [{"type": HOME_API, "status": status, "reason": "NoTunnel", "message": name}]
            body = {"metadata": {"name": name}, "spec": {"clusterID": "c2", "nodeName": name, **spec}}
            return msgspec.convert({**body, "status": {"conditions": conditions}}, VirtualNode)

        def ready(name: str) -> Node:
            conditions = [{"type": "Ready", "status": "True"}]
            return msgspec.convert({"metadata": {"name": name}, "status": {"conditions": conditions}}, Node)

        tainted = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
        for first, second, nodes, expected in (
            (record("a", "True"), record("b", "False"), ["a", "b"], {}),
            (record("a", "False"), record("b", "False"), ["a", "b"], {("api", "c2"): "NoTunnel: a"}),
            (record("a", "True"), record("b", "False"), ["b"], {("api", "c2"): "NoTunnel: b"}),
            (record("a", "True", **tainted), record("b", "False"), ["a", "b"], {("api", "c2"): "NoTunnel: b"}),
        ):
            for records in ([first, second], [second, first]):
                facts = ClusterRecords(virtual_nodes=records, nodes=[ready(name) for name in nodes])
                self.assertEqual(withheld(facts), expected)

    @given(st.data())
    def test_any_answers(self, data: st.DataObject) -> None:
        """Whatever is seen, every case has one result, and a failure names an object, a cause and what to do."""
        wanted = cases([MILAN, TURIN], WAYS, node=True, ingress=True)
        said = st.sampled_from([None, YES, NO, CaseOutcome(None, "killed")])
        drawn = {one: data.draw(said) for one in wanted}
        names = [name for name, _ in servers([MILAN, TURIN], wanted)] + list(clients(wanted))
        stopped = {name: Stopped("why", "what") for name in data.draw(st.lists(st.sampled_from(names), unique=True))}
        seen = {one: answer for one, answer in drawn.items() if answer is not None}
        found = results(TestFindings(peers=[MILAN, TURIN], seen=seen, stopped=stopped), wanted)
        self.assertEqual(len(found), len(wanted) + len(stopped))
        pods = [one.subject.split()[1] for one in found if one.way == "start"]
        self.assertEqual(pods, [name for name in names if name in stopped])
        for one in found:
            if one.outcome == "failed":
                self.assertTrue(one.subject and one.cause and one.next, one)
            self.assertEqual(one.outcome == "good", not one.cause, one)


class ObservationTests(SynchronousTestCase):
    """What pods show."""

    def pod(self, **status: Any) -> ProbePod:
        return msgspec.convert({"metadata": {"name": "x", "namespace": "s"}, "status": status}, ProbePod)

    def test_ends(self) -> None:
        """0 and 1 say whether there was an answer, anything else that it could not be tried."""
        for code, answered in ((0, True), (1, False), (2, None), (137, None)):
            self.assertIs(of_end(ContainerStateTerminated(exit_code=code)).answered, answered)
        ended = ContainerStateTerminated(
            message="a\nb\x1b[31m", started_at="2026-01-01T00:00:00Z", finished_at="2026-01-01T00:00:03Z"
        )
        self.assertEqual(of_end(ended), CaseOutcome(True, "a b�[31m", 3.0))
        self.assertIn("OOMKilled", of_end(ContainerStateTerminated(exit_code=137, reason="OOMKilled")).said)

    def test_one_by_one(self) -> None:
        """What has ended is known while the rest goes on; the pod is over when all have."""
        wanted = [one for one in ALL if one.client == MILAN.from_here][:2]
        states = [{"name": wanted[0].name, "state": {"terminated": {"exitCode": 1}}}, {"name": wanted[1].name}]
        pod = self.pod(phase="Running", containerStatuses=states)
        self.assertEqual(observed(pod, wanted), {wanted[0]: CaseOutcome(False)})
        self.assertFalse(is_over(pod, wanted))
        self.assertTrue(is_over(pod, wanted[:1]))
        self.assertTrue(is_over(self.pod(phase="Failed"), wanted))
        self.assertFalse(is_over(None, wanted))

    def test_serving(self) -> None:
        """A server serves when it is ready and has an address."""
        ready = [{"type": "Ready", "status": "True"}]
        self.assertTrue(is_serving(self.pod(phase="Running", podIPs=[{"ip": "10.0.0.1"}], conditions=ready)))
        self.assertFalse(is_serving(self.pod(phase="Running", podIPs=[{"ip": "10.0.0.1"}])))
        self.assertFalse(is_serving(self.pod(phase="Running", conditions=ready)))

    def test_why_not(self) -> None:
        """Image, scheduler, lender, kubelet: the first that says something, with what to do about it."""
        waiting = [{"name": "a", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}]
        unscheduled = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]
        refused = [{"type": "liqo.io/Offloaded", "status": "False", "reason": "QuotaExceeded", "message": "full"}]
        for status, words, advice in (
            ({"containerStatuses": waiting}, "no such host", "--image"),
            ({"conditions": unscheduled}, "0/2 nodes", "status milan"),
            ({"conditions": refused}, "QuotaExceeded", "explain peer milan"),
            ({"phase": "Pending"}, "Pending", "explain peer milan"),
        ):
            found = why_stopped(self.pod(**status), "there-0", "milan")
            self.assertIn(words, found.cause)
            self.assertIn(advice, found.advice)
        self.assertIn("not created", why_stopped(None, "there-0", "milan").cause)

    def test_refusals(self) -> None:
        """Warnings of reflection about services count, and nothing else."""
        regarding = {"kind": "Service", "name": "here-node"}
        event = {"type": "Warning", "reason": "Forbidden", "message": "not reflected to milan: no"}
        self.assertEqual(refusals([{**event, "involvedObject": regarding}]), {"here-node": event["message"]})
        for other in ({"type": "Normal"}, {"message": "hello"}, {"involvedObject": {"kind": "Pod", "name": "x"}}):
            self.assertEqual(refusals([{**event, "involvedObject": regarding, **other}]), {})


class ObjectsTests(SynchronousTestCase):
    """What is made."""

    def test_places(self) -> None:
        """A pod is bound to the peer's node, or kept off every virtual one."""
        there = objects.server("there-0", "busybox", "c2", "x")["spec"]
        here = objects.server("here", "busybox", HOME, "x")["spec"]
        rules = []
        for spec in (there, here):
            required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (rule,) = required["nodeSelectorTerms"][0]["matchExpressions"]
            rules.append((rule["key"], rule["operator"]))
        self.assertEqual(rules, [(REMOTE_CLUSTER_LABEL, "In"), (TYPE_LABEL, "NotIn")])

    def test_who_is_admitted(self) -> None:
        """The policy selects the closed servers, and admits the clients that are to be answered."""
        spec = objects.policy()["spec"]
        admitted = spec["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items()
        for name, each in clients(ALL).items():
            labels = objects.client(name, "i", each, {one.name: "" for one in each}, 9)["metadata"]["labels"]
            may = admitted <= labels.items()
            closed = [one for one in each if one.way == "policy"]
            self.assertTrue(all(one.silence is not may for one in closed), name)
        for name, where in servers([MILAN], ALL):
            labels = objects.server(name, "i", where, "x")["metadata"]["labels"]
            self.assertEqual(spec["podSelector"]["matchLabels"].items() <= labels.items(), name.startswith("closed"))

    def test_token(self) -> None:
        """Only the pod that asks the API server has a token."""
        tokens = {
            name: objects.client(name, "i", each, {one.name: "" for one in each}, 9)["spec"][
                "automountServiceAccountToken"
            ]
            for name, each in clients(ALL).items()
        }
        self.assertEqual([name for name, has in tokens.items() if has], [MILAN.from_there])


class ScriptTests(SynchronousTestCase):
    """The lines of shell, run by a shell with nc, nslookup and wget of ours."""

    def run_script(self, case: Case, place: str, **programs: str) -> tuple[int, str]:
        """Run a script with programs of the given bodies, and no pauses; return its status and its last words."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        programs = {"sleep": "true", "timeout": 'shift; exec "$@"', **programs}
        for name, body in programs.items():
            (directory / name).write_text(f"#!/bin/sh\n{body}\n")
            (directory / name).chmod(0o755)
        script = scripts.client(case, "space here.", place, "space")
        log = directory / "log"
        script = script.replace("/dev/termination-log", str(log)).replace("/etc/resolv.conf", str(directory / "resolv"))
        script = script.replace("/etc/hosts", str(directory / "hosts")).replace(
            "/var/run/secrets/kubernetes.io/serviceaccount", str(directory)
        )
        (directory / "resolv").write_text("search space.svc.cluster.local svc.cluster.local\n")
        (directory / "hosts").write_text("127.0.0.1 localhost\n10.3.0.1 kubernetes kubernetes.default\n")
        (directory / "token").write_text("secret")
        environ = {"PATH": f"{directory}:/usr/bin:/bin", "KUBERNETES_SERVICE_HOST": "kubernetes.default"}
        environ["KUBERNETES_SERVICE_PORT"] = "443"
        done = subprocess.run(["/bin/sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, log.read_text().strip()

    def case(self, way: str, source: str = HOME, **more: Any) -> Case:
        found = next(one for one in ALL if (one.way, one.source) == (way, source))
        return attrs.evolve(found, **more)

    def test_answer(self) -> None:
        """The server's own page is an answer, another one or none is not."""
        for body, status, words in (
            ("echo space here.", 0, "answered by 10.0.0.1"),
            ("echo 'HTTP/1.1 404 Not Found'", 1, "something else"),
            ("echo 'nc: timed out'; false", 1, "timed out"),
            ("false", 1, "no answer from 10.0.0.1 port 5001"),
        ):
            found = self.run_script(self.case("pod"), "10.0.0.1", nc=body)
            self.assertEqual(found[0], status, found)
            self.assertIn(words, found[1])

    def test_names(self) -> None:
        """An address comes from what nslookup says of the name in the pod's own namespace, and not of the server."""
        for answer in (
            "Server: 10.96.0.10\\nAddress: 10.96.0.10:53\\n\\nName: $1\\nAddress: 10.9.9.9\\n",
            "Server: 10.96.0.10\\nAddress 1: 10.96.0.10 kube-dns\\n\\nName: $1\\nAddress 1: 10.9.9.9 there\\n",
        ):
            lookup = f'[ "$1" = there-0.space.svc.cluster.local ] && printf "{answer}"'
            found = self.run_script(self.case("dns"), "", nslookup=lookup, nc='[ "$3" = 10.9.9.9 ] && echo space here.')
            self.assertEqual(found[0], 0, found)
        found = self.run_script(self.case("dns"), "", nslookup="echo 'Address: 10.96.0.10'", nc="echo space here.")
        self.assertEqual(found, (1, "its name is not found"))

    def test_silence(self) -> None:
        """Silence is several attempts without an answer; a name that is not found is no silence."""
        case = next(one for one in ALL if one.silence and one.by == "address")
        self.assertEqual(self.run_script(case, "10.0.0.1", nc="false")[0], 1)
        self.assertEqual(self.run_script(case, "10.0.0.1", nc="echo space here.")[0], 0)
        once = 'n=$(cat "$0.n" 2>/dev/null); echo "x$n" > "$0.n"; case "$n" in *x*) echo space here.;; esac'
        self.assertEqual(self.run_script(case, "10.0.0.1", nc=once)[0], 0)
        named = next(one for one in ALL if one.silence and one.by == "service")
        self.assertEqual(self.run_script(named, "", nslookup="true", nc="false")[0], 2)

    def test_large(self) -> None:
        """All bytes have to come."""
        case = self.case("large")
        whole = f"head -c {scripts.BYTES} /dev/zero"
        self.assertEqual(self.run_script(case, "10.0.0.1", nc=whole)[0], 0)
        found = self.run_script(case, "10.0.0.1", nc="head -c 1400 /dev/zero")
        self.assertEqual(found, (1, f"1400 of {scripts.BYTES} bytes came from 10.0.0.1 port 5001"))

    def test_api_server(self) -> None:
        """Home's API server knows the account and refuses it; another one does not know it; without TLS it is there."""
        https = "echo 'Client sent an HTTP request to an HTTPS server.'"
        for wget, nc, status, words in (
            ("echo 'wget: server returned error: HTTP/1.1 403 Forbidden'; false", "false", 0, "home's"),
            ("echo 'wget: server returned error: HTTP/1.1 401 Unauthorized'; false", "false", 1, "not home's"),
            ("echo 'wget: not an http or ftp url'; false", https, 0, "cannot ask by TLS"),
            ("false", "false", 1, "no answer from kubernetes.default (10.3.0.1) port 443"),
        ):
            found = self.run_script(self.case("api", "c2"), "", wget=wget, nc=nc)
            self.assertEqual(found[0], status, found)
            self.assertIn(words, found[1])


class LeftOverTests(SynchronousTestCase):
    """What earlier runs left."""

    ME = "host/boot/pid:[1] 7 100"
    NOW = "2026-01-01T12:00:00Z"

    def left(self, by: str, *, name: str = "liqod-test-1", born: str = "2026-01-01T11:59:00Z", **meta: Any) -> bool:
        annotations = {CONNECTIVITY_TEST_BY: by} if by else {}
        body = {"metadata": {"name": name, "creationTimestamp": born, "annotations": annotations, **meta}}
        return bool(leftovers.left_over([body], self.ME, self.NOW, lambda origin: origin.endswith(" 8 100")))

    def test_table(self) -> None:
        """Of this host what no process holds, of others what is older than any run; never what runs, or is ours."""
        long_ago = "2026-01-01T10:00:00Z"
        for by, more, wanted in (
            (self.ME, {}, False),
            (self.ME, {"born": long_ago}, False),
            ("host/boot/pid:[1] 8 100", {}, False),
            ("host/boot/pid:[1] 9 100", {}, True),
            ("host/boot/pid:[2] 9 100", {}, False),
            ("other/boot/pid:[1] 9 100", {}, False),
            ("other/boot/pid:[1] 9 100", {"born": long_ago}, True),
            ("", {}, False),
            ("", {"born": long_ago}, True),
            ("host/boot/pid:[1] 9 100", {"name": "shop"}, False),
            ("host/boot/pid:[1] 9 100", {"deletionTimestamp": self.NOW}, False),
            ("other/boot/pid:[1] 9 100", {"born": "soon"}, False),
        ):
            self.assertEqual(self.left(by, **more), wanted, (by, more))

    def test_own(self) -> None:
        """This process runs; one that ended, and a text that names none, do not."""
        self.assertTrue(origin.runs(origin.own()))
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as other:
            found = origin.own(other.pid)
            self.assertTrue(origin.runs(found))
        self.assertFalse(origin.runs(found))
        for odd in ("", "x", f"{origin.own().partition(' ')[0]} {os.getpid()} 1", "a -1 2", f"a {'9' * 5000} 1"):
            self.assertFalse(origin.runs(odd), odd)


class SpaceTests(SynchronousTestCase):
    """The namespace of a run."""

    def test_interrupted_deletion(self) -> None:
        """A deletion that Ctrl-C cuts off is sent again."""
        sent: list[str] = []

        class Slow:
            """An API server that does not answer the first request."""

            async def delete(self, resource: Any, name: str) -> None:
                sent.append(name)
                if len(sent) == 1:
                    await Deferred()

        session: Any = SimpleNamespace(client=Slow())
        space = Space(session)
        ending = Deferred.fromCoroutine(space.__aexit__())
        ending.cancel()
        self.failureResultOf(ending, CancelledError)
        self.assertEqual(sent, [space.name] * 2)


class JunitTests(SynchronousTestCase):
    """The report for CI systems."""

    def test_report(self) -> None:
        """Counts, failures with object and next command, and texts that XML has to escape."""
        found = judged(lambda case: (case.way, case.source) == ("dns", HOME))
        found = [attrs.evolve(one, cause=f'{one.cause}\x00\n<&"') if one.outcome == "failed" else one for one in found]
        root = Xml.fromstring(junit(found, seconds=12.5, started="2026-01-01T00:00:00Z"))
        self.assertEqual((root.get("tests"), root.get("failures")), (str(len(found)), "1"))
        (failure,) = root.iter("failure")
        self.assertTrue(failure.get("message", "").endswith('\ufffd <&"'))
        self.assertIn("next: `kubectl", failure.text or "")
        names = [(one.get("classname"), one.get("name")) for one in root.iter("testcase")]
        self.assertEqual(len(names), len(found))
