"""The overlay between the hosts of one cluster, in the words of ip(8) and bridge(8). Pure.

A node sends what is for peers to the gateway, and the gateway sends what came from peers to the node of the pod. Every
host knows every other end beforehand: hardware addresses follow from the hosts' addresses (RFC 7348 for the frames), so
that nothing is asked for, flooded or learned. A host's own tables are never touched.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from liqod.fabric.kernel.model import Hop, Overlay, SeenOverlay, SeenTable, Step
from liqod.fabric.kernel.routes import parse_device
from liqod.model.records.network import Network

VNI: Final = 18952
OVERHEAD: Final = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by the IP version between the hosts."""


def device_name(tunnel: str) -> str:
    """Return the name of the overlay's device beside a tunnel's."""
    return f"{tunnel}x"


def overlay_mtu(uplink: int, local: str) -> int:
    """Return the MTU of the overlay over an uplink (0: not known, taken as Ethernet's)."""
    return (uplink or 1500) - OVERHEAD[ipaddress.ip_address(local).version]


def hardware(address: str) -> str:
    """Return the hardware address of the host with an address: locally administered, the same wherever it is made."""
    digest = hashlib.sha256(address.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (2, *digest[:5]))


def next_hop(address: str, version: int) -> str:
    """Return the address that routes of an IP version name for a host: its own, else one made of its hardware's."""
    if ipaddress.ip_address(address).version == version == 4:
        return address
    digest = hashlib.sha256(address.encode()).hexdigest()
    return str(ipaddress.IPv6Address(f"fe80::{digest[0:4]}:{digest[4:8]}:{digest[8:12]}:{digest[12:16]}"))


def parse_overlay(link: str, hosts: str, neighbours: Sequence[str], loose: str) -> SeenOverlay | None:
    """Return the overlay as ``ip -j -d addr show``, ``bridge -j fdb show`` and ``ip -j neigh show`` tell of it."""
    device = parse_device(link)
    if device is None:
        return None
    shown = next(one for one in _items(link) if one.get("ifname"))
    info: Mapping[str, Any] = shown.get("linkinfo", {}).get("info_data", {})
    known = [one for text in neighbours for one in _items(text) if "PERMANENT" in one.get("state", [])]
    return SeenOverlay(
        device=device,
        vni=int(info.get("id", 0)),
        port=int(info.get("port", 0)),
        local=str(info.get("local") or info.get("local6") or ""),
        hardware=str(shown.get("address", "")),
        loose=loose.strip() == "2",
        hosts={str(one["mac"]): str(one["dst"]) for one in _items(hosts) if "dst" in one},
        neighbours={str(one["dst"]): str(one["lladdr"]) for one in known if "lladdr" in one},
    )


def parse_table(routes: Sequence[str], rules: Mapping[int, str], table: int, source: str) -> SeenTable:
    """Return a table from ``ip -j route show table N`` and ``ip -j rule`` for each IP version."""
    found = {}
    for text in routes:
        for one in _items(text):
            gateway = str(one.get("gateway") or one.get("via", {}).get("host", ""))
            mtu = max((int(metric.get("mtu", 0)) for metric in one.get("metrics", [])), default=0)
            found[ipaddress.ip_network(one["dst"])] = Hop(gateway, str(one.get("dev", "")), mtu)
    leading = frozenset(version for version, text in rules.items() if _leads(text, table, source))
    return SeenTable(found, leading)


def overlay_steps(wanted: Overlay, seen: SeenOverlay | None) -> Iterator[Step]:
    """Yield what makes the device and its other ends as wanted."""
    name = wanted.device
    if seen is not None and not _is_same(wanted, seen):
        yield Step(("ip", "link", "del", "dev", name))
        seen = None
    if seen is None:
        options = f"id {wanted.vni} local {wanted.local} dstport {wanted.port} nolearning"
        mac = hardware(wanted.local)
        yield Step(("ip", "link", "add", "dev", name, "address", mac, "type", "vxlan", *options.split()))
    lines = []
    if seen is None:
        lines.append(f"link set dev {name} addrgenmode none")
    if seen is None or seen.device.mtu != wanted.mtu:
        lines.append(f"link set dev {name} mtu {wanted.mtu}")
    if seen is None or not seen.device.up:
        lines.append(f"link set dev {name} up")
    if lines:
        yield Step(("ip", "-batch", "-"), "\n".join(lines) + "\n")
    if seen is None or not seen.loose:
        # What comes from another host over the overlay has an address that the host's own routes may lead to elsewhere.
        yield Step(("sysctl", "-q", "-w", f"net.ipv4.conf.{name}.rp_filter=2"))
    hosts = {hardware(end.address): end.address for end in wanted.ends}
    known = seen.hosts if seen is not None else {}
    lines = [
        f"fdb replace {mac} dev {name} dst {to} self permanent" for mac, to in hosts.items() if known.get(mac) != to
    ]
    lines += [f"fdb del {mac} dev {name} dst {to} self" for mac, to in sorted(known.items()) if mac not in hosts]
    if lines:
        yield Step(("bridge", "-batch", "-"), "\n".join(lines) + "\n")
    near = {next_hop(end.address, version): hardware(end.address) for end in wanted.ends for version in (4, 6)}
    have = seen.neighbours if seen is not None else {}
    lines = [
        f"neigh replace {to} lladdr {mac} dev {name} nud permanent" for to, mac in near.items() if have.get(to) != mac
    ]
    lines += [f"neigh del {to} dev {name}" for to in sorted(have) if to not in near]
    if lines:
        yield Step(("ip", "-batch", "-"), "\n".join(lines) + "\n")


def still_there(wanted: Overlay, seen: SeenOverlay | None, table: SeenTable) -> SeenTable:
    """Return what is left of a table after the device's steps: one that is made anew takes its routes with it."""
    return table if seen is not None and _is_same(wanted, seen) else SeenTable({}, table.policies)


def wanted_hops(wanted: Overlay) -> dict[Network, Hop]:
    """Return the routes to what is behind the other ends."""
    mtu = wanted.path_mtu if 0 < wanted.path_mtu < wanted.mtu else 0
    return {
        network: Hop(next_hop(end.address, network.version), wanted.device, mtu)
        for end in wanted.ends
        for network in end.networks
    }


def table_steps(wanted: Overlay, seen: SeenTable) -> Iterator[Step]:
    """Yield the routes and policy rules that are missing or differ, then the removal of those that nobody wants."""
    hops = wanted_hops(wanted)
    versions = {network.version for network in hops}
    for version in (4, 6):
        lines = []
        if version in versions - seen.policies:
            lines.append(f"rule add pref {wanted.table} {_from(wanted.source)}lookup {wanted.table}")
        for network, hop in hops.items():
            if network.version == version and seen.routes.get(network) != hop:
                lines.append(_replace(network, hop, wanted.table))
        gone = [network for network in seen.routes if network.version == version and network not in hops]
        lines += [f"route del {network} table {wanted.table}" for network in sorted(gone, key=str)]
        if version in seen.policies - versions:
            lines.append(f"rule del pref {wanted.table}")
        if lines:
            yield Step(("ip", f"-{version}", "-batch", "-"), "\n".join(lines) + "\n")


def removal_steps(device: str, table: int, seen: SeenOverlay | None, routes: SeenTable) -> Iterator[Step]:
    """Yield what leaves nothing of an overlay."""
    for version in (4, 6):
        mine = sorted((network for network in routes.routes if network.version == version), key=str)
        lines = [f"route del {network} table {table}" for network in mine]
        if version in routes.policies:
            lines.append(f"rule del pref {table}")
        if lines:
            yield Step(("ip", f"-{version}", "-batch", "-"), "\n".join(lines) + "\n")
    if seen is not None:
        yield Step(("ip", "link", "del", "dev", device))


def _is_same(wanted: Overlay, seen: SeenOverlay) -> bool:
    made = (seen.device.kind, seen.vni, seen.port, seen.local, seen.hardware)
    return made == ("vxlan", wanted.vni, wanted.port, wanted.local, hardware(wanted.local))


def _replace(network: Network, hop: Hop, table: int) -> str:
    via = f"inet6 {hop.gateway}" if network.version == 4 and ":" in hop.gateway else hop.gateway
    metric = f" mtu lock {hop.mtu}" if hop.mtu else ""
    return f"route replace {network} via {via} dev {hop.device} onlink table {table}{metric}"


def _leads(rules: str, table: int, source: str) -> bool:
    return any(
        (str(one.get("table")), one.get("priority"), one.get("iif", "")) == (str(table), table, source)
        for one in _items(rules)
    )


def _from(source: str) -> str:
    return f"iif {source} " if source else ""


def _items(text: str) -> list[Mapping[str, Any]]:
    return [one for one in json.loads(text or "[]") if isinstance(one, dict)]
