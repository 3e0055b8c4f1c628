"""What the page shows, as values: from the same records, by the same deciders, as ``status`` and ``explain``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import attrs

from liqod.cli.console.render import join_reason, plural
from liqod.cli.status.cluster_records import advice_of
from liqod.cli.status.explain_other import WELL, explain_peer
from liqod.cli.status.peers import discover_rows, status_rows
from liqod.cli.status.status import NO_PEERS, daemon_line
from liqod.model.diagnosis.cluster import ClusterRecords, diagnose, problems_of
from liqod.model.diagnosis.installation import Unread, unread_problems
from liqod.model.diagnosis.problem import Problem
from liqod.model.names import advertisement_name
from liqod.model.objects import quantity
from liqod.model.objects.meta import Condition
from liqod.model.objects.pod import Pod, pod_requests
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.network import TunnelEndpoint
from liqod.model.records.views import ForeignCluster

Tone = Literal["broken", "attention", "good", "quiet", "stranger"]

TONES: Final[Mapping[Tone, str]] = {
    "broken": "broken",
    "attention": "needs attention",
    "good": "in order",
    "quiet": "not in use",
    "stranger": "not trusted",
}
"""How a peer is, in words; the order is that of the page, the worst first."""
_UNKNOWN: Final = "which peers there are is not known"
SHOWN_PEERS: Final = 200
SHOWN_PODS: Final = 200
SHOWN_MOMENTS: Final = 60


@attrs.frozen(kw_only=True)
class Snapshot:
    """What was read from the cluster at one moment; ``pods`` by virtual node, ``events`` as the API has them.

    A node whose pods were not read is missing in ``pods``; ``unread`` is what the API server did not give.
    """

    home: str
    facts: ClusterRecords
    pods: Mapping[str, Sequence[Pod]] = {}
    events: Sequence[Mapping[str, Any]] = ()
    unread: Sequence[Unread] = ()


@attrs.frozen
class AdviceRow:
    """Something that is wrong and what to do about it."""

    severity: str
    text: str
    advice: str
    since: str


@attrs.frozen
class ResourceUsage:
    """How much of a resource of a virtual node is requested by pods."""

    resource: str
    used: str
    whole: str
    percent: int


@attrs.frozen(kw_only=True)
class PeerRow:
    """One peer as the map and the table show it; ``row`` is the one of ``liqodctl status``."""

    row: Mapping[str, Any]
    tone: Tone
    traffic: str
    shares: Sequence[ResourceUsage]
    next: str

    @property
    def id(self) -> str:
        """The cluster ID, which names its page."""
        return str(self.row["id"])

    @property
    def name(self) -> str:
        """The cluster name, which the peer chose; its ID where it has none."""
        return str(self.row["name"])


@attrs.frozen(kw_only=True)
class Overview:
    """The first page; ``hidden`` is the number of peers that are not shown, ``empty`` what is said without any."""

    home: str
    daemon: str
    summary: str
    peers: Sequence[PeerRow]
    hidden: int
    steps: Sequence[AdviceRow]
    empty: str


@attrs.frozen
class TimelineEntry:
    """An entry of the timeline; ``at`` is RFC 3339."""

    at: str
    what: str
    state: str
    why: str


@attrs.frozen(kw_only=True)
class PeerPage:
    """The page of one peer; ``pods`` None: those of a node of it were not read."""

    home: str
    peer: PeerRow
    details: Sequence[tuple[str, str]]
    steps: Sequence[AdviceRow]
    result: str
    timeline: Sequence[TimelineEntry]
    offers: Sequence[tuple[str, str, str]]
    pods: Sequence[tuple[str, str, str]] | None
    hidden_pods: int


def overview(records: Snapshot) -> Overview:
    """Return the first page."""
    facts = records.facts
    order = list(TONES)
    peers = sorted(_peers(records, facts.peers), key=lambda peer: (order.index(peer.tone), peer.name, peer.id))
    return Overview(
        home=records.home,
        daemon=daemon_line(facts),
        summary=_summary(peers) if facts.knows_peers else _UNKNOWN,
        peers=peers[:SHOWN_PEERS],
        hidden=max(0, len(peers) - SHOWN_PEERS),
        steps=_steps(records, diagnose(facts)),
        empty=NO_PEERS if facts.knows_peers else _UNKNOWN,
    )


def peer_page(records: Snapshot, peer_id: str) -> PeerPage | None:
    """Return the page of the peer with a cluster ID, None where there is no such peer."""
    facts = records.facts
    cluster = next((one for one in facts.peers if one.metadata.name == peer_id), None)
    if cluster is None:
        return None
    (peer,) = _peers(records, [cluster])
    result = explain_peer(facts, cluster)[-1]
    why = "not all was read" if records.unread and result["why"] == WELL else result["why"]
    nodes = facts.node_names_of(peer_id)
    are_known = "nodes" not in facts.unread and all(facts.node(one) is None or one in records.pods for one in nodes)
    pods = sorted((one for node in nodes for one in records.pods.get(node, ())), key=lambda one: one.key)
    shown = [(one.metadata.name, one.metadata.namespace, one.status.phase) for one in pods[:SHOWN_PODS]]
    known = discover_rows([cluster])[0]
    details = {
        "Cluster ID": peer.id,
        "State": peer.row["state"],
        "Fingerprint words": known["words"],
        "Found by": ", ".join(known["found"]),
        "Addresses": ", ".join(known["addresses"]),
        "Virtual node": ", ".join(peer.row["nodes"]),
        "API route": peer.row["api"],
        "Traffic": peer.traffic,
    }
    return PeerPage(
        home=records.home,
        peer=peer,
        details=[(what, str(value)) for what, value in details.items() if value],
        steps=_steps(records, problems_of(facts, peer_id)),
        result=": ".join(filter(None, (result["state"], why))),
        timeline=_timeline(records, cluster)[:SHOWN_MOMENTS],
        offers=_offers(peer.row),
        pods=shown if are_known else None,
        hidden_pods=max(0, len(pods) - SHOWN_PODS) if are_known else 0,
    )


def _steps(records: Snapshot, found: Sequence[Problem]) -> list[AdviceRow]:
    """Return what is wrong, and what was not looked at, as ``status`` does."""
    return [step_of(problem) for problem in (*found, *unread_problems(records.unread))]


def step_of(problem: Problem) -> AdviceRow:
    """Return a problem with the advice that every command gives about it."""
    about = f"{problem.kind} {problem.name}" if problem.name else problem.topic
    text = f"{about}: {join_reason(problem.code, problem.cause)}"
    return AdviceRow(problem.severity, text, advice_of(problem), problem.since)


def _peers(records: Snapshot, clusters: Sequence[ForeignCluster]) -> list[PeerRow]:
    facts = records.facts
    counts = {node: len(pods) for node, pods in records.pods.items()}
    rows = status_rows(attrs.evolve(facts, peers=clusters), counts)
    by_id = {cluster.metadata.name: cluster for cluster in clusters}
    return [_peer(records, by_id[row["id"]], row) for row in rows]


def _peer(records: Snapshot, cluster: ForeignCluster, row: Mapping[str, Any]) -> PeerRow:
    facts, peer = records.facts, cluster.metadata.name
    problems = problems_of(facts, peer)
    tunnel = next((one for one in facts.tunnels if one.metadata.name == peer), None)
    first = next((advice for one in problems if (advice := advice_of(one))), "")
    if row["stranger"]:
        first = explain_peer(facts, cluster)[-1]["why"]
    return PeerRow(
        row=row,
        tone=_tone(row, problems),
        traffic=traffic(tunnel),
        shares=[share for node in facts.node_names_of(peer) for share in _shares(records, node)],
        next=first,
    )


def _tone(row: Mapping[str, Any], problems: Sequence[Problem]) -> Tone:
    if row["stranger"]:
        return "stranger"
    severities = {problem.severity for problem in problems}
    if "error" in severities:
        return "broken"
    if "warning" in severities:
        return "attention"
    return "quiet" if "info" in severities else "good"


def traffic(tunnel: TunnelEndpoint | None) -> str:
    """Return what is known of the packets to a peer: state of the tunnel, round trip, loss; empty without a tunnel."""
    if tunnel is None:
        return ""
    status = tunnel.status
    parts = (
        status.phase or "not measured yet",
        status.rtt and f"round trip {status.rtt}",
        status.loss and f"loss {status.loss}",
        status.path_mtu and f"MTU {status.path_mtu}",
    )
    return ", ".join(str(part) for part in parts if part)


def _shares(records: Snapshot, name: str) -> list[ResourceUsage]:
    node = records.facts.node(name)
    if node is None or name not in records.pods:
        return []
    try:
        whole = quantity.parse_all(node.status.allocatable)
        pods = [pod for pod in records.pods.get(name, ()) if pod.status.phase not in FINISHED]
        used = quantity.add(pod_requests(pod.spec) for pod in pods)
    except ValueError:
        return []
    return [
        ResourceUsage(
            resource,
            quantity.render(used.get(resource, Fraction(0)), resource=resource),
            quantity.render(whole[resource], resource=resource),
            min(100, round(100 * used.get(resource, Fraction(0)) / whole[resource])),
        )
        for resource in ("cpu", "memory", "pods")
        if whole.get(resource)
    ]


def _summary(peers: Sequence[PeerRow]) -> str:
    counts = [(words, sum(peer.tone == tone for peer in peers)) for tone, words in TONES.items()]
    found = ", ".join(f"{count} {words}" for words, count in counts if count)
    return f"{plural(len(peers), 'cluster')}: {found}" if found else "no peers yet"


def _offers(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    offers = [
        ("borrowed from it", row["offer"], f"{row['decision']} by this cluster"),
        ("lent to it", row["lent"], f"{row['verdict'] or 'Offered'}, as it answered"),
    ]
    return [(what, str(resources), verdict) for what, resources, verdict in offers if resources]


def _timeline(records: Snapshot, cluster: ForeignCluster) -> list[TimelineEntry]:
    """Return the changes of a peer's conditions and the events about it, the newest first."""
    facts, peer = records.facts, cluster.metadata.name
    nodes = facts.node_names_of(peer)
    found = list(_of_conditions("peer", cluster.status.conditions))
    for offer in facts.offers:
        if offer.metadata.name == advertisement_name(peer):
            found += _of_conditions("offer", offer.status.conditions)
    for record in facts.virtual_nodes:
        if record.spec.cluster_id == peer:
            found += _of_conditions("virtual node", record.status.conditions)
    for node in facts.nodes:
        if node.metadata.name in nodes:
            found += _of_conditions("node", node.status.conditions)
    for tunnel in facts.tunnels:
        if tunnel.metadata.name == peer:
            found += _of_conditions("tunnel", tunnel.status.conditions)
    for event in records.events:
        about = event.get("involvedObject") or {}
        if about.get("name") == peer:
            at = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or ""
            why = str(event.get("message") or "")
            found.append(TimelineEntry(str(at), "event", str(event.get("reason") or ""), why))
    return sorted(found, key=lambda moment: moment.at, reverse=True)


def _of_conditions(what: str, conditions: Iterable[Condition]) -> Iterable[TimelineEntry]:
    for one in conditions:
        if one.last_transition_time:
            why = join_reason(one.reason, one.message)
            yield TimelineEntry(one.last_transition_time, what, f"{one.type} {one.status}", why)
