"""Takes back what ``up`` did, in the opposite order: service, cluster, files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import TimeoutError as DeferTimeout
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.records import RecordingClient
from liqod.cli.console.render import plural
from liqod.cli.console.session import Session
from liqod.cli.console.terminal import confirm
from liqod.cli.console.wait import until
from liqod.cli.network.plan import leave_host
from liqod.cli.setup.account import namespace_is_ours
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.commands import lines
from liqod.cli.setup.host.plan import plan_removal
from liqod.cli.setup.host.wanted import ROLES, UNITS
from liqod.cli.setup.install import refuse_peerings, remove_all
from liqod.cli.setup.surroundings.foreign import refuse_foreign
from liqod.cli.setup.up.observe import TargetHost
from liqod.cli.setup.up.service import in_use
from liqod.cli.status.cluster_records import is_here, leader
from liqod.flow.clocks import utc_now
from liqod.kube import manifests
from liqod.kube.errors import NotFound
from liqod.kube.resources import CRDS, NAMESPACES
from liqod.model.ids import Key
from liqod.model.names import DELETION_ANNOTATION
from liqod.model.objects.meta import Object
from liqod.model.timestamps import rfc3339

PATIENCE: Final = 60.0
"""Seconds for the API server to delete the namespace with what is in it."""

ASKED_AGAIN: Final = 5.0
"""Seconds after which the API server is asked once more to look at the CRDs that it has not deleted."""

TAKEOVER: Final = 1.0
"""Seconds that a daemon that stands by may take from its request for the lease to being seen as its holder."""


async def take_down(session: Session, place: TargetHost, *, force: bool, dry_run: bool, yes: bool) -> None:
    """Show what is removed, ask, remove it, and list what was removed. Raises CliError, or KubeError."""
    _refuse_without_rights(place)
    await refuse_foreign(session)
    services = place.services
    used = in_use(services)
    if not force:
        await _refuse_others(session, used)
        await refuse_peerings(session)
    kept = not await namespace_is_ours(session)
    objects = await removable(session, keep_namespace=kept)
    observed = apply.observe_removal(place.root)
    files = plan_removal(observed)
    written = observed.receipt.entries if observed.receipt and services else {}
    # A unit whose file an interrupted run has removed is stopped, and systemd knows it no more.
    there = [unit for unit in ROLES.values() if (path := f"{UNITS}/{unit}") in written and place.at(path).exists()]
    units = list(dict.fromkeys([*used, *there]))
    steps = [f"stop and disable {unit}, and remove its state" for unit in units]
    steps += [*(f"remove {one}" for one in objects), *lines(files)]
    if not steps:
        session.say("nothing of liqod was found")
        session.publish({"removed": [], "done": True})
        return
    for line in steps:
        session.say(line)
    if dry_run:
        session.publish({"removed": [], "would": steps, "done": False})
        return
    if not yes:
        confirm("Remove liqod, its records and the cluster's key?")
    removed: list[str] = []
    if services is not None:
        await services.stop(units)
        if used and not force:
            await deferLater(session.reactor, await until_taken_over(session))
            await _refuse_others(session, used)
        # The host's network before the records that it is derived from.
        removed += [*units, *await leave_host(session)]
    removed += await remove_all(session, keep_namespace=kept)
    left = await until_gone(session, keep_namespace=kept)
    removed += apply.remove(place.root, files)
    apply.reload_systemd(place.root)
    session.say(f"{plural(len(removed), 'object')} removed", "green")
    if left:
        session.say(f"the API server is still deleting {left}; before the next `up` it has to be gone", "yellow")
    session.publish({"removed": removed, "done": not left})


def _refuse_without_rights(place: TargetHost) -> None:
    if place.root == Path("/") and os.geteuid() != 0:
        raise CliError(errors.HOST, "only root may remove a service", "run it as root, or with sudo")


async def _refuse_others(session: Session, units: list[str]) -> None:
    """Raise CliError where a daemon leads that is none of this host's units: it would create its records again."""
    leads = await leader(session)
    if leads is None or not leads.alive or (units and is_here(leads)):
        return
    raise CliError(errors.IN_USE, f"the daemon {leads.holder} is running", "stop it first, or add --force")


async def until_taken_over(session: Session) -> float:
    """Return the seconds by which a daemon that stands by leads, once this host's one was stopped."""
    settings = session.settings.leader
    # By then it has asked for the lease once more, with the jitter of its interval.
    asked = 1.2 * settings.retry_interval + TAKEOVER
    leads = await leader(session)
    if leads is None or not is_here(leads):
        return asked
    # The daemon was killed, and did not release the lease.
    return max(0.0, settings.lease_duration - leads.age) + asked


async def removable(session: Session, *, keep_namespace: bool) -> list[str]:
    """Return a line for each object of the cluster that would be removed."""
    client = RecordingClient(session.client.config, session.reactor, user_agent="liqodctl")
    try:
        return await remove_all(attrs.evolve(session, client=client), keep_namespace=keep_namespace)
    finally:
        await client.close()


async def until_gone(session: Session, *, keep_namespace: bool) -> str:
    """Wait until the API server has deleted namespace and CRDs; returns what it has not after a while, or ""."""
    deadline = session.reactor.seconds() + PATIENCE
    wanted = [(CRDS, one["metadata"]["name"]) for one in manifests.definitions()]
    if not keep_namespace:
        wanted.append((NAMESPACES, session.settings.kubernetes.namespace))
    while wanted:
        resource, name = wanted[0]
        gone = until(session, resource, Object, Key("", name), lambda found: found is None)
        try:
            # One that is gone needs the time of a list to be seen so.
            left = max(1.0, deadline - session.reactor.seconds())
            await gone.addTimeout(min(left, ASKED_AGAIN), session.reactor)
            del wanted[0]
        except DeferTimeout:
            if session.reactor.seconds() >= deadline:
                return f"{resource.kind} {name}"
            await _ask_again(session, [name for kind, name in wanted if kind == CRDS])
    return ""


async def _ask_again(session: Session, definitions: Sequence[str]) -> None:
    """Have the API server look again at CRDs that it deletes.

    Of one that is only seconds old it cannot list the objects yet ("storage is (re)initializing"). It tries that again
    after milliseconds, finds that what it knows of the CRD is older than what it wrote itself, leaves it to the next
    change, and takes no notice of its own one: without another it is deleted minutes later, with the resync
    (Kubernetes 1.36, apiextensions-apiserver, pkg/controller/finalizer/crd_finalizer.go).
    """
    when = rfc3339(utc_now())
    for name in definitions:
        with suppress(NotFound):
            found = await session.client.get(CRDS, name, view=Object)
            if found.metadata.deletion_timestamp:
                await session.client.patch(CRDS, name, {"metadata": {"annotations": {DELETION_ANNOTATION: when}}})
