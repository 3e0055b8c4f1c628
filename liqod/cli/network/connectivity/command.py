"""``test``: asks the diagnosis, then runs pods in this cluster and at peers that call each other by all paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import attrs
import click
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.cli.console import complete, errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.progress import Progress
from liqod.cli.console.render import plural
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.network.connectivity.cases import WAYS, TestedPeer, Way, cases
from liqod.cli.network.connectivity.junit import junit
from liqod.cli.network.connectivity.run import TestPlan, TestRun
from liqod.cli.network.connectivity.space import Space
from liqod.cli.network.connectivity.verdicts import Result, results
from liqod.cli.network.images import image_options
from liqod.cli.network.preflight import objection
from liqod.cli.status.cluster_records import advice_of, cluster_records
from liqod.cli.status.peers import find, label
from liqod.flow.clocks import utc_now
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import INGRESSCLASSES, NODES
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of
from liqod.model.names import HOME_API, HOME_SERVICES, INTERNAL_ADDRESS
from liqod.model.objects.meta import find_condition, is_true
from liqod.model.objects.node import Node
from liqod.model.records.network import NO_TUNNEL
from liqod.model.records.views import VirtualNode
from liqod.model.timestamps import rfc3339

COLUMNS: Final = {"peer": "PEER", "way": "PATH", "from": "FROM", "to": "TO", "result": "RESULT"}
WIDE: Final = {**COLUMNS, "object": "OBJECT", "why": "WHY", "next": "NEXT"}
LONGEST_RUN: Final = 3000.0
"""Seconds after which a run is ended: a later run takes what is older than an hour for left over."""
SHOWN_BY: Final[Mapping[Way, str]] = {"api": HOME_API, "clusterip": HOME_SERVICES}
"""The conditions of a virtual node that say whether its pods have a path."""
EXPORTED_LATER: Final = "NotExportedYet"
"""The reason of a path that is made with the first offloaded namespace, which that of the test may be."""
DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"


@attrs.frozen(kw_only=True)
class TestOptions:
    """The command line."""

    peers: tuple[str, ...]
    ways: tuple[Way, ...]
    image: str
    timeout: float
    parallel: int
    ingress_class: str
    keep: bool


@attrs.frozen
class TestReport:
    """The results, and what the diagnosis knows of the peers when some failed."""

    results: Sequence[Result]
    problems: Sequence[dict[str, str]]
    started: str
    seconds: float

    def count(self, outcome: str) -> int:
        """Return how many paths have an outcome."""
        return sum(one.outcome == outcome for one in self.results)

    def as_document(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "started": self.started,
            "seconds": round(self.seconds, 1),
            **{outcome: self.count(outcome) for outcome in ("good", "failed", "skipped")},
            "results": [one.as_row() for one in self.results],
            "problems": list(self.problems),
        }


@click.command()
@click.argument("peers", metavar="[PEER]...", nargs=-1, shell_complete=complete.peers)
@click.option(
    "--only",
    "ways",
    multiple=True,
    type=click.Choice(WAYS),
    metavar="PATH",
    help=f"Only these paths: {', '.join(WAYS)}.",
)
@click.option("--junit", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit's XML to a file.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Pods that are started at a time."
)
@click.option("--ingress-class", default="", metavar="NAME", help="Class for the ingress [the cluster's default].")
@click.option("--keep", is_flag=True, help="Leave the namespace, to look at its pods; the next run deletes it.")
@image_options
@cluster_options
def test(options: Options, *, file: Path | None, **choice: Any) -> None:
    """Test all paths between pods in this cluster and pods at peers; without PEER, at all peers.

    Asks the diagnosis first, and runs no pods at a peer that it knows to be broken. Then pods call each other in both
    directions: by address, service, name, headless service, port of a node, ingress, with large packets; pods at a
    peer call this cluster's API server and its Services; and a NetworkPolicy admits some and not others. What cannot
    be tried is skipped, with the reason. All of it is in one namespace, deleted at the end, and after Ctrl-C.

    \b
    Examples:
      liqodctl test
      liqodctl test milan --junit report.xml
      liqodctl test milan --only dns --image registry.example/busybox
    """
    asked = TestOptions(**{**choice, "ways": cast("tuple[Way, ...]", choice["ways"] or WAYS)})
    report = in_cluster(options, lambda session: _report(session, asked))
    try:
        if file is not None:
            _save(file, report)
    finally:
        # After the file: the reader of the output may have closed it.
        _show(Output(options), report, wide=options.output == "wide")
    failed = [one for one in report.results if one.outcome == "failed"]
    if failed:
        # A path that follows from another is no news.
        first = next((one for one in failed if not one.cause.startswith("follows from")), failed[0])
        text = f"{len(failed)} of {plural(len(report.results), 'path')} failed; first: {first.subject}: {first.cause}"
        raise CliError(errors.TEST_FAILED, text, first.next)


def _save(file: Path, report: TestReport) -> None:
    try:
        file.write_text(junit(report.results, seconds=report.seconds, started=report.started), encoding="utf-8")
    except OSError as error:
        raise CliError(errors.FILE, f"{file} cannot be written: {error.strerror}", "name another file") from None


def _show(output: Output, report: TestReport, *, wide: bool) -> None:
    rows = [one.as_row() for one in report.results]
    output.table(rows, WIDE if wide else COLUMNS)
    for one in report.results:
        if one.outcome != "good" and not wide:
            style = "red" if one.outcome == "failed" else "yellow"
            output.say(f"{one.outcome}: {one.way}, {one.source} to {one.target}: {one.cause}", style)
            if one.outcome == "failed":
                output.say(f"  look at: {one.subject}; next: {one.next}")
    for problem in report.problems:
        output.say(f"{problem['peer']}: {problem['code']}: {problem['cause']}; {problem['advice']}", "yellow")
    counts = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in ("good", "failed", "skipped"))
    output.say(f"{counts}, in {report.seconds:.0f} s", "bold")
    output.publish(report.as_document())


async def _report(session: Session, choice: TestOptions) -> TestReport:
    began, started = session.reactor.seconds(), rfc3339(utc_now())
    facts = await cluster_records(session)
    borrowed = {one.spec.cluster_id for one in facts.virtual_nodes}
    chosen = [find(name, facts.peers) for name in dict.fromkeys(choice.peers)] or [
        one for one in facts.peers if one.metadata.name in borrowed
    ]
    if not chosen:
        raise CliError(errors.TEST_FAILED, "there is no peer to test: nothing is borrowed", "`liqodctl status`")
    names = {one.metadata.name: label(one) for one in chosen}
    refused = {peer: why for peer, name in names.items() if (why := objection(facts, peer, name)) is not None}
    found = [
        Result(
            peer=names[peer],
            way="diagnosis",
            source="home",
            target=names[peer],
            outcome="failed",
            subject=why.subject,
            cause=f"no pods were started: {why.cause}",
            next=why.advice,
        )
        for peer, why in refused.items()
    ]
    sound = [peer for peer in names if peer not in refused]
    if sound:
        found += await _tried(session, facts, choice, {peer: names[peer] for peer in sound})
    problems: list[dict[str, str]] = []
    if sound and any(one.outcome == "failed" for one in found):
        # What was not known at the start may be known now.
        after = await cluster_records(session)
        problems = [
            {"peer": names[peer], "code": one.code, "cause": one.cause, "advice": advice_of(one)}
            for peer in sound
            for one in problems_of(after, peer)
            if one.failing
        ]
    return TestReport(found, problems, started, session.reactor.seconds() - began)


async def _tried(session: Session, facts: ClusterRecords, choice: TestOptions, names: dict[str, str]) -> list[Result]:
    """Run the pods, and return the results."""
    networks = {one.metadata.name: one for one in facts.networks}
    peers = [
        TestedPeer(peer, name, number, tunnel=peer in networks and networks[peer].spec.decision.mode != NO_TUNNEL)
        for number, (peer, name) in enumerate(names.items())
    ]
    node = await _node(session)
    ingress_class = choice.ingress_class or await _ingress_class(session)
    wanted = cases(peers, choice.ways, node=bool(node[1]), ingress=bool(ingress_class))
    plan = TestPlan(
        peers=peers,
        wanted=wanted,
        networks=networks,
        withheld=withheld(facts),
        image=choice.image,
        timeout=choice.timeout,
        parallel=choice.parallel,
        node=node,
        ingress_class=ingress_class if any(one.way == "ingress" for one in wanted) else "",
    )
    with Progress(session.reactor, "the namespace of the test", quiet=session.options.is_document) as progress:
        async with Space(session, choice.keep) as space:
            run = TestRun(session, plan, space.name, progress)
            try:
                await Deferred.fromCoroutine(run.carry_out()).addTimeout(LONGEST_RUN, session.reactor)
            except DeferTimeout:
                hint = "name fewer peers, --only some paths, or more pods at a time with --parallel"
                terminal.echo_wrapped(f"the run was ended after {LONGEST_RUN / 60:g} min: {hint}", "yellow", err=True)
            return results(await run.findings(), wanted)


def withheld(facts: ClusterRecords) -> dict[tuple[Way, str], str]:
    """Return the paths that pods at a peer do not have, as the records say, by path and cluster ID. Pure.

    With several virtual nodes a path is left out when none of those that a pod of the test can be scheduled on has it.
    """
    found: dict[tuple[Way, str], str] = {}
    for peer in dict.fromkeys(record.spec.cluster_id for record in facts.virtual_nodes):
        records = facts.virtual_nodes_of(peer)
        used = [record for record in records if _takes_pods(record, facts.node(record.spec.node_name))] or records
        for way, type_ in SHOWN_BY.items():
            reasons = [_lacking(record, type_) for record in used]
            if all(reasons):
                found[way, peer] = reasons[0]
    return found


def _takes_pods(record: VirtualNode, node: Node | None) -> bool:
    """Return whether a pod without tolerations of its own can be scheduled on a virtual node."""
    if node is None or node.spec.unschedulable or not is_true(node.status.conditions, "Ready"):
        return False
    return all(taint.effect == "PreferNoSchedule" for taint in record.spec.taints)


def _lacking(record: VirtualNode, kind: str) -> str:
    """Return why the pods of a virtual node do not have a path, empty where they have it or it is not known."""
    condition = find_condition(record.status.conditions, kind)
    if condition is None or condition.status != "False" or condition.reason == EXPORTED_LATER:
        return ""
    return f"{condition.reason}: {condition.message}"


async def _node(session: Session) -> tuple[str, str]:
    """Return name and address of a node of this cluster that is ready; empty texts where none is known."""
    try:
        nodes = (await session.client.list(NODES, view=Node)).items
    except Forbidden:
        return "", ""
    for node in sorted(nodes, key=lambda one: one.metadata.name):
        address = next((one.address for one in node.status.addresses if one.type == INTERNAL_ADDRESS), "")
        if not node.virtual and is_true(node.status.conditions, "Ready") and address:
            return node.metadata.name, address
    return "", ""


async def _ingress_class(session: Session) -> str:
    """Return the class that ingresses without one are of, or the only one; empty where none is offered."""
    try:
        classes = (await session.client.list(INGRESSCLASSES)).items
    except (Forbidden, NotFound):
        return ""
    metas = [one["metadata"] for one in classes]
    default = [one for one in metas if (one.get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    chosen = default or (metas if len(metas) == 1 else [])
    return str(chosen[0]["name"]) if chosen else ""
