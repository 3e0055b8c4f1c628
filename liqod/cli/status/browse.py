"""Listens to the local network for a while, without the daemon and without announcing anything."""

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
from liqod.model.ids import parse_fingerprint


async def listen_for(session: Session, seconds: float, known: set[str]) -> list[dict[str, Any]]:
    """Return a row for each cluster that announced itself within ``seconds`` and is not known already."""
    if not reactor_is_asyncio(session.reactor):
        raise CliError(errors.DEFECT, "listening needs the asyncio reactor", "run liqodctl as a program of its own")
    found: dict[str, list[Candidate]] = {}

    def see(candidates: tuple[Candidate, ...]) -> None:
        for candidate in candidates:
            if candidate.cluster_id not in known:
                places = found.setdefault(candidate.cluster_id, [])
                if candidate not in places:
                    places.append(candidate)

    # Port 0 announces nothing: this is an ear, not a peer.
    ear = Announcement(cluster_id="", cluster_name="", fingerprint="", port=0)
    only_mdns = schema.Discovery(mdns=True, interfaces=session.settings.discovery.interfaces)
    discovery = Discovery(only_mdns, ear, session.reactor, see)
    discovery.startService()
    try:
        await deferLater(session.reactor, seconds)
    finally:
        await maybeDeferred(discovery.stopService)
    return [row(cluster_id, places) for cluster_id, places in sorted(found.items())]


def row(cluster_id: str, places: list[Candidate]) -> dict[str, Any]:
    """Return the row of a cluster that was only heard; what it says about itself is nothing but a claim."""
    first = places[0]
    try:
        spoken = words(parse_fingerprint(first.fingerprint))
    except ValueError:
        spoken = ""
    return {
        "name": first.cluster_name or cluster_id,
        "id": cluster_id,
        "phase": "Heard",
        "trusted": False,
        "words": f"{spoken} (claimed)" if spoken else "",
        "fingerprint": first.fingerprint,
        "found": sorted({place.source for place in places}),
        "addresses": [
            f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}" for place in places
        ],
    }
