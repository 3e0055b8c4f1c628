"""Rows about peers for the tables, and the look-up of a peer by name or ID. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.render import join_reason, printable
from liqod.model.names import advertisement_name
from liqod.model.objects.meta import Condition, find_condition
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode

STATUS_COLUMNS = {
    "name": "PEER",
    "phase": "STATE",
    "why": "WHY",
    "offer": "OFFER",
    "decision": "OUR VERDICT",
    "lent": "LENDING",
    "verdict": "THEIR VERDICT",
    "node": "NODE",
    "api": "API ROUTE",
    "pods": "PODS",
}
DISCOVER_COLUMNS = {
    "name": "PEER",
    "id": "CLUSTER ID",
    "phase": "STATE",
    "trusted": "TRUSTED",
    "words": "FINGERPRINT WORDS",
    "found": "FOUND BY",
    "addresses": "ADDRESSES",
}


def find(wanted: str, clusters: Iterable[ForeignCluster]) -> ForeignCluster:
    """Return the peer with this ID or name. Raises CliError when there is none, or several have the name."""
    known = list(clusters)
    for cluster in known:
        if cluster.metadata.name == wanted:
            return cluster
    named = [cluster for cluster in known if cluster.status.cluster_name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        both = ", ".join(sorted(cluster.metadata.name for cluster in named))
        raise CliError(
            errors.AMBIGUOUS, f"{wanted} is the name of several peers: {both}", "give the cluster ID instead"
        )
    names = ", ".join(sorted(label(cluster) for cluster in known)) or "none yet"
    raise CliError(
        errors.NO_SUCH_PEER,
        f"there is no peer {wanted}; known: {names}",
        "`liqodctl discover` lists the clusters that were discovered",
    )


def label(cluster: ForeignCluster) -> str:
    """Return a peer's name for messages: its cluster name, else its ID."""
    return printable(cluster.status.cluster_name) or cluster.metadata.name


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Return whether a condition is True."""
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"


def why(cluster: ForeignCluster, offer: Advertisement | None) -> str:
    """Return the reason of a peer's state: its own, else that of the first condition that is not True."""
    status = cluster.status
    if status.reason or status.message:
        return join_reason(status.reason, status.message)
    for condition in status.conditions:
        if condition.status != "True" and (condition.reason or condition.message):
            return join_reason(condition.reason, condition.message)
    if offer is not None and offer.status.phase not in ("", "Accepted"):
        return join_reason(offer.status.reason, offer.status.message)
    return ""


def status_rows(
    clusters: Iterable[ForeignCluster],
    offers: Iterable[Advertisement],
    nodes: Iterable[VirtualNode],
    ready_nodes: Mapping[str, bool],
    pods: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Return one row per peer; ``ready_nodes`` and ``pods`` are by node name."""
    offer_of = {offer.metadata.name: offer for offer in offers}
    node_of = {node.spec.cluster_id: node.spec.node_name for node in nodes}
    rows = []
    for cluster in sorted(clusters, key=lambda cluster: (label(cluster), cluster.metadata.name)):
        peer = cluster.metadata.name
        offer = offer_of.get(advertisement_name(peer))
        node = node_of.get(peer, "")
        lent = cluster.status.lent
        rows.append(
            {
                "name": label(cluster),
                "id": peer,
                "phase": cluster.status.phase or "Unknown",
                "why": why(cluster, offer),
                "offer": brief(offer.spec.offer.resources) if offer is not None else "",
                "decision": offer.status.phase or "Pending" if offer is not None else "",
                "lent": brief(lent.resources) if lent is not None else "",
                "verdict": lent.verdict if lent is not None else "",
                "node": _node(node, ready_nodes),
                "api": cluster.status.api,
                "pods": pods.get(node, 0) if node else "",
            }
        )
    return rows


def _node(name: str, ready: Mapping[str, bool]) -> str:
    if not name:
        return ""
    if name not in ready:
        return f"{name} (not created yet)"
    return name if ready[name] else f"{name} (not ready)"


def brief(resources: Mapping[str, str]) -> str:
    """Return CPU, memory and pods, and the number of other resources."""
    first = [f"{name} {resources[name]}" for name in ("cpu", "memory", "pods") if name in resources]
    others = sum(name not in ("cpu", "memory", "pods") for name in resources)
    return ", ".join(first + ([f"and {others} more"] if others else []))


def discover_rows(clusters: Iterable[ForeignCluster]) -> list[dict[str, Any]]:
    """Return one row per peer: identity, how it was discovered, whether it is trusted."""
    rows = []
    for cluster in sorted(clusters, key=lambda cluster: (label(cluster), cluster.metadata.name)):
        endpoints = [*cluster.status.endpoints, *cluster.spec.endpoints]
        rows.append(
            {
                "name": label(cluster),
                "id": cluster.metadata.name,
                "phase": cluster.status.phase or "Unknown",
                "trusted": is_true(cluster.status.conditions, "Authenticated"),
                "words": cluster.status.words,
                "fingerprint": cluster.status.seen_fingerprint,
                "found": sorted({endpoint.source for endpoint in endpoints}),
                "addresses": sorted({endpoint.address for endpoint in endpoints}),
            }
        )
    return rows
