"""Rows about peers for the tables, and the look-up of a peer by name or ID. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import did_you_mean
from liqod.cli.console.render import join_reason, printable
from liqod.model.diagnosis.cluster import ClusterRecords, diagnose, is_stranger
from liqod.model.diagnosis.problem import Problem
from liqod.model.objects import quantity
from liqod.model.objects.meta import find_condition, is_true
from liqod.model.objects.node import Node
from liqod.model.records.network import DIRECT, NO_TUNNEL, UNDECIDED, Decision
from liqod.model.records.views import ForeignCluster, ResourceSlice

STATUS_COLUMNS = {
    "name": "PEER",
    "state": "STATE",
    "borrowing": "BORROWING",
    "lending": "LENDING",
    "node": "NODE",
    "pods": "PODS",
}
STATUS_WIDE = {
    "name": "PEER",
    "id": "CLUSTER ID",
    "state": "STATE",
    "offer": "OFFER",
    "decision": "OUR VERDICT",
    "lent": "LENDING",
    "verdict": "THEIR VERDICT",
    "nodes": "NODES",
    "slices": "SLICES",
    "api": "API ROUTE",
    "tunnel": "TUNNEL",
    "pods": "PODS",
    "why": "WHY",
}
DISCOVER_COLUMNS = {
    "name": "PEER",
    "phase": "STATE",
    "trusted": "TRUSTED",
    "found": "FOUND BY",
    "words": "FINGERPRINT WORDS",
}
DISCOVER_WIDE = {
    "name": "PEER",
    "id": "CLUSTER ID",
    "phase": "STATE",
    "trusted": "TRUSTED",
    "words": "FINGERPRINT WORDS",
    "found": "FOUND BY",
    "since": "SINCE",
    "addresses": "ADDRESSES",
}


WELL = ("Ready", "Accepted", "Authenticated")
"""Phases with a session, of which the phase alone says nothing bad."""
_WITH_SESSION = (*WELL, "Offered", "Refused")


def is_connected(cluster: ForeignCluster) -> bool:
    """Return whether there is a session with a trusted peer; one that is away is trusted nevertheless.

    The phase ``Refused`` is that of an offer in a session, or of a key that is not the peer's: then trust is False.
    """
    return cluster.status.phase in _WITH_SESSION and is_true(cluster.status.conditions, "Authenticated")


def find(wanted: str, clusters: Iterable[ForeignCluster]) -> ForeignCluster:
    """Return the peer with this ID or name, or with the ID alone for ``id:ID``.

    Raises CliError when there is none, or several: a cluster chooses its ID and its name, so that a stranger can have
    the name of a peer as its ID.
    """
    known = list(clusters)
    id_only = wanted.removeprefix("id:") if wanted.startswith("id:") else None
    if id_only is None:
        found = [cluster for cluster in known if wanted in (cluster.metadata.name, cluster.status.cluster_name)]
    else:
        found = [cluster for cluster in known if cluster.metadata.name == id_only]
    if len(found) == 1:
        return found[0]
    if found:
        both = ", ".join(sorted(cluster.metadata.name for cluster in found))
        raise CliError(
            errors.AMBIGUOUS,
            f"{printable(wanted)[:80]} is the name or the ID of several peers: {both}",
            f"give id:ID instead, such as id:{found[0].metadata.name}",
        )
    names = sorted(label(cluster) for cluster in known)
    close = did_you_mean(wanted, [*names, *(cluster.metadata.name for cluster in known)])
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    known_names = f"; known: {shown or 'none yet'}"
    raise CliError(
        errors.NO_SUCH_PEER,
        f"there is no peer {printable(wanted)[:80]}{close or known_names}",
        "`liqodctl discover` lists the clusters that were discovered",
    )


def label(cluster: ForeignCluster) -> str:
    """Return a peer's name for messages: its cluster name, else its ID."""
    return printable(cluster.status.cluster_name) or cluster.metadata.name


def why(cluster: ForeignCluster, problems: Sequence[Problem]) -> str:
    """Return the reason of a peer's state: the worst of its problems, else the state's own.

    A stranger has no problems: its first condition that is not True says whose turn it is.
    """
    status = cluster.status
    if problems and problems[0].failing:
        return join_reason(problems[0].code, problems[0].cause)
    if status.reason or status.message:
        return join_reason(status.reason, status.message)
    if is_stranger(cluster):
        for condition in status.conditions:
            if condition.status != "True" and (condition.reason or condition.message):
                return join_reason(condition.reason, condition.message)
    return ""


def status_rows(facts: ClusterRecords, pods: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return one row per peer; ``pods`` is by node name."""
    problems: dict[str, list[Problem]] = {}
    for problem in diagnose(facts):
        if problem.kind != "namespace":
            problems.setdefault(problem.peer, []).append(problem)
    return [
        _status_row(cluster, facts, problems.get(cluster.metadata.name, []), pods) for cluster in _sorted(facts.peers)
    ]


def _sorted(clusters: Iterable[ForeignCluster]) -> list[ForeignCluster]:
    return sorted(clusters, key=lambda cluster: (label(cluster), cluster.metadata.name))


def _status_row(
    cluster: ForeignCluster, facts: ClusterRecords, problems: Sequence[Problem], pods: Mapping[str, int]
) -> dict[str, Any]:
    peer = cluster.metadata.name
    offer, lent = facts.offer_of(peer), cluster.status.lent
    nodes = {name: facts.node(name) for name in facts.node_names_of(peer)}
    are_read = "nodes" not in facts.unread
    shown = {name: _node(name, node) if are_read else f"{name} (not read)" for name, node in nodes.items()}
    phase = cluster.status.phase or "Unknown"
    cordoned = [node is not None and node.spec.unschedulable for node in nodes.values()]
    schedulable = "" if not any(cordoned) else "cordoned" if all(cordoned) else "partly cordoned"
    offered = brief(offer.spec.offer.resources) if offer is not None else ""
    decision = offer.status.phase or "Pending" if offer is not None else ""
    lending = brief(lent.resources) if lent is not None else ""
    answer = "Reclaimed" if cluster.spec.reclaim is not None else lent.verdict or "Offered" if lent is not None else ""
    return {
        "name": label(cluster),
        "id": peer,
        "phase": phase,
        "state": ",".join([phase, *_remarks(phase, problems), *filter(None, [schedulable])]),
        "why": why(cluster, problems),
        "offer": offered,
        "decision": decision,
        "borrowing": _share(short(offer.spec.offer.resources) if offer is not None else "", decision),
        "lent": lending,
        "verdict": lent.verdict if lent is not None else "",
        "lending": _share(short(lent.resources), answer) if lent is not None else "",
        "node": _node_of_all(shown),
        "nodes": list(shown.values()),
        "slices": [_slice(record) for record in facts.slices_of(peer)],
        "cordoned": any(cordoned),
        "api": cluster.status.api,
        "tunnel": _tunnel(peer, facts),
        "pods": _counted(nodes, pods) if are_read else "",
        "stranger": is_stranger(cluster),
    }


def _counted(nodes: Mapping[str, Node | None], pods: Mapping[str, int]) -> int | str:
    """Return the number of pods on nodes; empty without a node, and where one could not be counted."""
    found = [pods.get(name) for name, node in nodes.items() if node is not None]
    return sum(one for one in found if one is not None) if nodes and None not in found else ""


def _remarks(phase: str, problems: Sequence[Problem]) -> list[str]:
    """Return what is to be said beside a phase that sounds well, so that nobody takes it for the whole answer."""
    return ["degraded"] if phase in WELL and any(one.failing for one in problems) else []


def _tunnel(peer: str, facts: ClusterRecords) -> str:
    """Return the state of the tunnel to a peer, or that there is none, with the reason of that decision."""
    tunnel = next((one.status for one in facts.tunnels if one.metadata.name == peer), None)
    if tunnel is not None:
        return "; ".join([" ".join(filter(None, (tunnel.phase, tunnel.rtt))), *_directly(peer, facts)])
    decision = next((one.spec.decision for one in facts.networks if one.metadata.name == peer), Decision())
    if decision.mode == NO_TUNNEL:
        return f"none ({decision.reason})"
    return "not decided yet" if decision.mode == UNDECIDED else ""


def _directly(peer: str, facts: ClusterRecords) -> list[str]:
    """Return to which other lenders our pods at a lender have a direct way, and why they have none to others."""
    others = next((one.status.others for one in facts.networks if one.metadata.name == peer), [])
    named = {cluster.metadata.name: label(cluster) for cluster in facts.peers}
    return [
        f"{'direct' if one.phase == DIRECT else 'by home'} to {named.get(one.peer, one.peer)}"
        + ("" if one.phase == DIRECT else f" ({one.reason})")
        for one in others
    ]


def _share(resources: str, verdict: str) -> str:
    """Return resources with the verdict on them, which is left out where they are in use."""
    return (
        resources
        if verdict == "Accepted"
        else " ".join(filter(None, (verdict.lower(), resources and f"({resources})")))
    )


def _node_of_all(shown: Mapping[str, str]) -> str:
    """Return the first node that is not ready, else the first one, and how many others there are."""
    first = next((text for name, text in shown.items() if text != name), next(iter(shown.values()), ""))
    return f"{first} (+{len(shown) - 1})" if len(shown) > 1 else first


def _node(name: str, node: Node | None) -> str:
    if node is None:
        return f"{name} (not created yet)"
    return name if is_true(node.status.conditions, "Ready") else f"{name} (not ready)"


def _slice(record: ResourceSlice) -> str:
    """Return what became of a slice, and what it has."""
    status = record.status
    state = status.phase or "Pending"
    reason = f", {status.reason}" if status.reason and state != "Granted" else ""
    has = f" ({brief(status.resources)})" if status.resources else ""
    return f"{record.metadata.name} {state.lower()}{reason}{has}"


def short(resources: Mapping[str, str]) -> str:
    """Return CPU in cores and memory in GiB, as short as it can be read; empty without resources."""
    parts = []
    for name, heading, unit, suffix in (("cpu", "cpu", 1, ""), ("memory", "mem", 2**30, "Gi")):
        with contextlib.suppress(ValueError, KeyError):
            parts.append(f"{heading} {float(quantity.parse(resources[name]) / unit):.3g}{suffix}")
    return ", ".join(parts) or brief(resources)


def brief(resources: Mapping[str, str]) -> str:
    """Return CPU, memory and pods, and the number of other resources."""
    first = [f"{name} {resources[name]}" for name in ("cpu", "memory", "pods") if name in resources]
    others = sum(name not in ("cpu", "memory", "pods") for name in resources)
    return ", ".join(first + ([f"and {others} more"] if others else []))


def discover_rows(clusters: Iterable[ForeignCluster]) -> list[dict[str, Any]]:
    """Return one row per peer: identity, how it was discovered, whether it is trusted.

    ``found`` is empty for a cluster that no source shows now: its addresses are the last ones known.
    """
    rows = []
    for cluster in _sorted(clusters):
        endpoints = [*cluster.status.endpoints, *cluster.spec.endpoints]
        discovered = find_condition(cluster.status.conditions, "Discovered")
        gone = discovered is not None and discovered.status != "True"
        rows.append(
            {
                "name": label(cluster),
                "id": cluster.metadata.name,
                "phase": cluster.status.phase or "Unknown",
                "trusted": is_true(cluster.status.conditions, "Authenticated"),
                "words": cluster.status.words,
                "fingerprint": cluster.status.seen_fingerprint,
                "found": ["not in sight now"] if gone else sorted({endpoint.source for endpoint in endpoints}),
                "since": discovered.last_transition_time if discovered is not None else "",
                "addresses": sorted({endpoint.address for endpoint in endpoints}),
            }
        )
    return rows
