"""Address translation and the guard of the tunnel, as one nftables table that is replaced in one transaction. Pure.

Of all nat chains of a hook, the first one that sets up a translation of a connection decides; the others see it as done
(nf_nat_core.c: a direction is initialised once). Ours have priorities before those of kube-proxy and of the CNI (dstnat
= -100, srcnat = 100), and a source that needs no translation is mapped to itself, or the CNI would masquerade it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from liqod.fabric.agent.kernel.model import DesiredKernel, DesiredNodeKernel, HostCommand, NftablesTable
from liqod.fabric.agent.kernel.rules.conntrack import FLUSHED, flushed_marks
from liqod.fabric.agent.kernel.rules.gateway_rules import gateway_chains, gateway_sets
from liqod.fabric.agent.kernel.rules.node_rules import node_chains, node_sets

NAME: Final = "inet liqod"
_MARK: Final = "plan_"
_KINDS: Final = {
    "real": ("map", " : {address}"),
    "home": ("map", " : {address}"),
    "self": ("set", " . {address}"),
    "ports": ("set", " . inet_proto . inet_service"),
}
"""Sets, by the first word of their names, that hold other than single addresses."""
_PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
"""Those that a Service can name. nft shows numbers on a host without /etc/protocols (Debian has it in netbase)."""


def parse_table(text: str) -> NftablesTable | None:
    """Return what ``nft -j list table inet liqod`` describes; None where there is no such table."""
    if not text:
        return None
    mark, count, sets, flushed = "", 0, {}, set()
    for entry in json.loads(text).get("nftables", []):
        if "chain" in entry and entry["chain"]["name"].startswith(_MARK):
            mark = entry["chain"]["name"]
        elif "chain" in entry and entry["chain"]["name"].startswith(FLUSHED):
            flushed.add(entry["chain"]["name"])
        elif "rule" in entry:
            count += 1
        elif "set" in entry or "map" in entry:
            found = entry.get("set") or entry["map"]
            sets[found["name"]] = frozenset(_element(one) for one in found.get("elem", []))
    return NftablesTable(mark, count, sets, frozenset(flushed))


def table_steps(desired: DesiredKernel | DesiredNodeKernel, observed: NftablesTable | None) -> Iterator[HostCommand]:
    """Yield the replacement of the whole table when its rules differ, else what changes in its sets."""
    chains = _chains(desired)
    mark = _mark(desired, chains)
    count = sum(len(rules) for _, rules in chains)
    sets = _sets(desired)
    if observed is None or observed.mark != mark or observed.count != count or observed.sets.keys() != sets.keys():
        yield HostCommand(("nft", "-f", "-"), render(desired, observed.flushed if observed is not None else ()))
        return
    lines = []
    for name, wanted in sets.items():
        have = observed.sets[name]
        # A key of a map has one value, also within a transaction: deletions come first, or nft says "File exists".
        if removed := sorted(have - wanted):
            lines.append(f"delete element {NAME} {name} {{ {', '.join(removed)} }}")
        if added := sorted(wanted - have):
            lines.append(f"add element {NAME} {name} {{ {', '.join(added)} }}")
    if lines:
        yield HostCommand(("nft", "-f", "-"), "\n".join(lines) + "\n")


def removal_steps(observed: NftablesTable | None) -> Iterator[HostCommand]:
    """Yield the removal of the table."""
    if observed is not None:
        yield HostCommand(("nft", "-f", "-"), f"delete table {NAME}\n")


def render(desired: DesiredKernel | DesiredNodeKernel, flushed: Collection[str] = ()) -> str:
    """Return the script that replaces the table; the ``flushed`` marks of present links are carried over."""
    chains = _chains(desired)
    # Deleting a table that does not exist fails: declaring it first makes the script work in both cases.
    lines = [f"table {NAME}", f"delete table {NAME}", f"table {NAME} {{"]
    for name, elements in _sets(desired).items():
        # A set has one type of elements (nft(8), SETS): IPv4 and IPv6 addresses have one each.
        address = "ipv6_addr" if name.endswith("6") else "ipv4_addr"
        kind, more = _KINDS.get(name.partition("_")[0], ("set", ""))
        lines += [f"\t{kind} {name} {{", f"\t\ttype {address}{more.format(address=address)}"]
        if elements:
            lines.append(f"\t\telements = {{ {', '.join(sorted(elements))} }}")
        lines.append("\t}")
    for head, rules in chains:
        name, _, hook = head.partition(" ")
        lines += [f"\tchain {name} {{", f"\t\t{hook}", *(f"\t\t{rule}" for rule in rules), "\t}"]
    links = desired.links if isinstance(desired, DesiredKernel) else ()
    for mark in (*flushed_marks(links, flushed), _mark(desired, chains)):
        lines += [f"\tchain {mark} {{", "\t}"]
    lines.append("}")
    return "\n".join(lines) + "\n"


def _element(element: Any) -> str:
    """Return an element of ``nft -j`` as a script has it: an address, a concatenation, or a key with its value."""
    match element:
        case {"concat": [address, protocol, port]}:
            return f"{address} . {_PROTOCOLS.get(protocol, protocol)} . {port}"
        case {"concat": [*parts]}:
            return " . ".join(map(str, parts))
        case [key, value]:
            return f"{key} : {value}"
    return str(element)


def _mark(desired: DesiredKernel | DesiredNodeKernel, chains: Sequence[tuple[str, Sequence[str]]]) -> str:
    digest = hashlib.sha256(repr((chains, sorted(_sets(desired)))).encode()).hexdigest()
    return _MARK + digest[:16]


def _chains(desired: DesiredKernel | DesiredNodeKernel) -> list[tuple[str, list[str]]]:
    return gateway_chains(desired) if isinstance(desired, DesiredKernel) else node_chains(desired)


def _sets(desired: DesiredKernel | DesiredNodeKernel) -> Mapping[str, frozenset[str]]:
    return gateway_sets(desired) if isinstance(desired, DesiredKernel) else node_sets(desired)
