"""``cordon``, ``uncordon`` and ``drain``: what ``kubectl`` does to a node, for a virtual node or the peer behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster
from liqod.cli.status.peers import find, label
from liqod.kube.errors import ApiError, Conflict, NotFound, Throttled
from liqod.kube.resources import FOREIGNCLUSTERS, NODES, PODS
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object, View, eviction_of, label_selector
from liqod.model.records.views import ForeignCluster

AGAIN: Final = 2.0
"""Seconds between two looks at what is still there; pods that a disruption budget keeps are asked for again then."""
FORCED: Final = 10.0
"""Seconds that pods may take to go that are deleted without grace."""


class _Status(View, frozen=True):
    phase: str = ""


class _Pod(Object, frozen=True):
    status: _Status = _Status()


@click.command()
@click.argument("name", metavar="NODE|PEER")
@cluster_options
def cordon(options: Options, name: str) -> None:
    """Let nothing more be scheduled on a virtual node; what runs there goes on running."""
    in_cluster(options, lambda session: _set_unschedulable(session, name, unschedulable=True))


@click.command()
@click.argument("name", metavar="NODE|PEER")
@cluster_options
def uncordon(options: Options, name: str) -> None:
    """Let pods be scheduled on a virtual node again."""
    in_cluster(options, lambda session: _set_unschedulable(session, name, unschedulable=False))


@click.command()
@click.argument("name", metavar="NODE|PEER")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86400),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long pods may take to end, disruption budgets included.",
)
@click.option(
    "--force", is_flag=True, help="Also take pods that nothing re-creates; after the timeout, end all at once."
)
@cluster_options
def drain(options: Options, name: str, timeout: float, force: bool) -> None:
    """Empty a virtual node: cordon it, then evict its pods; their owners make new ones elsewhere.

    Disruption budgets are honoured; pods of DaemonSets stay. The peer need not answer.
    """
    in_cluster(options, lambda session: _drain(session, name, timeout, force=force))


async def _set_unschedulable(session: Session, name: str, *, unschedulable: bool) -> list[str]:
    nodes = await _nodes(session, name)
    for node in nodes:
        await session.client.patch(NODES, node, {"spec": {"unschedulable": unschedulable or None}}, view=None)
        click.echo(f"{node}: {'cordoned' if unschedulable else 'uncordoned'}")
    return nodes


async def _nodes(session: Session, name: str) -> list[str]:
    """Return the names of the virtual nodes meant: the one of that name, or all of the peer."""
    nodes = (await session.client.list(NODES, view=Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")).items
    if any(node.metadata.name == name for node in nodes):
        return [name]
    cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    selected = label_selector({TYPE_LABEL: VIRTUAL_NODE_TYPE, REMOTE_CLUSTER_LABEL: cluster.metadata.name})
    found = (await session.client.list(NODES, view=Object, labels=selected)).items
    if not found:
        raise CliError(
            errors.NO_SUCH_NODE,
            f"there is no virtual node for {label(cluster)}",
            "`liqodctl status` says why; it appears when the offer of the peer is accepted",
        )
    return [node.metadata.name for node in found]


async def _drain(session: Session, name: str, timeout: float, *, force: bool) -> None:
    nodes = await _nodes(session, name)
    first = await _pods(session, nodes)
    unowned = [pod for pod in first if not _controller(pod) and pod.status.phase not in ("Succeeded", "Failed")]
    if unowned and not force:
        raise CliError(
            errors.IN_USE,
            f"nothing would re-create these pods: {_listed(unowned)}",
            "delete them, or drain with --force",
        )
    await _set_unschedulable(session, name, unschedulable=True)
    end = session.reactor.seconds() + timeout
    told: set[str] = set()
    while True:
        left = await _pods(session, nodes)
        if not left:
            break
        if session.reactor.seconds() >= end:
            await _end(session, nodes, left, force=force)
            break
        for pod in left:
            if not pod.metadata.deleting and await _evict(session, pod) and pod.metadata.uid not in told:
                told.add(pod.metadata.uid)
                click.echo(f"evicted {pod.metadata.key}")
        await deferLater(session.reactor, min(AGAIN, max(0.1, end - session.reactor.seconds())))
    click.echo(f"{', '.join(nodes)}: drained")


async def _pods(session: Session, nodes: Sequence[str]) -> list[_Pod]:
    """Return the pods on the nodes that a drain is about; those of DaemonSets would only come back."""
    found: list[_Pod] = []
    for node in nodes:
        found += (await session.client.list(PODS, view=_Pod, fields=f"spec.nodeName={node}")).items
    return [pod for pod in found if _controller(pod) != "DaemonSet"]


def _controller(pod: Object) -> str:
    """Return the kind of what makes a pod anew; empty when nothing does."""
    return next((owner.kind for owner in pod.metadata.owner_references if owner.controller), "")


async def _evict(session: Session, pod: Object) -> bool:
    """Ask for a pod's eviction; tells whether it goes (a disruption budget may keep it for now)."""
    meta = pod.metadata
    body = eviction_of(meta)
    try:
        await session.client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
    except (Throttled, Conflict):
        return False
    except NotFound:
        return True
    return True


async def _end(session: Session, nodes: Sequence[str], left: Sequence[_Pod], *, force: bool) -> None:
    """Do what is left when the time is over: end the pods without grace where that was wanted, else say what stays."""
    if not force:
        raise CliError(
            errors.TIMED_OUT,
            f"{len(left)} pods are still there: {_listed(left)}",
            "a disruption budget may keep them, or the peer does not answer; --force ends them without waiting for it",
        )
    for pod in left:
        try:
            await session.client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=0)
        except ApiError as error:
            click.echo(f"{pod.metadata.key}: {error.message}", err=True)
        else:
            click.echo(f"ended {pod.metadata.key}")
    end = session.reactor.seconds() + FORCED
    while stays := await _pods(session, nodes):
        if session.reactor.seconds() >= end:
            raise CliError(
                errors.TIMED_OUT, f"pods are held: {_listed(stays)}", "look at their finalizers (kubectl get -o yaml)"
            )
        await deferLater(session.reactor, 0.5)


def _listed(pods: Sequence[Object]) -> str:
    names = sorted(str(pod.metadata.key) for pod in pods)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
