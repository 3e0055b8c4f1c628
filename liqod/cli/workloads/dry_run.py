"""What ``offload namespace`` would do, by the functions that do it: admission of pods, selection, copies, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs
import msgspec

from liqod.cli.console.session import Session
from liqod.cli.status.copies import judge, offered
from liqod.cli.status.explain_pod import allows
from liqod.config.schema import Settings
from liqod.flow.observe import Latest
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import PODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import Egress, egress_to
from liqod.kubelet.reflection.forge.reflected import HomeObjects, Withheld
from liqod.kubelet.reflection.kinds import KINDS, Kind
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.diagnosis.cluster import ClusterRecords, name_of
from liqod.model.ids import ClusterID
from liqod.model.names import ENABLED_LABEL, TAINT_KEY, TYPE_LABEL, VIRTUAL_NODE_TYPE, remote_namespace
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, is_true
from liqod.model.objects.node import Node, Taint
from liqod.model.objects.pod import PodSpec, pod_requests
from liqod.model.records.offloading import LOCAL, REMOTE, NamespaceOffloading, OffloadingPolicy, policy_of
from liqod.webhook.placement import TooManyTerms, mutations

_CLOSING: Final = ("NoSchedule", "NoExecute")
_OF_KUBERNETES: Final = (TAINT_KEY, "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
"""Taints that pods tolerate here, or that repeat what the node itself says."""
COLUMNS = {"what": "WHAT", "name": "NAME", "then": "THEN", "why": "WHY"}

Body = Mapping[str, Any]


@attrs.frozen
class Leaving:
    """What may leave home of a namespace for one peer: rules under [egress], and the namespace's name and labels."""

    egress: Egress
    namespace: str
    labels: Mapping[str, str] = {}

    @property
    def objection(self) -> str:
        """Why the namespace as a whole stays at home; empty if it may leave."""
        return self.egress.objection("namespace", self.namespace, self.labels)

    def of_pod(self, pod: Body) -> str:
        """Return why a pod would get no further than its virtual node; empty if it would."""
        return self.objection or self.egress.objection("pod", self.namespace, pod["metadata"].get("labels") or {})


@attrs.frozen(kw_only=True)
class Lender:
    """A cluster to which the namespace may go; ``pods`` are the specs of those of which a new one could run there."""

    name: str
    context: Context
    objects: HomeObjects
    pods: Sequence[Body] = ()


async def preview(
    session: Session, facts: ClusterRecords, space: Object, spec: dict[str, Any], home: str
) -> list[dict[str, str]]:
    """Return a row for each cluster, pod and object of a namespace: what would become of it, and why."""
    name = space.metadata.name
    before = facts.offloading_of(name)
    kept = msgspec.to_builtins(before.spec) if before is not None else {}
    wanted = {key: value for key, value in {**kept, **spec}.items() if value is not None}
    offloading = msgspec.convert({"spec": wanted}, NamespaceOffloading)
    policy = policy_of(name, offloading)
    pods: list[dict[str, Any]] = (await session.client.list(PODS, name)).items
    leaving = leaving_of(facts, space, session.settings)
    rows = cluster_rows(facts, policy, home, leaving)
    rows += pod_rows(facts, policy, pods, leaving)
    lenders = [
        attrs.evolve(lender, pods=pods_at(lender, facts, policy, pods, leaving))
        for lender in lenders_of(facts, policy, offloading, home, leaving)
    ]
    for kind in KINDS if lenders else ():
        try:
            listing = await session.client.list(kind.home, name, view=kind.home_view)
        except (NotFound, Forbidden):
            continue
        rows += object_rows(kind, listing.items, lenders, session.settings)
    return rows


def leaving_of(facts: ClusterRecords, space: Object, settings: Settings) -> dict[str, Leaving]:
    """Return for each peer what may leave home for it, of a namespace once it is offloaded. Pure."""
    labels = {**space.metadata.labels, ENABLED_LABEL: "true"}
    of_peer = {peer.metadata.name: peer.metadata.labels for peer in facts.peers}
    peers = {record.spec.cluster_id for record in facts.virtual_nodes}
    return {
        peer: Leaving(egress_to(peer, of_peer.get(peer, {}), settings.egress), space.metadata.name, labels)
        for peer in peers
    }


def lenders_of(
    facts: ClusterRecords,
    policy: OffloadingPolicy,
    offloading: NamespaceOffloading,
    home: str,
    leaving: Mapping[str, Leaving],
) -> list[Lender]:
    """Return the clusters to which the namespace may go, as ``who-has`` knows them, by their first node. Pure."""
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    found: dict[str, Lender] = {}
    for record in facts.virtual_nodes:
        node, peer = facts.node(record.spec.node_name), record.spec.cluster_id
        selected = node is not None and policy.includes(node.metadata.name, node.metadata.labels)
        if selected and peer not in found and not leaving[peer].objection:
            egress = Latest(leaving[peer].egress)
            context = Context(ClusterID(home), ClusterID(peer), record.spec.node_name, egress=egress)
            objects = offered(facts, peer, offloading)
            found[peer] = Lender(name=names.get(peer, peer), context=context, objects=objects)
    return list(found.values())


def pods_at(
    lender: Lender,
    facts: ClusterRecords,
    policy: OffloadingPolicy,
    pods: Sequence[Body],
    leaving: Mapping[str, Leaving],
) -> list[Body]:
    """Return the specs of the pods of which a new one could run at a lender. Pure."""
    own = set(facts.node_names_of(str(lender.context.lender)))
    nodes = [one for one in _selected(facts, policy) if one.metadata.name in own]
    by_node = _by_node(facts, leaving)
    found: list[Body] = []
    for pod in pods:
        try:
            fitting, _ = places(pod, policy, nodes, by_node)
        except TooManyTerms:
            continue
        if fitting and not _of_daemon_set(pod):
            found.append(pod.get("spec") or {})
    return found


def cluster_rows(
    facts: ClusterRecords, policy: OffloadingPolicy, home: str, leaving: Mapping[str, Leaving]
) -> list[dict[str, str]]:
    """Return the row of each cluster that lends: selected or not, and the name of the namespace there. Pure."""
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    rows = []
    for record in facts.virtual_nodes:
        node, peer = facts.node(record.spec.node_name), record.spec.cluster_id
        name = leaving[peer].namespace
        table = next((one for one in facts.tables if one.metadata.name == peer), None)
        there = table.spec.natting_table.get(name, "") if table is not None else ""
        there = there or policy.remote_name or remote_namespace(name, home)
        if node is None:
            then, why = "nothing", "its virtual node does not exist"
        elif not policy.includes(node.metadata.name, node.metadata.labels):
            then, why = "nothing", "it is not selected"
        elif leaving[peer].objection:
            then, why = "nothing", leaving[peer].objection
        else:
            asks = "" if not policy.remote_name else "the name needs its consent ([hosting] namespace-names there)"
            then, why = f"namespace {there} with the first pod", asks
            if node.spec.unschedulable:
                why = "the node is cordoned: no new pods"
        rows.append(_row("cluster", names.get(peer, peer), then, why))
    return rows or [_row("cluster", "-", "nothing", "nothing is borrowed: no cluster has a virtual node here")]


def pod_rows(
    facts: ClusterRecords,
    policy: OffloadingPolicy,
    pods: Sequence[Body],
    leaving: Mapping[str, Leaving] | None = None,
) -> list[dict[str, str]]:
    """Return the row of each pod: where a new one like it could run. Pure."""
    nodes, by_node = _selected(facts, policy), _by_node(facts, leaving or {})
    return [_pod_row(pod, policy, nodes, by_node) for pod in pods]


def _selected(facts: ClusterRecords, policy: OffloadingPolicy) -> list[Node]:
    return [node for node in facts.nodes if policy.includes(node.metadata.name, node.metadata.labels)]


def _by_node(facts: ClusterRecords, leaving: Mapping[str, Leaving]) -> dict[str, Leaving]:
    of_nodes = ((record.spec.node_name, record.spec.cluster_id) for record in facts.virtual_nodes)
    return {node: leaving[peer] for node, peer in of_nodes if peer in leaving}


def _of_daemon_set(pod: Body) -> bool:
    return any(one.get("kind") == "DaemonSet" for one in pod["metadata"].get("ownerReferences") or [])


def places(
    pod: Body, policy: OffloadingPolicy, nodes: Sequence[Node], leaving: Mapping[str, Leaving]
) -> tuple[list[str], list[str]]:
    """Return the virtual nodes on which a new pod like this one could run, and why it could not on the others. Pure.

    ``leaving`` is by node. Raises TooManyTerms.
    """
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    mutations({"spec": spec}, policy)
    fitting = []
    reasons = []
    for node in nodes:
        name = node.metadata.name
        if not allows({"spec": spec}, name, node.metadata.labels):
            reasons.append(f"its own affinity excludes {name}")
        elif obstacle := closed(spec, node):
            reasons.append(f"{name} {obstacle}")
        elif lacking := too_large(spec, node):
            reasons.append(f"{name} has too little {', '.join(lacking)}")
        elif name in leaving and (why := leaving[name].of_pod(pod)):
            reasons.append(f"on {name} it would wait: {why}")
        else:
            fitting.append(name)
    return fitting, reasons


def _pod_row(
    pod: Body, policy: OffloadingPolicy, nodes: Sequence[Node], leaving: Mapping[str, Leaving]
) -> dict[str, str]:
    name, spec = str(pod["metadata"]["name"]), pod.get("spec") or {}
    if _of_daemon_set(pod):
        return _row("pod", name, "stays", "pods of a DaemonSet run on the nodes of this cluster")
    try:
        fitting, reasons = places(pod, policy, nodes, leaving)
    except TooManyTerms as error:
        return _row("pod", name, "refused", str(error))
    here = spec.get("nodeName", "")
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


def object_rows(
    kind: Kind, objects: Sequence[Reflectable], lenders: Sequence[Lender], settings: Settings
) -> list[dict[str, str]]:
    """Return the row of each object of a kind: whether it leaves this cluster; several where lenders differ. Pure."""
    rows = []
    for one in objects:
        verdicts: dict[tuple[str, str], list[str]] = {}
        for lender in lenders:
            verdicts.setdefault(_verdict(kind, one, lender, settings), []).append(lender.name)
        for (then, why), names in verdicts.items():
            where = f" ({', '.join(names)})" if len(verdicts) > 1 else ""
            rows.append(_row(kind.setting, one.metadata.name, then + where, why))
    return rows


def _verdict(kind: Kind, one: Reflectable, lender: Lender, settings: Settings) -> tuple[str, str]:
    desired = judge(kind, one, lender.context, settings, objects=lender.objects, specs=lender.pods)
    if isinstance(desired, Withheld):
        return "stays", desired.why
    why = "; ".join(desired.objections)
    if desired.idle:
        return "stays", why or "there is nothing in it for other clusters yet"
    return "copied", why


def _row(what: str, name: str, then: str, why: str) -> dict[str, str]:
    return {"what": what, "name": name, "then": then, "why": why}
