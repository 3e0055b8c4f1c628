"""Which objects of a namespace are copied to other clusters, by the functions that decide that. Pure but for reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import did_you_mean
from liqod.cli.console.session import Session
from liqod.config.schema import Settings
from liqod.flow.observe import Latest
from liqod.kube.errors import NotFound
from liqod.kube.resources import EVENTS, PODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.egress import egress_to
from liqod.kubelet.common.views import HomePod, decoded
from liqod.kubelet.reflection.decide import desired_of
from liqod.kubelet.reflection.forge.classes import Classes, ingress_classes, load_balancer_classes
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, HomeObjects, NoHomeObjects, Withheld
from liqod.kubelet.reflection.kinds import KINDS, Kind, listing_of
from liqod.kubelet.reflection.named import references
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.diagnosis.cluster import ClusterRecords, name_of
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import find_condition
from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NamespaceOffloading

ALIASES: Final = {"pvc": "persistentvolumeclaim", "claim": "persistentvolumeclaim", "svc": "service", "cm": "configmap"}
COPIES: Final = {
    "cluster": "CLUSTER",
    "state": "STATE",
    "name": "NAME THERE",
    "since": "SINCE",
    "pods": "PODS",
    "why": "WHY",
}
SHOWN_PODS: Final = 50
"""Pods that are named for one cluster."""


def kind_named(name: str) -> Kind:
    """Return a reflected kind by its name, its plural or a short name. Raises CliError."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    for kind in KINDS:
        if wanted in (kind.setting, kind.home.plural):
            return kind
    known = [kind.setting for kind in KINDS]
    raise CliError(
        errors.NO_SUCH_OBJECT,
        f"{name} is no kind of which there are copies{did_you_mean(wanted, known)}",
        f"the kinds are {', '.join(known)}",
        errors.USAGE,
    )


@attrs.frozen
class _Offered(NoHomeObjects):
    """What is known of a lender from records alone: the classes for objects of one namespace."""

    offer: Offer
    offloading: NamespaceOffloading | None

    def ingress_classes(self, namespace: str) -> Classes:
        return ingress_classes(self.offer, self.offloading)

    def load_balancer_classes(self, namespace: str) -> Classes:
        return load_balancer_classes(self.offer, self.offloading)

    def gateways(self) -> tuple[str, ...]:
        return tuple(self.offer.gateways)


_NO_OBJECTS: Final = NoHomeObjects()


def judge(
    kind: Kind,
    home: Reflectable,
    context: Context,
    settings: Settings,
    *,
    objects: HomeObjects = _NO_OBJECTS,
    specs: Sequence[Mapping[str, Any]] | None = None,
) -> DesiredObject | Withheld:
    """Return what would be made of an object for one lender, or why nothing; ``specs``: those of pods there. Pure."""
    if not getattr(settings.reflection, kind.setting).workers:
        return Withheld(f"this kind is not reflected (workers = 0 for {kind.setting} under [reflection])")
    if kind.unless and kind.unless in home.metadata.labels:
        return Withheld("it belongs to liqod itself")

    def named(setting: str, key: Key) -> bool:
        return any((setting, key.name) in references(spec) for spec in specs or ())

    asks = specs is not None and settings.egress.contents == "named"
    listing = listing_of(kind, settings.reflection)
    inputs = ForgeInputs(context, listing, objects, complete=True, named=named if asks else None)
    return desired_of(kind, home, inputs) or Withheld("it is being deleted")


async def copies_of(session: Session, facts: ClusterRecords, kind: Kind, key: Key, home: str) -> list[dict[str, Any]]:
    """Return a row for each cluster to which the object's namespace goes: copied, withheld or waiting, and why.

    Raises CliError when there is no such object.
    """
    try:
        found = await session.client.get(kind.home, key.name, key.namespace, view=kind.home_view)
    except NotFound:
        hint = f"kubectl get {kind.home.plural} -n {key.namespace}"
        raise CliError(errors.NO_SUCH_OBJECT, f"there is no {kind.setting} {key}", f"`{hint}` lists them") from None
    names = {peer.metadata.name: name_of(peer) for peer in facts.peers}
    labels = {peer.metadata.name: peer.metadata.labels for peer in facts.peers}
    rows = []
    for table in facts.tables:
        peer = table.metadata.name
        remote = table.spec.natting_table.get(key.namespace)
        if remote is None:
            continue
        nodes = facts.node_names_of(peer)
        egress = Latest(egress_to(peer, labels.get(peer, {}), session.settings.egress))
        context = Context(ClusterID(home), ClusterID(peer), nodes[0] if nodes else "", egress=egress)
        pods = [pod for node in nodes for pod in await _pods(session, key.namespace, node)]
        objects = offered(facts, peer, facts.offloading_of(key.namespace))
        # Of a pod that may not leave home nothing is at the lender.
        leaving = [one for one in pods if not egress.value.objection("pod", key.namespace, one.metadata.labels)]
        specs = [decoded(one.spec) for one in leaving]
        desired = judge(kind, found, context, session.settings, objects=objects, specs=specs)
        mapping = table.status.mappings.get(key.namespace)
        if isinstance(desired, Withheld):
            state, why = "withheld", desired.why
        elif mapping is None or mapping.phase != "Ready":
            state, why = "waiting", mapping.message if mapping is not None else "the cluster was not asked yet"
        elif desired.idle:
            state, why = "withheld", "; ".join(desired.objections) or "there is nothing in it for that cluster yet"
        else:
            state, why = "copied", "; ".join(desired.objections)
        listing = sorted(pod.metadata.name for pod in pods)[:SHOWN_PODS]
        rows.append(
            {
                "cluster": names.get(peer, peer),
                "state": state,
                "name": f"{remote}/{kind.name_there(key.name, context)}" if state == "copied" else "",
                "since": _since(facts, key.namespace, peer) if state == "copied" else "",
                "pods": listing,
                "why": why or ("the namespace is offloaded for these pods" if state == "copied" else ""),
            }
        )
    return rows


def offered(facts: ClusterRecords, peer: str, offloading: NamespaceOffloading | None) -> HomeObjects:
    """Return what records say of a lender, for objects of a namespace that is offloaded in this way. Pure."""
    offer = facts.offer_of(peer)
    return _Offered(Offer() if offer is None else offer.spec.offer, offloading)


async def _pods(session: Session, namespace: str, node: str) -> list[HomePod]:
    return (await session.client.list(PODS, namespace, view=HomePod, fields=f"spec.nodeName={node}")).items


def _since(facts: ClusterRecords, namespace: str, peer: str) -> str:
    """Return since when the namespace is at a cluster, as far as its record says."""
    record = facts.offloading_of(namespace)
    conditions = record.status.remote_namespaces_conditions.get(peer, []) if record is not None else []
    ready = find_condition(conditions, "Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else ""


async def events_of(session: Session, key: Key, kind: str) -> list[dict[str, str]]:
    """Return the latest events of an object, at most five."""
    selector = f"involvedObject.name={key.name},involvedObject.kind={kind}"
    found: list[dict[str, Any]] = (await session.client.list(EVENTS, key.namespace, fields=selector)).items
    found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return [
        {"type": str(one.get("type", "")), "reason": str(one.get("reason", "")), "message": str(one.get("message", ""))}
        for one in found[-5:]
    ]
