"""``cordon``, ``uncordon`` and ``drain``: like those of ``kubectl``, for a virtual node or a peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click
from twisted.internet.task import deferLater

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, record_options, timeout_option
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.terminal import echo_wrapped
from liqod.cli.status.peers import find, label
from liqod.kube.errors import ApiError, Conflict, NotFound, Throttled
from liqod.kube.resources import FOREIGNCLUSTERS, NODES, PODS
from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object, View, controller_of, eviction_of, is_of_daemon_set, label_selector
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.views import ForeignCluster

RETRY_INTERVAL: Final = 2.0
"""Seconds between two attempts to evict pods that a PodDisruptionBudget protects; kubectl waits 5 s."""
FORCE_TIMEOUT: Final = 10.0
"""Seconds that pods deleted with grace period 0 may take to disappear."""


class _Status(View, frozen=True):
    phase: str = ""


class _Pod(Object, frozen=True):
    status: _Status = _Status()


@click.command()
@click.argument("name", metavar="NODE|PEER", shell_complete=complete.peers)
@record_options
def cordon(options: Options, name: str) -> None:
    """Mark a virtual node as unschedulable; its pods keep running.

    \b
    Example:
      liqodctl cordon milan
    """
    in_cluster(options, lambda session: _cordon(session, name, unschedulable=True))


@click.command()
@click.argument("name", metavar="NODE|PEER", shell_complete=complete.peers)
@record_options
def uncordon(options: Options, name: str) -> None:
    """Mark a virtual node as schedulable.

    \b
    Example:
      liqodctl uncordon milan
    """
    in_cluster(options, lambda session: _cordon(session, name, unschedulable=False))


async def _cordon(session: Session, name: str, *, unschedulable: bool) -> None:
    nodes = await _set_unschedulable(session, name, unschedulable=unschedulable)
    session.publish({"nodes": nodes, "unschedulable": unschedulable})


@click.command()
@click.argument("name", metavar="NODE|PEER", shell_complete=complete.peers)
@timeout_option(120.0, "How long pods may take to terminate, disruption budgets included.", click.FloatRange(1, 86400))
@click.option("--force", is_flag=True, help="Also pods without a controller; after the timeout, delete without grace.")
@cluster_options
def drain(options: Options, name: str, timeout: float, force: bool) -> None:
    """Drain a virtual node: cordon it, then evict its pods; their controllers re-create them elsewhere.

    Disruption budgets are respected; pods of DaemonSets are kept. The peer need not be connected.

    \b
    Examples:
      liqodctl drain milan
      liqodctl drain milan --force --timeout 60
    """
    in_cluster(options, lambda session: _drain(session, name, timeout, force=force))


async def _set_unschedulable(session: Session, name: str, *, unschedulable: bool) -> list[str]:
    nodes = await _nodes(session, name)
    for node in nodes:
        await session.client.patch(NODES, node, {"spec": {"unschedulable": unschedulable or None}}, view=None)
        session.say(f"{node}: {'cordoned' if unschedulable else 'uncordoned'}")
    return nodes


async def _nodes(session: Session, name: str) -> list[str]:
    """Return the virtual node of this name, or all virtual nodes of the peer of this name. Raises CliError."""
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
            "`liqodctl status` shows the reason; it is created when the peer's offer is accepted",
        )
    return [node.metadata.name for node in found]


async def _drain(session: Session, name: str, timeout: float, *, force: bool) -> None:
    nodes = await _nodes(session, name)
    first = await _pods(session, nodes)
    unowned = [pod for pod in first if controller_of(pod) is None and pod.status.phase not in FINISHED]
    if unowned and not force:
        raise CliError(
            errors.IN_USE,
            f"these pods have no controller that would re-create them: {_listed(unowned)}",
            "delete them, or drain with --force",
        )
    await _set_unschedulable(session, name, unschedulable=True)
    end = session.reactor.seconds() + timeout
    reported: set[str] = set()
    evicted: list[str] = []
    while True:
        left = await _pods(session, nodes)
        if not left:
            break
        if session.reactor.seconds() >= end:
            await _timed_out(session, nodes, left, force=force)
            break
        for pod in left:
            if not pod.metadata.deleting and await _evict(session, pod) and pod.metadata.uid not in reported:
                reported.add(pod.metadata.uid)
                evicted.append(str(pod.metadata.key))
                session.say(f"evicted {pod.metadata.key}")
        await deferLater(session.reactor, min(RETRY_INTERVAL, max(0.1, end - session.reactor.seconds())))
    session.say(f"{', '.join(nodes)}: drained")
    session.publish({"nodes": nodes, "evicted": evicted})


async def _pods(session: Session, nodes: Sequence[str]) -> list[_Pod]:
    """Return the pods to evict: not those of DaemonSets."""
    found: list[_Pod] = []
    for node in nodes:
        found += (await session.client.list(PODS, view=_Pod, fields=f"spec.nodeName={node}")).items
    return [pod for pod in found if not is_of_daemon_set(pod)]


async def _evict(session: Session, pod: Object) -> bool:
    """Request a pod's eviction; returns whether it was granted."""
    meta = pod.metadata
    body = eviction_of(meta)
    try:
        await session.client.create(PODS, body, meta.namespace, name=meta.name, subresource="eviction", view=None)
    except (Throttled, Conflict):
        # 429 is how the eviction API says that a PodDisruptionBudget does not permit it at this time.
        return False
    except NotFound:
        return True
    return True


async def _timed_out(session: Session, nodes: Sequence[str], left: Sequence[_Pod], *, force: bool) -> None:
    """Handle the timeout: with ``force`` delete the pods without grace, else raise CliError."""
    if not force:
        raise CliError(
            errors.TIMED_OUT,
            f"timed out with {len(left)} pods left: {_listed(left)}",
            "a disruption budget protects them, or the peer is disconnected; --force deletes them without it",
        )
    for pod in left:
        try:
            await session.client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=0)
        except ApiError as error:
            echo_wrapped(f"{pod.metadata.key}: {error.message}", err=True)
        else:
            session.say(f"deleted {pod.metadata.key}")
    end = session.reactor.seconds() + FORCE_TIMEOUT
    while remaining := await _pods(session, nodes):
        if session.reactor.seconds() >= end:
            raise CliError(
                errors.TIMED_OUT,
                f"pods are not deleted: {_listed(remaining)}",
                "check their finalizers (kubectl get -o yaml)",
            )
        await deferLater(session.reactor, 0.5)


def _listed(pods: Sequence[Object]) -> str:
    names = sorted(str(pod.metadata.key) for pod in pods)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
