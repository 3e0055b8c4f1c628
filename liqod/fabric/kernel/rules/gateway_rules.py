"""The rules of a gateway: who may pass the tunnel, and by which address. Pure.

The guard drops what a peer may not send before anything else looks at it: a packet from the tunnel comes from the
peer's own networks and goes to one of ours by the address that this peer knows.

Single addresses that were exported are elements of the peer's sets: ``real_`` says where each leads, ``whole_`` holds
those that are reached as a whole, ``ports_`` the ports of the others. Only what the guard let in has one of them as its
original destination, so the later chains ask for no more than that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from liqod.fabric.kernel.model import Desired, Exported, Link, Overlay
from liqod.model.records.network import Network


def gateway_sets(desired: Desired) -> Mapping[str, frozenset[str]]:
    """Return the named sets of addresses: our pods that may talk with each peer, and the hosts of the overlay."""
    found = {}
    if desired.overlay is not None:
        version = 6 if ":" in desired.overlay.local else 4
        found[f"hosts_{version}"] = frozenset(end.address for end in desired.overlay.ends)
    for link in desired.links:
        if link.pods is not None:
            for version in _versions(link):
                found[_set_name(link, version)] = frozenset(one for one in link.pods if (":" in one) == (version == 6))
        for word, _, _ in _exports(link):
            found |= _export_sets(link, word)
    return found


def _export_sets(link: Link, word: str) -> Mapping[str, frozenset[str]]:
    exports = _exports_of(link, word)
    return {
        _export_name("real", link, word): frozenset(f"{one.seen} : {one.real}" for one in exports),
        _export_name("whole", link, word): frozenset(one.seen for one in exports if not one.ports),
        _export_name("ports", link, word): frozenset(
            f"{one.seen} . {protocol} . {port}" for one in exports for protocol, port in one.ports
        ),
    }


def gateway_chains(desired: Desired) -> list[tuple[str, list[str]]]:
    """Return each chain's head and its rules."""
    device, links = desired.device, desired.links
    return [
        ("guard type filter hook prerouting priority dstnat - 20; policy accept;", _guard(device, links)),
        ("to_pods type nat hook prerouting priority dstnat - 10; policy accept;", _to_pods(device, links)),
        (
            "input type filter hook input priority filter; policy accept;",
            [*overlay_guard(desired.overlay), *_input(device, desired.probe_port, links)],
        ),
        ("forward type filter hook forward priority filter; policy accept;", _forward(device, links)),
        (
            "from_pods type nat hook postrouting priority srcnat - 10; policy accept;",
            [*_from_pods(device, links), *_from_peers(desired.overlay, links)],
        ),
    ]


def _guard(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, word in _words(link):
            ours = [pair.seen for pair in link.local if pair.seen.version == version]
            ours += [gateway.seen for gateway in link.gateways if gateway.seen.version == version]
            if ours:
                sources = _braces(_of(version, link.remote))
                rules.append(f'iifname "{device}" {word} saddr {sources} {word} daddr {_braces(ours)} accept')
        for word, theirs, external in _exports(link):
            head = f'iifname "{device}" {word} saddr {theirs}'
            rules.append(f"{head} {word} daddr @{_export_name('whole', link, word)} accept")
            rules.append(f"{head} {word} daddr . meta l4proto . th dport @{_export_name('ports', link, word)} accept")
            # What a host on the way says about such a connection, the path's MTU above all.
            rules.append(f"{head} {word} daddr {external} ct state related accept")
    return [*rules, f'iifname "{device}" drop']


def _to_pods(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, word in _words(link):
            sources = _braces(_of(version, link.remote))
            head = f'iifname "{device}" {word} saddr {sources} {word} daddr'
            rules += [
                f"{head} {pair.seen} dnat {word} prefix to {pair.ours}"
                for pair in link.local
                if pair.ours.version == version and pair.ours != pair.seen
            ]
            rules += [
                f"{head} {_one(gateway.seen)} dnat {word} to {_one(gateway.ours)}"
                for gateway in link.gateways
                if gateway.ours.version == version and gateway.ours != gateway.seen
            ]
        for word, theirs, _ in _exports(link):
            leading = f"dnat {word} to {word} daddr map @{_export_name('real', link, word)}"
            rules.append(f'iifname "{device}" {word} saddr {theirs} {leading}')
    return rules


def _from_pods(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, word in _words(link):
            head = f'oifname "{device}" {word} daddr {_braces(_of(version, link.remote))}'
            rules += [
                f"{head} {word} saddr {pair.ours} snat {word} prefix to {pair.seen}"
                for pair in link.local
                if pair.ours.version == version
            ]
            rules += [
                f"{head} snat {word} to {_one(gateway.seen)}"
                for gateway in link.gateways
                if gateway.ours.version == version
            ]
    return rules


def _from_peers(overlay: Overlay | None, links: Sequence[Link]) -> list[str]:
    """Return what makes this host the source of what goes to an exported address, or the answers would not come back.

    What went to another peer has the gateway's address already, and other hosts on the overlay know the way back.
    """
    rules = []
    for link in links:
        for word, theirs, external in _exports(link):
            head = f"{word} saddr {theirs} ct original {word} daddr {external}"
            elsewhere = "" if overlay is None else f'oifname != "{overlay.device}" '
            rules.append(f"{elsewhere}{head} masquerade")
    return rules


def _input(device: str, probe_port: int, links: Sequence[Link]) -> list[str]:
    exported = []
    for link in links:
        for word, theirs, external in _exports(link):
            head = f'iifname "{device}" {word} saddr {theirs} ct original {word} daddr {external}'
            own = [
                f"ct original {word} daddr != {_one(one.seen)} "
                for one in link.gateways
                if one.seen.network_address in external
            ]
            exported.append(f"{head} {''.join(own)}accept")
    return [
        f'iifname "{device}" ct state established,related accept',
        f'iifname "{device}" udp dport {probe_port} accept',
        f'iifname "{device}" icmp type echo-request accept',
        f'iifname "{device}" icmpv6 type echo-request accept',
        *exported,
        f'iifname "{device}" drop',
    ]


def _forward(device: str, links: Sequence[Link]) -> list[str]:
    clamp = "tcp flags syn / syn,rst tcp option maxseg size set rt mtu"
    rules = [f'oifname "{device}" {clamp}', f'iifname "{device}" {clamp}']
    for link in links:
        for word, theirs, external in _exports(link):
            rules.append(f'iifname "{device}" {word} saddr {theirs} ct original {word} daddr {external} accept')
    between = f'iifname "{device}" oifname "{device}"'
    if any(_exports(link) for link in links):
        # One peer's pod calls another's; what may begin was accepted above.
        rules.append(f"{between} ct state established,related accept")
    rules.append(f"{between} drop")
    closed = [link for link in links if link.pods is not None]
    if closed:
        rules.append(f'iifname "{device}" ct state established,related accept')
        rules.append(f'oifname "{device}" ct state established,related accept')
    for link in closed:
        for version, word in _words(link):
            theirs, ours = _braces(_of(version, link.remote)), f"@{_set_name(link, version)}"
            rules.append(f'iifname "{device}" {word} saddr {theirs} {word} daddr {ours} accept')
            rules.append(f'oifname "{device}" {word} daddr {theirs} {word} saddr {ours} accept')
            rules.append(f'iifname "{device}" {word} saddr {theirs} drop')
            rules.append(f'oifname "{device}" {word} daddr {theirs} drop')
    return rules


def overlay_guard(overlay: Overlay | None) -> list[str]:
    """Return the rule that takes frames of the overlay from this cluster's hosts alone: they are not encrypted."""
    if overlay is None:
        return []
    word, version = ("ip6", 6) if ":" in overlay.local else ("ip", 4)
    return [f"udp dport {overlay.port} {word} saddr != @hosts_{version} drop"]


def _set_name(link: Link, version: int) -> str:
    return f"pods_{_short(link)}_{version}"


def _exports(link: Link) -> list[tuple[str, str, Network]]:
    """Return what rules about exports need, by IP version: the word, the peer's networks, our external one as seen."""
    found = []
    for external in link.externals:
        theirs, word = _of(external.seen.version, link.remote), "ip" if external.seen.version == 4 else "ip6"
        if theirs and _exports_of(link, word):
            found.append((word, _braces(theirs), external.seen))
    return found


def _exports_of(link: Link, word: str) -> list[Exported]:
    return [one for one in link.exports if (":" in one.seen) == (word == "ip6")]


def _export_name(what: str, link: Link, word: str) -> str:
    return f"{what}_{_short(link)}_{4 if word == 'ip' else 6}"


def _short(link: Link) -> str:
    return hashlib.sha256(link.peer.encode()).hexdigest()[:12]


def _versions(link: Link) -> list[int]:
    return sorted({network.version for network in link.remote})


def _words(link: Link) -> Iterator[tuple[int, str]]:
    for version in _versions(link):
        yield version, "ip" if version == 4 else "ip6"


def _of(version: int, networks: Sequence[Network]) -> list[Network]:
    return [network for network in networks if network.version == version]


def _braces(networks: Sequence[Network]) -> str:
    return "{ " + ", ".join(map(str, networks)) + " }"


def _one(network: Network) -> str:
    return str(network.network_address)
