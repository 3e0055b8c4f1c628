"""``offload`` and ``unoffload``: enables or disables offloading of a namespace."""

from __future__ import annotations

from typing import Any, Final

import attrs
import click
from twisted.internet.defer import Deferred, maybeDeferred

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import Group
from liqod.cli.console.options import Options, group_options, record_options, wait_options
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.whoami import own_cluster
from liqod.cli.workloads import dry_run
from liqod.kube.cache import wait
from liqod.kube.cache.informer import Informer
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import NAMESPACEOFFLOADINGS, NAMESPACES, NATTINGTABLES
from liqod.model.names import ENABLED_LABEL
from liqod.model.objects import label_selector
from liqod.model.objects.meta import Object
from liqod.model.records.offloading import BOTH, DEFAULT_NAME, LOCAL, NAME, REMOTE, SAME_NAME, SELECTED_NAME
from liqod.model.records.offloading import NamespaceOffloading as Offloading
from liqod.model.records.views import NamespaceNattingTable

COLUMNS: Final = {
    "namespace": "NAMESPACE",
    "enabled": "ENABLED",
    "mapping": "MAPPING",
    "placement": "PLACEMENT",
    "phase": "PHASE",
    "remote": "REMOTE",
    "why": "WHY",
}
_FORBIDDEN: Final = ("kube-system", "kube-public", "kube-node-lease")


@click.group(cls=Group, aliases={"ns": "namespace", "namespaces": "namespace"})
@group_options
def offload() -> None:
    """Allow the pods of a namespace to run in other clusters.

    \b
    Example:
      liqodctl offload namespace shop
    """


@click.group(cls=Group, aliases={"ns": "namespace", "namespaces": "namespace"})
@group_options
def unoffload() -> None:
    """Bring the pods of a namespace home.

    \b
    Example:
      liqodctl unoffload namespace shop --wait
    """


@offload.command("namespace")
@click.argument("name", metavar="NAME", shell_complete=complete.namespaces)
@click.option(
    "--placement",
    type=click.Choice([LOCAL, REMOTE, BOTH], case_sensitive=False),
    help="Where new pods may run [LocalAndRemote].",
)
@click.option(
    "--strategy",
    type=click.Choice([DEFAULT_NAME, SAME_NAME, SELECTED_NAME], case_sensitive=False),
    help="Name of the remote namespace: name and cluster ID, the same name, or --remote-name [DefaultName].",
)
@click.option("--remote-name", default="", metavar="NAME", help="Name of the remote namespace, with SelectedName.")
@click.option(
    "--selector",
    "selectors",
    multiple=True,
    metavar="LABELS",
    help="Clusters, by labels of their virtual nodes: 'region=eu,tier in (gold)'; repeatable, ORed; '' is all [all].",
)
@wait_options(default=False, seconds=60)
@record_options
def offload_namespace(
    options: Options,
    *,
    name: str,
    placement: str | None,
    strategy: str | None,
    remote_name: str,
    selectors: tuple[str, ...],
    wait: bool,
    timeout: float,
) -> None:
    """Allow the pods of a namespace to run in other clusters; by default in all of them, and in this one.

    With --wait, return when every selected cluster has the namespace, or needs none before the first pod. With
    --dry-run and without -o, show what would become of each cluster, pod and object.

    \b
    Examples:
      liqodctl offload namespace shop
      liqodctl offload namespace shop --placement Remote --selector region=eu
      liqodctl offload namespace shop --selector ''    all clusters again
      liqodctl offload namespace shop --dry-run
    """
    spec = wanted_spec(placement, strategy, remote_name, selectors)

    async def work(session: Session) -> None:
        await _enable(session, name, spec)
        if wait:
            await _settled(session, name, timeout)
        session.show([await _row(session, name)], COLUMNS, beneath=["why"])

    if options.dry_run and not options.is_document:
        in_cluster(attrs.evolve(options, dry_run=False), lambda session: _preview(session, name, spec))
    else:
        in_cluster(options, work)


async def _preview(session: Session, name: str, spec: dict[str, Any]) -> None:
    space = await _namespace(session, name)
    _refuse_system(name)
    await _check_name(session, name, spec)
    facts, me = await cluster_records(session), await own_cluster(session)
    rows = await dry_run.preview(session, facts, space, spec, me.cluster_id)
    session.table(rows, dry_run.COLUMNS, beneath=["why"])
    session.say("nothing was changed; quota, Pod Security and policies of a lender are decided there, when a pod comes")


def _refuse_system(name: str) -> None:
    if name in _FORBIDDEN:
        raise CliError(
            errors.REFUSED,
            f"{name} is a system namespace of Kubernetes",
            "offload the namespaces of your own applications",
        )


def wanted_spec(
    placement: str | None, strategy: str | None, remote_name: str, selectors: tuple[str, ...]
) -> dict[str, Any]:
    """Return the spec of a NamespaceOffloading for these options; empty when the label is sufficient.

    A ``clusterSelector`` of None removes an earlier one. Raises CliError for options that exclude each other.
    """
    if remote_name and strategy not in (None, SELECTED_NAME):
        raise CliError(
            errors.CONFIGURATION, f"--remote-name requires --strategy {SELECTED_NAME}", "leave one out", errors.USAGE
        )
    if strategy == SELECTED_NAME and not remote_name:
        raise CliError(errors.CONFIGURATION, f"--strategy {SELECTED_NAME} requires --remote-name", "", errors.USAGE)
    spec: dict[str, Any] = {}
    if placement:
        spec["podOffloadingStrategy"] = placement
    if remote_name:
        spec |= {"namespaceMappingStrategy": SELECTED_NAME, "remoteNamespaceName": remote_name}
    elif strategy:
        spec["namespaceMappingStrategy"] = strategy
    if selectors == ("",):
        spec["clusterSelector"] = None
    elif selectors:
        spec["clusterSelector"] = {"nodeSelectorTerms": [_term(selector) for selector in selectors]}
    return spec


def _term(selector: str) -> dict[str, Any]:
    """Return a label selector as a term of a node selector."""
    try:
        requirements = label_selector.parse(selector)
    except ValueError as error:
        raise CliError(errors.CONFIGURATION, f"--selector: {error}", "", errors.USAGE) from None
    if not requirements:
        raise CliError(errors.CONFIGURATION, "--selector is blank", "--selector '' selects all clusters", errors.USAGE)
    return {"matchExpressions": [one.expression for one in requirements]}


async def _enable(session: Session, name: str, spec: dict[str, Any]) -> None:
    found = await _namespace(session, name)
    _refuse_system(name)
    if spec:
        # The record before the label: with the label alone, pods could be offloaded to clusters that are not selected.
        await _check_name(session, name, spec)
        wanted = {key: value for key, value in spec.items() if value is not None}
        body = {"metadata": {"name": NAME, "namespace": name}, "spec": wanted}
        try:
            await session.client.create(NAMESPACEOFFLOADINGS, body, name, view=None)
        except AlreadyExists:
            await session.client.patch(NAMESPACEOFFLOADINGS, NAME, {"spec": spec}, name, view=None)
    if found.metadata.labels.get(ENABLED_LABEL) != "true" or session.options.dry_run:
        await session.client.patch(NAMESPACES, name, {"metadata": {"labels": {ENABLED_LABEL: "true"}}}, view=None)


async def _check_name(session: Session, name: str, spec: dict[str, Any]) -> None:
    """Raise CliError for a remote name other than the one that the namespace has already: it cannot be changed."""
    strategy = spec.get("namespaceMappingStrategy")
    wanted = {SAME_NAME: name, SELECTED_NAME: spec.get("remoteNamespaceName", "")}.get(strategy or "", "")
    if not wanted:
        return
    for table in (await session.client.list(NATTINGTABLES, view=NamespaceNattingTable)).items:
        mapped = table.spec.natting_table.get(name, wanted)
        if mapped != wanted:
            raise CliError(
                errors.REFUSED,
                f"the namespace {name} is {mapped} at {table.metadata.name} already; the name cannot be changed",
                f"`liqodctl unoffload namespace {name} --wait` first; its pods come home meanwhile",
            )


async def _namespace(session: Session, name: str) -> Object:
    try:
        return await session.client.get(NAMESPACES, name, view=Object)
    except NotFound:
        raise CliError(
            errors.NO_SUCH_NAMESPACE, f"there is no namespace {name}", f"create it: kubectl create namespace {name}"
        ) from None


async def _settled(session: Session, name: str, seconds: float) -> None:
    """Wait until the daemon has processed this generation of the NamespaceOffloading successfully."""
    try:
        wanted = await session.client.get(NAMESPACEOFFLOADINGS, NAME, name, view=Offloading)
    except NotFound:
        return  # With the label alone there is no record before the first pod.
    generation = wanted.metadata.generation

    def processed(now: Offloading | None) -> bool:
        return (
            now is not None
            and now.status.observed_generation >= generation
            and now.status.offloading_phase in ("Ready", "NoClusterSelected")
        )

    what = f"the namespace {name} to be offloaded"
    await session.within(
        seconds, until(session, NAMESPACEOFFLOADINGS, Offloading, wanted.metadata.key, processed), what
    )


async def _row(session: Session, name: str) -> dict[str, Any]:
    namespace = await _namespace(session, name)
    try:
        found = await session.client.get(NAMESPACEOFFLOADINGS, NAME, name, view=Offloading)
    except NotFound:
        found = Offloading()
    return row_of(namespace, found)


def row_of(namespace: Object, found: Offloading) -> dict[str, Any]:
    """Return the row of a namespace; the daemon's status may be older than the label.

    One that is not offloaded, and has no record, has no strategies either.
    """
    enabled = namespace.metadata.labels.get(ENABLED_LABEL) == "true"
    phase, why = found.status.offloading_phase, found.status.message
    if enabled and phase == "NotEnabled":
        phase, why = "InProgress", "the daemon has not processed it yet"
    said = enabled or bool(found.metadata.name)
    return {
        "namespace": namespace.metadata.name,
        "enabled": enabled,
        "mapping": found.spec.namespace_mapping_strategy if said else "",
        "placement": found.spec.pod_offloading_strategy if said else "",
        "phase": phase,
        "remote": found.status.remote_namespace_name,
        "why": why,
    }


@unoffload.command("namespace")
@click.argument("name", metavar="NAME", shell_complete=complete.namespaces)
@wait_options(default=False, seconds=120)
@record_options
def unoffload_namespace(options: Options, name: str, wait: bool, timeout: float) -> None:
    """Stop offloading a namespace: its remote pods are evicted, so that their controllers re-create them here.

    Then the reflected objects are removed in the other clusters. With --wait, return when none is left.

    \b
    Example:
      liqodctl unoffload namespace shop --wait
    """

    async def work(session: Session) -> None:
        await _namespace(session, name)
        await session.client.patch(NAMESPACES, name, {"metadata": {"labels": {ENABLED_LABEL: None}}}, view=None)
        if wait and not options.dry_run:
            await session.within(timeout, _unmapped(session, name), f"the pods of {name} to leave the other clusters")
        await session.client.delete(NAMESPACEOFFLOADINGS, NAME, name)
        session.show([await _row(session, name)], COLUMNS, beneath=["why"])

    in_cluster(options, work)


def _unmapped(session: Session, name: str) -> Deferred[None]:
    """Return a Deferred that fires when no NamespaceNattingTable maps the namespace."""
    tables: Informer[NamespaceNattingTable] = Informer(
        session.client, NATTINGTABLES, NamespaceNattingTable, session.reactor
    )

    async def watch() -> None:
        tables.startService()
        try:
            await wait.until(tables, lambda: all(name not in one.spec.natting_table for one in tables.items()))
        finally:
            await maybeDeferred(tables.stopService)

    return Deferred.fromCoroutine(watch())
