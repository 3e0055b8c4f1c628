"""``status`` and ``discover``: tables of the peers."""

from __future__ import annotations

from typing import Any

import click

from liqod.cli.console.render import as_text
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster
from liqod.cli.status.browse import browse
from liqod.cli.status.peers import DISCOVER_COLUMNS, STATUS_COLUMNS, discover_rows, status_rows
from liqod.cli.status.whoami import leader, own_cluster
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NODES, PODS, VIRTUALNODES
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Condition, Object, View, find_condition
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode


class NodeStatus(View, frozen=True):
    """The conditions of a node."""

    conditions: list[Condition] = []


class Node(Object, frozen=True):
    """A node with its conditions."""

    status: NodeStatus = NodeStatus()


@click.command()
@cluster_options
def status(options: Options) -> None:
    """Show every peering: its state and reason, and what is offered, lent and used."""
    in_cluster(options, _status)


async def _status(session: Session) -> None:
    rows = await gather(session)
    leads = await leader(session)
    daemon = "no daemon is running"
    if leads is not None:
        daemon = f"daemon {leads.holder}" + ("" if leads.alive else f" last renewed its lease {leads.age:.0f} s ago")
    if session.options.output == "table":
        click.echo(daemon)
        session.show(
            rows, STATUS_COLUMNS, empty="no peers yet; `liqodctl discover` lists the clusters that were discovered"
        )
    else:
        document: dict[str, Any] = {
            "daemon": {"holder": leads.holder, "alive": leads.alive} if leads is not None else None,
            "peers": rows,
        }
        click.echo(as_text(document, session.options.output), nl=False)


async def gather(session: Session) -> list[dict[str, Any]]:
    """Return the rows of the status table."""
    client = session.client
    clusters = (await client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items
    offers = (await client.list(ADVERTISEMENTS, view=Advertisement)).items
    records = (await client.list(VIRTUALNODES, view=VirtualNode)).items
    nodes = (await client.list(NODES, view=Node, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")).items
    ready, pods = {}, {}
    for node in nodes:
        condition = find_condition(node.status.conditions, "Ready")
        ready[node.metadata.name] = condition is not None and condition.status == "True"
        listing = await client.list(PODS, view=Object, fields=f"spec.nodeName={node.metadata.name}")
        pods[node.metadata.name] = len(listing.items)
    return status_rows(clusters, offers, records, ready, pods)


@click.command()
@click.option(
    "--listen", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Also browse by mDNS for so long."
)
@cluster_options
def discover(options: Options, listen: float | None) -> None:
    """List the known clusters with the words of their keys, and how each was discovered."""

    async def work(session: Session) -> None:
        me = await own_cluster(session)
        rows = discover_rows((await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        if listen is not None:
            rows += await browse(session, listen, {me.cluster_id, *(row["id"] for row in rows)})
        if options.output == "table":
            click.echo(f"this cluster: {me.cluster_id}  words: {me.words or '- (no key yet: start the daemon)'}")
        session.show(rows, DISCOVER_COLUMNS, empty="no other cluster was discovered")

    in_cluster(options, work)
