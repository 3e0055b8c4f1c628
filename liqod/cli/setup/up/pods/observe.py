"""Looks at a cluster for ``up --in-cluster``; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.records import RecordingClient
from liqod.cli.console.render import printable
from liqod.cli.console.session import Session
from liqod.cli.setup.account import namespace_is_ours
from liqod.cli.setup.check import examine
from liqod.cli.setup.definitions import downgrade
from liqod.cli.setup.install import ensure_objects, namespace_object
from liqod.cli.setup.surroundings.judge import ENFORCE, judge_pod_security
from liqod.cli.setup.surroundings.other_form import DAEMON, MANAGER, daemon_pods, managed_by, no_pods
from liqod.cli.setup.up.chart.render import Body
from liqod.cli.setup.up.chart.syntax import TemplateError
from liqod.cli.setup.up.observe import HERE, ClusterWrites, invitation, lacking, leaving, unmet
from liqod.cli.setup.up.pods.plan import FoundInCluster, progress, telling
from liqod.cli.setup.up.pods.wanted import (
    CONFIGURATION,
    GATEWAY,
    HOSTNAME,
    KINDS,
    LABELS,
    WORKLOADS,
    Choices,
    Present,
    choose,
    objects,
    settings_of,
)
from liqod.cli.status.cluster_records import leader
from liqod.cli.status.own_facts import own_facts
from liqod.cli.status.whoami import own_cluster
from liqod.config.load import SettingsError
from liqod.config.schema import Settings
from liqod.facts.software import real_nodes
from liqod.identity.pairing import Token
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.manifests import MANAGED_BY
from liqod.kube.requests import item, query
from liqod.kube.resources import CONFIGMAPS, DAEMONSETS, DEPLOYMENTS, NAMESPACES, NODES, PODS, Resource
from liqod.kube.writing.ensure import ensure
from liqod.model.objects.node import Node

TUNNEL: Final = "liqod-tunnel"
LOG_LINES: Final = "200"
LOG_BYTES: Final = "65536"


@attrs.frozen(kw_only=True)
class Wishes:
    """What the command line names; None or "" leaves it as it is, or as is usual.

    ``gateway`` is the name of a node, "" for no tunnels.
    """

    image: str = ""
    local_image: bool = False
    name: str = ""
    gateway: str | None = None
    userspace: bool = False
    configuration: str | None = None


@attrs.frozen(kw_only=True)
class InClusterSight:
    """What was found, with the objects that belong in the cluster, and the settings of each process."""

    found: FoundInCluster
    objects: Sequence[Body] = ()
    settings: Sequence[Settings] = ()
    is_ours: bool = True


async def look(session: Session, wishes: Wishes, token: Token | None) -> InClusterSight:
    """Return what there is of an installation as pods. Raises CliError, or KubeError."""
    if failed := unmet([one async for one in examine(session, pre=True)], HERE):
        return InClusterSight(found=FoundInCluster(failed=failed))
    choices = await _choices(session, wishes)
    namespace = session.settings.kubernetes.namespace
    try:
        wanted = objects(choices, namespace)
        settings = settings_of(wanted, choices.configuration)
    except TemplateError as error:
        raise CliError(errors.DEFECT, f"the chart: {error}", "please report it") from error
    except SettingsError as error:
        hint = "correct the configuration; etc/liqod.toml documents every setting"
        raise CliError(errors.CONFIGURATION, "\n  ".join(error.problems), hint, errors.USAGE) from None
    is_ours = await namespace_is_ours(session)
    now = await workloads(session)
    pods = await pods_of(session)
    waiting = list(progress(now, pods).waiting)
    records, changes = await _records(session, settings), await _changes(session, wanted, is_ours=is_ours)
    refused = await lacking(session, [*records.rights, *changes.rights])
    return InClusterSight(
        found=FoundInCluster(
            failed=[*refused, *await leaving(session), *filter(None, [await downgrade(session)])],
            obstacles=[*await _obstacles(session, pods, is_there=bool(now)), *await _unfit(session, is_ours=is_ours)],
            objects=records.lines,
            pods=changes.lines,
            waiting=waiting,
            keyed=await is_at_work(session),
            invitation=await invitation(session, token) if token is not None else None,
        ),
        objects=wanted,
        settings=settings,
        is_ours=is_ours,
    )


async def is_at_work(session: Session) -> bool:
    """Return whether a daemon has made the cluster's key, and has said what it found out about the cluster."""
    record = await own_facts(session)
    return record is not None and bool(record.status.facts) and (await own_cluster(session)).has_key


async def workloads(session: Session) -> list[Body]:
    """Return what runs pods, of this program's objects."""
    namespace = session.settings.kubernetes.namespace
    found: list[Body] = []
    for resource in WORKLOADS:
        listed: list[Body] = (await session.client.list(resource, namespace, labels=LABELS)).items
        # The objects of a list need not say what they are.
        found += [{**one, "kind": resource.kind} for one in listed]
    return found


async def pods_of(session: Session) -> list[Body]:
    """Return the pods of this program's objects."""
    found: list[Body] = (await session.client.list(PODS, session.settings.kubernetes.namespace, labels=LABELS)).items
    return found


async def log_of(session: Session, pod: str) -> str:
    """Return the lines of a pod's log that tell why it is not ready, or nothing where it cannot be read."""
    path = item(PODS, session.settings.kubernetes.namespace, pod, "log")
    try:
        text = await session.client.raw("GET", query(path, {"tailLines": LOG_LINES, "limitBytes": LOG_BYTES}))
    except KubeError:
        return ""
    return "\n".join(map(printable, telling(text.decode("utf-8", "replace"))))


async def write(session: Session, wanted: Sequence[Body], *, is_ours: bool) -> None:
    """Write the objects of the pods, and remove those that an earlier run made and that are no longer wanted."""
    namespace = session.settings.kubernetes.namespace
    if is_ours:
        # A cluster may have a stricter level for namespaces that say nothing.
        body = namespace_object(namespace)
        body["metadata"]["labels"][ENFORCE] = "privileged"
        await ensure(session.client, NAMESPACES, body)
    for body in wanted:
        await ensure(session.client, KINDS[body["kind"]], body, defaulted=True)
    for resource, name in await stale(session, wanted):
        await session.client.delete(resource, name, namespace, propagation="Background")


async def stale(session: Session, wanted: Sequence[Body]) -> list[tuple[Resource, str]]:
    """Return the objects of this program that are there and not wanted, pods' owners first."""
    names = {(one["kind"], one["metadata"]["name"]) for one in wanted}
    namespace = session.settings.kubernetes.namespace
    order = sorted(KINDS.values(), key=lambda one: one not in WORKLOADS)
    return [
        (resource, found["metadata"]["name"])
        for resource in order
        for found in (await session.client.list(resource, namespace, labels=LABELS)).items
        if (resource.kind, found["metadata"]["name"]) not in names
    ]


async def _choices(session: Session, wishes: Wishes) -> Choices:
    nodes = [
        one for one in real_nodes((await session.client.list(NODES, view=Node)).items) if not one.spec.unschedulable
    ]
    selector: Mapping[str, str] | None = None
    if wishes.gateway is not None:
        selector = _selector(nodes, wishes.gateway) if wishes.gateway else {}
    mine = await own_cluster(session)
    usual = Choices(
        "liqod",
        session.settings.cluster.name or f"cluster-{mine.cluster_id[:8].rstrip('-')}",
        userspace=wishes.userspace,
        local_image=wishes.local_image,
    )
    present = Present(
        await _there(session, DEPLOYMENTS, DAEMON),
        await _there(session, DAEMONSETS, GATEWAY),
        await _there(session, CONFIGMAPS, CONFIGURATION),
        await _there(session, DAEMONSETS, TUNNEL),
    )
    return choose(
        present,
        image=wishes.image,
        name=wishes.name,
        gateway=selector,
        configuration=wishes.configuration,
        nodes=sum(not one.spec.taints for one in nodes),
        usual=usual,
    )


def _selector(nodes: Sequence[Node], name: str) -> dict[str, str]:
    """Return the label by which one node alone is selected. Raises CliError where there is no such node."""
    found = next((one for one in nodes if one.metadata.name == name), None)
    if found is None:
        names = ", ".join(one.metadata.name for one in nodes)
        what = f"--gateway: there is no node {name} that pods may run on"
        raise CliError(errors.CONFIGURATION, what, f"it is one of {names}", errors.USAGE)
    return {HOSTNAME: found.metadata.labels.get(HOSTNAME, name)}


async def _there(session: Session, resource: Resource, name: str) -> Body | None:
    try:
        found: Body = await session.client.get(resource, name, session.settings.kubernetes.namespace)
    except NotFound:
        return None
    return found if (found["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER else None


async def managed_elsewhere(session: Session) -> str:
    """Return who else has liqod's pods in this cluster, and what to do then; empty where nobody has."""
    there = await daemon_pods(session)
    return managed_by(there) if there is not None else ""


async def _obstacles(session: Session, pods: Sequence[Body], *, is_there: bool) -> list[str]:
    """Return what is in the way: pods that another program manages, or a daemon that runs elsewhere.

    ``is_there``: there are workloads of this installation, and a pod of theirs that is gone may hold the lease still.
    """
    if managed := await managed_elsewhere(session):
        return [managed]
    return no_pods(await leader(session), _names(pods), are_there=is_there)


def _names(pods: Sequence[Body]) -> set[str]:
    return {str(one["metadata"]["name"]) for one in pods}


async def _unfit(session: Session, *, is_ours: bool) -> list[str]:
    """Return why pods with the host's network are not admitted in a namespace that was there before."""
    try:
        there = await session.client.get(NAMESPACES, session.settings.kubernetes.namespace)
    except NotFound:
        return []
    if is_ours:
        return []
    level = (there["metadata"].get("labels") or {}).get(ENFORCE, "")
    finding = judge_pod_security(session.settings.kubernetes.namespace, level)
    return [f"{finding.text}; {finding.hint}"] if finding is not None and finding.hint else []


async def _records(session: Session, settings: Sequence[Settings]) -> ClusterWrites:
    """Return what has to be written for the accounts of the processes."""
    client = RecordingClient(session.client.config, session.reactor, user_agent="liqodctl")
    try:
        for one in settings:
            async for _ in ensure_objects(attrs.evolve(session, client=client, settings=one)):
                pass
    finally:
        await client.close()
    return ClusterWrites.of(client)


async def _changes(session: Session, wanted: Sequence[Body], *, is_ours: bool) -> ClusterWrites:
    """Return what has to be written for the pods."""
    client = RecordingClient(session.client.config, session.reactor, user_agent="liqodctl")
    try:
        await write(attrs.evolve(session, client=client), wanted, is_ours=is_ours)
    finally:
        await client.close()
    return ClusterWrites.of(client)
