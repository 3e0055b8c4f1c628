"""``install`` and ``uninstall``: what liqod needs in one's own cluster, and its complete removal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from liqod.cli import errors
from liqod.cli.errors import CliError
from liqod.cli.own import leader
from liqod.cli.render import as_documents
from liqod.cli.session import Options, Session, cluster_options, in_cluster
from liqod.cli.trust import confirm
from liqod.kube import manifests
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CLUSTERROLES,
    CRDS,
    FOREIGNCLUSTERS,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    SHADOWPODS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.meta import Object
from liqod.model.names import REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.records import VirtualNode

RECORDS = (VIRTUALNODES, SHADOWPODS, ADVERTISEMENTS, NATTINGTABLES, FOREIGNCLUSTERS)
"""Our records, in the order of their removal: what acts on others first."""


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Show what would be installed, as YAML, and end.")
@cluster_options
def install(options: Options, only_print: bool) -> None:
    """Install the definitions of liqod's records, and its namespace, in one's own cluster."""
    namespace = namespace_object(options.settings().kubernetes.namespace)
    if only_print:
        click.echo(as_documents([*manifests.definitions(), namespace]), nl=False)
        return

    async def work(session: Session) -> None:
        for name in await manifests.ensure(session.client):
            click.echo(f"definition {name}: installed")
        try:
            await session.client.create(NAMESPACES, namespace)
            click.echo(f"namespace {namespace['metadata']['name']}: created")
        except AlreadyExists:
            pass
        click.echo("installed; `liqodctl check` looks at the rest, then start the daemon")

    in_cluster(options, work)


def namespace_object(name: str) -> dict[str, Any]:
    """Return the namespace for liqod's own objects."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@click.command()
@click.option("--force", is_flag=True, help="Also while there are peerings, or while the daemon runs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def uninstall(options: Options, force: bool, yes: bool) -> None:
    """Remove everything of liqod from one's own cluster, and say what was removed.

    Records, virtual nodes, tenants' namespaces with all that peers run in them, the webhook, the cluster's key, the
    definitions. Stop the daemon first.
    """

    async def work(session: Session) -> None:
        await _refuse_if_in_use(session, force)
        if not yes:
            confirm("Remove liqod, its records and the cluster's key from this cluster?")
        receipt = await remove_all(session)
        for line in receipt:
            click.echo(f"removed {line}")
        click.echo(f"{len(receipt)} objects removed" if receipt else "there was nothing of liqod")

    in_cluster(options, work)


async def _refuse_if_in_use(session: Session, force: bool) -> None:
    if force:
        return
    leads = await leader(session)
    if leads is not None and leads.alive:
        raise CliError(
            errors.IN_USE,
            f"the daemon {leads.holder} runs and would make its records anew",
            "stop it first (systemctl stop liqod), or add --force",
        )
    try:
        nodes = (await session.client.list(VIRTUALNODES, view=VirtualNode)).items
    except NotFound:
        return
    tenants = await session.client.list(NAMESPACES, view=Object, labels=REMOTE_CLUSTER_LABEL)
    peers = {node.spec.cluster_id for node in nodes}
    peers |= {tenant.metadata.labels[REMOTE_CLUSTER_LABEL] for tenant in tenants.items}
    if peers:
        raise CliError(
            errors.IN_USE,
            f"there are peerings with {', '.join(sorted(peers))}",
            "end them with `liqodctl distrust`, or add --force to remove them with what peers run here",
        )


async def remove_all(session: Session) -> list[str]:
    """Remove what liqod made, in reverse order of its making; returns a line for each thing."""
    receipt: list[str] = []
    for name in await _names(session, MUTATINGWEBHOOKS):
        if name.startswith("liqod"):
            receipt += await _remove(session, MUTATINGWEBHOOKS, name)
    for resource in RECORDS:
        for record in await _objects(session, resource):
            receipt += await _release(session, resource, record)
    virtual = await session.client.list(NODES, view=Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")
    for node in virtual.items:
        receipt += await _remove(session, NODES, node.metadata.name)
    for label in (REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL):
        for tenant in (await session.client.list(NAMESPACES, view=Object, labels=label)).items:
            receipt += await _remove(session, NAMESPACES, tenant.metadata.name)
    receipt += await _remove(session, CLUSTERROLES, "liqod-borrower")
    receipt += await _remove(session, NAMESPACES, session.settings.kubernetes.namespace)
    for definition in reversed(manifests.definitions()):
        receipt += await _remove(session, CRDS, definition["metadata"]["name"])
    return receipt


async def _objects(session: Session, resource: Resource) -> list[Object]:
    try:
        return (await session.client.list(resource, view=Object)).items
    except NotFound:
        return []


async def _names(session: Session, resource: Resource) -> list[str]:
    return [found.metadata.name for found in await _objects(session, resource)]


async def _release(session: Session, resource: Resource, record: Object) -> list[str]:
    """Remove a record; finalizers go first, because the daemon that would honour them is stopped."""
    name, namespace = record.metadata.name, record.metadata.namespace
    if record.metadata.finalizers:
        nothing: Mapping[str, Any] = {"metadata": {"finalizers": None}}
        await session.client.patch(resource, name, nothing, namespace, view=None)
    return await _remove(session, resource, name, namespace)


async def _remove(session: Session, resource: Resource, name: str, namespace: str = "") -> list[str]:
    try:
        await session.client.delete(resource, name, namespace, missing_ok=False)
    except NotFound:
        return []
    return [f"{resource.kind} {namespace}/{name}" if namespace else f"{resource.kind} {name}"]
