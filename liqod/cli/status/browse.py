"""Browses the local network by mDNS without the daemon; announces nothing."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.config import schema
from liqod.discovery.candidate import Announcement, Candidate
from liqod.discovery.service import Discovery
from liqod.flow.aio import reactor_is_asyncio
from liqod.identity.fingerprint_words import words
from liqod.model.host_port import join_address
from liqod.model.ids import parse_fingerprint


async def browse(session: Session, seconds: float, known: set[str]) -> list[dict[str, Any]]:
    """Return a row for each unknown cluster that announces itself within ``seconds``."""
    if not reactor_is_asyncio(session.reactor):
        raise CliError(errors.DEFECT, "mDNS needs the asyncio reactor", "run liqodctl as a separate process")
    found: dict[str, list[Candidate]] = {}

    def on_candidates(candidates: tuple[Candidate, ...]) -> None:
        for candidate in candidates:
            if candidate.cluster_id not in known:
                seen = found.setdefault(candidate.cluster_id, [])
                if candidate not in seen:
                    seen.append(candidate)

    # Port 0 announces nothing.
    silent = Announcement(cluster_id="", cluster_name="", fingerprint="", port=0)
    only_mdns = schema.DiscoverySettings(mdns=True, interfaces=session.settings.discovery.interfaces)
    discovery = Discovery(only_mdns, silent, session.reactor, on_candidates)
    discovery.startService()
    try:
        await deferLater(session.reactor, seconds)
    finally:
        await maybeDeferred(discovery.stopService)
    return [row(cluster_id, seen) for cluster_id, seen in sorted(found.items())]


def row(cluster_id: str, seen: list[Candidate]) -> dict[str, Any]:
    """Return the row of a cluster that is known by mDNS only; everything in it is an unauthenticated claim."""
    first = seen[0]
    try:
        spoken = words(parse_fingerprint(first.fingerprint))
    except ValueError:
        spoken = ""
    return {
        "name": first.cluster_name or cluster_id,
        "id": cluster_id,
        "phase": "Announced",
        "trusted": False,
        "words": f"{spoken} (claimed)" if spoken else "",
        "fingerprint": first.fingerprint,
        "found": sorted({candidate.source for candidate in seen}),
        "addresses": [join_address(candidate.host, candidate.port) for candidate in seen],
    }
