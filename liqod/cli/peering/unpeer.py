"""``unpeer``: ends a peering in both directions and reports what was removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from twisted.internet.task import deferLater

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, record_options, timeout_option, yes_option
from liqod.cli.console.render import plural
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.removal_report import REPORT_COLUMNS, FoundObject, objects_of, report_rows
from liqod.cli.peering.token import say_what_is_open
from liqod.cli.status.cluster_records import leader
from liqod.cli.status.peers import find, label
from liqod.kube.errors import NotFound
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from liqod.model.records.unpeering import FINALIZER, MAX_PATIENCE, ORDER, PATIENCE, TOMBSTONES, UnpeeringOrder, read
from liqod.model.records.views import ForeignCluster

GC_TIMEOUT = 15.0
"""Seconds that dependents (network records, leases) may outlive the ForeignCluster."""
OWN_WORK = 130.0
"""Seconds that the own clean-up takes at most, besides the wait for the peer."""


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@click.option("--dead", is_flag=True, help="The peer is gone: do not wait for it.")
@timeout_option(
    PATIENCE, "How long to wait until the peer has released what it borrows.", click.FloatRange(0, MAX_PATIENCE)
)
@yes_option
@record_options
def unpeer(options: Options, name: str, dead: bool, timeout: float, yes: bool) -> None:
    """End a peering: both sides drain their virtual nodes, release what they borrow, and delete each other's records.

    A peer that does not respond in time is notified when it reconnects. Prints what was removed in this cluster.
    Disruption budgets hold for 20 seconds.

    \b
    Examples:
      liqodctl unpeer milan
      liqodctl unpeer milan --dead        it is gone for good
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        peer = ClusterID(cluster.metadata.name)
        lead = await leader(session)
        if FINALIZER in cluster.metadata.finalizers and (lead is None or not lead.alive):
            raise CliError(
                errors.NOT_RUNNING,
                f"no daemon is running that could end the peering with {label(cluster)}",
                "start it (systemctl start liqod), or remove everything with `liqodctl uninstall --force`",
            )
        if not yes:
            session.confirm(f"End the peering with {label(cluster)} ({peer})? Its pods here and ours there end.")
        before = await objects_of(session, peer)
        order = UnpeeringOrder("dead") if dead else UnpeeringOrder("asked", timeout)
        await _order(session, cluster, order)
        session.say(f"ending the peering with {label(cluster)}")
        gone = until(session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, _is_over(cluster))
        patience = order.wait(connected=True) + OWN_WORK
        await session.within(patience, gone, f"the end of the peering with {label(cluster)}")
        rows = await _report(session, peer, before)
        session.show(rows, REPORT_COLUMNS, empty="nothing was left of it")
        left = [row for row in rows if row["state"] == "left"]
        if not options.is_document:
            session.say(f"{plural(len(rows) - len(left), 'object')} removed" + (f", {len(left)} left" if left else ""))
            session.say(await _peer_outcome(session, peer, label(cluster)))
            await say_what_is_open(session)
        if left:
            raise CliError(
                errors.LEFT_BEHIND,
                f"{len(left)} objects of {label(cluster)} are still there",
                "see the daemon's log; delete them with kubectl if they remain",
            )

    in_cluster(options, work)


async def _report(session: Session, peer: ClusterID, before: list[FoundObject]) -> list[dict[str, Any]]:
    """Return the rows of the report; objects that are garbage-collected after the record get time to go."""
    end = session.reactor.seconds() + GC_TIMEOUT
    while True:
        rows = report_rows(before, await objects_of(session, peer))
        if session.reactor.seconds() >= end or all(row["state"] == "removed" for row in rows):
            return rows
        await deferLater(session.reactor, 0.5)


async def _order(session: Session, cluster: ForeignCluster, order: UnpeeringOrder) -> None:
    patch = {"metadata": {"annotations": {ORDER: order.render()}}}
    await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
    await session.client.delete(FOREIGNCLUSTERS, cluster.metadata.name, uid=cluster.metadata.uid)


def _is_over(cluster: ForeignCluster) -> Callable[[ForeignCluster | None], bool]:
    return lambda now: now is None or now.metadata.uid != cluster.metadata.uid


async def _peer_outcome(session: Session, peer: ClusterID, name: str) -> str:
    """Return a sentence about the state of the other side."""
    try:
        notes = await session.client.get(CONFIGMAPS, TOMBSTONES, session.settings.kubernetes.namespace)
    except NotFound:
        return f"{name} has ended it, too"
    note = read((notes.get("data") or {}).get(peer, ""))
    if note is None or note.notified:
        return f"{name} has ended it, too"
    return f"{name} has not confirmed the end; it is notified when it reconnects"
