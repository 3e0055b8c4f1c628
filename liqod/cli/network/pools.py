"""Whether ``[network] pools`` and ``accept`` hold what this host itself needs: time and API servers. Pure.

The daemon gives no peer what overlaps the host's routes, next hops and name servers, the cluster's networks and nodes,
or ``reserved``. Other servers, behind the default route, it cannot know: a peer may be given their network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from liqod.cli.console.findings import Finding, good, warning
from liqod.config.schema import NetworkSettings
from liqod.fabric.state.network import overlaps, parse_networks
from liqod.model.addresses import parse_ips
from liqod.model.records.network import Network

TIME_FILES: Final = (
    "/etc/systemd/timesyncd.conf",
    "/etc/chrony/chrony.conf",
    "/etc/chrony.conf",
    "/etc/ntp.conf",
    "/etc/ntpsec/ntp.conf",
)
TIME_SERVER, API_SERVER = "time server", "API server"
_LINES: Final = frozenset(("server", "pool", "peer"))
"""Words of chrony.conf(5) and ntp.conf(5) that a server follows."""
_KEYS: Final = frozenset(("NTP", "FallbackNTP"))
"""Settings of timesyncd.conf(5) that list servers."""


@attrs.frozen
class Need:
    """One address that this host needs, and what is there."""

    what: str
    address: Network


@attrs.frozen
class Unknown:
    """Something that could not be looked at: which, with the reason, and what to do about it."""

    why: str
    hint: str


def time_servers(text: str) -> list[Need]:
    """Return the servers in a configuration of timesyncd, chrony or ntpd that are named by address.

    Servers that are named by name are left out: their addresses change.
    """
    named: list[str] = []
    for line in text.splitlines():
        key, equals, listed = line.partition("=")
        if equals and key.strip() in _KEYS:
            named += listed.split()
        words = line.split()
        if len(words) > 1 and words[0] in _LINES:
            named.append(words[1])
    return [Need(TIME_SERVER, one) for one in _addresses(named)]


def api_servers(addresses: Iterable[str]) -> list[Need]:
    """Return the API servers as needs."""
    return [Need(API_SERVER, one) for one in _addresses(addresses)]


def judge_pools(
    settings: NetworkSettings,
    needs: Sequence[Need],
    known: Sequence[Network],
    unknown: Sequence[Unknown] = (),
    kinds: Sequence[str] = (TIME_SERVER, API_SERVER),
) -> list[Finding]:
    """Return a warning for each need that a peer may be given the network of, and for what is not known of that.

    ``known`` are the networks that the daemon avoids by itself, besides those that the settings reserve; ``kinds`` says
    of what ``needs`` has all there is.
    """
    given = parse_networks([*settings.pools, *settings.accept])
    guarded = [*known, *parse_networks(settings.reserved)]
    found = []
    for need in dict.fromkeys(needs):
        pool = overlaps(need.address, given)
        if pool is not None and overlaps(need.address, guarded) is None:
            text = f"the {need.what} {need.address.network_address} lies in {pool}, which peers' networks come from"
            found.append(warning("Network", text, f'add "{need.address}" to reserved under [network]'))
    for one in unknown:
        text = f"whether peers may be given the network of a server that this host needs is not known: {one.why}"
        found.append(warning("Network", text, one.hint))
    looked_at = " and ".join(f"no {kind}" for kind in kinds)
    return found or [good("Network", f"{looked_at} lies where peers may be given addresses")]


def _addresses(texts: Iterable[str]) -> list[Network]:
    parsed = parse_ips(texts)
    return [ipaddress.ip_network(one) for one in parsed if not (one.is_loopback or one.is_link_local)]
