"""``facts``: shows what the daemon found out about the own cluster; other commands read the same record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, good, warning
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Session, in_cluster
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import CLUSTERFACTS
from liqod.model.records.facts import (
    API_SERVER,
    API_SERVER_NAMES,
    DAEMON_ADDRESSES,
    DOMAIN,
    FACTS_NAME,
    POD_NETWORKS,
    SERVICE_NETWORKS,
    ClusterFacts,
    Fact,
    fact_of,
    values_of,
)

NEEDED = (POD_NETWORKS, SERVICE_NETWORKS, API_SERVER, DAEMON_ADDRESSES)
"""The facts that other clusters are given, or that networks are chosen by."""
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
        # The daemon's account may list them and get none by name.
        found = await session.client.list(CLUSTERFACTS, view=ClusterFacts)
    except (NotFound, Forbidden):
        return None
    return next((one for one in found.items if one.metadata.name == FACTS_NAME), None)


def fact_findings(record: ClusterFacts | None, url: str, domain: str) -> list[Finding]:
    """Return what is to be said of the facts: what is not known and needed, and what they contradict.

    ``url`` is what borrowers use for the API server, ``domain`` the one of the settings. Without a record there is
    nothing to say.
    """
    if record is None or not record.status.facts:
        return []
    facts = record.status.facts
    found = []
    for name in NEEDED:
        fact = fact_of(facts, name)
        if fact.state == "Unknown":
            hint = fact.message or "the daemon's log says why"
            found.append(warning("Facts", f"{name} of this cluster is not known", hint))
    names = values_of(record, API_SERVER_NAMES)
    host = urlsplit(url).hostname or ""
    if names and host and not _is_named(host, names):
        found.append(
            warning(
                "Facts",
                f"the API server's certificate does not name {host}, where borrowers would reach it",
                "add the name to the certificate, or set api-server-url under [kubernetes] to one that it has",
            )
        )
    if (own := values_of(record, DOMAIN)) and domain not in own:
        text = f"names of this cluster end in {own[0]} ({fact_of(facts, DOMAIN).source}), and the settings say {domain}"
        found.append(
            warning("Facts", text, f'set domain = "{own[0]}" under [cluster], or pods of this cluster miss names')
        )
    return found or [good("Facts", "the daemon knows this cluster's networks and addresses")]


def _is_named(host: str, names: Sequence[str]) -> bool:
    """Return whether a certificate with these names is for a host (RFC 6125: one label for a wildcard)."""
    wildcard = f"*.{host.partition('.')[2]}"
    return any(name.lower() in (host.lower(), wildcard.lower()) for name in names)


def _row(fact: Fact) -> dict[str, Any]:
    return {
        "name": fact.name,
        "state": fact.state.lower(),
        "shown": ", ".join(fact.values),
        "why": fact.source or fact.message,
    }
