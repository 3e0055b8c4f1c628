"""``install`` and ``uninstall``: creates and removes liqod's objects in the own cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import click

from liqod.agent.account import admission_policies
from liqod.agent.account.names import account_of
from liqod.agent.account.objects import LABELS, account, bound_secret, roles
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, yes_option
from liqod.cli.console.render import as_documents, plural
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.console.terminal import confirm, echo_document
from liqod.cli.main import cli
from liqod.cli.network.plan import leave_host
from liqod.cli.setup import prepared_namespaces
from liqod.cli.setup.account import (
    empty_storage_namespaces,
    ensure_account,
    installed,
    kubeconfig,
    namespace_is_ours,
    own_objects,
    remove_endless_token,
    storage_objects,
    token_file,
    token_of,
    write_private,
)
from liqod.cli.setup.definitions import refuse_downgrade
from liqod.cli.setup.gone import deleted
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.commands import (
    host_options,
    install_host,
    refuse_host_options,
    role_option,
    roles_of,
    uninstall_host,
)
from liqod.cli.setup.host.role import may_lead, refuse_role
from liqod.cli.setup.surroundings.foreign import refuse_foreign, settle_foreign
from liqod.cli.setup.surroundings.other_form import refuse_host_daemon
from liqod.cli.setup.written import Change, WrittenObject, brief
from liqod.cli.status.cluster_records import leader
from liqod.config.schema import Settings
from liqod.hosting.tenants import policies
from liqod.hosting.tenants.access import ensure_borrower_role, tenant_objects
from liqod.hosting.tenants.contract import PRIORITY_CLASS, Contract
from liqod.hosting.tenants.rights import BORROWER_ROLE
from liqod.kube import manifests
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CLUSTERROLES,
    CRDS,
    FOREIGNCLUSTERS,
    LEASES,
    MUTATINGPOLICIES,
    MUTATINGPOLICYBINDINGS,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PRIORITYCLASSES,
    RESOURCESLICES,
    RUNTIMECLASSES,
    SEARCHDOMAINS,
    SHADOWPODS,
    STORAGECLASSES,
    VALIDATINGPOLICIES,
    VALIDATINGPOLICYBINDINGS,
    VIRTUALNODES,
    Resource,
)
from liqod.kube.writing.ensure import ensure
from liqod.kubelet.node.forge import LEASE_NAMESPACE
from liqod.model.names import (
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    OVERLAY_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    TENANT_NAMESPACE_LABEL,
    TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
)
from liqod.model.objects.meta import Object
from liqod.model.records.views import VirtualNode
from liqod.webhook import mutating_policies
from liqod.webhook.runtime_class import runtime_class

RECORDS = (
    RESOURCESLICES,
    VIRTUALNODES,
    SHADOWPODS,
    ADVERTISEMENTS,
    NATTINGTABLES,
    FOREIGNCLUSTERS,
    SEARCHDOMAINS,
)
"""Kinds of records in the order of their removal: first those that cause effects in other clusters."""


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Print the objects as YAML and install nothing.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each object, not for each kind of them.")
@click.option("--adopt", is_flag=True, help="Take over the CRDs and storage class that Liqo, now removed, left behind.")
@click.option(
    "--daemon-kubeconfig",
    default="",
    metavar="FILE",
    help="Write a kubeconfig for the daemon's account, which has only the rights that it needs.",
)
@click.option("--pods", is_flag=True, help="For daemons in pods: refuse where a daemon of a host leads.")
@role_option
@host_options("Set up this host, not the cluster: configuration, user, units, completions.")
@cluster_options
def install(
    options: Options,
    only_print: bool,
    verbose: bool,
    adopt: bool,
    daemon_kubeconfig: str,
    *,
    pods: bool,
    roles: tuple[str, ...],
    host: bool,
    root: Path,
    dry_run: bool,
) -> None:
    """Install liqod in your own cluster; requires administrator rights. With --host: as a service of this host.

    Creates the CRDs, the namespace, an account for the daemon with the rights for this configuration, and the role of
    borrowers. Run it again after an upgrade and after a change of the configuration; it is idempotent. With -v each
    object has a line of its own.

    \b
    Examples:
      liqodctl install --daemon-kubeconfig /etc/liqod/kubeconfig
      liqodctl install --print | less
      liqodctl install --host --dry-run   only the service of this host
    """
    if host:
        if only_print or adopt or daemon_kubeconfig or pods:
            raise click.UsageError("--host goes with --role, --dry-run and --root only.")
        install_host(Output(options), cli, roles_of(options, root, roles), root=root, dry_run=dry_run)
        return
    refuse_host_options(root, roles, dry_run=dry_run)
    if pods and daemon_kubeconfig:
        raise click.UsageError("--daemon-kubeconfig is for a daemon of a host: --pods does not go with it.")
    # The configuration may name the kubeconfig that this command will write.
    settings = options.settings(look_at_files=False)
    refuse_role(settings, apply.in_use(Path("/")))
    if only_print:
        _print_objects(Output(options), settings)
        return

    async def work(session: Session) -> None:
        await refuse_downgrade(session)
        if pods:
            await refuse_host_daemon(session)
        changes = await say_written(session, settle_foreign(session, adopt=adopt), verbose=verbose)
        changes += await say_written(session, ensure_objects(session), verbose=verbose)
        if daemon_kubeconfig:
            async for line in _write_kubeconfig(session, daemon_kubeconfig):
                session.say(line)
                changes.append(line)
        session.say("installed; run `liqodctl check`, then start the daemon", "green")
        session.publish({"installed": True, "changes": [str(one) for one in changes]})

    in_cluster(options, work, settings)


async def say_written(
    session: Session, written: AsyncIterator[Change], *, verbose: bool = False, indent: str = ""
) -> list[Change]:
    """Print what is written, each object if ``verbose``, else each kind; return all of it."""
    changes: list[Change] = []
    try:
        async for change in written:
            changes.append(change)
            if verbose:
                session.say(f"{indent}{change}")
    finally:
        # Where an error ends it, what was written until then is said as well.
        for line in [] if verbose else brief(changes):
            session.say(f"{indent}{line}")
    return changes


async def _write_kubeconfig(session: Session, path: str) -> AsyncIterator[str]:
    """Write the kubeconfig of the daemon's account; yields a line for each thing done."""
    settings = session.settings
    write_private(path, kubeconfig(session.client.config, await token_of(session), token_file(path)))
    who = f"{settings.kubernetes.namespace}/{account_of(settings.daemon.role)}"
    yield f"{path}: written; the daemon's kubeconfig, account {who}"
    if line := await remove_endless_token(session):
        yield line


async def ensure_objects(session: Session) -> AsyncIterator[Change]:
    """Create or update all of liqod's objects in the cluster; yields each that was written.

    For a process beside the one that leads only definitions, namespace and its account: of what the cluster's
    configuration says its host knows a part.
    """
    namespace = namespace_object(session.settings.kubernetes.namespace)
    kept: list[str] = []
    created: list[str] = []
    for name in await manifests.ensure(session.client, kept=kept.append, created=created.append, unmarked=True):
        yield WrittenObject(CRDS.kind, name, name in created)
    for sentence in kept:
        yield sentence
    try:
        await session.client.create(NAMESPACES, namespace)
        yield f"namespace {namespace['metadata']['name']}: created"
    except AlreadyExists:
        pass
    if not may_lead(session.settings):
        async for line in ensure_account(session):
            yield line
        return
    await ensure_borrower_role(session.client, Contract.of(session.settings))
    parts: tuple[Callable[[Session], AsyncIterator[Change]], ...] = (
        prepared_namespaces.disown,
        label_leases,
        ensure_policies,
        ensure_account,
        ensure_offloadable,
        ensure_runtime_class,
    )
    for part in parts:
        async for line in part(session):
            yield line


def objects_of(settings: Settings) -> list[dict[str, Any]]:
    """Return what ``install`` creates on an API server that has every kind, definitions first. Pure."""
    home, name = settings.kubernetes.namespace, account_of(settings.daemon.role)
    own = [account(home, name), bound_secret(home, name), *(body for _, body in roles(settings))]
    objects = [*manifests.definitions(), namespace_object(home)]
    if may_lead(settings):
        bounded = [*admission_policies.policies(settings), *admission_policies.bindings(settings)]
        pods = [*mutating_policies.policies(), *mutating_policies.bindings()] if settings.webhook.enabled else []
        borrowers = tenant_objects(Contract.of(settings))
        objects += [*storage_objects(settings), *own, *bounded, *borrowers, *pods, runtime_class()]
    else:
        objects += own
    return objects


def _print_objects(output: Output, settings: Settings) -> None:
    objects = objects_of(settings)
    if output.options.output == "json":
        output.publish(objects)
    else:
        echo_document(as_documents(objects))


async def label_leases(session: Session) -> AsyncIterator[str]:
    """Label the Leases of virtual nodes, before a policy lets the daemon renew those with the label only; yields a line
    for each that earlier versions made without it.
    """
    virtual = f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}"
    nodes = {one.metadata.name for one in (await session.client.list(NODES, view=Object, labels=virtual)).items}
    unlabelled = f"{TYPE_LABEL}!={VIRTUAL_NODE_TYPE}"
    leases = (await session.client.list(LEASES, LEASE_NAMESPACE, view=Object, labels=unlabelled)).items if nodes else []
    patch = {"metadata": {"labels": {TYPE_LABEL: VIRTUAL_NODE_TYPE}}}
    for name in sorted(nodes & {one.metadata.name for one in leases}):
        await session.client.patch(LEASES, name, patch, LEASE_NAMESPACE, view=None)
        yield f"Lease {name}: labelled {virtual}"


async def ensure_policies(session: Session) -> AsyncIterator[Change]:
    """Restrict the daemon's account by admission policies; yields each object that was written."""
    for resource, bodies in (
        (VALIDATINGPOLICIES, admission_policies.policies(session.settings)),
        (VALIDATINGPOLICYBINDINGS, admission_policies.bindings(session.settings)),
    ):
        for body in bodies:
            try:
                done = await ensure(session.client, resource, body, defaulted=True)
            except NotFound:
                yield (
                    "this API server has no ValidatingAdmissionPolicies (they need Kubernetes 1.30): the daemon's "
                    "account is restricted by its role alone"
                )
                return
            if done:
                yield WrittenObject(resource.kind, body["metadata"]["name"], done == "created")


async def ensure_offloadable(session: Session) -> AsyncIterator[Change]:
    """Have the API server itself let pods onto virtual nodes, if it can; yields each object that changed."""
    if not session.settings.webhook.enabled:
        for line in await _remove_offloadable(session):
            yield f"{line}: removed, the webhook is disabled"
        return
    for resource, bodies in (
        (MUTATINGPOLICIES, mutating_policies.policies()),
        (MUTATINGPOLICYBINDINGS, mutating_policies.bindings()),
    ):
        for body in bodies:
            try:
                done = await ensure(session.client, resource, body, defaulted=True)
            except NotFound:
                return  # before Kubernetes 1.36: the webhook does all of it
            if done:
                yield WrittenObject(resource.kind, body["metadata"]["name"], done == "created")


async def ensure_runtime_class(session: Session) -> AsyncIterator[Change]:
    """Install the RuntimeClass by which pods ask for virtual nodes; yields it if it was written, or is another's.

    That of a Liqo installation means the same, and is left to it.
    """
    body = runtime_class()
    name, ours = body["metadata"]["name"], body["metadata"]["labels"]
    try:
        found = await session.client.get(RUNTIMECLASSES, name, view=Object)
    except NotFound:
        pass
    else:
        if not ours.items() <= found.metadata.labels.items():
            yield f"RuntimeClass {name}: another installation's, left as it is"
            return
    if done := await ensure(session.client, RUNTIMECLASSES, body, ["handler"], defaulted=True):
        yield WrittenObject(RUNTIMECLASSES.kind, name, done == "created")


def namespace_object(name: str) -> dict[str, Any]:
    """Return the namespace for liqod's own objects; the labels say that it was not there before."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(LABELS)}}


@click.command()
@click.option("--force", is_flag=True, help="Even with peerings, or while the daemon is running.")
@click.option("--this-host", is_flag=True, help="Only this host's network configuration, nothing in the cluster.")
@click.option("--keep-namespace", is_flag=True, help="Empty liqod's namespace, and keep it: another tool made it.")
@yes_option
@host_options(
    "Remove what `install --host` wrote to this host, and nothing in the cluster.",
    "Remove nothing: fail where peerings are left; with --host, show each step.",
)
@cluster_options
def uninstall(
    options: Options,
    *,
    force: bool,
    this_host: bool,
    keep_namespace: bool,
    yes: bool,
    host: bool,
    root: Path,
    dry_run: bool,
) -> None:
    """Remove liqod from your own cluster and print what was removed.

    Records, virtual nodes, tenant namespaces with everything that peers run in them, the webhook, the cluster's key,
    the CRDs, and the network configuration of this host. Stop the daemon first.

    \b
    Examples:
      liqodctl uninstall
      liqodctl uninstall --this-host      only this host's network
      liqodctl uninstall --host           only what `install --host` wrote
    """
    if host:
        if force or this_host or keep_namespace:
            raise click.UsageError("--host goes with --dry-run and --root only.")
        uninstall_host(Output(options), root=root, dry_run=dry_run)
        return
    refuse_host_options(root)
    if dry_run and this_host:
        raise click.UsageError("--this-host has no --dry-run; `liqodctl plan` shows this host's network.")

    async def work(session: Session) -> None:
        if this_host:
            _show_removed(session, await leave_host(session), "nothing of liqod was found on this host")
            return
        await refuse_foreign(session)
        if dry_run:
            await refuse_peerings(session)
            session.say("no peerings are left; nothing was removed")
            session.publish({"removed": []})
            return
        await _refuse_if_in_use(session, force)
        if not yes:
            confirm("Remove liqod, its records and the cluster's key from this cluster?")
        kept = keep_namespace or not await namespace_is_ours(session)
        # The host first: its configuration is derived from the records, so a retry needs them.
        receipt = [*await leave_host(session), *await remove_all(session, keep_namespace=kept)]
        if kept and not keep_namespace:
            session.say(f"the namespace {session.settings.kubernetes.namespace} was there before liqod and stays")
        _show_removed(session, receipt, "nothing of liqod was found")
        await deleted(session, keep_namespace=kept)

    in_cluster(options, work)


def _show_removed(session: Session, receipt: list[str], empty: str) -> None:
    for line in receipt:
        session.say(f"removed {line}")
    session.say(f"{plural(len(receipt), 'object')} removed" if receipt else empty)
    session.publish({"removed": receipt})


async def _refuse_if_in_use(session: Session, force: bool) -> None:
    if force:
        return
    leads = await leader(session)
    if leads is not None and leads.alive:
        raise CliError(
            errors.IN_USE,
            f"the daemon {leads.holder} is running and would create its records again",
            "stop it first (systemctl stop liqod), or add --force",
        )
    await refuse_peerings(session)


async def refuse_peerings(session: Session) -> None:
    """Raise CliError where virtual nodes or tenants are left."""
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
            "end them with `liqodctl unpeer`, or add --force to remove them with the peers' pods",
        )


async def remove_all(session: Session, *, keep_namespace: bool = False) -> list[str]:
    """Remove liqod's objects in reverse order of their creation; returns a line for each object."""
    receipt: list[str] = []
    for name in await _names(session, MUTATINGWEBHOOKS):
        if name.startswith("liqod"):
            receipt += await _remove(session, MUTATINGWEBHOOKS, name)
    receipt += await _remove_offloadable(session)
    for resource in RECORDS:
        for record in await _objects(session, resource):
            receipt += await _remove_record(session, resource, record)
    virtual = await session.client.list(NODES, view=Object, labels=f"{TYPE_LABEL}={VIRTUAL_NODE_TYPE}")
    for node in virtual.items:
        receipt += await _remove(session, NODES, node.metadata.name)
    receipt += await _remove_announcements(session)
    for label in (REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL):
        for tenant in (await session.client.list(NAMESPACES, view=Object, labels=label)).items:
            receipt += await _remove(session, NAMESPACES, tenant.metadata.name)
    ours_alone = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
    for ours in (await session.client.list(RUNTIMECLASSES, view=Object, labels=ours_alone)).items:
        receipt += await _remove(session, RUNTIMECLASSES, ours.metadata.name)
    # Only the StorageClass: its PersistentVolumes are the only reference to the users' data.
    for ours in (await session.client.list(STORAGECLASSES, view=Object, labels=ours_alone)).items:
        receipt += await _remove(session, STORAGECLASSES, ours.metadata.name)
    receipt += await _remove_policies(session)
    receipt += await _remove(session, CLUSTERROLES, BORROWER_ROLE)
    receipt += await _remove_account(session, keep_namespace=keep_namespace)
    for definition in reversed(manifests.definitions()):
        receipt += await _remove(session, CRDS, definition["metadata"]["name"])
    return receipt


async def _remove_announcements(session: Session) -> list[str]:
    """Remove what network agents said of their hosts at these Nodes."""
    receipt = []
    nothing: Mapping[str, Any] = {"metadata": {"annotations": {OVERLAY_ANNOTATION: None}}}
    for node in (await session.client.list(NODES, view=Object)).items:
        if OVERLAY_ANNOTATION in node.metadata.annotations:
            await session.client.patch(NODES, node.metadata.name, nothing, view=None)
            receipt.append(f"the annotation {OVERLAY_ANNOTATION} of Node {node.metadata.name}")
    return receipt


async def _remove_account(session: Session, *, keep_namespace: bool) -> list[str]:
    """Remove the account's roles and liqod's namespaces; the one for storage is kept while it has PVCs."""
    own = session.settings.kubernetes.namespace
    receipt: list[str] = []
    # The account is deleted with its namespace; bindings and roles in other namespaces would outlive it.
    for resource, where, name in await installed(session):
        receipt += await _remove(session, resource, name, where)
    for storage in await empty_storage_namespaces(session):
        receipt += await _remove(session, NAMESPACES, storage)
    if not keep_namespace:
        return [*receipt, *await _remove(session, NAMESPACES, own)]
    for resource, name in await own_objects(session):
        receipt += await _remove(session, resource, name, own)
    return receipt


async def _remove_policies(session: Session) -> list[str]:
    receipt: list[str] = []
    for resource, bodies in (
        (VALIDATINGPOLICYBINDINGS, [*policies.bindings(), *admission_policies.bindings(session.settings)]),
        (VALIDATINGPOLICIES, [*policies.policies(), *admission_policies.policies(session.settings)]),
    ):
        for body in bodies:
            receipt += await _remove(session, resource, body["metadata"]["name"])
    receipt += await _remove(session, PRIORITYCLASSES, PRIORITY_CLASS)
    return receipt


async def _remove_offloadable(session: Session) -> list[str]:
    receipt: list[str] = []
    for resource, bodies in (
        (MUTATINGPOLICYBINDINGS, mutating_policies.bindings()),
        (MUTATINGPOLICIES, mutating_policies.policies()),
    ):
        for body in bodies:
            receipt += await _remove(session, resource, body["metadata"]["name"])
    return receipt


async def _objects(session: Session, resource: Resource) -> list[Object]:
    try:
        return (await session.client.list(resource, view=Object)).items
    except NotFound:
        return []


async def _names(session: Session, resource: Resource) -> list[str]:
    return [found.metadata.name for found in await _objects(session, resource)]


async def _remove_record(session: Session, resource: Resource, record: Object) -> list[str]:
    """Remove a record and its finalizers: the daemon, which would remove them, is stopped."""
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
