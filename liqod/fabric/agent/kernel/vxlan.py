"""The overlay between the hosts of one cluster (VXLAN, RFC 7348): commands of ip(8) and bridge(8). Pure.

A node sends what is for peers to the gateway, and the gateway sends what came from peers to the node of the pod. Every
VTEP is known beforehand: hardware addresses are derived from the hosts' addresses, so that there is no ARP, no flooding
and no learning. A host's own routing tables are never touched.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from liqod.fabric.agent.kernel.model import HostCommand, ObservedOverlay, ObservedTable, Overlay, OverlayRoute
from liqod.fabric.agent.kernel.routes import (
    delete_rule,
    parse_device,
    rule_lines,
    rule_priorities,
    unmarked_priorities,
)
from liqod.fabric.state.network import Vtep
from liqod.model.records.network import Network

READ_ONLY: Final = "Read-only file system"
"""How a program says EROFS (strerror(3))."""
OVERHEAD: Final = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by the IP version between the hosts: IP 20 or 40, UDP 8, VXLAN 8, Ethernet 14."""


def device_name(tunnel: str) -> str:
    """Return the name of the overlay's device beside a tunnel's."""
    return f"{tunnel}x"


def overlay_mtu(uplink: int, local: str) -> int:
    """Return the MTU of the overlay over an uplink (0: not known, taken as Ethernet's)."""
    return (uplink or 1500) - OVERHEAD[ipaddress.ip_address(local).version]


def hardware(address: str) -> str:
    """Return the hardware address of the host with an address: locally administered, and the same on every host."""
    digest = hashlib.sha256(address.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (2, *digest[:5]))


def next_hop(address: str, version: int) -> str:
    """Return the next hop of routes to a host: its IPv4 address for IPv4, else a link-local one derived from it."""
    if ipaddress.ip_address(address).version == version == 4:
        return address
    digest = hashlib.sha256(address.encode()).hexdigest()
    return str(ipaddress.IPv6Address(f"fe80::{digest[0:4]}:{digest[4:8]}:{digest[8:12]}:{digest[12:16]}"))


def reached(vteps: Iterable[Vtep], local: str) -> tuple[Vtep, ...]:
    """Return the hosts that a host reaches over its overlay.

    A VXLAN device has one IP version: the kernel refuses an entry of the other one (EAFNOSUPPORT, vxlan_fdb_add).
    """
    version = ipaddress.ip_address(local).version
    return tuple(vtep for vtep in vteps if ipaddress.ip_address(vtep.address).version == version)


def parse_overlay(link: str, fdb: str, neighbours: Sequence[str], rp_filter: str) -> ObservedOverlay | None:
    """Return the overlay that ``ip -j -d addr show``, ``bridge -j fdb show`` and ``ip -j neigh show`` describe."""
    device = parse_device(link)
    if device is None:
        return None
    shown = next(one for one in _items(link) if one.get("ifname"))
    info: Mapping[str, Any] = shown.get("linkinfo", {}).get("info_data", {})
    known = [one for text in neighbours for one in _items(text) if "PERMANENT" in one.get("state", [])]
    return ObservedOverlay(
        device=device,
        vni=int(info.get("id", 0)),
        port=int(info.get("port", 0)),
        local=str(info.get("local") or info.get("local6") or ""),
        hardware=str(shown.get("address", "")),
        loose_rp_filter=rp_filter.strip() in ("0", "2"),
        hosts={str(one["mac"]): str(one["dst"]) for one in _items(fdb) if "dst" in one},
        neighbours={str(one["dst"]): str(one["lladdr"]) for one in known if "lladdr" in one},
    )


def parse_table(routes: Sequence[str], rules: Mapping[int, str], table: int, source: str) -> ObservedTable:
    """Return a table from ``ip -j route show table N`` and ``ip -j -d rule`` for each IP version."""
    found = {}
    for text in routes:
        for one in _items(text):
            gateway = str(one.get("gateway") or one.get("via", {}).get("host", ""))
            mtu = max((int(metric.get("mtu", 0)) for metric in one.get("metrics", [])), default=0)
            found[ipaddress.ip_network(one["dst"])] = OverlayRoute(gateway, str(one.get("dev", "")), mtu)
    policies = frozenset(
        (version, priority) for version, text in rules.items() for priority in rule_priorities(text, table, source)
    )
    unmarked = frozenset(
        (version, priority) for version, text in rules.items() for priority in unmarked_priorities(text, table, source)
    )
    return ObservedTable(found, policies, unmarked)


def overlay_steps(wanted: Overlay, seen: ObservedOverlay | None) -> Iterator[HostCommand]:
    """Yield what makes the device, its forwarding entries and its neighbours as wanted."""
    name = wanted.device
    if seen is not None and not _is_same(wanted, seen):
        yield HostCommand(("ip", "link", "del", "dev", name))
        seen = None
    if seen is None:
        options = f"id {wanted.vni} local {wanted.local} dstport {wanted.port} nolearning"
        mac = hardware(wanted.local)
        yield HostCommand(("ip", "link", "add", "dev", name, "address", mac, "type", "vxlan", *options.split()))
    lines = []
    if seen is None:
        lines.append(f"link set dev {name} addrgenmode none")
    if seen is None or seen.device.mtu != wanted.mtu:
        lines.append(f"link set dev {name} mtu {wanted.mtu}")
    if seen is None or not seen.device.up:
        lines.append(f"link set dev {name} up")
    if lines:
        yield HostCommand(("ip", "-batch", "-"), "\n".join(lines) + "\n")
    if seen is None or not seen.loose_rp_filter:
        # With strict reverse path filtering (1) the kernel drops a packet whose source it would route over another
        # device (ip-sysctl.rst, rp_filter). The sources here are peers' and other nodes' pods, whose routes may be over
        # another one. The kernel takes the larger value of `all` and the device: 2, loose, wins over 1. In a container
        # that is not privileged nothing can be written there; where the host does not filter strictly it is not needed.
        harmless = READ_ONLY if seen is None else ""
        yield HostCommand(("sysctl", "-q", "-w", f"net.ipv4.conf.{name}.rp_filter=2"), harmless=harmless)
    # `self`: an entry of the VXLAN device, not of a bridge that it may be a port of; `permanent` ones, and neighbours
    # that are `nud permanent`, never expire and are never asked for (bridge(8), ip-neighbour(8)).
    hosts = {hardware(vtep.address): vtep.address for vtep in wanted.vteps}
    known = seen.hosts if seen is not None else {}
    lines = [
        f"fdb replace {mac} dev {name} dst {to} self permanent" for mac, to in hosts.items() if known.get(mac) != to
    ]
    lines += [f"fdb del {mac} dev {name} dst {to} self" for mac, to in sorted(known.items()) if mac not in hosts]
    if lines:
        yield HostCommand(("bridge", "-batch", "-"), "\n".join(lines) + "\n")
    # Only next hops of routes: where IPv6 is disabled (net.ipv6.conf.all.disable_ipv6) its neighbours are refused.
    neighbours = {
        next_hop(vtep.address, one.version): hardware(vtep.address) for vtep in wanted.vteps for one in vtep.networks
    }
    have = seen.neighbours if seen is not None else {}
    lines = [
        f"neigh replace {to} lladdr {mac} dev {name} nud permanent"
        for to, mac in neighbours.items()
        if have.get(to) != mac
    ]
    lines += [f"neigh del {to} dev {name}" for to in sorted(have) if to not in neighbours]
    if lines:
        yield HostCommand(("ip", "-batch", "-"), "\n".join(lines) + "\n")


def remaining_table(wanted: Overlay, seen: ObservedOverlay | None, table: ObservedTable) -> ObservedTable:
    """Return what is left of a table after the device's steps: the kernel removes routes together with their device."""
    return table if seen is not None and _is_same(wanted, seen) else ObservedTable({}, table.policies, table.unmarked)


def wanted_routes(wanted: Overlay) -> dict[Network, OverlayRoute]:
    """Return the routes to the networks behind the VTEPs."""
    mtu = wanted.path_mtu if 0 < wanted.path_mtu < wanted.mtu else 0
    return {
        network: OverlayRoute(next_hop(vtep.address, network.version), wanted.device, mtu)
        for vtep in wanted.vteps
        for network in vtep.networks
    }


def table_steps(wanted: Overlay, seen: ObservedTable) -> Iterator[HostCommand]:
    """Yield the routes and policy rules that are missing or differ, then the removal of stale ones."""
    routes = wanted_routes(wanted)
    policies = {(network.version, wanted.priority) for network in routes}
    rules = list(rule_lines(policies, seen.policies, seen.unmarked, wanted.table, wanted.source))
    for version in (4, 6):
        lines = [line for at, line in rules if at == version]
        for network, route in routes.items():
            if network.version == version and seen.routes.get(network) != route:
                lines.append(_replace(network, route, wanted.table))
        gone = [network for network in seen.routes if network.version == version and network not in routes]
        lines += [f"route del {network} table {wanted.table}" for network in sorted(gone, key=str)]
        stale = sorted(seen.policies - policies)
        lines += [delete_rule(priority, wanted.table) for at, priority in stale if at == version]
        if lines:
            yield HostCommand(("ip", f"-{version}", "-batch", "-"), "\n".join(lines) + "\n")


def removal_steps(
    device: str, table: int, seen: ObservedOverlay | None, routes: ObservedTable
) -> Iterator[HostCommand]:
    """Yield the removal of an overlay with its routes and policy rules."""
    for version in (4, 6):
        mine = sorted((network for network in routes.routes if network.version == version), key=str)
        lines = [f"route del {network} table {table}" for network in mine]
        lines += [delete_rule(priority, table) for at, priority in sorted(routes.policies) if at == version]
        if lines:
            yield HostCommand(("ip", f"-{version}", "-batch", "-"), "\n".join(lines) + "\n")
    if seen is not None:
        yield HostCommand(("ip", "link", "del", "dev", device))


def _is_same(wanted: Overlay, seen: ObservedOverlay) -> bool:
    made = (seen.device.kind, seen.vni, seen.port, seen.local, seen.hardware)
    return made == ("vxlan", wanted.vni, wanted.port, wanted.local, hardware(wanted.local))


def _replace(network: Network, route: OverlayRoute, table: int) -> str:
    # An IPv4 route may have an IPv6 next hop (RFC 5549). `onlink`: the device has no address in the next hop's network.
    via = f"inet6 {route.gateway}" if network.version == 4 and ":" in route.gateway else route.gateway
    metric = f" mtu lock {route.mtu}" if route.mtu else ""
    return f"route replace {network} via {via} dev {route.device} onlink table {table}{metric}"


def _items(text: str) -> list[Mapping[str, Any]]:
    return [one for one in json.loads(text or "[]") if isinstance(one, dict)]
