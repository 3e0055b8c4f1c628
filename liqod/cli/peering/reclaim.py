"""``reclaim``: takes back what is lent to a peer, after a notice."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from liqod.cli.console import complete
from liqod.cli.console.options import Options, record_options, wait_options
from liqod.cli.console.render import age, plural
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.peers import find, label
from liqod.flow.clocks import wall_clock
from liqod.hosting.tenants.quota.reclaim_orders import lasts
from liqod.hosting.views import Pod
from liqod.kube.resources import FOREIGNCLUSTERS, PODS
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD, ORIGIN_LABEL
from liqod.model.objects.meta import label_selector
from liqod.model.records.views import ForeignCluster
from liqod.model.timestamps import rfc3339

NOTICE: Final = 600.0
"""Seconds for which a peer's pods run on by default: time to start others elsewhere before."""
LONGEST_NOTICE: Final = 30 * 86400.0
"""The longest notice, in seconds."""
PATIENCE: Final = 1800.0
"""Seconds for which ``--wait`` waits beyond the notice by default."""


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@click.option(
    "--within",
    type=click.FloatRange(0, LONGEST_NOTICE),
    default=NOTICE,
    show_default=True,
    metavar="SECONDS",
    help="How long the peer's pods run on here.",
)
@click.option("--end", is_flag=True, help="Lend to the peer again.")
@wait_options(default=False, seconds=PATIENCE)
@record_options
def reclaim(options: Options, name: str, *, within: float, end: bool, wait: bool, timeout: float) -> None:
    """Take back what is lent to a peer: at once nothing new runs here for it, and after a notice its pods are evicted.

    Disruption budgets hold. The peer's pods fail there as Reclaimed, and their controllers make others elsewhere. The
    peering stays.

    \b
    Examples:
      liqodctl reclaim milan --wait
      liqodctl reclaim milan --within 0        without a notice
      liqodctl reclaim milan --end             lend to it again
    """
    in_cluster(options, lambda session: _reclaim(session, name, None if end else within, timeout if wait else 0))


async def _reclaim(session: Session, name: str, within: float | None, seconds: float) -> None:
    """Write the order, or take it back where ``within`` is None; wait for the pods to go where ``seconds`` is given."""
    cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    peer, by = cluster.metadata.name, ""
    if within is not None:
        by = rfc3339(wall_clock(session.reactor)() + timedelta(seconds=within))
    order = {"spec": {"reclaim": {"by": by} if by else None}}
    await session.client.patch(FOREIGNCLUSTERS, peer, order, view=None)
    pods = await _pods(session, peer)
    if by:
        end = f", in {age(lasts(pods))} if no disruption budget keeps them" if pods else ""
        session.say(f"{label(cluster)}: nothing more is lent; {plural(pods, 'pod')} here, evicted from {by} on{end}")
    else:
        session.say(f"{label(cluster)}: is lent to again")
    if by and seconds:
        session.to_be_waited_for()
        gone = Deferred.fromCoroutine(_gone(session, peer))
        patience = seconds + (within or 0.0)
        await session.within(patience, gone, f"the pods of {label(cluster)} to go", _why_not)
        pods = 0
        session.say(f"{label(cluster)}: nothing of it runs here any more")
    session.publish({"peer": peer, "name": label(cluster), "by": by, "pods": pods})


async def _pods(session: Session, peer: str) -> int:
    """Return how many pods of a peer have not finished here."""
    selected = label_selector({MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD, ORIGIN_LABEL: peer})
    pods = (await session.client.list(PODS, view=Pod, labels=selected)).items
    return sum(not pod.finished for pod in pods)


async def _gone(session: Session, peer: str) -> None:
    while await _pods(session, peer):
        await deferLater(session.reactor, 1.0)


async def _why_not() -> str:
    return "`kubectl get pdb -A` shows disruption budgets that allow no eviction; the daemon goes on meanwhile"
