"""``trust`` and ``distrust``: pin a peer's key after comparing its words, or take the pin back."""

from __future__ import annotations

import sys

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster, wait_options
from liqod.cli.console.wait import until
from liqod.cli.status.peers import find, is_true, label
from liqod.identity.fingerprint_words import COUNT, words
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import Fingerprint, parse_fingerprint
from liqod.model.records.unpeering import DISTRUSTED
from liqod.model.records.views import ForeignCluster


@click.command()
@click.argument("name", metavar="NAME|ID")
@click.option("--fingerprint", default="", metavar="sha256:...", help="The key must be this one.")
@click.option("--words", "spoken", default="", metavar="WORDS", help="The key's words must be these.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_options(default=False, seconds=30)
@cluster_options
def trust(options: Options, name: str, fingerprint: str, spoken: str, yes: bool, wait: bool, timeout: float) -> None:
    """Trust a peer: only the holder of its key is believed to be this cluster.

    Compare the words with those that `liqodctl discover` shows at the other side for its own cluster, over a way that
    nobody can tamper with, such as the telephone.
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        key = wanted_key(cluster, fingerprint, spoken)
        click.echo(f"{label(cluster)} ({cluster.metadata.name})\n  key    {key}\n  words  {words(key)}")
        if cluster.spec.fingerprint == key:
            click.echo("trusted already")
        else:
            if not (yes or fingerprint or spoken):
                confirm("Does the other side see the same words?")
            patch = {"metadata": {"annotations": {DISTRUSTED: None}}, "spec": pinned(cluster, key)}
            await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
            click.echo("trusted; the other side must trust this cluster as well")
        if wait:
            done = until(session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, _authenticated)
            await session.within(timeout, done, f"a session with {label(cluster)}")
            click.echo("connected")

    in_cluster(options, work)


@click.command()
@click.argument("name", metavar="NAME|ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the end of its access.",
)
@cluster_options
def distrust(options: Options, name: str, yes: bool, timeout: float) -> None:
    """Take back the trust in a peer: its access ends at once, and neither side lends to the other any more.

    For a key that must not be believed any more: no CA, no setting and no pairing token brings it back, under whatever
    ID, until `liqodctl trust`. To end a peering in good order, use `liqodctl unpeer`.
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        if not yes:
            confirm(f"Distrust {label(cluster)} ({cluster.metadata.name})? Its pods here and ours there end.")
        # The key that it showed last may be the wrong one: what is trusted next is what it shows from now on.
        unseen = {"status": {"seenFingerprint": None, "words": None}}
        await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, unseen, subresource="status", view=None)
        spec = {"fingerprint": "", "announcedKey": None, "outgoingPeering": "No", "incomingPeering": "No"}
        # The daemon remembers the key by this, also if it does not run now.
        key = cluster.spec.fingerprint or cluster.status.seen_fingerprint
        patch = {"metadata": {"annotations": {DISTRUSTED: key}}, "spec": spec}
        await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
        click.echo(f"{label(cluster)} is no longer trusted")
        if _has_access(cluster):
            ended = until(
                session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, lambda now: not _has_access(now)
            )
            await session.within(timeout, ended, f"the end of the access of {label(cluster)}")
            click.echo("its access to this cluster has ended")

    in_cluster(options, work)


def pinned(cluster: ForeignCluster, key: Fingerprint) -> dict[str, str | None]:
    """Return the changes to a peer's spec that trust it, undoing what ``distrust`` switched off."""
    spec: dict[str, str | None] = {"fingerprint": key, "announcedKey": None}
    if cluster.spec.outgoing_peering == cluster.spec.incoming_peering == "No":
        spec |= {"outgoingPeering": "Auto", "incomingPeering": "Auto"}
    return spec


def wanted_key(cluster: ForeignCluster, fingerprint: str, spoken: str) -> Fingerprint:
    """Return the key to pin; raises CliError when none was seen or it is not the one that was named."""
    seen = cluster.status.seen_fingerprint
    if not seen and not fingerprint:
        raise CliError(
            errors.NO_KEY,
            f"no key of {label(cluster)} was seen yet: there was no session with it",
            "wait for one, or give the key with --fingerprint",
        )
    try:
        key = parse_fingerprint(seen or fingerprint)
        named = parse_fingerprint(fingerprint) if fingerprint else key
    except ValueError as error:
        raise CliError(errors.OTHER_KEY, str(error), "copy it from the other side", errors.USAGE) from None
    if fingerprint and cluster.spec.fingerprint and cluster.status.reason == "ClusterIDRepetition":
        return named  # the pinned key was seen before, the one that is refused now is to take its place
    if named != key:
        raise CliError(
            errors.OTHER_KEY,
            f"{label(cluster)} showed another key than that: {key}",
            "somebody may stand between the clusters; compare again, and do not trust it before they agree",
        )
    said = spoken.lower().replace("-", " ").split()
    if said and len(said) < COUNT and words(key).split("-")[: len(said)] == said:
        raise CliError(
            errors.OTHER_KEY,
            f"these are {len(said)} of the {COUNT} words of {label(cluster)}: keys that agree in so few can be made",
            "compare all of them; a release that shows six is compared by its fingerprint (--fingerprint)",
            errors.USAGE,
        )
    if spoken and said != words(key).split("-"):
        raise CliError(
            errors.OTHER_KEY,
            f"the words of {label(cluster)} are others: {words(key)}",
            "somebody may stand between the clusters; compare again, and do not trust it before they agree",
        )
    return key


def confirm(question: str) -> None:
    """Ask on a terminal; elsewhere nobody can answer, which is an error."""
    if not sys.stdin.isatty():
        raise CliError(
            errors.NOT_CONFIRMED,
            "this must be confirmed, and there is no terminal to ask on",
            "add --yes",
            errors.USAGE,
        )
    if not click.confirm(question):
        raise CliError(errors.NOT_CONFIRMED, "not confirmed: nothing was changed")


def _authenticated(cluster: ForeignCluster | None) -> bool:
    return cluster is not None and is_true(cluster.status.conditions, "Authenticated")


def _has_access(cluster: ForeignCluster | None) -> bool:
    lent = cluster.status.lent if cluster is not None else None
    return lent is not None and bool(lent.tenant_namespace)
