"""Finds what is wrong with a cluster's peerings, from its records. Pure.

A problem that another one causes is left out: a virtual node is not ready because the network is down, and the network
because this host has no device; then the host is what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from liqod.model.diagnosis.problem import Problem, Severity
from liqod.model.names import DELETIONS_HELD, advertisement_name
from liqod.model.objects.meta import Condition, find_condition
from liqod.model.objects.node import Node
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.offloading import NamespaceOffloading
from liqod.model.records.unpeering import DISTRUSTED
from liqod.model.records.views import Advertisement, ForeignCluster, NamespaceNattingTable, VirtualNode

_UNPROVEN = ("", "Discovered", "TrustPending", "Connecting")
"""Phases of a peer with which there was no session yet."""


@attrs.frozen
class LeaderFacts:
    """The holder of the daemon's lease, and how many seconds ago it renewed that."""

    holder: str
    alive: bool
    age: float


@attrs.frozen(kw_only=True)
class ClusterFacts:
    """The records of one cluster at one moment; ``leader`` None: no daemon ever led, or it released the lease."""

    leader: LeaderFacts | None = None
    peers: Sequence[ForeignCluster] = ()
    offers: Sequence[Advertisement] = ()
    virtual_nodes: Sequence[VirtualNode] = ()
    nodes: Sequence[Node] = ()
    networks: Sequence[NetworkConfig] = ()
    tunnels: Sequence[TunnelEndpoint] = ()
    tables: Sequence[NamespaceNattingTable] = ()
    offloadings: Sequence[NamespaceOffloading] = ()

    def node(self, name: str) -> Node | None:
        """Return a node by its name."""
        return next((node for node in self.nodes if node.metadata.name == name), None)

    def offer_of(self, peer: str) -> Advertisement | None:
        """Return the offer of a peer."""
        return next((one for one in self.offers if one.metadata.name == advertisement_name(peer)), None)


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


def diagnose(facts: ClusterFacts) -> list[Problem]:
    """Return what is wrong, the worst first, causes instead of what they cause."""
    found = [*_daemon(facts.leader)]
    for peer in facts.peers:
        found += _of_peer(peer, facts)
    found += _namespaces(facts)
    return sorted(found, key=lambda problem: problem.rank)


def problems_of(facts: ClusterFacts, peer: str) -> list[Problem]:
    """Return what is wrong with one peer, with what concerns every peer."""
    return [one for one in diagnose(facts) if one.peer in ("", peer) and one.kind != "namespace"]


def why_not_ready(facts: ClusterFacts, peer: str) -> str:
    """Return the first error or warning about a peer as "reason: sentence"; empty where there is none."""
    found = [one for one in problems_of(facts, peer) if one.severity != "info"]
    return f"{found[0].code}: {found[0].cause}" if found else ""


def _daemon(leader: LeaderFacts | None) -> Iterator[Problem]:
    start = "systemctl status liqod; journalctl -u liqod; then systemctl start liqod"
    if leader is None:
        yield Problem(
            code="NoDaemon",
            kind="daemon",
            name="liqod",
            cause="no daemon runs for this cluster: its records are not kept up to date",
            advice=start,
        )
    elif not leader.alive:
        yield Problem(
            code="DaemonSilent",
            kind="daemon",
            name=leader.holder,
            cause=f"the daemon renewed its lease {leader.age:.0f} s ago: the records may be out of date since then",
            advice=start,
        )


def _of_peer(peer: ForeignCluster, facts: ClusterFacts) -> list[Problem]:
    if is_stranger(peer):
        return []
    session = list(_session(peer))
    network = list(_network(peer, facts))
    node = list(_node(peer, facts))
    away = any(one.severity == "error" for one in session)
    if away:
        # Nothing comes through the tunnel of a peer that is away; a device that is missing here is another matter.
        network = [one for one in network if one.kind == "host"]
    if away or any(one.severity == "error" for one in network):
        node = [one for one in node if one.severity == "info"]
    return [*session, *network, *node]


def _session(peer: ForeignCluster) -> Iterator[Problem]:
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
        if reason == "WaitingForPeerTrust":
            severity = "warning"
        yield _about(peer, reason, status.message or f"its state is {status.phase or 'not known yet'}", severity)
        return
    if status.phase == "Authenticated" and status.reason == "CannotAdmit":
        yield _about(peer, "CannotAdmit", status.message)
    offer_reason = find_condition(status.conditions, "Accepted")
    if offer_reason is not None and offer_reason.status != "True" and offer_reason.reason in _UNDECIDED:
        yield _about(peer, offer_reason.reason, offer_reason.message, "warning", since=offer_reason)


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
_UNDECIDED = (
    "DecisionPending",
    "NoRoom",
    "TooExpensive",
    "LabelsDoNotMatch",
    "OutsideHours",
    "InvalidOffer",
    "OfferInvalid",
    "Expired",
    "OfferExpired",
)
"""Reasons why an offer is not used that an administrator may want to change."""


def _network(peer: ForeignCluster, facts: ClusterFacts) -> Iterator[Problem]:
    config = next((one for one in facts.networks if one.metadata.name == peer.metadata.name), None)
    tunnel = next((one for one in facts.tunnels if one.metadata.name == peer.metadata.name), None)
    if config is not None and config.status.phase == "None":
        # This was decided when the peering was made, and is nothing that is wrong.
        yield _about(peer, config.status.reason, f"there is no tunnel: {config.status.message}", "info", kind="tunnel")
        return
    if config is not None and config.status.phase not in ("", "Agreed"):
        waits = config.status.reason in ("", "WaitingForPeer", "Pending")
        message = config.status.message or "the networks are not agreed on yet"
        yield _about(
            peer, config.status.reason or "WaitingForPeer", message, "warning" if waits else "error", kind="tunnel"
        )
        return
    if tunnel is None or tunnel.status.phase != "Error":
        return
    since = find_condition(tunnel.status.conditions, "Connected")
    if tunnel.status.reason == "LocalRouteMissing":
        advice = (
            "run `liqodctl check` and `liqodctl plan` as root on the gateway's host; its log has the kernel's words"
        )
        yield attrs.evolve(
            _about(peer, "LocalRouteMissing", tunnel.status.message, "error", advice, since=since, kind="host"),
            name="the network of this cluster's gateway",
        )
        return
    yield _about(peer, tunnel.status.reason, tunnel.status.message, "error", since=since, kind="tunnel")


def _node(peer: ForeignCluster, facts: ClusterFacts) -> Iterator[Problem]:
    for record in facts.virtual_nodes:
        if record.spec.cluster_id != peer.metadata.name:
            continue
        node, status = facts.node(record.spec.node_name), record.status
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


def _namespaces(facts: ClusterFacts) -> Iterator[Problem]:
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
