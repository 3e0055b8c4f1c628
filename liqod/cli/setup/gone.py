"""Waits until the API server has deleted what it was asked to delete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.cli.console.session import Session
from liqod.cli.console.wait import until
from liqod.flow.clocks import utc_now
from liqod.kube import manifests
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import CRDS, NAMESPACES
from liqod.model.ids import Key
from liqod.model.names import DELETION_ANNOTATION
from liqod.model.objects.meta import Object
from liqod.model.timestamps import rfc3339

PATIENCE: Final = 60.0
"""Seconds for the API server to delete the namespace with what is in it."""

ASKED_AGAIN: Final = 5.0
"""Seconds after which the API server is asked once more to look at the CRDs that it has not deleted."""


async def deleted(session: Session, *, keep_namespace: bool) -> bool:
    """Wait until the API server has deleted namespace and CRDs, and return whether it has; says what is left."""
    left = await until_gone(session, keep_namespace=keep_namespace)
    if left:
        session.say(
            f"the API server is still deleting {left}; it has to be gone before liqod is installed again", "yellow"
        )
    return not left


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
        # Who may delete definitions and not change them waits for the resync, or types the command once more.
        with suppress(NotFound, Forbidden):
            found = await session.client.get(CRDS, name, view=Object)
            if found.metadata.deletion_timestamp:
                await session.client.patch(CRDS, name, {"metadata": {"annotations": {DELETION_ANNOTATION: when}}})
