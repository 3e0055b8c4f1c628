"""``token``: pairing tokens of the own cluster, each valid for one other cluster."""

from __future__ import annotations

import base64
import ipaddress
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from liqod.agent.host.address import own_address
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.group import Group
from liqod.cli.console.options import Options, cluster_options, group_options, record_options
from liqod.cli.console.render import plural
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.console.terminal import echo_wrapped
from liqod.cli.status.cluster_records import is_here, leader
from liqod.cli.status.own_facts import own_facts
from liqod.cli.status.whoami import own_cluster
from liqod.config.endpoints import port_of
from liqod.config.schema import Settings
from liqod.identity.pairing import MAX_ADDRESSES, SECRET_BYTES, Token, verifier
from liqod.kube.errors import Forbidden
from liqod.kube.resources import SECRETS
from liqod.model.host_port import join_address, split_address
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.facts import DAEMON_ADDRESSES, fact_of
from liqod.model.records.invitations import (
    ATTEMPTS,
    EXPIRES,
    MAX_ATTEMPTS,
    MAX_LIFE,
    TOKEN_LABEL,
    USED_BY,
    VERIFIER,
    token_name,
)
from liqod.model.timestamps import parse_rfc3339, rfc3339

PORT = 5872
COLUMNS = {"id": "TOKEN", "state": "STATE", "expires": "EXPIRES", "attempts": "FAILED ATTEMPTS", "used": "USED BY KEY"}
_TIME = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.group(cls=Group)
@group_options
def token() -> None:
    """Pairing tokens; the administrator of the other cluster runs `liqodctl peer TOKEN`.

    \b
    Example:
      liqodctl token create --ttl 10m
    """


def parse_ttl(context: click.Context, option: click.Parameter, text: str) -> timedelta:
    """Return a duration such as 30m, 2h or 1d; at most 30 days."""
    match = _TIME.fullmatch(text)
    ttl = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match and len(match[1]) < 8 else timedelta()
    if not timedelta() < ttl <= MAX_LIFE:
        raise click.BadParameter(f"{text!r} is not a time such as 30m, 2h or 1d, of at most 30 days")
    return ttl


@token.command()
@click.option("--ttl", default="1h", show_default=True, callback=parse_ttl, metavar="TIME", help="30m, 2h, 1d, ...")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Address at which the other cluster reaches this daemon; repeatable.",
)
@record_options
def create(options: Options, ttl: timedelta, addresses: tuple[str, ...]) -> None:
    """Print a new token. Its bearer may peer with this cluster, once: treat it like a password.

    \b
    Examples:
      liqodctl token create
      liqodctl token create --ttl 10m --address gateway.example.com:5872
    """

    async def work(session: Session) -> None:
        session.publish([await new_token(session, ttl, addresses)])

    in_cluster(options, work)


async def new_token(session: Session, ttl: timedelta, addresses: Sequence[str] = ()) -> dict[str, Any]:
    """Create a token, print it and return its row; the addresses are by default those of the daemon. Raises CliError.

    The row: ``id``, ``token``, ``expires``, ``addresses``.
    """
    mine = await own_cluster(session)
    if not mine.fingerprint:
        raise mine.missing_key
    port = listening_port(session.settings)
    where = list(addresses) or await daemon_addresses(session)
    try:
        found = [join_address(*split_address(each, port)) for each in where[:MAX_ADDRESSES]]
    except ValueError as error:
        raise CliError(errors.CONFIGURATION, str(error), "--address takes HOST or HOST:PORT", errors.USAGE) from None
    secret = secrets.token_bytes(SECRET_BYTES)
    made = Token(
        id=secrets.token_hex(8),
        issuer=ClusterID(mine.cluster_id),
        name=session.settings.cluster.name,
        fingerprint=Fingerprint(mine.fingerprint),
        addresses=found,
        secret=secret,
    )
    expires = datetime.now(UTC) + ttl
    body = {
        "metadata": {
            "name": token_name(made.id),
            "namespace": session.settings.kubernetes.namespace,
            "labels": {TOKEN_LABEL: "true"},
        },
        "type": "Opaque",
        "data": {
            VERIFIER: base64.b64encode(verifier(secret)).decode(),
            EXPIRES: base64.b64encode(rfc3339(expires).encode()).decode(),
        },
    }
    await _delete_expired(session)
    await session.client.create(SECRETS, body, view=None)
    if not (session.options.is_document or session.options.dry_run):
        until = f"{expires:%Y-%m-%d %H:%M:%S} UTC"
        echo_wrapped(f"valid for one cluster until {until}; there run: liqodctl peer TOKEN", err=True)
    # The last line, which is easily found and copied, also where both streams are shown.
    session.print_line(made.text)
    return {"id": made.id, "token": made.text, "expires": rfc3339(expires), "addresses": made.addresses}


async def daemon_addresses(session: Session) -> list[str]:
    """Return where peers reach the daemon: by the settings, else by what the daemon found out.

    Where no daemon has written its facts yet it is guessed from this host, with a warning where that may be wrong.
    Raises CliError where the daemon knows of no address that others reach.
    """
    configured = list(session.settings.peering.advertise_addresses)
    if configured:
        return configured
    hint = "name the daemon's address with --address, or in advertise-addresses under [peering]"
    record = await own_facts(session)
    if record is not None and record.status.facts:
        found = fact_of(record.status.facts, DAEMON_ADDRESSES)
        if found.values:
            return found.values
        why = found.message or "it is not in the facts of this cluster"
        raise CliError(errors.CONFIGURATION, f"where other clusters reach the daemon is not known: {why}", hint)
    address = own_address(session.settings.kubelet.node_address, session.client.config.server)
    lead = await leader(session)
    away = lead is not None and not is_here(lead)
    if ipaddress.ip_address(address).is_loopback:
        doubt = f"{address} can be reached on this host only"
    elif lead is not None and away:
        doubt = f"{address} is of this host, and the daemon {lead.holder} may run on another one"
    else:
        return [address]
    echo_wrapped(f"warning: {doubt}; {hint}", "yellow", hanging="  ", err=True)
    return [address]


@token.command("list")
@cluster_options
def list_tokens(options: Options) -> None:
    """List the tokens of this cluster, without their secrets: only a verifier is stored.

    \b
    Example:
      liqodctl token list
    """

    async def work(session: Session) -> None:
        session.show([row_of(body) for body in await _tokens(session)], COLUMNS, empty="there are no tokens")

    in_cluster(options, work)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@cluster_options
def revoke(options: Options, token_id: str) -> None:
    """Revoke a token. A peering made with it remains: `liqodctl unpeer` ends it.

    \b
    Example:
      liqodctl token revoke 0a1b2c3d4e5f6071
    """

    async def work(session: Session) -> None:
        known = [body["metadata"]["name"] for body in await _tokens(session)]
        if token_name(token_id) not in known:
            raise CliError(errors.BAD_TOKEN, f"there is no token {token_id}", "`liqodctl token list` shows them")
        await session.client.delete(SECRETS, token_name(token_id), session.settings.kubernetes.namespace)
        session.say(f"token {token_id} is revoked")
        session.publish({"id": token_id, "state": "revoked"})

    in_cluster(options, work)


async def _tokens(session: Session) -> list[dict[str, Any]]:
    namespace = session.settings.kubernetes.namespace
    found: list[dict[str, Any]] = (await session.client.list(SECRETS, namespace, labels=f"{TOKEN_LABEL}=true")).items
    return sorted(found, key=lambda body: str(body["metadata"].get("creationTimestamp")))


async def say_what_is_open(session: Session) -> None:
    """Say how many tokens are open, and how to revoke them: a peer that is sent away may have been given one of them.

    Nothing is said where the user may not read tokens. Raises KubeError.
    """
    try:
        count = sum(row_of(body)["state"] == "open" for body in await _tokens(session))
    except Forbidden:
        return
    if count:
        session.say(
            f"{plural(count, 'pairing token')} of this cluster can still be used, by any cluster that has one: "
            "`liqodctl token list` shows them, `liqodctl token revoke TOKEN` revokes one",
            "yellow",
        )


async def _delete_expired(session: Session) -> None:
    """Delete expired tokens."""
    for body in await _tokens(session):
        if row_of(body)["state"] == "expired":
            await session.client.delete(SECRETS, body["metadata"]["name"], session.settings.kubernetes.namespace)


def row_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a token's Secret."""

    def text(key: str) -> str:
        return base64.b64decode((body.get("data") or {}).get(key, "")).decode("utf-8", "replace")

    expires = parse_rfc3339(text(EXPIRES))
    attempts = int(text(ATTEMPTS)) if text(ATTEMPTS).isdecimal() else 0
    if expires is None or expires <= datetime.now(UTC):
        state = "expired"  # used or not: nothing depends on its Secret any more
    elif text(USED_BY):
        state = "used"
    else:
        state = "dead" if attempts >= MAX_ATTEMPTS else "open"
    return {
        "id": body["metadata"]["name"].removeprefix(token_name("")),
        "state": state,
        "expires": text(EXPIRES),
        "attempts": attempts,
        "used": text(USED_BY),
    }


def listening_port(settings: Settings) -> int:
    """Return the daemon's port as peers see it, by the settings alone."""
    return settings.peering.advertise_port or port_of(settings.peering.listen) or PORT
