"""Whether liqod serves a cluster in its other form already: as pods, or as a service of hosts.

Both forms have the same accounts, with rights and policies for what each of them runs: one that came beside the other
would take its rights from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.cli.setup.surroundings.foreign import RELEASE
from liqod.cli.status.cluster_records import leader
from liqod.kube.errors import NotFound
from liqod.kube.manifests import MANAGED_BY
from liqod.kube.resources import DEPLOYMENTS, PODS
from liqod.model.diagnosis.cluster import LeaderFacts
from liqod.model.objects.meta import Object, ObjectMeta

DAEMON: Final = "liqod"
"""The Deployment of the daemon; the names of its pods begin with it."""
MANAGER: Final = "liqodctl"
"""Who manages the objects of ``up --in-cluster``, in their label."""
OURS: Final = "app.kubernetes.io/name=liqod"
"""Selects liqod's pods, regardless of who made them."""


async def daemon_pods(session: Session) -> ObjectMeta | None:
    """Return the metadata of the Deployment of the daemon; None where liqod has no pods in this cluster."""
    try:
        there = await session.client.get(DEPLOYMENTS, DAEMON, session.settings.kubernetes.namespace, view=Object)
    except NotFound:
        return None
    return there.metadata


def managed_by(pods: ObjectMeta) -> str:
    """Return who else than ``up --in-cluster`` has these pods, and what to do then; empty for its own. Pure."""
    if release := pods.annotations.get(RELEASE):
        how = "`helm upgrade` changes them, `helm uninstall` removes them"
        return f"the Helm release {release} has liqod's pods: {how}"
    manager = pods.labels.get(MANAGED_BY, "")
    if manager == MANAGER:
        return ""
    return f"{manager or 'somebody else'} made liqod's pods: change or remove them in the same way"


def no_host(pods: ObjectMeta | None) -> list[str]:
    """Return why no daemon of a host may come to a cluster with these pods, and what to do. Pure."""
    if pods is None:
        return []
    own = "`liqodctl up --in-cluster` made liqod's pods: `liqodctl down --in-cluster` removes them"
    how = managed_by(pods) or own
    return [f"liqod serves this cluster as pods, and a service of a host does not go with them; {how}"]


def no_pods(leads: LeaderFacts | None, pods: Collection[str], *, are_there: bool) -> list[str]:
    """Return why no pods may come to a cluster with this leader, and what to do. Pure.

    ``pods`` are the names of liqod's pods. ``are_there``: they have an owner, and one that is gone may hold the lease
    still.
    """
    if leads is None or not leads.alive or leads.holder in pods:
        return []
    if are_there and leads.holder.startswith(f"{DAEMON}-"):
        return []
    how = "stop it first, on its host (`systemctl disable --now liqod`, or `liqodctl down`)"
    return [f"the daemon {leads.holder} leads, and is no pod of this installation; {how}"]


async def refuse_host_daemon(session: Session) -> None:
    """Raise CliError where a daemon of a host leads, before anything was changed for pods."""
    listed = await session.client.list(PODS, session.settings.kubernetes.namespace, view=Object, labels=OURS)
    names = {one.metadata.name for one in listed.items}
    are_there = await daemon_pods(session) is not None
    for refusal in no_pods(await leader(session), names, are_there=are_there):
        raise CliError(errors.IN_USE, refusal, "nothing was changed")
