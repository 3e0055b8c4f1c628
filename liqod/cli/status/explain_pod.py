"""Why a pod is or is not offloaded, and which clusters its namespace goes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs
import msgspec

from liqod.cli.console.render import join_reason
from liqod.hosting.shadowpods.lost_nodes import PATIENCE
from liqod.kubelet.pods.controller import GIVE_UP_AFTER
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of_node
from liqod.model.diagnosis.problem import Problem
from liqod.model.names import ENABLED_LABEL, RUNTIME_CLASS
from liqod.model.objects.meta import find_condition
from liqod.model.objects.node_selector import NodeSelector, selects
from liqod.model.objects.pod_completion import FINISHED
from liqod.model.records.offloading import LOCAL, REMOTE, NamespaceOffloading, policy_of
from liqod.model.records.views import MappingStatus, NamespaceNattingTable, VirtualNode
from liqod.model.timestamps import parse_rfc3339, rfc3339
from liqod.webhook.placement import TooManyTerms, mutations, tolerates

COLUMNS: Final = {"what": "WHAT", "state": "STATE", "why": "WHY"}
STALE: Final = (
    "its own node affinity or nodeSelector excludes every selected virtual node: its template says so, or it was "
    "created for an earlier setting of its namespace; that cannot be changed: delete it, and its owner re-creates it"
)
OFFLOADED: Final = "liqo.io/Offloaded"
AWAY: Final = (
    "CredentialMalformed",
    "CredentialMissing",
    "CredentialRejected",
    "NoCommonWay",
    "PeerNotReady",
    "PeerUnreachable",
)
"""Reasons of a virtual node whose lender's API server cannot be asked for anything."""
REFUSED: Final = "Refused"
"""The phase of a namespace that the lender refuses."""


@attrs.frozen(kw_only=True)
class PodFacts:
    """The objects that decide; ``pod`` is the plain object, ``nodes`` the labels of virtual nodes by name.

    ``problems`` has the worst problem of each virtual node with which something is wrong, by name.
    """

    pod: Mapping[str, Any]
    enabled: bool
    offloading: NamespaceOffloading | None = None
    records: Sequence[VirtualNode] = ()
    nodes: Mapping[str, Mapping[str, str]] = {}
    tables: Mapping[str, NamespaceNattingTable] = {}
    problems: Mapping[str, Problem] = {}

    def ready_since(self, peer: str) -> str:
        """Return since when the namespace is at a cluster, as far as its record says; empty while it is not."""
        conditions = self.offloading.status.remote_namespaces_conditions if self.offloading is not None else {}
        ready = find_condition(conditions.get(peer, []), "Ready")
        return ready.last_transition_time if ready is not None and ready.status == "True" else ""


def since(date: str | None) -> str:
    """Return the words for the time from which on something is so; empty where that is not known."""
    return f" (since {date})" if date else ""


def facts_for(known: ClusterRecords, pod: Mapping[str, Any], *, enabled: bool) -> PodFacts:
    """Return the objects that decide about a pod, whose namespace is ``enabled``, from the records of the cluster."""
    namespace = str(pod["metadata"]["namespace"])
    problems = {}
    for record in known.virtual_nodes:
        problem = next((one for one in problems_of_node(known, record) if one.failing), None)
        if problem is not None:
            problems[record.spec.node_name] = problem
    return PodFacts(
        pod=pod,
        enabled=enabled,
        offloading=known.offloading_of(namespace),
        records=known.virtual_nodes,
        nodes={node.metadata.name: node.metadata.labels for node in known.nodes},
        tables={table.metadata.name: table for table in known.tables},
        problems=problems,
    )


def findings(facts: PodFacts) -> list[dict[str, str]]:
    """Return the findings as rows of what, state and why; the last row is the result."""
    spec, status = facts.pod.get("spec") or {}, facts.pod.get("status") or {}
    rows = [
        as_row("pod", status.get("phase", "Unknown"), _of_pod(facts.pod)),
        as_row("node", spec.get("nodeName") or "none yet", _scheduler(status)),
        *namespace_rows(facts),
        _webhook(facts, spec),
    ]
    rows += [cluster_row(facts, record) for record in sorted(facts.records, key=lambda one: one.spec.node_name)]
    offloaded = _condition(status, OFFLOADED)
    if offloaded:
        why = f"{offloaded.get('message', '')}{since(offloaded.get('lastTransitionTime', ''))}"
        rows.append(as_row("lender", offloaded.get("reason", ""), why))
    return [*rows, _result(facts, spec, status, offloaded)]


def allows(pod: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod's own nodeSelector and required node affinity allow a node."""
    spec = pod.get("spec") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    selector = msgspec.convert(affinity, NodeSelector, strict=False)
    return selects(selector.node_selector_terms or (), node, labels)


def as_row(what: str, state: str, why: str = "") -> dict[str, str]:
    """Return one finding."""
    return {"what": what, "state": state, "why": why}


def _condition(status: Mapping[str, Any], kind: str) -> dict[str, str]:
    return next((dict(one) for one in status.get("conditions") or [] if one.get("type") == kind), {})


def _of_pod(pod: Mapping[str, Any]) -> str:
    """Return why a pod is in its phase, and since when it is there."""
    status = pod.get("status") or {}
    began = str(status.get("startTime") or (pod.get("metadata") or {}).get("creationTimestamp") or "")
    return f"{join_reason(status.get('reason', ''), status.get('message', ''))}{since(began)}".strip()


def _scheduler(status: Mapping[str, Any]) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "True":
        return ""
    why = join_reason(scheduled.get("reason", ""), scheduled.get("message", ""))
    return f"{why}{since(scheduled.get('lastTransitionTime', ''))}" if why else ""


def namespace_rows(facts: PodFacts) -> list[dict[str, str]]:
    """Return the rows of the pod's namespace: whether it is offloaded, and how."""
    name = str(facts.pod["metadata"]["namespace"])
    rows = [as_row(f"namespace {name}", "enabled" if facts.enabled else "not enabled")]
    if not facts.enabled:
        rows[0]["why"] = f"its label {ENABLED_LABEL} is not true; `liqodctl offload namespace {name}` sets it"
    if facts.offloading is not None:
        found = facts.offloading
        rows.append(as_row("NamespaceOffloading", found.spec.pod_offloading_strategy, found.status.message))
    return rows


def _webhook(facts: PodFacts, spec: Mapping[str, Any]) -> dict[str, str]:
    what = "toleration and affinity"
    tolerant = tolerates(spec.get("tolerations") or [])
    if spec.get("runtimeClassName") == RUNTIME_CLASS and tolerant:
        return as_row(what, f"by its RuntimeClass {RUNTIME_CLASS}", "it runs on virtual nodes only")
    if not facts.enabled:
        return as_row(
            what, "by the user" if tolerant else "none", "" if tolerant else "it does not tolerate virtual nodes"
        )
    try:
        lacks = mutations(_unbound(facts.pod), policy_of(str(facts.pod["metadata"]["namespace"]), facts.offloading))
    except TooManyTerms as error:
        return as_row(what, "too many terms", str(error))
    if lacks:
        parts = sorted({str(one["path"]).split("/")[2] for one in lacks})
        return as_row(
            what,
            f"lacks {' and '.join(parts)}",
            "the webhook was not called when it was created, or the namespace had other settings then; delete it, "
            "and its owner re-creates it",
        )
    return as_row(what, "set by the webhook")


def _unbound(pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    return {"spec": spec}


def cluster_row(facts: PodFacts, record: VirtualNode) -> dict[str, str]:
    """Return the row of one cluster: whether the pod's namespace goes there, and whether the pod may."""
    name, node, peer = str(facts.pod["metadata"]["namespace"]), record.spec.node_name, record.spec.cluster_id
    what = f"cluster {node}"
    labels = facts.nodes.get(node)
    if labels is None:
        return as_row(what, "no node", join_reason(record.status.reason, record.status.message))
    if not facts.enabled:
        return as_row(what, "not selected", "the namespace is not enabled")
    if not policy_of(name, facts.offloading).includes(node, labels):
        return as_row(what, "not selected", "by the NamespaceOffloading")
    if not allows(facts.pod, node, labels):
        return as_row(what, "excluded", "by the pod's own node affinity or nodeSelector")
    table = facts.tables.get(peer, NamespaceNattingTable())
    remote, mapping = table.spec.natting_table.get(name), table.status.mappings.get(name)
    problem = facts.problems.get(node)
    if problem is not None and not _is_refused(remote, mapping):
        # What is at a lender that cannot be used is not Ready, whatever was written before.
        return as_row(what, problem.code, f"{problem.kind} {problem.name}: {problem.cause}")
    if remote is None:
        return as_row(what, "selected", "the namespace is requested when the first pod is scheduled there")
    state = mapping.phase if mapping is not None and mapping.phase else "requested"
    why = join_reason(mapping.reason, mapping.message) if mapping is not None else ""
    return as_row(what, state, why or f"the remote namespace is {remote}{since(facts.ready_since(peer))}")


def _is_refused(remote: str | None, mapping: MappingStatus | None) -> bool:
    """Return whether the lender refuses the namespace, which is more than what else is wrong with it."""
    return remote is not None and mapping is not None and mapping.phase == REFUSED


def _result(
    facts: PodFacts, spec: Mapping[str, Any], status: Mapping[str, Any], offloaded: Mapping[str, str]
) -> dict[str, str]:
    node = str(spec.get("nodeName") or "")
    return as_row("result", *_verdict(facts, spec, status, offloaded, node))


def _verdict(
    facts: PodFacts, spec: Mapping[str, Any], status: Mapping[str, Any], offloaded: Mapping[str, str], node: str
) -> tuple[str, str]:
    record = next((one for one in facts.records if one.spec.node_name == node), None)
    if facts.pod["metadata"].get("deletionTimestamp"):
        return "is being deleted", _deletion(facts, status, node, record)
    if record is not None or node in facts.nodes:
        return _on_virtual(facts, status, offloaded, record)
    name = str(facts.pod["metadata"]["namespace"])
    where = "runs in this cluster" if node else "waits for a node"
    if not facts.enabled:
        return where, f"the namespace {name} is not offloaded"
    policy = policy_of(name, facts.offloading)
    if policy.placement == LOCAL:
        return where, "its namespace is restricted to this cluster (podOffloadingStrategy Local)"
    if not tolerates(spec.get("tolerations") or []):
        return where, "it does not tolerate virtual nodes: the webhook was not called when it was created"
    if node and policy.placement == REMOTE:
        return where, "it was created before podOffloadingStrategy became Remote; delete it to move it"
    if node:
        return where, "the scheduler preferred this node; virtual nodes were allowed, too"
    selected = {one: labels for one, labels in facts.nodes.items() if policy.includes(one, labels)}
    if not selected:
        return where, "no virtual node is selected for its namespace"
    if not any(allows(facts.pod, one, labels) for one, labels in selected.items()):
        return where, STALE
    return where, _scheduler(status) or "it has not been scheduled yet"


def _deletion(facts: PodFacts, status: Mapping[str, Any], node: str, record: VirtualNode | None) -> str:
    """Return what a pod that is being deleted waits for, and until when (``kubelet.pods.decide``, ``_end``)."""
    meta = facts.pod["metadata"]
    finalizers = ", ".join(meta.get("finalizers") or ())
    has_ended = meta.get("deletionGracePeriodSeconds") == 0 and status.get("phase") in FINISHED
    if not node or (finalizers and has_ended):
        hold = f"its finalizers ({finalizers}), which their owners remove" if finalizers else "nothing"
        return f"it waits for {hold}: no process of it is left to end"
    then = f"; then for its finalizers ({finalizers}), which their owners remove" if finalizers else ""
    if record is None and node not in facts.nodes:
        return f"it waits for the kubelet of {node}, which has until {meta['deletionTimestamp']}{then}"
    return f"it waits for {_last_holder(facts, node, record)}{then}"


def _last_holder(facts: PodFacts, node: str, record: VirtualNode | None) -> str:
    """Return who has to end a pod on a virtual node: the daemon, its pod at the lender, or a lender that is away."""
    meta, problem = facts.pod["metadata"], facts.problems.get(node)
    name, namespace, grace_ends = meta["name"], meta["namespace"], str(meta["deletionTimestamp"])
    if problem is not None and problem.kind == "daemon":
        return f"the daemon, which alone ends pods on virtual nodes; {problem.text}"
    if record is None:
        return "the daemon: the virtual node has no VirtualNode record, and its log says why the node stays"
    table = facts.tables.get(record.spec.cluster_id, NamespaceNattingTable())
    remote, mapping = table.spec.natting_table.get(namespace), table.status.mappings.get(namespace)
    owners = meta.get("ownerReferences") or ()
    is_unique = any(one.get("controller") and one.get("kind") == "StatefulSet" for one in owners)
    away = join_reason(record.status.reason, record.status.message) if record.status.reason in AWAY else ""
    if mapping is not None and is_unique and _is_refused(remote, mapping):
        away = away or join_reason(mapping.reason, mapping.message)
    if away and is_unique:
        return (
            f"the lender, without limit: a pod of a StatefulSet may still run there ({away}). Where it certainly does "
            f"not: `kubectl delete pod {name} -n {namespace} --force --grace-period=0`"
        )
    if away:
        end = parse_rfc3339(grace_ends)
        given_up = rfc3339(end + timedelta(seconds=GIVE_UP_AFTER)) if end is not None else grace_ends
        return f"the lender, until {given_up} ({away}); what runs there ends when the lender is back"
    if remote is None:
        return "the daemon: the lender has no namespace for it, so that nothing is there to end"
    return (
        f"its pod {remote}/{name} at the lender, which has until {grace_ends}; later than that its kubelet or "
        f"finalizers there hold it: `kubectl describe pod -n {remote} {name}` there. Where its node is lost the "
        f"lender's daemon removes it {PATIENCE:g} s after its grace, but none of a StatefulSet"
        + (f" ({problem.text})" if problem is not None else "")
    )


def _on_virtual(
    facts: PodFacts, status: Mapping[str, Any], offloaded: Mapping[str, str], record: VirtualNode | None
) -> tuple[str, str]:
    if offloaded.get("status") == "False":
        return "not offloaded", join_reason(offloaded.get("reason", ""), offloaded.get("message", ""))
    if record is None:
        return "not offloaded", "the virtual node has no VirtualNode record: the peering has ended"
    name = str(facts.pod["metadata"]["namespace"])
    table = facts.tables.get(record.spec.cluster_id, NamespaceNattingTable())
    remote, mapping = table.spec.natting_table.get(name), table.status.mappings.get(name)
    problem = facts.problems.get(record.spec.node_name)
    if problem is not None and problem.severity == "error" and not _is_refused(remote, mapping):
        state = "offloaded" if remote is not None else "not offloaded yet"
        return state, f"{problem.text}; what is shown of the pod here may be out of date"
    if record.status.phase not in ("", "Ready"):
        return "offloaded", join_reason(record.status.reason, record.status.message)
    if remote is None:
        return "not offloaded yet", "the remote namespace is not requested yet: is the daemon running?"
    if mapping is not None and mapping.phase != "Ready":
        return "not offloaded yet", join_reason(mapping.reason or mapping.phase, mapping.message)
    return "offloaded", f"remote pod {remote}/{facts.pod['metadata']['name']}, {status.get('phase', 'Unknown')}"
