"""Connections that the kernel translates by rules that are gone, and what makes it look at the rules again. Pure.

The kernel decides about address translation once for each connection, and holds to it while packets come: a datagram
flow between fixed ports (the probes are one) would be translated for ever as it was first. So when a link's networks
are new or read differently, the kernel is made to forget what it tracks between our pods and the peer's. That a link is
done with is written as an empty chain in the table, after the fact: a crash in between means that it is done again.
Flows that kube-proxy turned from a service to the peer are not found by its networks; they end by their own timeouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping

from liqod.fabric.kernel.model import Link, Step

SETTLED = "nat_"
"""What the names of the chains begin with that tell that a link's translation holds for all connections."""
NOTHING = "0 flow entries have been deleted"
"""What conntrack(8) says when it fails for want of anything to forget."""


def settled_mark(link: Link) -> str:
    """Return the name of the chain for a link; another one when its addresses are translated otherwise."""
    view = (*link.remote, *((pair.ours, pair.seen) for pair in link.local), *link.gateways)
    return SETTLED + hashlib.sha256(repr(view).encode()).hexdigest()[:16]


def settled_marks(links: Iterable[Link], known: Collection[str]) -> list[str]:
    """Return the chains of those links that are done with."""
    return sorted({settled_mark(link) for link in links} & set(known))


def forgetting_steps(sets: Mapping[str, frozenset[str]], known: Mapping[str, frozenset[str]]) -> Iterator[Step]:
    """Yield what makes the kernel forget connections to exported addresses that lead elsewhere now, or nowhere.

    ``sets`` are those that the table has now and ``known`` those that it had. This comes after the rules.
    """
    for name in sorted(name for name in known if name.startswith("real_")):
        for element in sorted(known[name] - sets.get(name, frozenset())):
            family = "ipv6" if name.endswith("6") else "ipv4"
            argv = ("conntrack", "-D", "-f", family, "--orig-dst", element.partition(" : ")[0])
            yield Step(argv, harmless=NOTHING)


def settling_steps(table: str, links: Iterable[Link], known: Collection[str]) -> Iterator[Step]:
    """Yield what makes the kernel forget connections of new links, and then what notes that; nothing for others.

    ``known`` are the chains that are there. This comes after the rules and the routes: until then packets go astray.
    """
    new = {settled_mark(link): link for link in links if settled_mark(link) not in known}
    for link in new.values():
        for network in link.remote:
            for end in ("--orig-src", "--orig-dst"):
                argv = ("conntrack", "-D", "-f", f"ipv{network.version}", end, str(network))
                yield Step(argv, harmless=NOTHING)
    if new:
        yield Step(("nft", "-f", "-"), "".join(f"add chain {table} {mark}\n" for mark in sorted(new)))
