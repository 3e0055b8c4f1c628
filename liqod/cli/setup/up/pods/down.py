"""Takes back what ``up --in-cluster`` did, in the opposite order: pods, then records, rights and namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.progress import Progress
from liqod.cli.console.render import plural
from liqod.cli.console.session import Session
from liqod.cli.console.terminal import confirm
from liqod.cli.setup.account import namespace_is_ours
from liqod.cli.setup.gone import deleted
from liqod.cli.setup.install import refuse_peerings, remove_all
from liqod.cli.setup.surroundings.foreign import refuse_foreign
from liqod.cli.setup.up.down import removable
from liqod.cli.setup.up.pods.observe import managed_elsewhere, pods_of, stale
from liqod.cli.status.cluster_records import leader
from liqod.kube.resources import DAEMONSETS, Resource

PATIENCE: Final = 90.0
"""Seconds that pods have to end: the longest grace period is 30."""
POLL: Final = 0.5
SETTLED: Final = 5.0
"""Seconds that network agents have to remove from their hosts what they made for the last peer."""


async def take_down(session: Session, *, force: bool, dry_run: bool, yes: bool) -> None:
    """Show what is removed, ask, remove it, and list what was removed. Raises CliError, or KubeError."""
    await refuse_foreign(session)
    if managed := await managed_elsewhere(session):
        raise CliError(errors.IN_USE, managed, "nothing was changed")
    if not force:
        await _refuse_others(session)
        await refuse_peerings(session)
    kept = not await namespace_is_ours(session)
    pods = await stale(session, [])
    shown = [*_lines(pods), *await removable(session, keep_namespace=kept)]
    if not shown:
        session.say("nothing of liqod was found")
        session.publish({"removed": [], "done": True})
        return
    for line in shown:
        session.say(f"remove {line}")
    if dry_run:
        session.publish({"removed": [], "would": [f"remove {line}" for line in shown], "done": False})
        return
    if not yes:
        confirm("Remove liqod, its records and the cluster's key?")
    removed = await _remove_pods(session, pods)
    removed += await remove_all(session, keep_namespace=kept)
    done = await deleted(session, keep_namespace=kept)
    session.say(f"{plural(len(removed), 'object')} removed", "green")
    session.publish({"removed": removed, "done": done})


async def _refuse_others(session: Session) -> None:
    """Raise CliError where a daemon leads that is no pod of ours: it would create its records again."""
    leads = await leader(session)
    ours = {str(one["metadata"]["name"]) for one in await pods_of(session)}
    if leads is not None and leads.alive and leads.holder not in ours:
        raise CliError(errors.IN_USE, f"the daemon {leads.holder} is running", "stop it first, or add --force")


async def _remove_pods(session: Session, objects: Sequence[tuple[Resource, str]]) -> list[str]:
    """Remove the objects of the pods, and wait until these have ended: a daemon gives back its lease at its end."""
    if any(resource == DAEMONSETS for resource, _ in objects):
        await deferLater(session.reactor, SETTLED)
    namespace = session.settings.kubernetes.namespace
    for resource, name in objects:
        await session.client.delete(resource, name, namespace, propagation="Background")
    deadline = session.reactor.seconds() + PATIENCE
    with Progress(session.reactor, "the pods to end", quiet=session.options.is_document):
        while pods := await pods_of(session):
            if session.reactor.seconds() > deadline:
                names = ", ".join(str(one["metadata"]["name"]) for one in pods)
                hint = "look at them and their nodes with kubectl, then run this again"
                raise CliError(errors.TIMED_OUT, f"these pods have not ended after {PATIENCE:g} s: {names}", hint)
            await deferLater(session.reactor, POLL)
    return _lines(objects, namespace)


def _lines(objects: Sequence[tuple[Resource, str]], namespace: str = "") -> list[str]:
    where = f"{namespace}/" if namespace else ""
    return [f"{resource.kind} {where}{name}" for resource, name in objects]
