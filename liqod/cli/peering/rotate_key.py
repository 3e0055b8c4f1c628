"""``rotate-key``: give one's own cluster a new key that its peers believe on the word of the old one."""

from __future__ import annotations

from datetime import timedelta

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.token import parse_ttl
from liqod.cli.status.whoami import own
from liqod.kube.errors import NotFound
from liqod.kube.resources import SECRETS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET, ORDER, PROGRESS, Order


@click.command("rotate-key")
@click.option(
    "--within",
    callback=lambda context, option, text: parse_ttl(context, option, text) if text else None,
    metavar="TIME",
    help="How long peers that are away are waited for, such as 30m, 2h or 1d [default: identity.rotation-grace].",
)
@click.option(
    "--now", "at_once", is_flag=True, help="Wait for connected peers only; the others have to trust this cluster again."
)
@click.option("--cancel", is_flag=True, help="Take the order back; the key stays as it is.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long to watch; the rotation goes on without this command.",
)
@cluster_options
def rotate_key(options: Options, within: timedelta | None, at_once: bool, cancel: bool, timeout: float) -> None:
    """Give this cluster a new key.

    The daemon announces the next key to every peer in a session of the present one. When all have noted it, or the time
    for those that are away is over, the next key takes the present one's place. A peer that did not hear of it by then
    refuses this cluster until its administrator compares the new words and trusts it again.
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
                f"there is no Secret {namespace}/{IDENTITY_SECRET}: the daemon has not made a key",
                "a key that lies in files, [identity] key, is changed there",
            ) from None
        ordered = ORDER in secret.metadata.annotations
        if cancel and not ordered:
            click.echo("no new key was asked for")
            return
        order = None if cancel else Order(0.0 if at_once else within.total_seconds() if within else None).render()
        change = {"metadata": {"annotations": {ORDER: order, PROGRESS: None}}}
        await session.client.patch(SECRETS, IDENTITY_SECRET, change, namespace, view=None)
        if cancel:
            click.echo("taken back: the key stays")
            return
        shown = [""]

        def settled(now: Object | None) -> bool:
            annotations = now.metadata.annotations if now is not None else {}
            told = annotations.get(PROGRESS, "")
            if told and told != shown[0]:
                shown[0] = told
                click.echo(told)
            return bool(told) and ORDER not in annotations

        watched = until(session, SECRETS, Object, Key(namespace, IDENTITY_SECRET), settled)
        await session.within(timeout, watched, "the end of the rotation; it goes on by itself")
        now = await own(session)
        click.echo(f"key    {now.fingerprint}\nwords  {now.words}")

    in_cluster(options, work)
