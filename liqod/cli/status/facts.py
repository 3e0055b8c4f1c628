"""Reads the records that the diagnosis needs from the own cluster."""

from __future__ import annotations

from typing import TypeVar

from liqod.cli.console.findings import Finding, Verdict
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session
from liqod.cli.status.reasons import advice_for
from liqod.cli.status.whoami import leader
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    NAMESPACEOFFLOADINGS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NODES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.diagnosis.cluster import DAEMON, ClusterRecords, LeaderFacts, why_not_ready
from liqod.model.diagnosis.problem import PEERINGS, Problem
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode

T = TypeVar("T", bound=Object)


async def cluster_records(session: Session) -> ClusterRecords:
    """Return the records of the own cluster; those of the network are optional, and so are those the user may not see.

    Raises NotFound where liqod is not installed.
    """
    client = session.client
    leads = await leader(session)
    return ClusterRecords(
        leader=LeaderFacts(leads.holder, leads.alive, leads.age) if leads is not None else None,
        peers=(await client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items,
        offers=(await client.list(ADVERTISEMENTS, view=Advertisement)).items,
        virtual_nodes=(await client.list(VIRTUALNODES, view=VirtualNode)).items,
        nodes=(await client.list(NODES, view=Node, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")).items,
        networks=await _if_any(session, NETWORKCONFIGS, NetworkConfig),
        tunnels=await _if_any(session, TUNNELENDPOINTS, TunnelEndpoint),
        tables=await _if_any(session, NATTINGTABLES, NamespaceNattingTable),
        offloadings=await _if_any(session, NAMESPACEOFFLOADINGS, NamespaceOffloading),
    )


async def _if_any(session: Session, resource: Resource, view: type[T]) -> list[T]:
    try:
        return (await session.client.list(resource, view=view)).items
    except (NotFound, Forbidden):
        return []


def advice_of(problem: Problem) -> str:
    """Return what to do about a problem: its own advice, else that of the table of reasons."""
    return problem.advice or advice_for(problem.code, problem.name)


def as_finding(problem: Problem, group: str = "") -> Finding:
    """Return a problem as a line of a report; what is no error is a warning there."""
    text = join_reason(problem.code, problem.cause)
    if problem.topic in (PEERINGS, DAEMON) and not group:
        text = f"{problem.kind} {problem.name}: {text}"
    verdict: Verdict = "bad" if problem.severity == "error" else "warning"
    return Finding(group or problem.topic, verdict, text, advice_of(problem), problem.code)


async def peer_hint(session: Session, peer: str) -> str:
    """Return the reason why a peer is not ready, as the hint of an error."""
    return why_not_ready(await cluster_records(session), peer)
