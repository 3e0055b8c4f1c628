"""``dns-records``: prints the DNS-SD records by which other clusters discover this one."""

from __future__ import annotations

import ipaddress

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Session, in_cluster
from liqod.cli.peering.token import daemon_addresses, listening_port
from liqod.cli.status.whoami import own_cluster
from liqod.discovery.candidate import Announcement, instance_label
from liqod.discovery.zone import zone_lines
from liqod.model.records.search_domain import is_domain


@click.command("dns-records")
@click.argument("domain")
@click.option("--host", default="", metavar="NAME", help="DNS name of the daemon's host [a name in DOMAIN].")
@click.option("--address", "addresses", multiple=True, metavar="IP", help="IP address of the host; repeatable.")
@click.option("--ttl", type=click.IntRange(1, 86400), default=300, show_default=True, help="TTL in seconds.")
@cluster_options
def dns_records(options: Options, domain: str, host: str, addresses: tuple[str, ...], ttl: int) -> None:
    """Print the DNS records to publish in DOMAIN; clusters with a SearchDomain for it discover this one.

    \b
    Example:
      liqodctl dns-records example.com --address 203.0.113.7
    """
    if not is_domain(domain) or (host and not is_domain(host)):
        raise CliError(errors.CONFIGURATION, f"{(host or domain)[:80]!r} is not a DNS name", "", errors.USAGE)

    async def work(session: Session) -> None:
        mine = await own_cluster(session)
        if not mine.fingerprint:
            raise mine.missing_key
        settings = session.settings
        me = Announcement(mine.cluster_id, settings.cluster.name, mine.fingerprint, listening_port(settings))
        where = addresses or tuple(settings.peering.advertise_addresses)
        if not where and not host:
            where = tuple(await daemon_addresses(session))
        try:
            plain = [str(ipaddress.ip_address(each)) for each in where]
        except ValueError as error:
            raise CliError(errors.CONFIGURATION, str(error), "--address takes IP addresses", errors.USAGE) from None
        name = host or f"{instance_label(me)}.{domain}"
        lines = list(zone_lines(me, domain, name, plain, ttl))
        for line in lines:
            session.print_line(line)
        session.publish({"domain": domain, "records": lines})

    in_cluster(options, work)
