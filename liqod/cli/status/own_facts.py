"""``facts``: shows what the daemon found out about the own cluster; other commands read the same record."""

from __future__ import annotations

from typing import Any

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Session, in_cluster
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import CLUSTERFACTS
from liqod.model.records.facts import FACTS_NAME, ClusterFacts, Fact

COLUMNS = {"name": "FACT", "state": "STATE", "shown": "VALUE", "why": "SOURCE"}


@click.command()
@cluster_options
def facts(options: Options) -> None:
    """Show what the daemon found out about this cluster, and by which source.

    Settings override what is found; a fact that is not known says which setting names it.

    \b
    Example:
      liqodctl facts -o json
    """

    async def work(session: Session) -> None:
        record = await own_facts(session)
        if record is None:
            raise CliError(
                errors.NOT_RUNNING,
                "the daemon has written no facts of this cluster",
                "start it and try again; `liqodctl check` shows whether it runs",
            )
        session.table([_row(fact) for fact in record.status.facts], COLUMNS, empty="nothing is known yet")
        session.publish(
            [
                {
                    "name": fact.name,
                    "state": fact.state,
                    "values": fact.values,
                    "source": fact.source,
                    "message": fact.message,
                }
                for fact in record.status.facts
            ]
        )

    in_cluster(options, work)


async def own_facts(session: Session) -> ClusterFacts | None:
    """Return the record of the own cluster's facts; None where there is none, or the user may not read it."""
    try:
        return await session.client.get(CLUSTERFACTS, FACTS_NAME, view=ClusterFacts)
    except (NotFound, Forbidden):
        return None


def _row(fact: Fact) -> dict[str, Any]:
    return {
        "name": fact.name,
        "state": fact.state.lower(),
        "shown": ", ".join(fact.values),
        "why": fact.source or fact.message,
    }
