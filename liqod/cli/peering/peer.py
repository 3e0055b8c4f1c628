"""``peer``: peers with a cluster by a pairing token, or adds the cluster at an address."""

from __future__ import annotations

import base64
import sys
from contextlib import suppress
from typing import Any

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, record_options, wait_options
from liqod.cli.console.render import printable
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.peering.probe_peer import probe_peer
from liqod.cli.peering.token import PORT
from liqod.cli.status.cluster_records import peer_hint
from liqod.cli.status.peers import is_connected, label
from liqod.cli.status.whoami import own_cluster
from liqod.identity.fingerprint_words import words
from liqod.identity.pairing import MAX_LENGTH, PREFIX, BadToken, Token, read_token
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from liqod.model.host_port import join_address, split_address
from liqod.model.ids import ClusterID, Key, is_dns_label
from liqod.model.objects.meta import Condition, find_condition
from liqod.model.records.invitations import INVITATION, INVITATION_LABEL, invitation_name
from liqod.model.records.unpeering import DISTRUSTED
from liqod.model.records.views import ForeignCluster

_TRIES = 5
"""How often a record is read and written, where others change it in between."""
_REFUSALS = ("TokenRefused", "UnexpectedKey", "ClusterIDRepetition", "KeyInUse")


@click.command()
@click.argument("target", metavar="TOKEN|HOST|-")
@wait_options(default=True, seconds=30)
@record_options
def peer(options: Options, target: str, wait: bool, timeout: float) -> None:
    """Peer with the issuer of a pairing token, or add the cluster at an address.

    A token establishes trust in both directions; no further command is needed on either side. An address only yields a
    key: compare its words with the other administrator, then run `liqodctl trust`. HOST is a name or an IP address,
    with a port if it is not 5872. `-` reads it from standard input, where no other user of this host sees a token.

    \b
    Examples:
      liqodctl peer liqo1.eyJ...          a token of `liqodctl token create`
      liqodctl peer - < token.txt         the same, which `ps` does not show
      liqodctl peer 203.0.113.7
    """

    target = read_argument(target)

    async def with_token(session: Session) -> None:
        token = pairing_token(target)
        before = await join(session, token)
        if wait:
            await joined(session, token, timeout, before)
        result = {"peer": token.issuer, "name": token.name, "addresses": token.addresses, "connected": wait}
        session.publish({**result, "fingerprint": token.fingerprint, "trusted": True})

    async def at_address(session: Session) -> None:
        try:
            address = join_address(*split_address(target.strip(), PORT))
        except ValueError:
            raise CliError(
                errors.BAD_TOKEN,
                f"{printable(target)[:40]!r} is neither a pairing token nor an address",
                "a token begins with liqo1. and is copied whole; an address is a name or IP, such as gw.example.com",
                errors.USAGE,
            ) from None
        found = await probe_peer(session.reactor, address, timeout)
        if not is_dns_label(found.cluster_id):
            raise CliError(errors.PEER_UNREACHABLE, f"the server at {address} presents no cluster ID", "is it liqod?")
        mine = await own_cluster(session)
        if found.cluster_id == mine.cluster_id:
            raise CliError(
                errors.REFUSED,
                f"{address} is this cluster",
                "give the address of the other cluster",
                errors.USAGE,
            )
        await _record(session, ClusterID(found.cluster_id), [address], {})
        spoken = words(found.fingerprint)
        session.say(f"at {address} is {found.cluster_id}")
        session.say(f"  key    {found.fingerprint}")
        session.say(f"  words  {spoken}")
        if mine.words:
            session.say(f"this cluster's own words are {mine.words}")
        elif mine.problem:
            session.say(mine.problem, "yellow")
        session.say(f"compare both with the other admin, then: liqodctl trust {found.cluster_id} --words '...'")
        result = {"peer": found.cluster_id, "name": "", "addresses": [address], "connected": False}
        session.publish({**result, "fingerprint": found.fingerprint, "words": spoken, "trusted": False})

    in_cluster(options, with_token if target.strip().startswith(PREFIX) else at_address)


async def join(session: Session, token: Token) -> Condition | None:
    """Have the daemon peer with the issuer of a token. Raises CliError for a token of our own, or a doubtful key.

    Returns what was known of the peer's trust before, which may be the refusal of an earlier token.
    """
    if token.issuer == (await own_cluster(session)).cluster_id:
        raise CliError(errors.BAD_TOKEN, "this token was issued by this cluster", "use it in the other cluster")
    # Before the daemon has the token: it would say nothing to another key than the token's.
    before = None
    with suppress(NotFound):
        found = await session.client.get(FOREIGNCLUSTERS, token.issuer, view=ForeignCluster)
        refuse_key(found, token.fingerprint)
        before = find_condition(found.status.conditions, "Authenticated")
    await _invite(session, token)
    await _record(session, token.issuer, token.addresses, {"fingerprint": token.fingerprint})
    session.say(f"invited by {token.name or token.issuer} at {', '.join(token.addresses)}")
    return before


async def joined(session: Session, token: Token, timeout: float, before: Condition | None) -> None:
    """Wait for the session with the issuer of a token. Raises CliError where it refuses the token, or time is over.

    ``before`` is what ``join`` returned: only what the record says since then is an answer to this token.
    """

    def is_settled(cluster: ForeignCluster | None) -> bool:
        return cluster is not None and (is_connected(cluster) or new_refusal(cluster, before) != "")

    settled = until(session, FOREIGNCLUSTERS, ForeignCluster, Key("", token.issuer), is_settled)
    what = f"a session with {token.issuer}"
    cluster = await session.within(timeout, settled, what, lambda: peer_hint(session, token.issuer))
    if cluster is not None and not is_connected(cluster):
        raise CliError(errors.NOT_JOINED, new_refusal(cluster, before), "ask the other admin for a new token")
    who = label(cluster) if cluster is not None else token.issuer
    session.say(f"connected with {who}: both clusters trust each other", "green")


def new_refusal(cluster: ForeignCluster, before: Condition | None) -> str:
    """Return why the peer was refused, or refuses a token; empty where it did not, or that was known ``before``.

    Its time alone does not tell: it stays that of the first refusal. The message names the token, so that the refusal
    of another one differs. One that is repeated in the same words is no news, and is waited on.
    """
    condition = find_condition(cluster.status.conditions, "Authenticated")
    is_refusal = condition is not None and condition != before and condition.reason in _REFUSALS
    return condition.message if condition is not None and is_refusal else ""


def read_argument(text: str) -> str:
    """Return an argument, for ``-`` the first line of standard input. Raises CliError for an empty one.

    Every user of a host can read the arguments of its processes (proc(5), ``/proc/pid/cmdline``).
    """
    if text != "-":
        return text
    line = sys.stdin.readline(MAX_LENGTH + 1).strip()
    if not line:
        raise CliError(errors.BAD_TOKEN, "there is no token on standard input", "pipe one line with it", errors.USAGE)
    return line


def pairing_token(text: str) -> Token:
    """Return the pairing token in a text. Raises CliError."""
    try:
        return read_token(text)
    except BadToken as error:
        raise CliError(errors.BAD_TOKEN, str(error), "ask the other admin for a new one", errors.USAGE) from None


async def _invite(session: Session, token: Token) -> None:
    """Store the token for the daemon; it replaces an earlier one of the same issuer."""
    namespace, name = session.settings.kubernetes.namespace, invitation_name(token.issuer)
    body = {
        "metadata": {"name": name, "namespace": namespace, "labels": {INVITATION_LABEL: "true"}},
        "type": "Opaque",
        "data": {INVITATION: base64.b64encode(token.text.encode()).decode()},
    }
    # Not a patch: how long an invitation is kept counts from its creation.
    await session.client.delete(SECRETS, name, namespace)
    await session.client.create(SECRETS, body, view=None)


async def _record(session: Session, peer: ClusterID, addresses: list[str], more: dict[str, Any]) -> None:
    """Create or extend the peer's ForeignCluster. Raises CliError rather than replace a pinned key."""
    for _ in range(_TRIES - 1):
        with suppress(Conflict):
            await _extend(session, peer, addresses, more)
            return
    await _extend(session, peer, addresses, more)


async def _extend(session: Session, peer: ClusterID, addresses: list[str], more: dict[str, Any]) -> None:
    """Take one try; raises Conflict where the record changed after it was read, since a key may be pinned now."""
    try:
        before = await session.client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
    except NotFound:
        endpoints = [{"address": address, "source": "Manual"} for address in addresses]
        body = {"metadata": {"name": peer}, "spec": {"clusterID": peer, "endpoints": endpoints, **more}}
        try:
            await session.client.create(FOREIGNCLUSTERS, body, view=None)
            return
        except AlreadyExists:
            # The daemon has found the peer in the meantime.
            before = await session.client.get(FOREIGNCLUSTERS, peer, view=ForeignCluster)
    wanted = more.get("fingerprint", "")
    refuse_key(before, wanted)
    known = [{"address": each.address, "source": each.source} for each in before.spec.endpoints]
    new = [address for address in addresses if address not in {each["address"] for each in known}]
    endpoints = [*({"address": address, "source": "Manual"} for address in new), *known]
    spec = {"clusterID": peer, "endpoints": endpoints[:32], **more}
    if before.spec.outgoing_peering == before.spec.incoming_peering == "No" and wanted:
        spec |= {"outgoingPeering": "Auto", "incomingPeering": "Auto"}
    seen = {"resourceVersion": before.metadata.resource_version}
    await session.client.patch(FOREIGNCLUSTERS, peer, {"metadata": seen, "spec": spec}, view=None)


def refuse_key(before: ForeignCluster, wanted: str) -> None:
    """Raise CliError where a peer's key is pinned to another one than a token has, or was distrusted."""
    peer = before.spec.cluster_id
    if before.spec.fingerprint and wanted and before.spec.fingerprint != wanted:
        raise CliError(
            errors.OTHER_KEY,
            f"the key pinned for {peer} differs from the one in the token",
            f"find out why; `liqodctl unpeer {peer}` removes the pinned key",
        )
    if wanted and before.metadata.annotations.get(DISTRUSTED) == wanted:
        raise CliError(
            errors.OTHER_KEY,
            f"the key of {peer} in the token was distrusted in this cluster",
            f"to trust it again: `liqodctl trust {peer} --fingerprint {wanted}`",
        )
