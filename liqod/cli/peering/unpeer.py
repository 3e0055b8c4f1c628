"""``unpeer``: end a peering in both directions, and show what was removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.removal_report import RECEIPT_COLUMNS, Thing, belongings, receipt_rows
from liqod.cli.peering.trust import confirm
from liqod.cli.status.peers import find, label
from liqod.cli.status.whoami import leader
from liqod.kube.errors import NotFound
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from liqod.model.records.unpeering import FINALIZER, MAX_PATIENCE, ORDER, PATIENCE, TOMBSTONES, Order, read
from liqod.model.records.views import ForeignCluster

AFTERWARDS = 15.0
"""Seconds that networks and the like may take to go after the record."""
OWN_WORK = 130.0
"""Seconds that this cluster's own part takes at most, beyond what the peer is waited for."""


@click.command()
@click.argument("name", metavar="NAME|ID")
@click.option("--dead", is_flag=True, help="The peer will not answer: do not wait for it.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, MAX_PATIENCE),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS",
    help="How long the peer may take to hand back what it uses.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def unpeer(options: Options, name: str, dead: bool, timeout: float, yes: bool) -> None:
    """End a peering: both sides empty their nodes, hand back what they use, and forget each other.

    What the peer does not do in time is not waited for; it is told when it comes back. Shows what was removed here.
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        peer = ClusterID(cluster.metadata.name)
        lead = await leader(session)
        if FINALIZER in cluster.metadata.finalizers and (lead is None or not lead.alive):
            raise CliError(
                errors.NOT_RUNNING,
                f"no daemon runs that could end the peering with {label(cluster)}",
                "start it (systemctl start liqod), or remove everything with `liqodctl uninstall --force`",
            )
        if not yes:
            confirm(f"End the peering with {label(cluster)} ({peer})? Its pods here and ours there end.")
        before = await belongings(session, peer)
        order = Order("dead") if dead else Order("asked", timeout)
        await _order(session, cluster, order)
        if options.output == "table":
            click.echo(f"ending the peering with {label(cluster)}")
        gone = until(session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, _is_over(cluster))
        patience = order.wait(connected=True) + OWN_WORK
        await session.within(patience, gone, f"the end of the peering with {label(cluster)}")
        rows = await _receipt(session, peer, before)
        session.show(rows, RECEIPT_COLUMNS, empty="there was nothing of it")
        left = [row for row in rows if row["state"] == "left"]
        if options.output == "table":
            click.echo(f"{len(rows) - len(left)} objects removed" + (f", {len(left)} left" if left else ""))
            click.echo(await _what_it_knows(session, peer, label(cluster)))
        if left:
            raise CliError(
                errors.LEFT_BEHIND,
                f"{len(left)} objects of {label(cluster)} are still there",
                "the daemon's log says why; delete them with kubectl when they do not go by themselves",
            )

    in_cluster(options, work)


async def _receipt(session: Session, peer: ClusterID, before: list[Thing]) -> list[dict[str, Any]]:
    """Return the rows of the receipt; what others remove once the record is gone has a moment for it."""
    end = session.reactor.seconds() + AFTERWARDS
    while True:
        rows = receipt_rows(before, await belongings(session, peer))
        if session.reactor.seconds() >= end or all(row["state"] == "removed" for row in rows):
            return rows
        await deferLater(session.reactor, 0.5)


async def _order(session: Session, cluster: ForeignCluster, order: Order) -> None:
    patch = {"metadata": {"annotations": {ORDER: order.render()}}}
    await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
    await session.client.delete(FOREIGNCLUSTERS, cluster.metadata.name, uid=cluster.metadata.uid)


def _is_over(cluster: ForeignCluster) -> Callable[[ForeignCluster | None], bool]:
    return lambda now: now is None or now.metadata.uid != cluster.metadata.uid


async def _what_it_knows(session: Session, peer: ClusterID, name: str) -> str:
    """Return a sentence about the other side."""
    try:
        notes = await session.client.get(CONFIGMAPS, TOMBSTONES, session.settings.kubernetes.namespace)
    except NotFound:
        return f"{name} knows, and did the same"
    note = read((notes.get("data") or {}).get(peer, ""))
    if note is None or note.told:
        return f"{name} knows, and did the same"
    return f"{name} did not say that it is done: it is told when it comes back"
