"""Finds what is wrong with a cluster's peerings, from its records. Pure.

A problem that another one causes is left out: a virtual node is not ready because the network is down, and the network
because this host has no device; then the host is what is wrong. ``examination`` adds what probes find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from liqod.model.diagnosis import access, hops, processes, workloads
from liqod.model.diagnosis.access import AccountFacts, NodeApiFacts, WebhookFacts
from liqod.model.diagnosis.installation import SKEW_WARNING
from liqod.model.diagnosis.problem import DAEMON, PROCESSES, Problem, Severity
from liqod.model.diagnosis.processes import ProcessFacts
from liqod.model.diagnosis.workloads import AskingPod, FullTenant, WaitingPod
from liqod.model.ids import Key
from liqod.model.names import DELETIONS_HELD, advertisement_name
from liqod.model.objects.meta import Condition, find_condition
from liqod.model.objects.node import Node
from liqod.model.records.network import MUCH_LOSS, NetworkConfig, NetworkGateway, TunnelEndpoint
from liqod.model.records.offer import RECLAIMED
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.unpeering import DISTRUSTED
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, ResourceSlice, VirtualNode
from liqod.model.timestamps import parse_rfc3339

_UNPROVEN = ("", "Discovered", "TrustPending", "Connecting")
"""Phases of a peer with which there was no session yet."""
MTU_STEP: Final = 8
"""Bytes to which the MTU of a path is measured (``fabric.agent.probing.health``)."""


@attrs.frozen
class LeaderFacts:
    """The holder of the daemon's lease, and how many seconds ago it renewed that."""

    holder: str
    alive: bool
    age: float


@attrs.frozen(kw_only=True)
class ClusterRecords:
    """The records of one cluster at one moment, and what was tried; None: not looked at.

    ``leader`` None: no daemon ever led, or it released the lease. ``agent`` is the same for the network agents, None
    where there were none; its holder is empty where the last one released the lease. ``read_at`` is by the API server's
    clock. ``unread`` has the kinds, by their plural, that were not read: what is of them is empty for that reason.
    """

    leader: LeaderFacts | None = None
    peers: Sequence[ForeignCluster] = ()
    offers: Sequence[Advertisement] = ()
    virtual_nodes: Sequence[VirtualNode] = ()
    slices: Sequence[ResourceSlice] = ()
    nodes: Sequence[Node] = ()
    networks: Sequence[NetworkConfig] = ()
    tunnels: Sequence[TunnelEndpoint] = ()
    tables: Sequence[NamespaceNattingTable] = ()
    offloadings: Sequence[NamespaceOffloading] = ()
    read_at: datetime | None = None
    processes: Sequence[ProcessFacts] = ()
    agent: LeaderFacts | None = None
    gateways: Sequence[NetworkGateway] = ()
    waiting: Sequence[WaitingPod] | None = None
    asking: Sequence[AskingPod] = ()
    tenants: Sequence[FullTenant] | None = None
    accounts: Sequence[AccountFacts] = ()
    webhook: WebhookFacts | None = None
    node_apis: Sequence[NodeApiFacts] = ()
    unread: frozenset[str] = frozenset()

    @property
    def knows_leader(self) -> bool:
        """Whether it is known who leads, or that nobody does."""
        return "leases" not in self.unread

    @property
    def knows_peers(self) -> bool:
        """Whether it is known which peers there are."""
        return "foreignclusters" not in self.unread

    def node(self, name: str) -> Node | None:
        """Return a node by its name."""
        return next((node for node in self.nodes if node.metadata.name == name), None)

    def virtual_nodes_of(self, peer: str) -> list[VirtualNode]:
        """Return all virtual nodes of a peer: its own first, then further ones by name."""
        found = [record for record in self.virtual_nodes if record.spec.cluster_id == peer]
        return sorted(found, key=lambda record: (record.is_further, record.spec.node_name))

    def node_names_of(self, peer: str) -> list[str]:
        """Return the names of the nodes of all virtual nodes of a peer, in the same order."""
        return [name for record in self.virtual_nodes_of(peer) if (name := record.spec.node_name)]

    def slices_of(self, peer: str) -> list[ResourceSlice]:
        """Return the slices that a peer was asked for, by name."""
        found = [record for record in self.slices if record.spec.provider_cluster_id == peer]
        return sorted(found, key=lambda record: record.metadata.key)

    def offer_of(self, peer: str) -> Advertisement | None:
        """Return the offer of a peer."""
        return next((one for one in self.offers if one.metadata.name == advertisement_name(peer)), None)

    def offloading_of(self, namespace: str) -> NamespaceOffloading | None:
        """Return the NamespaceOffloading of a namespace: the one by the name that counts."""
        return next((one for one in self.offloadings if one.metadata.key == Key(namespace, OFFLOADING)), None)


def name_of(peer: ForeignCluster) -> str:
    """Return a peer's name for people: its cluster name, else its ID."""
    return peer.status.cluster_name or peer.metadata.name


def is_stranger(peer: ForeignCluster) -> bool:
    """Return whether a cluster was only met: nobody here has trusted, or distrusted, it."""
    proven = find_condition(peer.status.conditions, "Authenticated")
    return (
        not peer.spec.fingerprint
        and peer.status.phase in _UNPROVEN
        and DISTRUSTED not in peer.metadata.annotations
        and (proven is None or proven.status != "True")
    )


@attrs.frozen
class _Records:
    """The records that are looked up for each peer, by its cluster ID; nodes and offers by name."""

    networks: Mapping[str, NetworkConfig]
    tunnels: Mapping[str, TunnelEndpoint]
    virtual_nodes: Mapping[str, Sequence[VirtualNode]]
    nodes: Mapping[str, Node]
    offers: Mapping[str, Advertisement]


def _by_peer(facts: ClusterRecords) -> _Records:
    virtual_nodes: dict[str, list[VirtualNode]] = {}
    for record in facts.virtual_nodes:
        virtual_nodes.setdefault(record.spec.cluster_id, []).append(record)
    return _Records(
        networks={one.metadata.name: one for one in facts.networks},
        tunnels={one.metadata.name: one for one in facts.tunnels},
        virtual_nodes=virtual_nodes,
        nodes={one.metadata.name: one for one in facts.nodes},
        offers={one.metadata.name: one for one in facts.offers},
    )


def diagnose(facts: ClusterRecords) -> list[Problem]:
    """Return what is wrong by the records, the worst first, causes instead of what they cause."""
    found = [*(daemon_problems(facts.leader) if facts.knows_leader else ()), *_processes(facts)]
    records = _by_peer(facts)
    for peer in facts.peers:
        found += _of_peer(peer, records)
    found += [*_namespaces(facts), *_workloads(facts)]
    return sorted(found, key=lambda problem: problem.rank)


def problems_of(facts: ClusterRecords, peer: str) -> list[Problem]:
    """Return what is wrong with one peer, with what concerns every peer."""
    only = attrs.evolve(
        facts,
        peers=[one for one in facts.peers if one.metadata.name == peer],
        tables=(),
        offloadings=(),
        processes=[one for one in facts.processes if one.role not in ("node", "names")],
        waiting=None,
        asking=(),
        tenants=None,
        webhook=None,
        node_apis=(),
    )
    # What only warns of a process, such as one that stands by, is no matter of a peer.
    return [one for one in diagnose(only) if one.topic != PROCESSES or one.severity == "error"]


def problems_of_node(facts: ClusterRecords, record: VirtualNode) -> list[Problem]:
    """Return what is wrong with one virtual node: that of its peer, but for what concerns another node of it."""
    found = problems_of(facts, record.spec.cluster_id)
    return [one for one in found if one.kind != "node" or one.name == record.spec.node_name]


def network_problems(facts: ClusterRecords, peer: ForeignCluster) -> list[Problem]:
    """Return what is wrong with the network to a peer, even if a lost session explains it."""
    return list(_network(peer, _by_peer(facts)))


def why_not_ready(facts: ClusterRecords, peer: str) -> str:
    """Return the first error or warning about a peer as "reason: sentence"; empty where there is none."""
    found = [one for one in problems_of(facts, peer) if one.severity != "info"]
    return f"{found[0].code}: {found[0].cause}" if found else ""


def daemon_problems(leader: LeaderFacts | None) -> Iterator[Problem]:
    """Yield what is wrong with the daemon, by its lease."""
    start = "systemctl status liqod; journalctl -u liqod; then systemctl start liqod"
    if leader is None:
        yield Problem(
            code="NoDaemon",
            kind="daemon",
            name="liqod",
            cause="no daemon runs for this cluster: its records are not kept up to date",
            advice=start,
            topic=DAEMON,
        )
    elif not leader.alive:
        yield Problem(
            code="DaemonSilent",
            kind="daemon",
            name=leader.holder,
            cause=f"the daemon renewed its lease {leader.age:.0f} s ago: the records may be out of date since then",
            advice=start,
            topic=DAEMON,
        )


def _processes(facts: ClusterRecords) -> Iterator[Problem]:
    """Yield what is wrong with the processes of the daemon, and with what the API server has of it."""
    leader, agent = facts.leader, facts.agent
    holder, leads = (leader.holder, leader.alive) if leader is not None else ("", False)
    yield from processes.of_processes(facts.processes, holder, leads=leads)
    if agent is not None:
        yield from processes.without_agent(facts.processes, agent.holder, holds=agent.alive)
    for gateway in facts.gateways:
        # Without a peer nobody asks the host for a tunnel.
        if gateway.status.lacking and (facts.networks or facts.tunnels):
            yield Problem(
                code="HostLacks",
                kind="host",
                name=f"the gateway {gateway.status.address}".rstrip(),
                cause=f"it can hold no tunnel: {gateway.status.lacking}",
                severity="warning",
                topic=PROCESSES,
            )
    for account in facts.accounts:
        yield from access.of_account(account)
    if facts.webhook is not None:
        yield from access.of_webhook(facts.webhook)
    yield from access.of_node_apis(facts.node_apis)


def _workloads(facts: ClusterRecords) -> Iterator[Problem]:
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    lenders = {
        record.spec.node_name: names.get(record.spec.cluster_id, record.spec.cluster_id)
        for record in facts.virtual_nodes
    }
    yield from workloads.of_pods(facts.waiting or (), lenders)
    yield from workloads.of_asking_pods(facts.asking)
    yield from workloads.of_tenants(facts.tenants or (), names)


def _of_peer(peer: ForeignCluster, records: _Records) -> list[Problem]:
    if is_stranger(peer):
        return []
    session = [*_session(peer, borrows=peer.metadata.name in records.virtual_nodes), *_clock(peer, records)]
    network = list(_network(peer, records))
    node = list(_node(peer, records))
    away = any(one.severity == "error" for one in session)
    if away:
        # Nothing comes through the tunnel of a peer that is away; a device that is missing here is another matter.
        network = [one for one in network if one.kind == "host"]
    if away or any(one.severity == "error" for one in network):
        node = [one for one in node if one.severity == "info"]
    return [*session, *network, *node]


def _session(peer: ForeignCluster, *, borrows: bool) -> Iterator[Problem]:
    status, name = peer.status, name_of(peer)
    if peer.metadata.deleting:
        yield _about(peer, "Unpeering", status.message or "the peering is being ended", "info")
        return
    if DISTRUSTED in peer.metadata.annotations and not peer.spec.fingerprint:
        advice = f"nothing; `liqodctl trust {name}` if its key is to be trusted again"
        yield _about(peer, "TrustWithdrawn", "its key was distrusted here", "info", advice)
        return
    severity = _SEVERITIES.get(status.phase)
    if severity is not None:
        reason = status.reason or status.phase or "NotContacted"
        if reason == "WaitingForPeerTrust" and borrows:
            yield _trust_ended_there(peer)
            return
        if reason == "WaitingForPeerTrust":
            severity = "warning"
        elif status.phase == "Refused":
            severity = _REFUSALS.get(reason, "warning")
        yield _about(peer, reason, status.message or f"its state is {status.phase or 'not known yet'}", severity)
        return
    if status.phase == "Authenticated" and status.reason == "CannotAdmit":
        yield _about(peer, "CannotAdmit", status.message)
    offer_reason = find_condition(status.conditions, "Accepted")
    if offer_reason is not None and offer_reason.status != "True" and offer_reason.reason in _UNDECIDED:
        yield _about(peer, offer_reason.reason, offer_reason.message, "warning", since=offer_reason)
    if (order := peer.spec.reclaim) is not None:
        cause = f"what was lent to {name} is taken back: its pods here are evicted from {order.by} on"
        yield _about(peer, "Reclaiming", cause, "info", f"`liqodctl reclaim {name} --end` lends again")


def _clock(peer: ForeignCluster, records: _Records) -> Iterator[Problem]:
    """Yield that a peer's clock is ahead: its daemon dates its offers by its start, which was before they came."""
    offer = records.offers.get(advertisement_name(peer.metadata.name))
    received = parse_rfc3339(offer.status.received_at) if offer is not None else None
    if offer is None or received is None:
        return
    ahead = offer.spec.epoch - received.timestamp()
    if ahead >= SKEW_WARNING:
        text = f"its clock is at least {ahead:.0f} s ahead of this cluster's, by the date of its offer"
        yield _about(peer, "PeerClockAhead", text, "warning", "have the clocks of both clusters set by NTP")


def _trust_ended_there(peer: ForeignCluster) -> Problem:
    """Return the problem of a lender that trusted this cluster when a virtual node was made of its offer."""
    name = name_of(peer)
    return _about(
        peer,
        peer.status.reason,
        f"{name} trusted this cluster, and does not any more: what ran there is lost or cannot be seen"
        + (f" ({peer.status.message})" if peer.status.message else ""),
        "error",
        f"ask the administrator of {name}, who says `liqodctl trust` there to trust this cluster again; "
        f"`liqodctl unpeer {name} --dead` here gives it up",
    )


_SEVERITIES: Mapping[str, Severity] = {
    "": "info",
    "Discovered": "info",
    "Connecting": "error",
    "TrustPending": "error",
    "Refused": "error",
    "Suspect": "error",
    "Lost": "error",
}
"""How bad a phase is in which there is no session, or no offer is accepted."""
_REFUSALS: Mapping[str, Severity] = {
    "ClusterIDRepetition": "error",
    "RefusedByUser": "info",
    "PeeringDisabled": "info",
}
"""How bad it is that a peer is refused, or its offer: what an administrator decided is not wrong."""
_UNDECIDED = (
    "DecisionPending",
    "NoRoom",
    "TooExpensive",
    "BorrowingQuotaExceeded",
    "LabelsDoNotMatch",
    "OutsideHours",
    "InvalidOffer",
    "OfferInvalid",
    "Expired",
    "OfferExpired",
)
"""Reasons why an offer is not used that an administrator may want to change."""


def _network(peer: ForeignCluster, records: _Records) -> Iterator[Problem]:
    config = records.networks.get(peer.metadata.name)
    tunnel = records.tunnels.get(peer.metadata.name)
    if config is not None and config.status.phase == "None":
        # This was decided when the peering was made, and is nothing that is wrong.
        found = _about(
            peer, config.status.reason, f"there is no tunnel: {config.status.message}", "info", kind="tunnel"
        )
        yield attrs.evolve(found, hop=hops.AGREEMENT)
        return
    if config is not None and config.status.phase not in ("", "Agreed"):
        waits = config.status.reason in ("", "WaitingForPeer", "Pending")
        message = config.status.message or "the networks are not agreed on yet"
        severity: Severity = "warning" if waits else "error"
        code = config.status.reason or "WaitingForPeer"
        yield attrs.evolve(_about(peer, code, message, severity, kind="tunnel"), hop=hops.AGREEMENT)
        return
    if tunnel is not None:
        yield from _tunnel(peer, tunnel)
        yield from _loss(peer, tunnel)
        yield from _path_mtu(peer, config, tunnel)


_TUNNEL_SEVERITIES: Mapping[tuple[str, str], Severity] = {
    ("Error", ""): "error",
    ("Connecting", "Probing"): "info",
    ("Connected", "FamilyCut"): "warning",
    ("Connected", "SizesLost"): "warning",
}
"""How bad phase and reason of a tunnel are; in the phase Error, with any reason."""


def _tunnel(peer: ForeignCluster, tunnel: TunnelEndpoint) -> Iterator[Problem]:
    status = tunnel.status
    severity = _TUNNEL_SEVERITIES.get((status.phase, "" if status.phase == "Error" else status.reason))
    if severity is None:
        return
    since = find_condition(status.conditions, "Connected")
    if status.reason == "LocalRouteMissing":
        yield local_route_missing(peer, status.message, since.last_transition_time if since is not None else "")
        return
    found = _about(peer, status.reason or "NotReady", status.message, severity, since=since, kind="tunnel")
    yield attrs.evolve(found, hop=hops.of_cut(status.cut))


def _loss(peer: ForeignCluster, tunnel: TunnelEndpoint) -> Iterator[Problem]:
    """Yield that many packets are lost on the way; where none comes back that is what is wrong."""
    loss = MUCH_LOSS.get(tunnel.status.loss)
    if tunnel.status.phase == "Connected" and loss is not None:
        text = f"{loss} of the packets to the peer's gateway are lost"
        yield attrs.evolve(_about(peer, "PacketLoss", text, "warning", kind="tunnel"), hop=hops.GATEWAY)


def _path_mtu(peer: ForeignCluster, config: NetworkConfig | None, tunnel: TunnelEndpoint) -> Iterator[Problem]:
    """Yield that a path takes smaller packets than both ends of the tunnel; it is measured to some bytes."""
    ends = (config.spec.local.mtu, config.status.remote.mtu) if config is not None else ()
    wanted, measured = min(filter(None, ends), default=0), tunnel.status.path_mtu
    if tunnel.status.phase == "Connected" and 0 < measured <= wanted - MTU_STEP:
        found = _about(
            peer,
            "PathMTUReduced",
            f"packets of {wanted} bytes, the MTU of the tunnel, are lost on the path; {measured} bytes pass",
            "warning",
            f"find the router that drops large packets, or set mtu = {measured} under [network] on both sides",
            kind="tunnel",
        )
        yield attrs.evolve(found, hop=hops.SIZES)


def local_route_missing(peer: ForeignCluster, message: str, since: str = "") -> Problem:
    """Return the problem of a gateway's host without the device or a route of the tunnel to a peer."""
    return Problem(
        code="LocalRouteMissing",
        kind="host",
        name="the network of this cluster's gateway",
        cause=message,
        since=since,
        advice="run `liqodctl check` and `liqodctl plan` as root on the gateway's host; its log has the kernel's words",
        peer=peer.metadata.name,
        hop=hops.ROUTE,
    )


def _node(peer: ForeignCluster, records: _Records) -> Iterator[Problem]:
    for record in records.virtual_nodes.get(peer.metadata.name, ()):
        node, status = records.nodes.get(record.spec.node_name), record.status
        ready = find_condition(node.status.conditions, "Ready") if node is not None else None
        name = record.spec.node_name
        if status.phase not in ("", "Ready"):
            cause = status.message or "the virtual node is not ready"
            since = ready if ready is not None and ready.status != "True" else None
            found = _about(peer, status.reason or "NotReady", cause, since=since, kind="node")
            yield attrs.evolve(found, name=name)
        elif node is not None and (ready is None or ready.status != "True"):
            reason, message = (ready.reason, ready.message) if ready is not None else ("NotReady", "")
            found = _about(peer, reason or "NotReady", message or "the node is not ready", since=ready, kind="node")
            yield attrs.evolve(found, name=name)
        reclaimed = find_condition(node.status.conditions, RECLAIMED) if node is not None else None
        if reclaimed is not None and reclaimed.status == "True":
            found = _about(peer, RECLAIMED, reclaimed.message, "warning", since=reclaimed, kind="node")
            yield attrs.evolve(found, name=name)
        held = find_condition(status.conditions, DELETIONS_HELD)
        if held is not None and held.status == "True":
            found = _about(
                peer,
                DELETIONS_HELD,
                f"nothing is deleted there: {held.message}",
                "error",
                f"if it was meant to go: `liqodctl confirm-deletions {name_of(peer)}`",
                since=held,
                kind="node",
            )
            yield attrs.evolve(found, name=name)
        if node is not None and node.spec.unschedulable:
            found = _about(
                peer,
                "Cordoned",
                "no new pods are scheduled on the node",
                "info",
                f"`liqodctl uncordon {name_of(peer)}` ends that",
                kind="node",
            )
            yield attrs.evolve(found, name=name)


def _namespaces(facts: ClusterRecords) -> Iterator[Problem]:
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    for table in facts.tables:
        for namespace, mapping in sorted(table.status.mappings.items()):
            if mapping.phase == "Refused":
                where = names.get(table.metadata.name, table.metadata.name)
                yield Problem(
                    code=mapping.reason or "Refused",
                    kind="namespace",
                    name=namespace,
                    cause=f"{where} refuses it: {mapping.message}",
                    peer=table.metadata.name,
                )
    for one in facts.offloadings:
        phase = one.status.offloading_phase
        if phase in ("NoClusterSelected", "AllFailed", "SomeFailed"):
            severity: Severity = "warning" if phase == "NoClusterSelected" else "error"
            yield Problem(
                code=phase, kind="namespace", name=one.metadata.namespace, cause=one.status.message, severity=severity
            )


def _about(
    peer: ForeignCluster,
    code: str,
    cause: str,
    severity: Severity = "error",
    advice: str = "",
    *,
    since: Condition | None = None,
    kind: str = "peer",
) -> Problem:
    return Problem(
        code=code,
        kind=kind,  # type: ignore[arg-type]
        name=name_of(peer),
        cause=cause,
        severity=severity,
        since=since.last_transition_time if since is not None else "",
        advice=advice,
        peer=peer.metadata.name,
    )


def strangers(peers: Iterable[ForeignCluster]) -> list[ForeignCluster]:
    """Return the clusters in sight that nobody has trusted, by name."""
    return sorted((peer for peer in peers if is_stranger(peer)), key=name_of)
