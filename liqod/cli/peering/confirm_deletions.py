"""``confirm-deletions``: lets what is held at a lender, because it is missing at home, be deleted there."""

from __future__ import annotations

import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, record_options
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.peers import find, label
from liqod.kube.resources import FOREIGNCLUSTERS, VIRTUALNODES
from liqod.model.names import CONFIRM_ANNOTATION, DELETIONS_HELD
from liqod.model.objects.meta import find_condition
from liqod.model.records.views import ForeignCluster, VirtualNode


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@record_options
def confirm_deletions(options: Options, name: str) -> None:
    """Confirm that what is missing here may be deleted at a peer.

    Nothing is deleted there while many objects are missing here that nobody was seen to delete, as after a restored
    backup; `liqodctl status` shows it. If they are to run on, restore them here instead. A confirmation is for the
    objects that are held now, not for later ones.

    \b
    Example:
      liqodctl confirm-deletions milan
    """
    in_cluster(options, lambda session: _confirm(session, name))


async def _confirm(session: Session, name: str) -> None:
    cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
    confirmed = []
    for node in (await session.client.list(VIRTUALNODES, view=VirtualNode)).items:
        observation, meta = node.status.deletions_observation, node.metadata
        if node.spec.cluster_id != cluster.metadata.name or not observation:
            continue
        annotated = {"metadata": {"annotations": {CONFIRM_ANNOTATION: observation}}}
        await session.client.patch(VIRTUALNODES, meta.name, annotated, meta.namespace, view=None)
        held = find_condition(node.status.conditions, DELETIONS_HELD)
        session.say(f"{node.spec.node_name}: confirmed: {held.message if held is not None else observation}")
        confirmed.append({"node": node.spec.node_name, "observation": observation})
    if not confirmed:
        raise CliError(
            errors.NOTHING_HELD,
            f"no deletions at {label(cluster)} wait for a confirmation",
            "`liqodctl status` shows when some do",
        )
    session.publish({"confirmed": confirmed})
