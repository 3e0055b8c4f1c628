"""What ``offload namespace`` would do, by the functions that do it: admission of pods, selection, copies, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from liqod.cli.console.session import Session
from liqod.cli.status.copies import judge
from liqod.cli.status.explain_pod import allows
from liqod.config.schema import Settings
from liqod.flow.observe import Latest
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import PODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import egress_to
from liqod.kubelet.reflection.forge.reflected import Withheld
from liqod.kubelet.reflection.kinds import KINDS, Kind
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.diagnosis.cluster import ClusterRecords, name_of
from liqod.model.ids import ClusterID
from liqod.model.names import TAINT_KEY, TYPE_LABEL, VIRTUAL_NODE_TYPE, remote_namespace
from liqod.model.objects import quantity
from liqod.model.objects.meta import is_true
from liqod.model.objects.node import Node, Taint
from liqod.model.objects.pod import PodSpec, pod_requests
from liqod.model.records.offloading import LOCAL, REMOTE, NamespaceOffloading, OffloadingPolicy, policy_of
from liqod.webhook.placement import TooManyTerms, mutations

_CLOSING: Final = ("NoSchedule", "NoExecute")
_OF_KUBERNETES: Final = (TAINT_KEY, "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
"""Taints that pods tolerate here, or that repeat what the node itself says."""
COLUMNS = {"what": "WHAT", "name": "NAME", "then": "THEN", "why": "WHY"}


async def preview(
    session: Session, facts: ClusterRecords, name: str, spec: dict[str, Any], home: str
) -> list[dict[str, str]]:
    """Return a row for each cluster, pod and object of a namespace: what would become of it, and why."""
    before = facts.offloading_of(name)
    kept = msgspec.to_builtins(before.spec) if before is not None else {}
    wanted = {key: value for key, value in {**kept, **spec}.items() if value is not None}
    policy = policy_of(name, msgspec.convert({"spec": wanted}, NamespaceOffloading))
    pods: list[dict[str, Any]] = (await session.client.list(PODS, name)).items
    rows = cluster_rows(facts, name, policy, home)
    rows += pod_rows(facts, policy, pods)
    nodes = [node for node in facts.nodes if policy.includes(node.metadata.name, node.metadata.labels)]
    for kind in KINDS if nodes else ():
        try:
            listing = await session.client.list(kind.home, name, view=kind.home_view)
        except (NotFound, Forbidden):
            continue
        rows += object_rows(kind, listing.items, home, session.settings)
    return rows


def cluster_rows(facts: ClusterRecords, name: str, policy: OffloadingPolicy, home: str) -> list[dict[str, str]]:
    """Return the row of each cluster that lends: selected or not, and the name of the namespace there. Pure."""
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    rows = []
    for record in facts.virtual_nodes:
        node, peer = facts.node(record.spec.node_name), record.spec.cluster_id
        table = next((one for one in facts.tables if one.metadata.name == peer), None)
        there = table.spec.natting_table.get(name, "") if table is not None else ""
        there = there or policy.remote_name or remote_namespace(name, home)
        if node is None:
            then, why = "nothing", "its virtual node does not exist"
        elif not policy.includes(node.metadata.name, node.metadata.labels):
            then, why = "nothing", "it is not selected"
        else:
            asks = "" if not policy.remote_name else "the name needs its consent ([hosting] namespace-names there)"
            then, why = f"namespace {there} with the first pod", asks
            if node.spec.unschedulable:
                why = "the node is cordoned: no new pods"
        rows.append(_row("cluster", names.get(peer, peer), then, why))
    return rows or [_row("cluster", "-", "nothing", "nothing is borrowed: no cluster has a virtual node here")]


def pod_rows(
    facts: ClusterRecords, policy: OffloadingPolicy, pods: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Return the row of each pod: where a new one like it could run. Pure."""
    nodes = [node for node in facts.nodes if policy.includes(node.metadata.name, node.metadata.labels)]
    return [_pod_row(pod, policy, nodes) for pod in pods]


def _pod_row(pod: Mapping[str, Any], policy: OffloadingPolicy, nodes: Sequence[Node]) -> dict[str, str]:
    name, spec = str(pod["metadata"]["name"]), dict(pod.get("spec") or {})
    here = spec.pop("nodeName", "")
    if any(one.get("kind") == "DaemonSet" for one in pod["metadata"].get("ownerReferences") or []):
        return _row("pod", name, "stays", "pods of a DaemonSet run on the nodes of this cluster")
    try:
        mutations({"spec": spec}, policy)
    except TooManyTerms as error:
        return _row("pod", name, "refused", str(error))
    fitting = []
    reasons = []
    for node in nodes:
        if not allows({"spec": spec}, node.metadata.name, node.metadata.labels):
            reasons.append(f"its own affinity excludes {node.metadata.name}")
        elif obstacle := closed(spec, node):
            reasons.append(f"{node.metadata.name} {obstacle}")
        elif lacking := too_large(spec, node):
            reasons.append(f"{node.metadata.name} has too little {', '.join(lacking)}")
        else:
            fitting.append(node.metadata.name)
    # A pod that asks for virtual nodes, by this selector or by the RuntimeClass that sets it, runs nowhere else.
    away = policy.placement == REMOTE or (spec.get("nodeSelector") or {}).get(TYPE_LABEL) == VIRTUAL_NODE_TYPE
    where = fitting if away else ["here", *fitting]
    if policy.placement == LOCAL and away:
        reasons.append("it asks for virtual nodes, and its namespace would stay in this cluster")
    why = "; ".join(reasons)
    if here and policy.placement != LOCAL:
        why = "; ".join(filter(None, ("it runs on where it is; a new one may go there", why)))
    return _row("pod", name, f"a new one: {' or '.join(where)}" if where else "a new one: nowhere", why)


def closed(spec: Mapping[str, Any], node: Node) -> str:
    """Return why a node takes no new pod like this one now, empty where it does. Pure.

    The taint of virtual nodes does not count: pods of an offloaded namespace tolerate it.
    """
    if node.spec.unschedulable:
        return "is cordoned"
    if not is_true(node.status.conditions, "Ready"):
        return "is not ready"
    own = [one for one in node.spec.taints if one.effect in _CLOSING and one.key not in _OF_KUBERNETES]
    missing = next((one.key for one in own if not _tolerates(spec.get("tolerations") or [], one)), "")
    return f"has the taint {missing}, which the pod does not tolerate" if missing else ""


def _tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Taint) -> bool:
    """Source: k8s.io/api ``Toleration.ToleratesTaint``."""
    for one in tolerations:
        of_effect = one.get("effect") in (None, "", taint.effect)
        exists = (one.get("operator") or "Equal") == "Exists"
        of_key = one.get("key") == taint.key or (exists and not one.get("key"))
        if of_effect and of_key and (exists or (one.get("value") or "") == taint.value):
            return True
    return False


def too_large(spec: Mapping[str, Any], node: Node) -> list[str]:
    """Return the resources of which a pod requests more than a node has at all. Pure."""
    try:
        requested = pod_requests(msgspec.convert(spec, PodSpec))
        allocatable = quantity.parse_all(node.status.allocatable)
    except (ValueError, msgspec.ValidationError):
        return []
    return sorted(name for name, amount in requested.items() if amount > allocatable.get(name, Fraction(0)))


def object_rows(kind: Kind, objects: Sequence[Reflectable], home: str, settings: Settings) -> list[dict[str, str]]:
    """Return the row of each object of a kind: whether it leaves this cluster. Pure."""
    # For a peer of which nothing is known here.
    context = Context(ClusterID(home), ClusterID("peer"), "", egress=Latest(egress_to("", {}, settings.egress)))
    rows = []
    for one in objects:
        desired = judge(kind, one, context, settings)
        if isinstance(desired, Withheld):
            rows.append(_row(kind.setting, one.metadata.name, "stays", desired.why))
        elif desired.idle:
            rows.append(_row(kind.setting, one.metadata.name, "stays", "there is nothing in it for other clusters yet"))
        else:
            rows.append(_row(kind.setting, one.metadata.name, "copied", "; ".join(desired.objections)))
    return rows


def _row(what: str, name: str, then: str, why: str) -> dict[str, str]:
    return {"what": what, "name": name, "then": then, "why": why}
