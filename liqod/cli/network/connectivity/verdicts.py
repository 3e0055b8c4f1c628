"""What the answers of ``test`` mean: what is good, what failed, which object is to blame, what to type next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from liqod.cli.console.render import printable
from liqod.cli.network.connectivity.cases import HOME, Case, TestedPeer, Way, clients, servers
from liqod.cli.network.connectivity.observations import CaseOutcome, Stopped

Outcome = Literal["good", "failed", "skipped"]


def _line(text: str) -> str:
    """Return what a lender or an API server said as one line that terminals and XML take."""
    return printable(" ".join(text.split()))


@attrs.frozen(kw_only=True)
class Result:
    """One line of the report; ``source`` and ``target`` are names for people, ``next`` the command to type."""

    peer: str
    way: str
    source: str
    target: str
    outcome: Outcome
    subject: str = attrs.field(default="", converter=_line)
    cause: str = attrs.field(default="", converter=_line)
    next: str = attrs.field(default="", converter=_line)
    seconds: float | None = None

    def as_row(self) -> dict[str, Any]:
        """Return plain values, with the names that programs and the table use."""
        return {
            "peer": self.peer,
            "way": self.way,
            "from": self.source,
            "to": self.target,
            "result": self.outcome,
            "object": self.subject,
            "why": self.cause,
            "next": self.next,
            "seconds": self.seconds,
        }


@attrs.frozen(kw_only=True)
class TestFindings:
    """What is known at the end of a run.

    ``stopped`` has the pods that did not run, ``refused`` the words of lenders by object, ``withheld`` why pods at a
    peer do not have a path, by path and cluster ID; ``node`` and ``ingress_class`` are names of what was used,
    ``no_ingress`` why there was no address of an ingress.
    """

    peers: Sequence[TestedPeer]
    seen: Mapping[Case, CaseOutcome]
    stopped: Mapping[str, Stopped] = {}
    refused: Mapping[str, str] = {}
    withheld: Mapping[tuple[Way, str], str] = {}
    node: str = ""
    ingress_class: str = ""
    no_ingress: str = ""

    def name_of(self, cluster: str) -> str:
        """Return the name of a cluster for people."""
        return next((one.name for one in self.peers if one.id == cluster), "home" if cluster == HOME else cluster)


def results(run: TestFindings, wanted: Sequence[Case]) -> list[Result]:
    """Return a result for each pod that did not run, servers first and in the order of ``servers``, then of each case.

    Pods stop side by side, so that the order in which they were seen to do so says nothing.
    """
    known = [*(name for name, _ in servers(run.peers, wanted)), *clients(wanted), *run.stopped]
    pods = [_stopped(run, name, run.stopped[name]) for name in dict.fromkeys(known) if name in run.stopped]
    return [*pods, *(judge(run, wanted, case) for case in wanted)]


def _stopped(run: TestFindings, pod: str, why: Stopped) -> Result:
    number = pod.rpartition("-")[2]
    peer = next((one.name for one in run.peers if str(one.number) == number), "")
    where = peer if "there" in pod else "home"
    return Result(
        peer=peer,
        way="start",
        source="home",
        target=where,
        outcome="skipped" if why.is_by_terms else "failed",
        subject=f"pod {pod} at {where}",
        cause=f"it does not run: {why.cause}",
        next=why.advice,
    )


def judge(run: TestFindings, wanted: Sequence[Case], case: Case) -> Result:
    """Return what became of a case."""
    seen = run.seen.get(case)
    # Where the server at a peer does not run, no client is sent after it.
    at_peer = next((one.there for one in run.peers if one.id == case.source), "")
    missing = next((name for name in (case.client, case.server, at_peer) if name in run.stopped), "")
    why = run.withheld.get((case.way, case.peer))
    if why:
        return _result(run, case, "skipped", f"pods at the peer have no path to it: {why}")
    if seen is None or seen.answered is None:
        if missing:
            return _result(run, case, "skipped", f"the pod {missing} does not run")
        if case.way == "ingress" and run.no_ingress:
            return _result(run, case, "skipped", run.no_ingress)
        said = seen.said if seen is not None else "the pod said nothing in time"
        cause, subject = f"it could not be tried: {said}", f"pod {case.client}"
        return _result(run, case, "failed", cause, subject=subject, advice=_other(run, case))
    judged = _silent(run, wanted, case) if case.silence else _answered(run, wanted, case, seen)
    return attrs.evolve(judged, seconds=seen.seconds)


def _answered(run: TestFindings, wanted: Sequence[Case], case: Case, seen: CaseOutcome) -> Result:
    """Judge a case that should be answered."""
    if seen.answered:
        return _result(run, case, "good")
    words = run.refused.get(case.subject) if case.source != HOME else None
    if words and case.way == "nodeport":
        return _result(run, case, "skipped", f"the peer takes no such service: {words}")
    if words:
        explain = f"`liqodctl explain peer {run.name_of(case.source)}`"
        return _result(run, case, "failed", words, subject=f"Service {case.subject}", advice=explain)
    root = next((one for one in _before(wanted, case) if _answer(run, one) is False), None)
    if root is not None:
        blamed = judge(run, wanted, root)
        cause = f"follows from the path {root.way}, which fails, too: {seen.said}"
        return _result(run, case, "failed", cause, subject=blamed.subject, advice=blamed.next)
    subject, cause, advice = _blame(run, case)
    cause = f"{cause}: {seen.said}" if seen.said else cause
    return _result(run, case, "failed", cause, subject=subject, advice=advice)


def _silent(run: TestFindings, wanted: Sequence[Case], case: Case) -> Result:
    """Judge a case that a policy should silence.

    Silence is worth something only where the same server answers others, and an answer is a fault only where the policy
    is enforced at all, which the pods beside the server show.
    """
    seen = run.seen[case]
    same = [one for one in wanted if one.peer == case.peer and one.server == case.server]
    control = next((one for one in same if one.silence and one.source == one.target), case)
    if seen.answered:
        if control is not case and _answer(run, control) is False:
            cause = "a pod that the policy does not admit is answered, though pods beside the server are not"
            subject = "NetworkPolicy closed"
            return _result(run, case, "failed", f"{cause}: {seen.said}", subject=subject, advice=_other(run, case))
        here = case.target == HOME
        plugin = "this cluster's network plugin enforces no NetworkPolicies"
        return _result(run, case, "skipped", plugin if here else "home's NetworkPolicies do not hold at this peer")
    admitted = next((one for one in same if not one.silence), None)
    if admitted is None or not _answer(run, admitted):
        return _result(run, case, "skipped", "nothing reaches this server, so that silence says nothing")
    open_way = next((one for one in _before(wanted, case) if not _answer(run, one)), None)
    if open_way is not None:
        return _result(run, case, "skipped", f"the path {open_way.way} fails without a policy, too")
    return _result(run, case, "good")


def _answer(run: TestFindings, case: Case) -> bool | None:
    """Return whether a case was answered; None where that is not known."""
    seen = run.seen.get(case)
    return seen.answered if seen is not None else None


_AFTER: Final[Mapping[Way, Sequence[Way]]] = {
    "service": ("pod",),
    "clusterip": ("pod",),
    "dns": ("pod", "service"),
    "headless": ("pod", "dns"),
    "nodeport": ("pod", "service"),
    "ingress": ("pod", "service"),
    "large": ("pod",),
    "policy": ("pod",),
}
"""The paths that a path relies on: where one of them fails, it is the one to look at."""


def _before(wanted: Sequence[Case], case: Case) -> list[Case]:
    """Return the cases that a case relies on, the first cause first."""
    ways = _AFTER.get(case.way, ())
    relied = [
        one
        for one in wanted
        if one.peer == case.peer and one.way in ways and (one.source, one.target) == (case.source, case.target)
    ]
    return sorted(relied, key=lambda one: ways.index(one.way))


def _blame(run: TestFindings, case: Case) -> tuple[str, str, str]:
    """Return the object to look at, the cause and the command to type, where what the path relies on is good."""
    peer, source = run.name_of(case.peer), run.name_of(case.source)
    out = case.source == HOME
    tunnel = next((one.tunnel for one in run.peers if one.id == case.peer), True)
    path = f"tunnel to {peer}" if tunnel else f"network between home and {peer}, which liqod does not carry"
    netcheck, explain = f"`liqodctl netcheck {peer}`", f"`liqodctl explain peer {peer}`"
    kubectl = "`kubectl -n kube-system get pods -o wide`" + ("" if out else f" at {peer}")
    proxy = f"kube-proxy of {source}, or what stands for it"
    match case.way:
        case "pod":
            return path, "a pod is not reached by its address", netcheck
        case "service" if case.target not in (HOME, case.peer):
            other = run.name_of(case.target)
            return f"EndpointSlice of {case.server} at {peer}", f"pods of {other} are not reached from {peer}", explain
        case "service" if out:
            return f"Service {case.subject}; {proxy}", "the pod is reached by its address, by its service not", kubectl
        case "service":
            return f"EndpointSlice of {case.subject} at {peer}", "the pod is reached, by its service not", explain
        case "clusterip":
            cause = "the pod is reached, by the address that its Service has at home not"
            return f"VirtualNode of {peer}, condition HomeServices", cause, explain
        case "dns" | "headless":
            return (
                f"DNS of {source}",
                f"the name {case.subject} does not lead to the pod, its address does",
                ("`kubectl -n kube-system get pods -l k8s-app=kube-dns`" + ("" if out else f" at {peer}")),
            )
        case "nodeport":
            node = f"node {run.node}" if out else f"the nodes of {peer}"
            return f"{proxy}, on {node}", "the service is reached, by the port of a node not", kubectl
        case "ingress":
            show = f"`kubectl describe ingressclass {run.ingress_class}`"
            return f"IngressClass {run.ingress_class}", "the service is reached, by the ingress not", show
        case "api":
            return f"VirtualNode of {peer}, condition HomeAPI", "home's API server is not reached", explain
        case "large":
            return f"MTU of the {path}", "small packets come through, large ones not", netcheck
        case "policy":
            return "NetworkPolicy closed", "a pod that the policy admits is not answered", explain


def _other(run: TestFindings, case: Case) -> str:
    return f"`liqodctl explain peer {run.name_of(case.peer)}`"


def _result(
    run: TestFindings, case: Case, outcome: Outcome, cause: str = "", *, subject: str = "", advice: str = ""
) -> Result:
    way = {"policy": "policy: denied" if case.silence else "policy: allowed"}.get(case.way, case.way)
    return Result(
        peer=run.name_of(case.peer),
        way=way,
        source=run.name_of(case.source),
        target=run.name_of(case.target),
        outcome=outcome,
        subject=subject,
        cause=cause,
        next=advice,
    )
