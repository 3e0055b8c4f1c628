"""Reads what a cluster is before an installation, when no daemon has written its facts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from liqod.agent.host.address import own_address
from liqod.cli.console.findings import Finding
from liqod.cli.console.session import Session
from liqod.cli.setup.surroundings.judge import ENFORCE, judge, judge_authorization
from liqod.cli.setup.surroundings.seen import FELIX, Surroundings
from liqod.facts.decide import decide
from liqod.facts.observed import PLACES, ObservedCluster
from liqod.facts.reading import read_places
from liqod.facts.software import real_nodes
from liqod.kube.errors import ApiError, Forbidden, NotFound
from liqod.kube.resources import ACCESS_REVIEWS, NAMESPACES, NODES
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node

NOBODY: Final = "liqod:nobody"
"""A user that no cluster has: it may do something only where everybody may do everything."""


async def surroundings(session: Session) -> AsyncIterator[Finding]:
    """Yield what the cluster is, and what follows for an installation."""
    client = session.client
    try:
        nodes = real_nodes((await client.list(NODES, view=Node)).items)
    except Forbidden:
        nodes = []
    seen = ObservedCluster(
        nodes=nodes,
        objects=await read_places(client, (*PLACES, FELIX)),
        version=await client.version.get(),
        server=client.config.server,
        host=own_address(session.settings.kubelet.node_address, client.config.server),
    )
    found = Surroundings(
        facts=decide(seen, session.settings),
        seen=seen,
        level=await _level(session),
        is_open=await _is_open(session),
    )
    for finding in judge(found, session.settings):
        yield finding


async def open_to_all(session: Session) -> AsyncIterator[Finding]:
    """Yield that nobody's rights are enforced, where it is so: it may have come after the installation."""
    if await _is_open(session):
        yield judge_authorization(is_open=True)


async def _level(session: Session) -> str | None:
    """Return the Pod Security level of liqod's namespace; None where it is not there, or may not be read."""
    try:
        found = await session.client.get(NAMESPACES, session.settings.kubernetes.namespace, view=Object)
    except (NotFound, Forbidden):
        return None
    return found.metadata.labels.get(ENFORCE, "")


async def _is_open(session: Session) -> bool | None:
    """Return whether a user without any right may read all secrets; None where that may not be asked."""
    attributes: Mapping[str, Any] = {"verb": "list", "resource": "secrets", "version": "v1"}
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"user": NOBODY, "resourceAttributes": attributes},
    }
    try:
        answer: dict[str, Any] = await session.client.create(ACCESS_REVIEWS, body)
    except ApiError:
        return None
    return bool((answer.get("status") or {}).get("allowed"))
