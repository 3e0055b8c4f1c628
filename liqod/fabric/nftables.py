"""Address translation and the guard of the tunnel, as one nftables table that is replaced in one transaction. Pure.

In nftables the first chain that sets a connection's NAT settles it. Ours run before those of kube-proxy and of the
CNI, and a source that needs no translation is pinned to itself, or the CNI would masquerade it. The guard drops what a
peer may not send before anything else looks at it: a packet from the tunnel comes from the peer's own networks and goes
to one of ours by the address that this peer knows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from liqod.fabric.model import Desired, Link, Rules, Step
from liqod.model.network import Network

NAME: Final = "inet liqod"
_MARK: Final = "plan_"


def parse_table(text: str) -> Rules | None:
    """Return what ``nft -j list table inet liqod`` describes; None where there is no such table."""
    if not text:
        return None
    mark, count, sets = "", 0, {}
    for entry in json.loads(text).get("nftables", []):
        if "chain" in entry and entry["chain"]["name"].startswith(_MARK):
            mark = entry["chain"]["name"]
        elif "rule" in entry:
            count += 1
        elif "set" in entry:
            sets[entry["set"]["name"]] = frozenset(str(one) for one in entry["set"].get("elem", []))
    return Rules(mark, count, sets)


def table_steps(desired: Desired, observed: Rules | None) -> Iterator[Step]:
    """Yield the replacement of the whole table when its rules differ, else what changes in its sets."""
    chains = _chains(desired)
    mark = _mark(desired, chains)
    count = sum(len(rules) for _, rules in chains)
    sets = _sets(desired)
    if observed is None or observed.mark != mark or observed.count != count or observed.sets.keys() != sets.keys():
        yield Step(("nft", "-f", "-"), render(desired))
        return
    lines = []
    for name, wanted in sets.items():
        have = observed.sets[name]
        if added := sorted(wanted - have):
            lines.append(f"add element {NAME} {name} {{ {', '.join(added)} }}")
        if removed := sorted(have - wanted):
            lines.append(f"delete element {NAME} {name} {{ {', '.join(removed)} }}")
    if lines:
        yield Step(("nft", "-f", "-"), "\n".join(lines) + "\n")


def removal_steps(observed: Rules | None) -> Iterator[Step]:
    """Yield the removal of the table."""
    if observed is not None:
        yield Step(("nft", "-f", "-"), f"delete table {NAME}\n")


def render(desired: Desired) -> str:
    """Return the script that replaces the table."""
    chains = _chains(desired)
    # Deleting needs something to delete: an empty table first makes the script good for both cases.
    lines = [f"table {NAME}", f"delete table {NAME}", f"table {NAME} {{"]
    for name, elements in _sets(desired).items():
        kind = "ipv6_addr" if name.endswith("6") else "ipv4_addr"
        lines += [f"\tset {name} {{", f"\t\ttype {kind}"]
        if elements:
            lines.append(f"\t\telements = {{ {', '.join(sorted(elements))} }}")
        lines.append("\t}")
    for head, rules in chains:
        name, _, hook = head.partition(" ")
        lines += [f"\tchain {name} {{", f"\t\t{hook}", *(f"\t\t{rule}" for rule in rules), "\t}"]
    lines += [f"\tchain {_mark(desired, chains)} {{", "\t}", "}"]
    return "\n".join(lines) + "\n"


def _mark(desired: Desired, chains: Sequence[tuple[str, Sequence[str]]]) -> str:
    digest = hashlib.sha256(repr((chains, sorted(_sets(desired)))).encode()).hexdigest()
    return _MARK + digest[:16]


def _sets(desired: Desired) -> Mapping[str, frozenset[str]]:
    found = {}
    for link in desired.links:
        if link.pods is not None:
            for version in _versions(link):
                found[_set_name(link, version)] = frozenset(one for one in link.pods if (":" in one) == (version == 6))
    return found


def _chains(desired: Desired) -> list[tuple[str, list[str]]]:
    device, links = desired.device, desired.links
    return [
        ("guard type filter hook prerouting priority dstnat - 20; policy accept;", _guard(device, links)),
        ("to_pods type nat hook prerouting priority dstnat - 10; policy accept;", _to_pods(device, links)),
        ("input type filter hook input priority filter; policy accept;", _input(device, desired.probe_port)),
        ("forward type filter hook forward priority filter; policy accept;", _forward(device, links)),
        ("from_pods type nat hook postrouting priority srcnat - 10; policy accept;", _from_pods(device, links)),
    ]


def _guard(device: str, links: Sequence[Link]) -> list[str]:
    rules = []
    for link in links:
        for version, word in _words(link):
            ours = [pair.seen for pair in link.local if pair.seen.version == version]
            if link.gateway is not None and link.gateway.seen.version == version:
                ours.append(link.gateway.seen)
            if ours:
                sources = _braces(_of(version, link.remote))
                rules.append(f'iifname "{device}" {word} saddr {sources} {word} daddr {_braces(ours)} accept')
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
            gateway = link.gateway
            if gateway is not None and gateway.ours.version == version and gateway.ours != gateway.seen:
                rules.append(f"{head} {_one(gateway.seen)} dnat {word} to {_one(gateway.ours)}")
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
            if link.gateway is not None and link.gateway.ours.version == version:
                rules.append(f"{head} snat {word} to {_one(link.gateway.seen)}")
    return rules


def _input(device: str, probe_port: int) -> list[str]:
    return [
        f'iifname "{device}" ct state established,related accept',
        f'iifname "{device}" udp dport {probe_port} accept',
        f'iifname "{device}" icmp type echo-request accept',
        f'iifname "{device}" icmpv6 type echo-request accept',
        f'iifname "{device}" drop',
    ]


def _forward(device: str, links: Sequence[Link]) -> list[str]:
    clamp = "tcp flags syn / syn,rst tcp option maxseg size set rt mtu"
    rules = [
        f'iifname "{device}" oifname "{device}" drop',
        f'oifname "{device}" {clamp}',
        f'iifname "{device}" {clamp}',
    ]
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


def _set_name(link: Link, version: int) -> str:
    return f"pods_{hashlib.sha256(link.peer.encode()).hexdigest()[:12]}_{version}"


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
