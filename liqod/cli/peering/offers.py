"""``accept`` and ``refuse``: the manual decision on a peer's offer."""

from __future__ import annotations

import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, record_options, wait_options
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.status.cluster_records import peer_hint
from liqod.cli.status.peers import brief, find, label
from liqod.kube.errors import NotFound
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.model.names import advertisement_name
from liqod.model.records.views import Advertisement, Decision, ForeignCluster


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@wait_options(default=False, seconds=30)
@record_options
def accept(options: Options, name: str, wait: bool, timeout: float) -> None:
    """Accept a peer's offer: its virtual node is created.

    \b
    Example:
      liqodctl accept milan --wait
    """
    in_cluster(options, lambda session: _decide(session, name, "Accept", "Accepted", timeout if wait else 0))


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@wait_options(default=False, seconds=30)
@record_options
def refuse(options: Options, name: str, wait: bool, timeout: float) -> None:
    """Refuse a peer's offer: its virtual node is drained and removed. Disruption budgets hold for 20 seconds.

    \b
    Example:
      liqodctl refuse milan
    """
    in_cluster(options, lambda session: _decide(session, name, "Refuse", "Refused", timeout if wait else 0))


async def _decide(session: Session, name: str, decision: Decision, phase: str, seconds: float) -> None:
    cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    record = advertisement_name(cluster.metadata.name)
    try:
        offer = await session.client.get(ADVERTISEMENTS, record, view=Advertisement)
    except NotFound:
        raise CliError(
            errors.NO_OFFER,
            f"{label(cluster)} has made no offer yet",
            "`liqodctl status` shows the state of the peering; both sides must trust each other",
        ) from None
    if offer.spec.decision != decision or session.options.dry_run:
        await session.client.patch(ADVERTISEMENTS, record, {"spec": {"decision": decision}}, view=None)
    resources = offer.spec.offer.resources
    session.say(f"{label(cluster)}: {brief(resources) or 'nothing'}: {decision.lower()}")
    final = offer
    if seconds:

        def decided(now: Advertisement | None) -> bool:
            return now is not None and now.status.phase == phase

        waiting = until(session, ADVERTISEMENTS, Advertisement, offer.metadata.key, decided)
        what = f"the offer to be {phase.lower()}"
        await session.within(seconds, waiting, what, lambda: peer_hint(session, cluster.metadata.name))
        final = await session.client.get(ADVERTISEMENTS, record, view=Advertisement)
        session.say(f"{label(cluster)}: {phase} {join_reason(final.status.reason, final.status.message)}".rstrip())
    session.publish(
        {
            "peer": cluster.metadata.name,
            "name": label(cluster),
            "decision": decision,
            "resources": resources,
            "phase": final.status.phase,
            "reason": final.status.reason,
        }
    )
