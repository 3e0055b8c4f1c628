"""Why anything but a pod is as it is, and what a code means. Pure.

Each function returns rows of what, state and why; the last row is the result, with what to do next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from liqod.cli.console.render import join_reason
from liqod.cli.status.explain_pod import REFUSED, PodFacts, as_row, cluster_row, findings, namespace_rows, since
from liqod.cli.status.peers import brief, label
from liqod.cli.status.reasons import Reason
from liqod.model.diagnosis.cluster import ClusterRecords, is_stranger, problems_of, problems_of_node
from liqod.model.diagnosis.problem import Problem
from liqod.model.diagnosis.workloads import of_tenants
from liqod.model.objects.meta import Object, is_true
from liqod.model.objects.node import Node
from liqod.model.records.views import ForeignCluster, ResourceSlice, VirtualNode

Rows = list[dict[str, str]]
SHOWN_PODS: Final = 15
WHERE_IT_RUNS: Final = ("offloaded", "runs in this cluster")
WELL: Final = "nothing is wrong"
"""What is said of a peer of which all is known, and well."""


def explain_namespace(facts: PodFacts) -> Rows:
    """Explain to which clusters a namespace goes; ``facts.pod`` is any pod of it, with an empty spec."""
    name = str(facts.pod["metadata"]["namespace"])
    rows = namespace_rows(facts)
    clusters = [cluster_row(facts, record) for record in facts.records]
    rows += clusters
    ready = [at for record in facts.records if (at := facts.ready_since(record.spec.cluster_id))]
    if not facts.enabled:
        return [*rows, as_row("result", "not offloaded", f"next: liqodctl offload namespace {name}")]
    if not facts.records:
        return [*rows, as_row("result", "waits for a cluster", "nothing is borrowed; next: liqodctl status")]
    offloaded = [row["what"] for row in clusters if row["state"] == "Ready"]
    failed = [row for row in clusters if row["state"] in (REFUSED, "no node")]
    if failed:
        return [*rows, as_row("result", f"refused by {len(failed)} of {len(clusters)}", failed[0]["why"])]
    if offloaded:
        return [*rows, as_row("result", "offloaded", f"to {', '.join(offloaded)}{since(min(ready, default=''))}")]
    troubled = next((row for row in clusters if row["state"] in {one.code for one in facts.problems.values()}), None)
    if troubled is not None:
        return [*rows, as_row("result", troubled["state"], troubled["why"])]
    if any(row["state"] == "selected" for row in clusters):
        return [*rows, as_row("result", "ready", "it is offloaded with the first pod that is scheduled there")]
    return [*rows, as_row("result", "not offloaded yet", "no cluster is selected, or none has answered yet")]


def explain_peer(facts: ClusterRecords, peer: ForeignCluster) -> Rows:
    """Explain the state of a peer, whose turn it is, and what to do next."""
    rows = [
        as_row(one.type, one.status, f"{join_reason(one.reason, one.message)}{since(one.last_transition_time)}")
        for one in peer.status.conditions
    ]
    rows += [
        as_row(problem.kind, problem.code, f"{problem.cause}{since(problem.since)}") for problem in _of(facts, peer)
    ]
    return [*rows, as_row("result", peer.status.phase or "Unknown", _turn(facts, peer))]


def _of(facts: ClusterRecords, peer: ForeignCluster) -> list[Problem]:
    return problems_of(facts, peer.metadata.name)


def _turn(facts: ClusterRecords, peer: ForeignCluster) -> str:
    """Return whose turn it is."""
    name = label(peer)
    if is_stranger(peer):
        return f"nobody here trusts it; your turn: compare the words, then liqodctl trust {name}"
    problem = next((one for one in _of(facts, peer) if one.severity != "info"), None)
    if problem is None:
        return peer.status.message or WELL
    if problem.code == "WaitingForPeerTrust":
        return f"the turn of {name}'s administrator: liqodctl trust, with this cluster's words"
    if problem.code == "DecisionPending":
        return f"your turn: liqodctl accept {name}"
    if problem.kind in ("daemon", "host"):
        return f"your turn: {problem.cause}"
    return join_reason(problem.code, problem.cause)


def explain_node(facts: ClusterRecords, node: Node, record: VirtualNode | None) -> Rows:
    """Explain the conditions of a virtual node."""
    rows = [
        as_row(one.type, one.status, f"{join_reason(one.reason, one.message)}{since(one.last_transition_time)}")
        for one in node.status.conditions
    ]
    if record is None:
        why = "it has no VirtualNode record: the peering has ended, or this is no virtual node"
        return [*rows, as_row("result", "not managed", why)]
    rows += [
        as_row(f"record {one.type}", one.status, join_reason(one.reason, one.message))
        for one in record.status.conditions
    ]
    problem = next((one for one in problems_of_node(facts, record) if one.failing), None)
    if problem is not None:
        return [*rows, as_row("result", problem.code, f"{problem.kind} {problem.name}: {problem.cause}")]
    state = "Ready" if is_true(node.status.conditions, "Ready") else "not ready"
    return [*rows, as_row("result", state, "cordoned" if node.spec.unschedulable else "")]


def explain_object(copies: Sequence[dict[str, Any]], events: Sequence[dict[str, str]], facts: PodFacts) -> Rows:
    """Explain to which clusters an object of a namespace goes; ``copies`` as from ``copies.copies_of``."""
    rows = namespace_rows(facts)
    rows += [as_row(f"cluster {one['cluster']}", one["state"], f"{one['why']}{since(one['since'])}") for one in copies]
    rows += [as_row(f"event {one['reason']}", one["type"], one["message"]) for one in events]
    there = [one for one in copies if one["state"] == "copied"]
    if there:
        first = min((one["since"] for one in there if one["since"]), default="")
        return [*rows, as_row("result", "reflected", f"to {', '.join(one['cluster'] for one in there)}{since(first)}")]
    if not facts.enabled:
        name = facts.pod["metadata"]["namespace"]
        return [
            *rows,
            as_row("result", "stays here", f"its namespace is not offloaded; liqodctl offload namespace {name}"),
        ]
    why = next((one["why"] for one in copies), "no cluster has a pod of its namespace yet")
    return [*rows, as_row("result", "stays here", why)]


def explain_workload(pods: Sequence[PodFacts], wanted: int) -> Rows:
    """Explain where the pods of a Deployment or StatefulSet are, each with its own answer; the first are shown."""
    answers = [(str(one.pod["metadata"]["name"]), findings(one)[-1]) for one in pods]
    # Those that run, wherever, are not what somebody asks about.
    answers.sort(key=lambda answer: (answer[1]["state"] in WHERE_IT_RUNS, answer[0]))
    rows = [as_row(f"pod {name}", row["state"], row["why"]) for name, row in answers[:SHOWN_PODS]]
    if len(answers) > SHOWN_PODS:
        rows.append(as_row("pods", "more", f"and {len(answers) - SHOWN_PODS} more"))
    if not answers:
        why = "it wants none" if not wanted else "its controller has made none yet: see its events"
        return [*rows, as_row("result", "no pods", why)]
    counts = Counter(row["state"] for _, row in answers)
    shown = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return [*rows, as_row("result", f"{len(answers)} of {wanted} pods", shown)]


def explain_slice(facts: ClusterRecords, record: ResourceSlice) -> Rows:
    """Explain what became of a slice of a peer's offer, and whose turn it is."""
    spec, status = record.spec, record.status
    peer = next((one for one in facts.peers if one.metadata.name == spec.provider_cluster_id), None)
    name = spec.provider_cluster_id if peer is None else label(peer)
    rows = [
        as_row("asked", spec.slice_class, f"{brief(spec.resources)}{since(record.metadata.creation_timestamp)}"),
        as_row("has", status.phase or "Pending", brief(status.resources) or "nothing"),
    ]
    if spec.virtual_node is not None:
        node = spec.virtual_node.node_name or record.metadata.name
        rows.append(as_row(f"node {node}", "not created yet" if facts.node(node) is None else "there"))
    why = join_reason(status.reason, status.message)
    if peer is None:
        return [*rows, as_row("result", "PeerUnknown", f"there is no peer {name}")]
    problem = next((one for one in _of(facts, peer) if one.severity == "error"), None)
    if problem is not None:
        return [*rows, as_row("result", problem.code, f"{problem.kind} {problem.name}: {problem.cause}")]
    if status.observed_generation < record.metadata.generation:
        return [*rows, as_row("result", "Pending", f"the turn of {name}: what is asked now was not answered yet")]
    return [*rows, as_row("result", status.phase or "Pending", why or f"{name} has answered")]


def explain_tenant(facts: ClusterRecords, peer: ForeignCluster, spaces: Sequence[Object]) -> Rows:
    """Explain what a borrower has here: its offer, its namespaces ``spaces``, and what it gets no more of."""
    lent = peer.status.lent
    rows = [as_row("peer", peer.status.phase or "Unknown", join_reason(peer.status.reason, peer.status.message))]
    if lent is None or not lent.resources:
        rows.append(as_row("offer", "nothing is lent"))
    else:
        why = "; ".join(filter(None, (brief(lent.resources), lent.reason)))
        rows.append(as_row("offer", lent.verdict or "undecided", why))
    rows += [
        as_row(
            f"namespace {one.metadata.name}",
            "ends" if one.metadata.deletion_timestamp else "there",
            since(one.metadata.creation_timestamp).strip(" ()"),
        )
        for one in sorted(spaces, key=lambda one: one.metadata.name)
    ]
    problem = next(of_tenants(facts.tenants or (), {peer.metadata.name: label(peer)}), None)
    if problem is not None:
        return [*rows, as_row("result", problem.code, problem.cause)]
    if lent is None or not lent.resources:
        return [*rows, as_row("result", "borrows nothing", _turn(facts, peer))]
    return [*rows, as_row("result", "within its bounds", "`liqodctl tenant show` has what is left of each")]


def explain_code(rows: Sequence[Reason]) -> Rows:
    """Explain a reason by the table of reasons, in each place where it appears."""
    found = [as_row(one.code, one.section, one.meaning) for one in rows]
    return [*found, as_row("result", rows[0].code, next((one.advice for one in rows if one.advice), "nothing to do"))]
