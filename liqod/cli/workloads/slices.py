"""``slice``: amounts of a peer's offer that are asked for by themselves, each with a virtual node of its own."""

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
from liqod.cli.workloads.nodes import amounts, pairs, taints
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import FOREIGNCLUSTERS, RESOURCESLICES, VIRTUALNODES
from liqod.model.ids import Key, is_dns_label
from liqod.model.records.views import DEFAULT_CLASS, ForeignCluster, ResourceSlice, VirtualNode

COLUMNS: Final = {
    "slice": "SLICE",
    "peer": "PEER",
    "class": "CLASS",
    "state": "STATE",
    "asked": "ASKED",
    "has": "HAS",
    "node": "NODE",
    "why": "WHY",
}


@click.group("slice", cls=Group)
@group_options
def slices() -> None:
    """Slices of what peers lend: amounts that are asked for by themselves.

    \b
    Example:
      liqodctl slice create milan --name gpu --amount cpu=4 --amount nvidia.com/gpu=1
    """


@slices.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.option("--name", required=True, metavar="SLICE", help="Name of the slice, and of its node.")
@click.option(
    "--amount",
    required=True,
    multiple=True,
    callback=amounts,
    metavar="RESOURCE=AMOUNT",
    help="How much of a resource; repeatable.",
)
@click.option("--class", "slice_class", default="", metavar="CLASS", help="Class at the peer [default].")
@click.option("--label", "labels", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Label; repeatable.")
@click.option("--taint", multiple=True, callback=taints, metavar="KEY[=VALUE]:EFFECT", help="Taint; repeatable.")
@click.option(
    "--node-selector",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="Label of the peer's nodes that its pods need; repeatable.",
)
@click.option("--no-node", is_flag=True, help="Keep the amount, and show it by no virtual node.")
@record_options
def create(options: Options, peer: str, name: str, **given: Any) -> None:
    """Ask a peer for a slice of what it lends, or change one. The peer grants it, reduces it or refuses it.

    \b
    Examples:
      liqodctl slice create milan --name small --amount cpu=2 --amount memory=4Gi
      liqodctl slice create milan --name gpu --class gpu --amount nvidia.com/gpu=1
    """
    if given["no_node"] and (given["labels"] or given["taint"] or given["node_selector"]):
        raise click.UsageError("--no-node goes with none of --label, --taint and --node-selector.")
    if not is_dns_label(name):
        raise click.UsageError("--name is made of at most 63 lower-case letters, digits and '-', such as milan-gpu.")
    in_cluster(options, lambda session: _create(session, peer, name, given))


async def _create(session: Session, peer: str, name: str, given: Mapping[str, Any]) -> None:
    cluster = find(peer, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    key = Key(session.settings.kubernetes.namespace, name)
    existing = await _refuse_taken(session, key, cluster.metadata.name, wants_node=not given["no_node"])
    patch = {"nodeSelector": given["node_selector"]} if given["node_selector"] else {}
    former = existing.spec.virtual_node if existing is not None else None
    named = former.node_name if former is not None and former.node_name else name
    parts = {"nodeName": named, "labels": given["labels"], "taints": given["taint"], "offloadingPatch": patch}
    node = {part: value for part, value in parts.items() if value}
    spec: dict[str, Any] = {
        "providerClusterID": cluster.metadata.name,
        "class": given["slice_class"] or (existing.spec.slice_class if existing is not None else DEFAULT_CLASS),
        "resources": given["amount"],
    }
    if not given["no_node"]:
        spec["virtualNode"] = node
    try:
        body = {"metadata": {"name": name, "namespace": key.namespace}, "spec": spec}
        await session.client.create(RESOURCESLICES, body, key.namespace, view=None)
    except AlreadyExists:
        # The amount is what is named, all of it; of the node what is named is changed, and the rest stays.
        before = existing.spec.resources if existing is not None else {}
        less: dict[str, Any] = {one: None for one in before if one not in given["amount"]}
        removed: dict[str, Any] = {"virtualNode": None} if given["no_node"] else {}
        change = {**spec, "resources": {**less, **given["amount"]}, **removed}
        await session.client.patch(RESOURCESLICES, name, {"spec": change}, key.namespace, view=None)
    session.say(f"{name}: asked of {label(cluster)}; `liqodctl slice list` shows the answer")
    session.publish({"record": str(key), "slice": name, "peer": cluster.metadata.name, "spec": spec})


async def _refuse_taken(session: Session, key: Key, peer: str, *, wants_node: bool) -> ResourceSlice | None:
    """Raise CliError where the name is another's; return the slice that is to be changed, None for a new one."""
    found = None
    for one in (await session.client.list(RESOURCESLICES, view=ResourceSlice)).items:
        if one.metadata.key == key and one.spec.provider_cluster_id == peer:
            found = one
        elif one.metadata.key == key or (one.metadata.name == key.name and one.spec.provider_cluster_id == peer):
            raise CliError(
                errors.IN_USE,
                f"the name {key.name} is taken by the ResourceSlice {one.metadata.key}",
                "choose another --name",
            )
    if found is not None or not wants_node:
        return found
    for node in (await session.client.list(VIRTUALNODES, view=VirtualNode)).items:
        if node.metadata.key == key or node.spec.node_name == key.name:
            raise CliError(
                errors.IN_USE,
                f"the name {key.name} is taken by the VirtualNode {node.metadata.key}",
                "choose another --name",
            )
    return None


@slices.command("list")
@watch_option
@cluster_options
def list_slices(options: Options, watch: bool) -> None:
    """List slices, with what the peers answered.

    \b
    Example:
      liqodctl slice list
    """
    refuse_watch(options, watch)
    in_cluster(options, lambda session: session.again(watch, partial(_list, session)))


async def _list(session: Session) -> Callable[[], None]:
    peers = {one.metadata.name: one for one in (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items}
    records = (await session.client.list(RESOURCESLICES, view=ResourceSlice)).items
    ordered = sorted(records, key=lambda one: (one.spec.provider_cluster_id, one.metadata.name))
    rows = [row_of(one, peers) for one in ordered]
    return partial(session.show, rows, COLUMNS, empty="no slices were asked for")


def row_of(record: ResourceSlice, clusters: Mapping[str, ForeignCluster]) -> dict[str, Any]:
    """Return the row of a slice."""
    spec, status = record.spec, record.status
    cluster, node = clusters.get(spec.provider_cluster_id), spec.virtual_node
    is_well = status.phase == "Granted" and not status.reason
    return {
        "slice": record.metadata.name,
        "peer": spec.provider_cluster_id if cluster is None else label(cluster),
        "class": spec.slice_class,
        "state": status.phase or "Pending",
        "asked": brief(spec.resources),
        "has": brief(status.resources),
        "node": "" if node is None else node.node_name or record.metadata.name,
        "why": "" if is_well else join_reason(status.reason, status.message),
        "record": str(record.metadata.key),
    }


@slices.command()
@click.argument("name", metavar="SLICE")
@cluster_options
def remove(options: Options, name: str) -> None:
    """Give a slice back, with its node and the pods on it.

    The node is drained first; then the peer has the amount again. Nothing of other slices is touched.

    \b
    Example:
      liqodctl slice remove gpu
    """
    in_cluster(options, lambda session: _remove(session, name))


async def _remove(session: Session, name: str) -> None:
    records = (await session.client.list(RESOURCESLICES, view=ResourceSlice)).items
    named = [one for one in records if name in (one.metadata.name, str(one.metadata.key))]
    if not named:
        raise CliError(errors.NO_SUCH_OBJECT, f"there is no slice {name}", "`liqodctl slice list` shows them")
    if len(named) > 1:
        keys = ", ".join(sorted(str(one.metadata.key) for one in named))
        raise CliError(errors.AMBIGUOUS, f"{name} is the name of several slices: {keys}", "give NAMESPACE/NAME")
    meta = named[0].metadata
    await session.client.delete(RESOURCESLICES, meta.name, meta.namespace, uid=meta.uid)
    session.say(f"{name}: its pods are evicted, its node is removed, and the amount is given back")
    session.publish({"record": str(meta.key), "slice": meta.name, "state": "deleted"})
