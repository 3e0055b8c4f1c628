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
from liqod.cli.console import errors
from liqod.cli.console.findings import Finding, Verdict
from liqod.cli.console.render import join_reason
from liqod.cli.console.session import Session
from liqod.cli.status.reasons import advice_for
from liqod.flow.tasks import side_by_side
from liqod.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
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
from liqod.model.diagnosis.installation import Unread
from liqod.model.diagnosis.problem import DAEMON, PEERINGS, PROCESSES, WORKLOADS, Problem
from liqod.model.diagnosis.processes import ProcessLease, processes_of
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import Object
from liqod.model.objects.node import Node
from liqod.model.records.network import NETWORK_LEASE, NetworkConfig, NetworkGateway, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, ResourceSlice, VirtualNode

T = TypeVar("T", bound=Object)
R = TypeVar("R")

DATE_WITHIN: Final = 3.0
"""Seconds in which the API server is to tell its date; after that this host's counts."""
USUAL_DURATION: Final = 15
"""Seconds of a lease that says nothing of its duration."""
BUDGET: Final = 7.0
"""Seconds from the start of a bounded reading, after which whatever is not read yet is left out."""
LEAST: Final = 1.0
"""Seconds that each part of a bounded reading has at least."""
RECORDS_WITHIN: Final = BUDGET - LEAST
"""Seconds that the records have in a bounded reading: what they lead to comes after them."""
MEANT: Final = (Forbidden, NotFound, Unauthorized)
"""What the API server says of records for good: the user may not read them, or liqod is not installed."""


class BoundedReading:
    """Reads parts at the same time; what the API server does not give in time is named as not read, and left out.

    ``error`` is the first failure of those that were named.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.begun = session.reactor.seconds()
        self.unread: list[Unread] = []
        self.error: KubeError | None = None

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return self._session.reactor.seconds() - self.begun

    async def within(
        self,
        about: tuple[str, str],
        reading: Coroutine[Any, Any, R],
        *,
        seconds: float = BUDGET,
        raises: tuple[type[KubeError], ...] = (),
    ) -> R | None:
        """Return what was read; None where it was not given until ``seconds`` after the start, or could not be read.

        ``about`` is its topic and what it is. What is in ``raises`` is raised instead.
        """
        topic, what = about
        waiting = Deferred.fromCoroutine(reading)
        waiting.addTimeout(max(LEAST, seconds - self.passed), self._session.reactor)
        try:
            return await waiting
        except DeferTimeout:
            text = f"{what}: the API server did not answer within {self.passed:.0f} s"
            self.error = self.error or Unreachable(f"it did not answer within {self.passed:.0f} s")
            self.unread.append(Unread(topic, text, "try it again; an API server that is slow has its own trouble"))
        except KubeError as error:
            if isinstance(error, raises):
                raise
            self.error = self.error or error
            shown = errors.from_kube(error, self._session.client.config.server)
            self.unread.append(Unread(topic, f"{what}: {shown.code}: {shown.message}", shown.hint))
        return None


async def cluster_records(session: Session, bounded: BoundedReading | None = None) -> ClusterRecords:
    """Return the records of the own cluster; those of the network are optional, and so are those the user may not see.

    All are read at the same time; with ``bounded`` a kind that is not given in time is left out, and named there.
    Raises NotFound where liqod is not installed, and KubeError where nothing was given.
    """
    asked: list[tuple[Resource, Coroutine[Any, Any, list[Any]]]] = [
        # What everything else is read for comes first, as an API server that is slow gets few requests at once.
        (FOREIGNCLUSTERS, _all(session, FOREIGNCLUSTERS, ForeignCluster)),
        (LEASES, _leases(session)),
        (ADVERTISEMENTS, _all(session, ADVERTISEMENTS, Advertisement)),
        (VIRTUALNODES, _all(session, VIRTUALNODES, VirtualNode)),
        (NODES, _all(session, NODES, Node, f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")),
        (NETWORKCONFIGS, _if_any(session, NETWORKCONFIGS, NetworkConfig)),
        (TUNNELENDPOINTS, _if_any(session, TUNNELENDPOINTS, TunnelEndpoint)),
        (NATTINGTABLES, _if_any(session, NATTINGTABLES, NamespaceNattingTable)),
        (NAMESPACEOFFLOADINGS, _if_any(session, NAMESPACEOFFLOADINGS, NamespaceOffloading)),
        (NETWORKGATEWAYS, _if_any(session, NETWORKGATEWAYS, NetworkGateway)),
        (RESOURCESLICES, _if_any(session, RESOURCESLICES, ResourceSlice)),
    ]
    unread: set[str] = set()

    async def given(resource: Resource, reading: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        if bounded is None:
            return await reading
        topic = PROCESSES if resource == LEASES else PEERINGS
        found = await bounded.within((topic, resource.plural), reading, seconds=RECORDS_WITHIN, raises=MEANT)
        if found is None:
            unread.add(resource.plural)
        return found or []

    reading: list[Coroutine[Any, Any, Any]] = [date(session), *(given(*one) for one in asked)]
    now, *found = await side_by_side(reading)
    if bounded is not None and bounded.error is not None and len(unread) == len(asked):
        raise bounded.error
    peers, leases, offers, virtual_nodes, nodes, networks, tunnels, tables, offloadings, gateways, slices = found
    by_name: dict[str, ProcessLease] = {one.metadata.name: one for one in leases}
    return ClusterRecords(
        leader=leader_of(by_name.get(LEASE), now),
        peers=peers,
        offers=offers,
        virtual_nodes=virtual_nodes,
        slices=slices,
        nodes=nodes,
        networks=networks,
        tunnels=tunnels,
        tables=tables,
        offloadings=offloadings,
        gateways=gateways,
        read_at=now,
        processes=processes_of(leases, now),
        agent=agent_of(by_name.get(NETWORK_LEASE), now),
        unread=frozenset(unread),
    )


async def _all(session: Session, resource: Resource, view: type[T], labels: str = "") -> list[T]:
    return (await session.client.list(resource, view=view, labels=labels)).items


async def _if_any(session: Session, resource: Resource, view: type[T]) -> list[T]:
    try:
        return await _all(session, resource, view)
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
