"""The nftables rules of a gateway: which packets may pass the tunnel, and their address translation. Pure.

The guard runs before address translation (dstnat) and after conntrack, whose state it reads, see nft(8), priorities. It
drops what a peer may not send: a packet from the tunnel must have a source
in the peer's own networks (cryptokey routing has checked that already; this is defence in depth) and a destination of
ours, by the address that this peer knows.

Exported addresses are elements of the peer's sets: the map ``real_`` has the address behind each, ``whole_`` those that
are open as a whole, ``ports_`` the open ports of the others. Only what the guard accepted has one of them as its
original destination (``ct original``), so the later chains check nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from liqod.fabric.agent.kernel.model import DesiredKernel, Overlay
from liqod.fabric.agent.kernel.rules.direct_rules import direct_sets, forward_direct
from liqod.fabric.agent.kernel.rules.guest_rules import from_guests, guest_sets, peer_digest, to_guests
from liqod.fabric.agent.kernel.rules.service_rules import (
    forward_offloaded,
    forward_services,
    guard_services,
    input_services,
    service_chains,
    service_sets,
)
from liqod.fabric.state.guests import guests_of
from liqod.fabric.state.network import ExportedAddress, Link
from liqod.model.records.network import Network


def gateway_sets(desired: DesiredKernel) -> Mapping[str, frozenset[str]]:
    """Return the named sets of addresses: our pods that may talk with each peer, and the hosts of the overlay."""
    links = desired.links
    found = {**guest_sets(map(guests_of, links)), **service_sets(links), **direct_sets(_closed(links))}
    if desired.overlay is not None:
        version = 6 if ":" in desired.overlay.local else 4
        found[f"hosts_{version}"] = frozenset(vtep.address for vtep in desired.overlay.vteps)
    for link in desired.links:
        if link.pods is not None:
            for version in _versions(link):
                found[_set_name(link, version)] = frozenset(one for one in link.pods if (":" in one) == (version == 6))
        for family, _, _ in _exports(link):
            found |= _export_sets(link, family)
    return found


def _export_sets(link: Link, family: str) -> Mapping[str, frozenset[str]]:
    exports = _exports_of(link, family)
    return {
        _export_name("real", link, family): frozenset(f"{one.seen} : {one.real}" for one in exports),
        _export_name("whole", link, family): frozenset(one.seen for one in exports if not one.ports),
        _export_name("ports", link, family): frozenset(
            f"{one.seen} . {protocol} . {port}" for one in exports for protocol, port in one.ports
        ),
    }


def gateway_chains(desired: DesiredKernel) -> list[tuple[str, list[str]]]:
    """Return each chain's head and its rules."""
    device, links = desired.device, desired.links
    return [
        *service_chains(device, links),
        (
            "guard type filter hook prerouting priority dstnat - 20; policy accept;",
            [*guard_services(device, links), *_guard(device, links)],
        ),
        ("to_pods type nat hook prerouting priority dstnat - 10; policy accept;", _to_pods(device, links)),
        (
            "input type filter hook input priority filter; policy accept;",
            [
                *overlay_guard(desired.overlay),
                *input_services(device, links),
                *_input(device, desired.probe_port, links),
            ],
        ),
        ("forward type filter hook forward priority filter; policy accept;", _forward(device, links)),
        (
            "from_pods type nat hook postrouting priority srcnat - 10; policy accept;",
            [
                *_from_pods(device, links),
                *_from_peers(desired.overlay, links),
                *from_guests(map(guests_of, links)),
            ],
        ),
    ]


def _guard(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, family in _families(link):
            ours = [pair.seen for pair in link.local if pair.seen.version == version]
            ours += [gateway.seen for gateway in link.gateways if gateway.seen.version == version]
            if ours:
                sources = _braces(_of(version, link.remote))
                rules.append(f'iifname "{device}" {family} saddr {sources} {family} daddr {_braces(ours)} accept')
        for family, theirs, external in _exports(link):
            head = f'iifname "{device}" {family} saddr {theirs}'
            rules.append(f"{head} {family} daddr @{_export_name('whole', link, family)} accept")
            rules.append(
                f"{head} {family} daddr . meta l4proto . th dport @{_export_name('ports', link, family)} accept"
            )
            # ICMP errors of hosts on the way ("fragmentation needed"): conntrack relates them to the connection.
            rules.append(f"{head} {family} daddr {external} ct state related accept")
    return [*rules, f'iifname "{device}" drop']


def _to_pods(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, family in _families(link):
            sources = _braces(_of(version, link.remote))
            head = f'iifname "{device}" {family} saddr {sources} {family} daddr'
            rules += [
                f"{head} {pair.seen} dnat {family} prefix to {pair.ours}"
                for pair in link.local
                if pair.ours.version == version and pair.ours != pair.seen
            ]
            rules += [
                f"{head} {_one(gateway.seen)} dnat {family} to {_one(gateway.ours)}"
                for gateway in link.gateways
                if gateway.ours.version == version and gateway.ours != gateway.seen
            ]
        for family, theirs, _ in _exports(link):
            leading = f"dnat {family} to {family} daddr map @{_export_name('real', link, family)}"
            rules.append(f'iifname "{device}" {family} saddr {theirs} {leading}')
    return [*rules, *to_guests(map(guests_of, links))]


def _from_pods(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, family in _families(link):
            head = f'oifname "{device}" {family} daddr {_braces(_of(version, link.remote))}'
            rules += [
                f"{head} {family} saddr {pair.ours} snat {family} prefix to {pair.seen}"
                for pair in link.local
                if pair.ours.version == version
            ]
            rules += [
                f"{head} snat {family} to {_one(gateway.seen)}"
                for gateway in link.gateways
                if gateway.ours.version == version
            ]
    return rules


def _from_peers(overlay: Overlay | None, links: Sequence[Link]) -> list[str]:
    """Return the masquerading of what goes to an exported address: the host behind it has no route back to the peer.

    What goes to another peer has the gateway's address already, and hosts on the overlay have routes back.
    """
    rules = []
    for link in links:
        for family, theirs, external in _exports(link):
            head = f"{family} saddr {theirs} ct original {family} daddr {external}"
            elsewhere = "" if overlay is None else f'oifname != "{overlay.device}" '
            rules.append(f"{elsewhere}{head} masquerade")
    return rules


def _input(device: str, probe_port: int, links: Sequence[Link]) -> list[str]:
    exports_as_seen = []
    for link in links:
        for family, theirs, external in _exports(link):
            head = f'iifname "{device}" {family} saddr {theirs} ct original {family} daddr {external}'
            own = [
                f"ct original {family} daddr != {_one(one.seen)} "
                for one in link.gateways
                if one.seen.network_address in external
            ]
            exports_as_seen.append(f"{head} {''.join(own)}accept")
    return [
        f'iifname "{device}" ct state established,related accept',
        f'iifname "{device}" udp dport {probe_port} accept',
        f'iifname "{device}" icmp type echo-request accept',
        f'iifname "{device}" icmpv6 type echo-request accept',
        *exports_as_seen,
        f'iifname "{device}" drop',
    ]


def _forward(device: str, links: Sequence[Link]) -> list[str]:
    rules = clamp_rules(device)
    for link in links:
        for family, theirs, external in _exports(link):
            rules.append(f'iifname "{device}" {family} saddr {theirs} ct original {family} daddr {external} accept')
    rules += forward_services(device, links)
    between = f'iifname "{device}" oifname "{device}"'
    if any(_exports(link) or link.services for link in links):
        # A pod of one peer calls an exported pod of another, or a pod of ours there calls a Service with an endpoint
        # there: new connections were accepted above.
        rules.append(f"{between} ct state established,related accept")
    rules.append(f"{between} drop")
    closed = _closed(links)
    if closed:
        rules.append(f'iifname "{device}" ct state established,related accept')
        rules.append(f'oifname "{device}" ct state established,related accept')
    for link in closed:
        for version, family in _families(link):
            theirs, ours = _braces(_of(version, link.remote)), f"@{_set_name(link, version)}"
            rules.append(f'iifname "{device}" {family} saddr {theirs} {family} daddr {ours} accept')
            rules.append(f'oifname "{device}" {family} daddr {theirs} {family} saddr {ours} accept')
        rules += forward_offloaded(device, link)
        rules += forward_direct(device, link)
        for version, family in _families(link):
            theirs = _braces(_of(version, link.remote))
            rules.append(f'iifname "{device}" {family} saddr {theirs} drop')
            rules.append(f'oifname "{device}" {family} daddr {theirs} drop')
    return rules


def _closed(links: Sequence[Link]) -> list[Link]:
    return [link for link in links if link.pods is not None]


def clamp_rules(device: str) -> list[str]:
    """Return the rules that clamp TCP's MSS to the route's MTU in both directions of a device.

    Where ICMP errors are filtered, path MTU discovery of the pods would never learn that the tunnel carries less than
    their own interface (RFC 2923, black holes).
    """
    clamp = "tcp flags syn / syn,rst tcp option maxseg size set rt mtu"
    return [f'oifname "{device}" {clamp}', f'iifname "{device}" {clamp}']


def overlay_guard(overlay: Overlay | None) -> list[str]:
    """Return the rule that accepts VXLAN from this cluster's hosts alone: its frames are not authenticated."""
    if overlay is None:
        return []
    family, version = ("ip6", 6) if ":" in overlay.local else ("ip", 4)
    return [f"udp dport {overlay.port} {family} saddr != @hosts_{version} drop"]


def _set_name(link: Link, version: int) -> str:
    return f"pods_{peer_digest(link.peer)}_{version}"


def _exports(link: Link) -> list[tuple[str, str, Network]]:
    """Return what rules about exports need, by family: its name, the peer's networks, our external one as seen."""
    found = []
    for external in link.externals:
        theirs, family = _of(external.seen.version, link.remote), "ip" if external.seen.version == 4 else "ip6"
        if theirs and _exports_of(link, family):
            found.append((family, _braces(theirs), external.seen))
    return found


def _exports_of(link: Link, family: str) -> list[ExportedAddress]:
    return [one for one in link.exports if (":" in one.seen) == (family == "ip6")]


def _export_name(what: str, link: Link, family: str) -> str:
    return f"{what}_{peer_digest(link.peer)}_{4 if family == 'ip' else 6}"


def _versions(link: Link) -> list[int]:
    return sorted({network.version for network in link.remote})


def _families(link: Link) -> Iterator[tuple[int, str]]:
    for version in _versions(link):
        yield version, "ip" if version == 4 else "ip6"


def _of(version: int, networks: Sequence[Network]) -> list[Network]:
    return [network for network in networks if network.version == version]


def _braces(networks: Sequence[Network]) -> str:
    return "{ " + ", ".join(map(str, networks)) + " }"


def _one(network: Network) -> str:
    return str(network.network_address)
