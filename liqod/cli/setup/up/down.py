"""Takes back what ``up`` did, in the opposite order: service, cluster, files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.records import RecordingClient
from liqod.cli.console.render import plural
from liqod.cli.console.session import Session
from liqod.cli.console.terminal import confirm
from liqod.cli.network.plan import leave_host
from liqod.cli.setup.account import namespace_is_ours
from liqod.cli.setup.gone import deleted
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.commands import lines
from liqod.cli.setup.host.plan import plan_removal
from liqod.cli.setup.host.wanted import ROLES, UNITS
from liqod.cli.setup.install import refuse_peerings, remove_all
from liqod.cli.setup.surroundings.foreign import refuse_foreign
from liqod.cli.setup.up.observe import TargetHost
from liqod.cli.setup.up.service import in_use
from liqod.cli.status.cluster_records import is_here, leader

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
    done = await deleted(session, keep_namespace=kept)
    removed += apply.remove(place.root, files)
    apply.reload_systemd(place.root)
    session.say(f"{plural(len(removed), 'object')} removed", "green")
    session.publish({"removed": removed, "done": done})


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
