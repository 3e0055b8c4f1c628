"""Reads the records that the diagnosis needs from the own cluster."""

from __future__ import annotations

import socket
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.agent.account.names import LEASE
from liqod.agent.host.clock_check import server_time
from liqod.cli.console.findings import Finding, Verdict
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session
from liqod.cli.status.reasons import advice_for
from liqod.flow.tasks import side_by_side
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACEOFFLOADINGS,
    NATTINGTABLES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    RESOURCESLICES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts, why_not_ready
from liqod.model.diagnosis.problem import DAEMON, PEERINGS, PROCESSES, WORKLOADS, Problem
from liqod.model.diagnosis.processes import ProcessLease, processes_of
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.network import NETWORK_LEASE, NetworkConfig, NetworkGateway, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, ResourceSlice, VirtualNode

T = TypeVar("T", bound=Object)

DATE_WITHIN: Final = 3.0
"""Seconds in which the API server is to tell its date; after that this host's counts."""
USUAL_DURATION: Final = 15
"""Seconds of a lease that says nothing of its duration."""


async def cluster_records(session: Session) -> ClusterRecords:
    """Return the records of the own cluster; those of the network are optional, and so are those the user may not see.

    All are read at the same time. Raises NotFound where liqod is not installed.
    """
    client = session.client
    reading: list[Coroutine[Any, Any, Any]] = [
        client.list(FOREIGNCLUSTERS, view=ForeignCluster),
        client.list(ADVERTISEMENTS, view=Advertisement),
        client.list(VIRTUALNODES, view=VirtualNode),
        client.list(NODES, view=Node, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"),
        _if_any(session, NETWORKCONFIGS, NetworkConfig),
        _if_any(session, TUNNELENDPOINTS, TunnelEndpoint),
        _if_any(session, NATTINGTABLES, NamespaceNattingTable),
        _if_any(session, NAMESPACEOFFLOADINGS, NamespaceOffloading),
        _if_any(session, NETWORKGATEWAYS, NetworkGateway),
        _if_any(session, RESOURCESLICES, ResourceSlice),
        _leases(session),
        date(session),
    ]
    found = await side_by_side(reading)
    peers, offers, virtual_nodes, nodes, networks, tunnels, tables, offloadings, gateways, slices, leases, now = found
    by_name: dict[str, ProcessLease] = {one.metadata.name: one for one in leases}
    return ClusterRecords(
        leader=leader_of(by_name.get(LEASE), now),
        peers=peers.items,
        offers=offers.items,
        virtual_nodes=virtual_nodes.items,
        slices=slices,
        nodes=nodes.items,
        networks=networks,
        tunnels=tunnels,
        tables=tables,
        offloadings=offloadings,
        gateways=gateways,
        read_at=now,
        processes=processes_of(leases, now),
        agent=agent_of(by_name.get(NETWORK_LEASE), now),
    )


async def _if_any(session: Session, resource: Resource, view: type[T]) -> list[T]:
    try:
        return (await session.client.list(resource, view=view)).items
    except (NotFound, Forbidden):
        return []


async def _leases(session: Session) -> list[ProcessLease]:
    """Return the Leases of the daemon's namespace; of who may not list them, the one by which a daemon leads."""
    client, namespace = session.client, session.settings.kubernetes.namespace
    try:
        return (await client.list(LEASES, namespace, view=ProcessLease)).items
    except Forbidden:
        try:
            return [await client.get(LEASES, LEASE, namespace, view=ProcessLease)]
        except NotFound:
            return []


async def date(session: Session) -> datetime:
    """Return the date, by the API server's clock where that tells it: this host's may be wrong."""
    if not session.options.dry_run:  # What is created in a dry run would be shown.
        asking = Deferred.fromCoroutine(server_time(session.client))
        asking.addTimeout(DATE_WITHIN, session.reactor)
        try:
            found = await asking
        except (KubeError, DeferTimeout):
            found = None
        if found is not None:
            return found
    return datetime.now(UTC)


async def leader(session: Session) -> LeaderFacts | None:
    """Return who leads, judged as in ``status``; None where nobody has the lease."""
    try:
        lease: ProcessLease = await session.client.get(
            LEASES, LEASE, session.settings.kubernetes.namespace, view=ProcessLease
        )
    except NotFound:
        return None
    return leader_of(lease, await date(session))


def is_here(leads: LeaderFacts) -> bool:
    """Return whether it runs on this host: a daemon's name is its host's, a dash and a random number."""
    return leads.holder.rpartition("-")[0] == socket.gethostname()


def leader_of(lease: ProcessLease | None, now: datetime) -> LeaderFacts | None:
    """Return who leads by a lease; None where nobody has it. Pure."""
    age = lease.age(now) if lease is not None else None
    if lease is None or age is None:
        return None
    # Twice the duration: a renewal may be under way, and dates of the API server are of whole seconds.
    return LeaderFacts(
        lease.spec.holder_identity,
        alive=age < 2 * (lease.spec.lease_duration_seconds or USUAL_DURATION),
        age=age,
    )


def agent_of(lease: ProcessLease | None, now: datetime) -> LeaderFacts | None:
    """Return the same of the network agents, where there ever was one: without a holder once it let go. Pure."""
    if lease is None:
        return None
    return leader_of(lease, now) or LeaderFacts("", alive=False, age=0.0)


def advice_of(problem: Problem) -> str:
    """Return what to do about a problem: its own advice, else that of the table of reasons."""
    return problem.advice or advice_for(problem.code, problem.name)


def as_finding(problem: Problem, group: str = "") -> Finding:
    """Return a problem as a line of a report; what is no error is a warning there."""
    text = join_reason(problem.code, problem.cause)
    if problem.topic in (PEERINGS, DAEMON, PROCESSES, WORKLOADS) and problem.name and not group:
        text = f"{problem.kind} {problem.name}: {text}"
    verdict: Verdict = "bad" if problem.severity == "error" else "warning"
    return Finding(group or problem.topic, verdict, text, advice_of(problem), problem.code)


async def peer_hint(session: Session, peer: str) -> str:
    """Return the reason why a peer is not ready, as the hint of an error."""
    return why_not_ready(await cluster_records(session), peer)
