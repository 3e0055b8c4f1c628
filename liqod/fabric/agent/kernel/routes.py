"""Links, addresses, policy rules and routes of the tunnel: commands of ip(8). Pure.

The host's own tables are never touched: one policy rule per IP version looks up a table of ours, and a destination that
is not in it falls through to the next rule (ip-rule(8)).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from liqod.fabric.agent.kernel.model import (
    PROTOCOL,
    TABLE,
    DesiredKernel,
    HostCommand,
    NetworkInterface,
    ObservedKernel,
    Policy,
    Route,
)
from liqod.model.records.network import Network

UNSPECIFIC = ("default", "0.0.0.0/0", "::/0")


def parse_device(text: str) -> NetworkInterface | None:
    """Return the device that ``ip -j -d addr show dev DEV`` describes; None where there is none."""
    found = [one for one in _items(text) if one.get("ifname")]
    if not found:
        return None
    link = found[0]
    addresses = frozenset(
        ipaddress.ip_network(f"{one['local']}/{one['prefixlen']}", strict=False)
        for one in link.get("addr_info", [])
        if one.get("scope") != "link"
    )
    kind = str(link.get("linkinfo", {}).get("info_kind", ""))
    return NetworkInterface(int(link["mtu"]), "UP" in link.get("flags", []), addresses, kind)


def rule_priorities(text: str, table: int, source: str = "") -> frozenset[int]:
    """Return the priorities of the rules of ``ip -j -d rule`` that look up a table for what a device got, or all."""
    return frozenset(int(one["priority"]) for one in _rules_of(text, table, source))


def unmarked_priorities(text: str, table: int, source: str = "") -> frozenset[int]:
    """Return the priorities of those of them that do not say that the kernel made them: what networkd removes.

    Earlier releases made such rules. An ip(8) that shows no protocol says nothing of that.
    """
    found = _rules_of(text, table, source)
    return frozenset(int(one["priority"]) for one in found if one.get("protocol", PROTOCOL) != PROTOCOL)


def rule_lines(
    wanted: Collection[Policy], seen: Collection[Policy], unmarked: Collection[Policy], table: int, source: str = ""
) -> Iterator[tuple[int, str]]:
    """Yield what adds the policy rules that are missing and replaces unmarked ones, each line with its IP version."""
    for version, priority in sorted(set(wanted) - set(seen)):
        yield version, add_rule(priority, table, source)
    for version, priority in sorted(set(wanted) & set(unmarked)):
        # The kernel takes no rule that differs from another by its protocol alone (EEXIST; rule_exists, fib_rules.c).
        # While there is none of this priority a next one leads to the table: packets for peers have no other way.
        spare = priority + 1
        is_there = (version, spare) in seen
        if not is_there:
            yield version, add_rule(spare, table, source)
        yield version, delete_rule(priority, table)
        yield version, add_rule(priority, table, source)
        if not is_there:
            yield version, delete_rule(spare, table)


def add_rule(priority: int, table: int, source: str = "") -> str:
    """Return the command that adds a policy rule, without its IP version."""
    where = f"iif {source} " if source else ""
    return f"rule add pref {priority} {where}lookup {table} protocol {PROTOCOL}"


def delete_rule(priority: int, table: int) -> str:
    """Return the command that removes a policy rule, without its IP version."""
    return f"rule del pref {priority} lookup {table}"


def parse_routes(text: str) -> dict[Network, Route]:
    """Return the routes of our table by destination, from ``ip -j route show table 18952``."""
    routes = {}
    for one in _items(text):
        mtu = max((int(metric.get("mtu", 0)) for metric in one.get("metrics", [])), default=0)
        routes[ipaddress.ip_network(one["dst"])] = Route(str(one.get("dev", "")), mtu, str(one.get("prefsrc", "")))
    return routes


def host_networks(text: str, own_device: str) -> list[Network]:
    """Return the networks of the host's own routes, from ``ip -j route show table all``."""
    found = set()
    for one in _items(text):
        kind, dst = one.get("type", "unicast"), str(one.get("dst", ""))
        if one.get("dev") == own_device or kind not in ("unicast", "local") or dst in UNSPECIFIC:
            continue
        network = ipaddress.ip_network(dst)
        if not (network.is_loopback or network.is_link_local or network.is_multicast):
            found.add(network)
    return sorted(found, key=str)


def next_hops(text: str) -> list[Network]:
    """Return the next hops of the host's default routes, as networks of one address, but for link-local ones."""
    found = set()
    for one in _items(text):
        if str(one.get("dst", "")) not in UNSPECIFIC:
            continue
        for hop in (one, *one.get("nexthops", ())):
            if gateway := hop.get("gateway") or (hop.get("via") or {}).get("host"):
                found.add(ipaddress.ip_network(gateway))
    return sorted((one for one in found if not one.is_link_local), key=str)


def device_steps(desired: DesiredKernel, observed: NetworkInterface | None) -> Iterator[HostCommand]:
    """Yield what sets the device's addresses and MTU, and brings it up."""
    name = desired.device
    have = observed.addresses if observed is not None else frozenset()
    lines = [f"address add {address} dev {name}" for address in desired.addresses if address not in have]
    lines += [f"address del {address} dev {name}" for address in sorted(have - set(desired.addresses), key=str)]
    if observed is None:
        # No IPv6 link-local address: the host would send router solicitations and MLD reports into the tunnel.
        lines.append(f"link set dev {name} addrgenmode none")
    if observed is None or observed.mtu != desired.mtu:
        lines.append(f"link set dev {name} mtu {desired.mtu}")
    if observed is None or not observed.up:
        lines.append(f"link set dev {name} up")
    yield from _batch(lines)


def wanted_routes(desired: DesiredKernel) -> dict[Network, Route]:
    """Return the routes that lead to the peers."""
    sources = {address.version: str(address.network_address) for address in desired.addresses}
    return {
        network: Route(desired.device, link.mtu if 0 < link.mtu < desired.mtu else 0, sources.get(network.version, ""))
        for link in desired.links
        for network in link.remote
    }


def missing_route_steps(desired: DesiredKernel, observed: ObservedKernel) -> Iterator[HostCommand]:
    """Yield the policy rules and the routes that are missing or differ."""
    wanted = wanted_routes(desired)
    policies = _policies(desired, wanted)
    found = rule_lines(policies, observed.policies, observed.unmarked, TABLE)
    lines = [f"-{version} {line}" for version, line in found]
    for network, route in wanted.items():
        if observed.routes.get(network) != route:
            lines.append(_replace(network, route))
    yield from _per_version(lines)


def stale_route_steps(desired: DesiredKernel, observed: ObservedKernel) -> Iterator[HostCommand]:
    """Yield the removal of stale routes and policy rules."""
    wanted = wanted_routes(desired)
    gone = [network for network in observed.routes if network not in wanted]
    # With the table named, a route of the host to the same network is not deleted: the default table is ``main``.
    lines = [f"-{network.version} route del {network} table {TABLE}" for network in sorted(gone, key=str)]
    lines += [
        f"-{version} {delete_rule(priority, TABLE)}"
        for version, priority in sorted(observed.policies - _policies(desired, wanted))
    ]
    yield from _per_version(lines)


def _policies(desired: DesiredKernel, wanted: Iterable[Network]) -> frozenset[Policy]:
    return frozenset((network.version, desired.priority) for network in wanted)


def _replace(network: Network, route: Route) -> str:
    words = [f"-{network.version} route replace {network} dev {route.device} table {TABLE}"]
    if route.source:
        # The source address that the host itself prefers on this route (ip-route(8)); forwarded packets keep theirs.
        words.append(f"src {route.source}")
    if route.mtu:
        # `lock`: path MTU discovery must not lower or raise what the probes measured (ip-route(8)).
        words.append(f"mtu lock {route.mtu}")
    return " ".join(words)


def _per_version(lines: Sequence[str]) -> Iterator[HostCommand]:
    for version in ("4", "6"):
        own = [line[3:] for line in lines if line[1] == version]
        if own:
            yield HostCommand(("ip", f"-{version}", "-batch", "-"), "\n".join(own) + "\n")


def _batch(lines: Sequence[str]) -> Iterator[HostCommand]:
    if lines:
        yield HostCommand(("ip", "-batch", "-"), "\n".join(lines) + "\n")


def _rules_of(text: str, table: int, source: str) -> list[Mapping[str, Any]]:
    return [one for one in _items(text) if (str(one.get("table")), one.get("iif", "")) == (str(table), source)]


def _items(text: str) -> Iterable[Mapping[str, Any]]:
    return [one for one in json.loads(text or "[]") if isinstance(one, dict)]
