"""``node``: the virtual nodes of peers, and further ones with labels, taints and limits of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import Group
from liqod.cli.console.options import (
    Options,
    cluster_options,
    group_options,
    record_options,
    refuse_watch,
    watch_option,
)
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.peers import brief, find, label
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import FOREIGNCLUSTERS, NODES, VIRTUALNODES
from liqod.model.ids import Key
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects import quantity
from liqod.model.objects.node import Node
from liqod.model.records.views import ForeignCluster, VirtualNode

COLUMNS: Final = {"node": "NODE", "peer": "PEER", "state": "STATE", "limits": "LIMITS", "why": "WHY"}
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@click.group(cls=Group)
@group_options
def node() -> None:
    """Virtual nodes: a peer's own, and further ones that divide what it offers.

    \b
    Example:
      liqodctl node create milan --name gpu --limit nvidia.com/gpu=2
    """


def pairs(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE texts as a dictionary."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        if key in found:
            raise click.BadParameter(f"{key} is given twice")
        found[key] = value
    return found


def amounts(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return RESOURCE=AMOUNT texts as a dictionary of quantities."""
    found = pairs(context, option, given)
    for name, text in found.items():
        try:
            value = quantity.parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}") from None
        if value < 0:
            raise click.BadParameter(f"{name}: {text} is negative")
        found[name] = quantity.render(value, resource=name)
    return found


def taints(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[dict[str, str]]:
    """Return KEY[=VALUE]:EFFECT texts as taints."""
    found = []
    for text in given:
        head, _, effect = text.rpartition(":")
        key, _, value = head.partition("=")
        if not key or effect not in EFFECTS:
            raise click.BadParameter(f"{text!r} is not KEY[=VALUE]:EFFECT, with an effect of {', '.join(EFFECTS)}")
        found.append({"key": key} | ({"value": value} if value else {}) | {"effect": effect})
    return found


@node.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.option("--name", required=True, metavar="NODE", help="Name of the node, and of its VirtualNode.")
@click.option("--label", "labels", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Label; repeatable.")
@click.option("--taint", multiple=True, callback=taints, metavar="KEY[=VALUE]:EFFECT", help="Taint; repeatable.")
@click.option(
    "--limit", multiple=True, callback=amounts, metavar="RESOURCE=AMOUNT", help="The most that it shows; repeatable."
)
@click.option(
    "--node-selector",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="Label of the peer's nodes that its pods need; repeatable.",
)
@record_options
def create(
    options: Options,
    peer: str,
    name: str,
    **given: Any,
) -> None:
    """Make a further virtual node of a peer. Limits are taken from the peer's offer, the oldest node's first.

    \b
    Examples:
      liqodctl node create milan --name small --limit cpu=4 --limit memory=8Gi
      liqodctl node create milan --name gpu --node-selector pool=gpu
    """
    in_cluster(options, lambda session: _create(session, peer, name, given))


async def _create(session: Session, peer: str, name: str, given: Mapping[str, Any]) -> None:
    cluster = find(peer, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    key = Key(session.settings.kubernetes.namespace, name)
    for other in (await session.client.list(VIRTUALNODES, view=VirtualNode)).items:
        is_same = other.metadata.key == key and other.spec.cluster_id == cluster.metadata.name
        if not is_same and (other.metadata.key == key or other.spec.node_name == name):
            raise CliError(
                errors.IN_USE,
                f"the name {name} is taken by the VirtualNode {other.metadata.key}",
                "choose another --name",
            )
    patch = {"nodeSelector": given["node_selector"]} if given["node_selector"] else {}
    parts = {"labels": given["labels"], "taints": given["taint"], "limits": given["limit"], "offloadingPatch": patch}
    spec = {
        "clusterID": cluster.metadata.name,
        "nodeName": name,
        **{part: value for part, value in parts.items() if value},
    }
    try:
        body = {"metadata": {"name": name, "namespace": key.namespace}, "spec": spec}
        await session.client.create(VIRTUALNODES, body, view=None)
    except AlreadyExists:
        # What is named is changed, the rest stays; a dry run prints the record in either case.
        await session.client.patch(VIRTUALNODES, name, {"spec": spec}, key.namespace, view=None)
    session.say(f"{name}: a virtual node of {label(cluster)}; `liqodctl node list` shows its state")
    session.publish({"record": str(key), "node": name, "peer": cluster.metadata.name, "spec": spec})


@node.command("list")
@watch_option
@cluster_options
def list_nodes(options: Options, watch: bool) -> None:
    """List the virtual nodes of all peers, with their limits.

    \b
    Example:
      liqodctl node list
    """
    refuse_watch(options, watch)
    in_cluster(options, lambda session: session.again(watch, partial(_list, session)))


async def _list(session: Session) -> Callable[[], None]:
    peers = (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items
    records = (await session.client.list(VIRTUALNODES, view=VirtualNode)).items
    selected = f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"
    nodes = {one.metadata.name for one in (await session.client.list(NODES, view=Node, labels=selected)).items}
    ordered = sorted(records, key=lambda one: (one.spec.cluster_id, one.is_further, one.spec.node_name))
    known = {one.metadata.name: one for one in peers}
    rows = [row_of(one, known, nodes) for one in ordered]
    return partial(session.show, rows, COLUMNS, empty="there are no virtual nodes")


def row_of(record: VirtualNode, clusters: Mapping[str, ForeignCluster], nodes: set[str]) -> dict[str, Any]:
    """Return the row of a VirtualNode."""
    spec, status = record.spec, record.status
    cluster = clusters.get(spec.cluster_id)
    is_well = status.phase == "Ready"
    return {
        "node": spec.node_name,
        "peer": spec.cluster_id if cluster is None else label(cluster),
        "state": status.phase or "Pending",
        "limits": brief(spec.limits),
        "why": "" if is_well else join_reason(status.reason, status.message),
        "record": str(record.metadata.key),
        "exists": spec.node_name in nodes,
    }


@node.command()
@click.argument("name", metavar="NODE")
@cluster_options
def delete(options: Options, name: str) -> None:
    """Remove a virtual node that was made by `node create`, with its pods; those of other nodes stay.

    \b
    Example:
      liqodctl node delete milan-gpu
    """
    in_cluster(options, lambda session: _delete(session, name))


async def _delete(session: Session, name: str) -> None:
    records = (await session.client.list(VIRTUALNODES, view=VirtualNode)).items
    named = [one for one in records if one.spec.node_name == name]
    # Of two records of one name that which waits for it goes first.
    record = next((one for one in named if one.status.reason == "NodeNameTaken"), next(iter(named), None))
    if record is None:
        raise CliError(
            errors.NO_SUCH_NODE, f"there is no virtual node {name}", "`liqodctl node list` shows those that there are"
        )
    if not record.is_further:
        raise CliError(
            errors.IN_USE,
            f"{name} is the peer's own virtual node, which the daemon makes again",
            f"`liqodctl refuse {record.spec.cluster_id}` removes it",
        )
    meta = record.metadata
    await session.client.delete(VIRTUALNODES, meta.name, meta.namespace, uid=meta.uid)
    session.say(f"{name}: its pods are evicted, then the node is removed")
    session.publish({"record": str(meta.key), "node": name, "state": "deleted"})
