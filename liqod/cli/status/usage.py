"""``usage``: CPU, memory, storage and bytes by peer and namespace: what is borrowed, and what is lent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.cli.console import complete
from liqod.cli.console.options import Options, cluster_options, refuse_watch, watch_option
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.peers import find, label
from liqod.cli.status.usage_rows import (
    COLUMNS,
    WIDE,
    Carried,
    Claimed,
    Direction,
    Known,
    PodUsage,
    Used,
    lenders_of,
    measured,
    shown,
    usage_rows,
)
from liqod.fabric.agent.kernel.host import HostKernel, KernelError, observe
from liqod.flow.tasks import together
from liqod.hosting.tenants.bounds import NAME
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, RESOURCEQUOTAS, Resource
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.granted_namespace import home_name_of, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.objects.pod import OCCUPYING_PODS, Pod, pod_requests
from liqod.model.objects.quantity import Resources

T = TypeVar("T")

NODES_ASKED: Final = 200
"""Kubelets that are asked what they measure; of pods on other nodes nothing is measured."""
AT_A_TIME: Final = 8
PATIENCE: Final = 10.0
"""Seconds after which a kubelet is not waited for."""


@click.command()
@click.argument("peer", metavar="[PEER]", default="", shell_complete=complete.peers)
@watch_option
@cluster_options
def usage(options: Options, peer: str, watch: bool) -> None:
    """Show CPU, memory, storage and bytes by peer and namespace: what is borrowed, and what is lent.

    What is requested is this cluster's count of pods' requests; "used" is what kubelets measure, of borrowed pods those
    of the lender; "of" is what the offer allows. With -o wide also bytes and what the quotas of a tenant's namespaces
    count. Bytes of a peer are those of its tunnel, on the gateway's host as root; elsewhere those of its pods.

    \b
    Examples:
      liqodctl usage
      liqodctl usage milan -o json
      liqodctl usage --watch
    """
    refuse_watch(options, watch)

    async def read(session: Session) -> Callable[[], None]:
        facts = await cluster_records(session)
        only = find(peer, facts.peers).metadata.name if peer else ""
        notes: list[str] = []
        known = await _known(session, facts, notes)
        rows = [row for row in usage_rows(known) if row["id"] == only or not only]
        return partial(_show, session, rows, list(dict.fromkeys(notes)))

    in_cluster(options, lambda session: session.again(watch, partial(read, session)))


def _show(session: Session, rows: list[dict[str, Any]], notes: list[str]) -> None:
    columns = WIDE if session.options.output == "wide" else COLUMNS
    session.table([shown(row) for row in rows], columns, empty="nothing is borrowed and nothing is lent")
    for note in notes:
        session.say(note, "yellow")
    session.publish({"rows": rows, "notes": notes})


async def _known(session: Session, facts: ClusterRecords, notes: list[str]) -> Known:
    """Return all that this user may know; ``notes`` gets what is missing, and why."""
    spaces = await _listed(session, NAMESPACES, Object, notes, labels=REMOTE_CLUSTER_LABEL)
    tenants = {one.metadata.name: tenant_of(one) for one in spaces if tenant_of(one)}
    nodes = {one.spec.node_name: one.spec.cluster_id for one in facts.virtual_nodes if one.spec.node_name}
    pods = await _listed(session, PODS, Pod, notes, fields=OCCUPYING_PODS)
    concerned = [(one, whose) for one in pods if (whose := _whose(one, nodes, tenants)) is not None]
    stats = await _stats(session, {one.spec.node_name for one, _ in concerned}, notes)
    used = [
        Used(
            peer=whose[0],
            direction=whose[1],
            namespace=pod.metadata.namespace,
            requests=pod_requests(pod.spec),
            measured=stats.get(Key(pod.metadata.namespace, pod.metadata.name)),
        )
        for pod, whose in concerned
    ]
    return Known(
        names={one.metadata.name: label(one) for one in facts.peers},
        used=used,
        claimed=await _claims(session, tenants, notes),
        bounds=bounds(facts),
        counted=await _counted(session, tenants, notes),
        carried=await _carried(session, facts, notes),
        home={one.metadata.name: home_name_of(one) for one in spaces},
    )


def _whose(pod: Pod, nodes: Mapping[str, str], tenants: Mapping[str, str]) -> tuple[str, Direction] | None:
    """Return the peer of a pod that is borrowed for or lent to; None for any other pod."""
    if pod.spec.node_name in nodes:
        return nodes[pod.spec.node_name], "borrowed"
    if pod.is_offloaded and pod.metadata.namespace in tenants:
        return tenants[pod.metadata.namespace], "lent"
    return None


def bounds(facts: ClusterRecords) -> dict[tuple[str, Direction], Resources]:
    """Return what offers allow in each direction. Pure."""
    found: dict[tuple[str, Direction], Resources] = {}
    for record in facts.virtual_nodes:
        offer = facts.offer_of(record.spec.cluster_id)
        if offer is not None:
            found[record.spec.cluster_id, "borrowed"] = _amounts(offer.spec.offer.resources)
    for cluster in facts.peers:
        if cluster.status.lent is not None and cluster.status.lent.resources:
            found[cluster.metadata.name, "lent"] = _amounts(cluster.status.lent.resources)
    return found


def _amounts(resources: Mapping[str, str]) -> Resources:
    """Return resources of which some may be no quantities: offers come from peers."""
    found = {}
    for name, text in resources.items():
        try:
            found[name] = quantity.parse(str(text))
        except ValueError:
            continue
    return found


async def _listed(
    session: Session, resource: Resource, view: type[T], notes: list[str], *, labels: str = "", fields: str = ""
) -> list[T]:
    """Return all objects of a kind; none, with a note, where this user may not see them."""
    try:
        return (await session.client.list(resource, view=view, labels=labels, fields=fields)).items
    except (Forbidden, NotFound) as error:
        notes.append(f"{resource.plural} are not counted: {error}")
        return []


async def _stats(session: Session, nodes: Iterable[str], notes: list[str]) -> dict[Key, PodUsage]:
    """Return what the kubelets of nodes measure, by pod; those that do not answer are noted."""
    slots, found = DeferredSemaphore(AT_A_TIME), dict[Key, PodUsage]()
    chosen = sorted(filter(None, nodes))
    if len(chosen) > NODES_ASKED:
        notes.append(f"{len(chosen) - NODES_ASKED} nodes are not asked what they measure")

    async def asked(node: str) -> None:
        path = f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary"
        try:
            found.update(measured(await session.client.raw("GET", path)))
        except (KubeError, ValueError) as error:
            notes.append(f"node {node} is not measured: {error}")

    def started(node: str) -> Deferred[None]:
        asking = Deferred.fromCoroutine(asked(node)).addTimeout(PATIENCE, session.reactor)
        return asking.addErrback(lambda failure: late(node, failure))

    def late(node: str, failure: Any) -> None:
        failure.trap(DeferTimeout)
        notes.append(f"node {node} is not measured: no answer in {PATIENCE:g} s")

    await together(slots.run(started, one) for one in chosen[:NODES_ASKED])
    return found


async def _claims(session: Session, tenants: Mapping[str, str], notes: list[str]) -> list[Claimed]:
    """Return the claims whose data is at a peer, and those of peers here."""
    lenders = lenders_of(await _listed(session, PERSISTENTVOLUMES, dict[str, Any], notes))
    found = []
    for claim in await _listed(session, PERSISTENTVOLUMECLAIMS, dict[str, Any], notes):
        space, spec = str(claim["metadata"]["namespace"]), claim.get("spec") or {}
        capacity = (claim.get("status") or {}).get("capacity") or {}
        text = capacity.get("storage") or ((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0"
        size = _amounts({"storage": text}).get("storage", Fraction(0))
        volume = str(spec.get("volumeName") or "")
        if space in tenants:
            found.append(Claimed(peer=tenants[space], direction="lent", namespace=space, size=size))
        elif volume in lenders:
            found.append(Claimed(peer=lenders[volume], direction="borrowed", namespace=space, size=size))
    return found


async def _counted(session: Session, tenants: Mapping[str, str], notes: list[str]) -> dict[tuple[str, str], Resources]:
    """Return what the API server counts in the namespaces of tenants."""
    quotas = (
        await _listed(session, RESOURCEQUOTAS, dict[str, Any], notes, fields=f"metadata.name={NAME}") if tenants else []
    )
    found = {}
    for quota in quotas:
        space = str(quota["metadata"]["namespace"])
        if space in tenants:
            found[tenants[space], space] = _amounts((quota.get("status") or {}).get("used") or {})
    return found


async def _carried(session: Session, facts: ClusterRecords, notes: list[str]) -> dict[str, Carried]:
    """Return the bytes of the tunnels, if this host has them."""
    if not facts.tunnels:
        return {}
    kernel = HostKernel(session.reactor)
    try:
        observed = await observe(kernel, session.settings.network.device)
    except KernelError as error:
        notes.append(f"bytes of tunnels are not known: {error}")
        return {}
    if observed.tunnel is None:
        notes.append("bytes of tunnels are known on the gateway's host alone, to root")
        return {}
    keys = {one.spec.public_key: one.metadata.name for one in facts.tunnels}
    return {
        keys[key]: Carried(received=one.received, sent=one.sent)
        for key, one in observed.tunnel.peers.items()
        if key in keys
    }
