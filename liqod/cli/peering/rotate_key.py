"""``rotate-key``: replaces the own cluster's key; peers trust the new one because the old one announces it."""

from __future__ import annotations

from datetime import timedelta

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, timeout_option
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.token import parse_ttl
from liqod.cli.status.whoami import own_cluster
from liqod.kube.errors import NotFound
from liqod.kube.resources import SECRETS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET, ORDER, PROGRESS, RotationOrder


@click.command("rotate-key")
@click.option(
    "--within",
    callback=lambda context, option, text: parse_ttl(context, option, text) if text else None,
    metavar="TIME",
    help="Maximum wait for disconnected peers: 30m, 2h, 1d [default: identity.rotation-grace].",
)
@click.option(
    "--now", "at_once", is_flag=True, help="Wait for connected peers only; all others must trust this cluster again."
)
@click.option("--cancel", is_flag=True, help="Cancel a pending rotation; the key is kept.")
@timeout_option(30, "How long to watch; the rotation continues without this command.")
@cluster_options
def rotate_key(options: Options, within: timedelta | None, at_once: bool, cancel: bool, timeout: float) -> None:
    """Give this cluster a new key.

    The daemon announces the next key to every peer in a session authenticated by the current one. When all have stored
    it, or the grace period is over, the next key replaces the current one. A peer that has not received it by then
    refuses this cluster until its administrator compares the new words and trusts it again.

    \b
    Examples:
      liqodctl rotate-key
      liqodctl rotate-key --within 2h
    """
    if sum((within is not None, at_once, cancel)) > 1:
        raise click.UsageError("--within, --now and --cancel exclude each other")

    async def work(session: Session) -> None:
        namespace = session.settings.kubernetes.namespace
        try:
            secret: Object = await session.client.get(SECRETS, IDENTITY_SECRET, namespace, view=Object)
        except NotFound:
            raise CliError(
                errors.NO_IDENTITY,
                f"there is no Secret {namespace}/{IDENTITY_SECRET}: the daemon has not created a key",
                "a key in files ([identity] key) is replaced in these files",
            ) from None
        ordered = ORDER in secret.metadata.annotations
        if cancel and not ordered:
            session.say("no rotation is pending")
            session.publish({"state": "none"})
            return
        order = (
            None if cancel else RotationOrder(0.0 if at_once else within.total_seconds() if within else None).render()
        )
        before = await own_cluster(session)
        change = {"metadata": {"annotations": {ORDER: order, PROGRESS: None}}}
        await session.client.patch(SECRETS, IDENTITY_SECRET, change, namespace, view=None)
        if cancel:
            session.say("cancelled; the key is kept")
            session.publish({"state": "cancelled"})
            return
        shown = [""]

        def settled(now: Object | None) -> bool:
            annotations = now.metadata.annotations if now is not None else {}
            progress = annotations.get(PROGRESS, "")
            if progress and progress != shown[0]:
                shown[0] = progress
                session.say(progress)
            return bool(progress) and ORDER not in annotations

        watched = until(session, SECRETS, Object, Key(namespace, IDENTITY_SECRET), settled)
        await session.within(timeout, watched, "the end of the rotation, which continues in the daemon")
        now = await own_cluster(session)
        if now.fingerprint == before.fingerprint:
            raise CliError(errors.REFUSED, f"the key was not replaced: {shown[0]}", "what the daemon says above")
        session.say(f"key    {now.fingerprint}")
        session.say(f"words  {now.words}")
        session.publish({"state": "done", "fingerprint": now.fingerprint, "words": now.words})

    in_cluster(options, work)
