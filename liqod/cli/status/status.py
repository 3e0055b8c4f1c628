"""``status`` and ``discover``: the peers, what is wrong with them, and who else is in sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import click

from liqod.cli.console import complete, errors, terminal
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, refuse_watch, watch_option
from liqod.cli.console.render import join_reason, plural
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.status.browse import browse
from liqod.cli.status.cluster_records import advice_of
from liqod.cli.status.first_screen import FirstScreen, first_screen
from liqod.cli.status.peers import (
    DISCOVER_COLUMNS,
    DISCOVER_WIDE,
    STATUS_COLUMNS,
    STATUS_WIDE,
    discover_rows,
    find,
    label,
    status_rows,
)
from liqod.cli.status.whoami import ClusterIdentity, own_cluster
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.diagnosis.cluster import ClusterRecords, diagnose, problems_of, strangers
from liqod.model.diagnosis.installation import unread_problems
from liqod.model.diagnosis.kubernetes_release import gaps, lender_versions, release_of
from liqod.model.diagnosis.problem import Problem
from liqod.model.diagnosis.processes import LEADERS
from liqod.model.objects.node import Node
from liqod.model.records.views import ForeignCluster

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("-", "")}
TRIED_EVERY = 15
"""Looks of --watch of which one tries what the API server gets through to: that takes it more than to be read."""
NO_PEERS = "no peers yet; `liqodctl discover` lists the clusters that were discovered"
NAMES = 12
"""Strangers whose names are shown; the others are counted."""
PROBLEMS = 20
"""Problems that are shown; the others are counted."""


@click.command()
@click.argument("peer", metavar="[PEER]", default="", shell_complete=complete.peers)
@watch_option
@cluster_options
def status(options: Options, peer: str, watch: bool) -> None:
    """Show every peering: its state, what is borrowed and lent, and what is wrong.

    With PEER, show everything that is known about it.

    \b
    Examples:
      liqodctl status
      liqodctl status milan
      liqodctl status -o wide --watch
    """
    refuse_watch(options, watch)

    async def work(session: Session) -> None:
        looks: list[FirstScreen] = []

        async def read() -> Callable[[], None]:
            if len(looks) % TRIED_EVERY == 0:
                looks[:] = [await first_screen(session)]
            else:
                looks.append((await first_screen(session, tries=False)).with_trials_of(looks[-1]))
            screen = looks[-1]
            if not peer:
                return partial(_show_all, session, screen)
            return partial(_show_peer, session, screen, find_in(screen, peer))

        await session.again(watch, read)

    in_cluster(options, work)


def find_in(screen: FirstScreen, wanted: str) -> ForeignCluster:
    """Return a peer as ``find`` does. Raises CliError also where the peers were not read."""
    if not screen.facts.knows_peers:
        why = next((one for one in screen.unread if one.cause.startswith(FOREIGNCLUSTERS.plural)), None)
        cause, advice = (why.cause, why.advice) if why is not None else ("the peers were not read", "try it again")
        raise CliError(errors.UNREACHABLE, cause, advice)
    return find(wanted, screen.facts.peers)


def _show_all(session: Session, screen: FirstScreen) -> None:
    facts = screen.facts
    rows = status_rows(facts, screen.pods)
    problems = [*diagnose(facts), *unread_problems(screen.unread)]
    session.say(daemon_line(facts))
    show_peers(session, facts, rows)
    show_problems(session, problems)
    leads = facts.leader
    session.publish(
        {
            "daemon": {"holder": leads.holder, "alive": leads.alive} if leads is not None else None,
            "processes": [
                {"process": one.title, "state": "silent" if one.silent else one.state, "renewed": round(one.age)}
                for one in facts.processes
            ],
            "peers": rows,
            "problems": [as_row(problem) for problem in problems],
            "unread": sorted(facts.unread),
        }
    )


def daemon_line(facts: ClusterRecords) -> str:
    """Return who leads and who would take over, in one line; or that this is not known."""
    leads = facts.leader
    waits = [one.host for one in facts.processes if one.is_standing_by and one.role in LEADERS]
    others = f"; standing by: {', '.join(waits)}" if waits else ""
    if leads is None and not facts.knows_leader:
        return "whether a daemon runs is not known"
    if leads is None:
        return f"no daemon is running{others}"
    late = "" if leads.alive else f" last renewed its lease {leads.age:.0f} s ago"
    return f"daemon {leads.holder}{late}{others}"


def show_peers(output: Output, facts: ClusterRecords, rows: Sequence[dict[str, Any]]) -> None:
    """Print the table of peers, and the clusters that nobody has trusted in one line."""
    peered = [row for row in rows if not row["stranger"]]
    met = strangers(facts.peers)
    wide = output.options.output == "wide"
    empty = NO_PEERS if facts.knows_peers else "which peers there are is not known"
    output.table(peered, STATUS_WIDE if wide else STATUS_COLUMNS, beneath=["why"], empty=empty)
    if met:
        names = ", ".join(label(peer) for peer in met[:NAMES])
        more = f" and {len(met) - NAMES} more" if len(met) > NAMES else ""
        verb = "is" if len(met) == 1 else "are"
        output.say(
            f"{plural(len(met), 'other cluster')} in sight {verb} not trusted: {names}{more}; "
            "`liqodctl discover` shows their words, `liqodctl trust NAME` trusts one"
        )


def show_problems(output: Output, problems: Sequence[Problem]) -> None:
    """Print problems for people, the worst first: a mark, the object with the reason, and what to do."""
    if output.options.is_document:
        return
    for problem in problems[:PROBLEMS]:
        mark, style = MARKS[problem.severity]
        since = f" (since {problem.since})" if problem.since else ""
        about = f"{problem.kind} {problem.name}" if problem.name else problem.topic
        text = f"{mark} {about}: {join_reason(problem.code, problem.cause)}{since}"
        terminal.echo_wrapped(text, style, hanging="  ")
        if advice := advice_of(problem):
            terminal.echo_wrapped(advice, indent="    ")
    if len(problems) > PROBLEMS:
        terminal.echo(f"and {len(problems) - PROBLEMS} more; `liqodctl status -o json` has all of them")


def as_row(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain values."""
    return {**attrs.asdict(problem), "advice": advice_of(problem)}


def lacks(nodes: Sequence[Node], peer: str) -> list[str]:
    """Return what the release of Kubernetes of a lender lacks, by the virtual nodes that stand for it. Pure."""
    versions = sorted({version for _, version in lender_versions(nodes, peer)})
    return [f"{one} {gap.text}" for one in versions for gap in gaps(release_of(one), at_lender=True)]


def _show_peer(session: Session, screen: FirstScreen, cluster: ForeignCluster) -> None:
    facts, peer = screen.facts, cluster.metadata.name
    problems = [*problems_of(facts, peer), *unread_problems(screen.unread)]
    (row,) = status_rows(attrs.evolve(facts, peers=[cluster]), {})
    del row["pods"]
    details = {**row, **{key: value for key, value in discover_rows([cluster])[0].items() if key not in row}}
    details["lacks"] = lacks(facts.nodes, peer)
    conditions = [
        {
            "type": one.type,
            "status": one.status,
            "since": one.last_transition_time,
            "why": join_reason(one.reason, one.message),
        }
        for one in cluster.status.conditions
    ]
    summary = "node" if len(row["nodes"]) > 1 else "nodes"
    shown = [
        {"what": key, "value": value}
        for key, value in details.items()
        if key != summary and value not in ("", None, [])
    ]
    session.table(shown, {"what": "WHAT", "value": "VALUE"})
    session.say("")
    columns = {"type": "CONDITION", "status": "STATUS", "since": "SINCE", "why": "WHY"}
    session.table(conditions, columns, beneath=["why"])
    show_problems(session, problems)
    session.publish({**details, "conditions": conditions, "problems": [as_row(problem) for problem in problems]})


@click.command()
@click.option(
    "--listen", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Also browse by mDNS for so long."
)
@watch_option
@cluster_options
def discover(options: Options, listen: float | None, watch: bool) -> None:
    """List the known clusters with the words of their keys, and how each was discovered.

    \b
    Examples:
      liqodctl discover
      liqodctl discover --listen 5        also without the daemon
    """
    refuse_watch(options, watch)

    async def work(session: Session) -> None:
        async def read() -> Callable[[], None]:
            me = await own_cluster(session)
            rows = discover_rows((await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
            if listen is not None:
                rows += await browse(session, listen, {me.cluster_id, *(row["id"] for row in rows)})
            return partial(_show_known, session, me, rows)

        await session.again(watch, read)

    in_cluster(options, work)


def _show_known(session: Session, me: ClusterIdentity, rows: list[dict[str, Any]]) -> None:
    why = me.problem or "no key yet: start the daemon"
    session.say(f"this cluster: {me.cluster_id}  words: {me.words or f'- ({why})'}")
    columns = DISCOVER_WIDE if session.options.output == "wide" else DISCOVER_COLUMNS
    session.show(rows, columns, beneath=["words", "addresses"], empty="no other cluster was discovered")
