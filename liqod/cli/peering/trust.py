"""``trust`` and ``distrust``: pins a peer's key after its words were compared, or unpins it."""

from __future__ import annotations

import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, record_options, timeout_option, wait_options, yes_option
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.token import say_what_is_open
from liqod.cli.status.cluster_records import peer_hint
from liqod.cli.status.peers import find, is_connected, label
from liqod.identity.fingerprint_words import COUNT, words
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import Fingerprint, parse_fingerprint
from liqod.model.records.unpeering import DISTRUSTED
from liqod.model.records.views import ForeignCluster


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@click.option("--fingerprint", default="", metavar="sha256:...", help="Require this key.")
@click.option("--words", "spoken", default="", metavar="WORDS", help="Require these words.")
@yes_option
@wait_options(default=False, seconds=30)
@record_options
def trust(options: Options, *, name: str, fingerprint: str, spoken: str, yes: bool, wait: bool, timeout: float) -> None:
    """Trust a peer: pin its key.

    Compare the words with those that `liqodctl discover` prints in the other cluster, over a channel that an attacker
    cannot change, such as a phone call.

    \b
    Examples:
      liqodctl trust milan --wait
      liqodctl trust milan --words 'temple actor curtain ...'
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        key = wanted_key(cluster, fingerprint, spoken)
        session.say(f"{label(cluster)} ({cluster.metadata.name})")
        session.say(f"  key    {key}")
        session.say(f"  words  {words(key)}")
        if cluster.spec.fingerprint == key and not options.dry_run:
            session.say("already trusted")
        else:
            if not (yes or fingerprint or spoken):
                session.confirm("Does the other side show the same words?")
            patch = {"metadata": {"annotations": {DISTRUSTED: None}}, "spec": pinned(cluster, key)}
            await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
            session.say("trusted; the other side must trust this cluster, too")
        if wait:
            done = until(session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, _is_here)
            await session.within(
                timeout, done, f"a session with {label(cluster)}", lambda: peer_hint(session, cluster.metadata.name)
            )
            session.say("connected", "green")
        result = {"peer": cluster.metadata.name, "name": label(cluster), "trusted": True, "connected": wait}
        session.publish({**result, "fingerprint": key, "words": words(key)})

    in_cluster(options, work)


@click.command()
@click.argument("name", metavar="PEER", shell_complete=complete.peers)
@yes_option
@timeout_option(30, "How long to wait until its access has ended.")
@record_options
def distrust(options: Options, name: str, yes: bool, timeout: float) -> None:
    """Revoke the trust in a peer: its access ends at once, and no resources are lent in either direction.

    Use it for a compromised key: no CA, setting or pairing token makes it trusted again, under any cluster ID, before
    `liqodctl trust`. To end a peering in an orderly way, use `liqodctl unpeer`.

    \b
    Example:
      liqodctl distrust milan
    """

    async def work(session: Session) -> None:
        cluster = find(name, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        if not yes:
            session.confirm(f"Distrust {label(cluster)} ({cluster.metadata.name})? Its pods here and ours there end.")
        # The last seen key may be the compromised one; `trust` pins the key of the next session.
        unseen = {"status": {"seenFingerprint": None, "words": None}}
        await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, unseen, subresource="status", view=None)
        spec = {"fingerprint": "", "announcedKey": None, "outgoingPeering": "No", "incomingPeering": "No"}
        # The annotation is how the daemon learns of the key, even when it is not running now.
        key = cluster.spec.fingerprint or cluster.status.seen_fingerprint
        patch = {"metadata": {"annotations": {DISTRUSTED: key}}, "spec": spec}
        await session.client.patch(FOREIGNCLUSTERS, cluster.metadata.name, patch, view=None)
        session.say(f"{label(cluster)} is no longer trusted")
        await say_what_is_open(session)
        if _has_access(cluster):
            ended = until(
                session, FOREIGNCLUSTERS, ForeignCluster, cluster.metadata.key, lambda now: not _has_access(now)
            )
            await session.within(timeout, ended, f"the access of {label(cluster)} to end")
            session.say("its access to this cluster has ended")
        session.publish({"peer": cluster.metadata.name, "name": label(cluster), "trusted": False, "access": False})

    in_cluster(options, work)


def pinned(cluster: ForeignCluster, key: Fingerprint) -> dict[str, str | None]:
    """Return the changes of a peer's spec that pin a key, and undo ``distrust``."""
    spec: dict[str, str | None] = {"fingerprint": key, "announcedKey": None}
    if cluster.spec.outgoing_peering == cluster.spec.incoming_peering == "No":
        spec |= {"outgoingPeering": "Auto", "incomingPeering": "Auto"}
    return spec


def wanted_key(cluster: ForeignCluster, fingerprint: str, spoken: str) -> Fingerprint:
    """Return the key to pin. Raises CliError when none was seen, or another than the given one."""
    seen = cluster.status.seen_fingerprint
    if not seen and not fingerprint:
        raise CliError(
            errors.NO_KEY,
            f"no key of {label(cluster)} has been seen yet: there was no session",
            "wait for a session, or give the key with --fingerprint",
        )
    try:
        key = parse_fingerprint(seen or fingerprint)
        named = parse_fingerprint(fingerprint) if fingerprint else key
    except ValueError as error:
        raise CliError(errors.OTHER_KEY, str(error), "copy it from the other side", errors.USAGE) from None
    if fingerprint and cluster.spec.fingerprint and cluster.status.reason == "ClusterIDRepetition":
        return named  # The given key replaces the pinned one, which was seen earlier.
    if named != key:
        raise CliError(
            errors.OTHER_KEY,
            f"{label(cluster)} presented a different key: {key}",
            "this may be a man in the middle; compare again, and do not trust it before both sides agree",
        )
    given = spoken.lower().replace("-", " ").split()
    if given and len(given) < COUNT and words(key).split("-")[: len(given)] == given:
        raise CliError(
            errors.OTHER_KEY,
            f"these are {len(given)} of the {COUNT} words of {label(cluster)}: a key matching so few can be made",
            "compare all words; with a release that shows six, compare the fingerprint (--fingerprint)",
            errors.USAGE,
        )
    if spoken and given != words(key).split("-"):
        raise CliError(
            errors.OTHER_KEY,
            f"the words of {label(cluster)} are different: {words(key)}",
            "this may be a man in the middle; compare again, and do not trust it before both sides agree",
        )
    return key


def _is_here(cluster: ForeignCluster | None) -> bool:
    return cluster is not None and is_connected(cluster)


def _has_access(cluster: ForeignCluster | None) -> bool:
    lent = cluster.status.lent if cluster is not None else None
    return lent is not None and bool(lent.tenant_namespace)
