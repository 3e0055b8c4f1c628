"""Address translation and the guard of the tunnel, as one nftables table that is replaced in one transaction. Pure.

In nftables the first chain that sets a connection's NAT settles it. Ours run before those of kube-proxy and of the
CNI, and a source that needs no translation is pinned to itself, or the CNI would masquerade it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from liqod.fabric.kernel.model import Desired, NodeDesired, Rules, Step
from liqod.fabric.kernel.rules.conntrack import SETTLED, settled_marks
from liqod.fabric.kernel.rules.gateway_rules import gateway_chains, gateway_sets
from liqod.fabric.kernel.rules.node_rules import node_chains, node_sets

NAME: Final = "inet liqod"
_MARK: Final = "plan_"
_KINDS: Final = {"real": ("map", " : {address}"), "ports": ("set", " . inet_proto . inet_service")}
"""Sets, by the first word of their names, that hold other than single addresses."""


def parse_table(text: str) -> Rules | None:
    """Return what ``nft -j list table inet liqod`` describes; None where there is no such table."""
    if not text:
        return None
    mark, count, sets, settled = "", 0, {}, set()
    for entry in json.loads(text).get("nftables", []):
        if "chain" in entry and entry["chain"]["name"].startswith(_MARK):
            mark = entry["chain"]["name"]
        elif "chain" in entry and entry["chain"]["name"].startswith(SETTLED):
            settled.add(entry["chain"]["name"])
        elif "rule" in entry:
            count += 1
        elif "set" in entry or "map" in entry:
            found = entry.get("set") or entry["map"]
            sets[found["name"]] = frozenset(_element(one) for one in found.get("elem", []))
    return Rules(mark, count, sets, frozenset(settled))


def table_steps(desired: Desired | NodeDesired, observed: Rules | None) -> Iterator[Step]:
    """Yield the replacement of the whole table when its rules differ, else what changes in its sets."""
    chains = _chains(desired)
    mark = _mark(desired, chains)
    count = sum(len(rules) for _, rules in chains)
    sets = _sets(desired)
    if observed is None or observed.mark != mark or observed.count != count or observed.sets.keys() != sets.keys():
        yield Step(("nft", "-f", "-"), render(desired, observed.settled if observed is not None else ()))
        return
    lines = []
    for name, wanted in sets.items():
        have = observed.sets[name]
        # One address cannot lead to two places, not even within the transaction: what goes, goes first.
        if removed := sorted(have - wanted):
            lines.append(f"delete element {NAME} {name} {{ {', '.join(removed)} }}")
        if added := sorted(wanted - have):
            lines.append(f"add element {NAME} {name} {{ {', '.join(added)} }}")
    if lines:
        yield Step(("nft", "-f", "-"), "\n".join(lines) + "\n")


def removal_steps(observed: Rules | None) -> Iterator[Step]:
    """Yield the removal of the table."""
    if observed is not None:
        yield Step(("nft", "-f", "-"), f"delete table {NAME}\n")


def render(desired: Desired | NodeDesired, settled: Collection[str] = ()) -> str:
    """Return the script that replaces the table; of the ``settled`` marks those of present links are carried over."""
    chains = _chains(desired)
    # Deleting needs something to delete: an empty table first makes the script good for both cases.
    lines = [f"table {NAME}", f"delete table {NAME}", f"table {NAME} {{"]
    for name, elements in _sets(desired).items():
        address = "ipv6_addr" if name.endswith("6") else "ipv4_addr"
        kind, more = _KINDS.get(name.partition("_")[0], ("set", ""))
        lines += [f"\t{kind} {name} {{", f"\t\ttype {address}{more.format(address=address)}"]
        if elements:
            lines.append(f"\t\telements = {{ {', '.join(sorted(elements))} }}")
        lines.append("\t}")
    for head, rules in chains:
        name, _, hook = head.partition(" ")
        lines += [f"\tchain {name} {{", f"\t\t{hook}", *(f"\t\t{rule}" for rule in rules), "\t}"]
    links = desired.links if isinstance(desired, Desired) else ()
    for mark in (*settled_marks(links, settled), _mark(desired, chains)):
        lines += [f"\tchain {mark} {{", "\t}"]
    lines.append("}")
    return "\n".join(lines) + "\n"


def _element(element: Any) -> str:
    """Return an element as it is written in a script: an address, several things joined, or where an address leads."""
    match element:
        case {"concat": [*parts]}:
            return " . ".join(map(str, parts))
        case [key, value]:
            return f"{key} : {value}"
    return str(element)


def _mark(desired: Desired | NodeDesired, chains: Sequence[tuple[str, Sequence[str]]]) -> str:
    digest = hashlib.sha256(repr((chains, sorted(_sets(desired)))).encode()).hexdigest()
    return _MARK + digest[:16]


def _chains(desired: Desired | NodeDesired) -> list[tuple[str, list[str]]]:
    return gateway_chains(desired) if isinstance(desired, Desired) else node_chains(desired)


def _sets(desired: Desired | NodeDesired) -> Mapping[str, frozenset[str]]:
    return gateway_sets(desired) if isinstance(desired, Desired) else node_sets(desired)
