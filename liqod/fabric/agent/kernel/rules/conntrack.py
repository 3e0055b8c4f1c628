"""Deletes conntrack entries whose address translation comes from rules that are gone. Pure.

Only the first packet of a connection passes the nat chains; conntrack applies the same translation to all later ones
(nft(8), "nat" chains), for as long as packets come. A UDP flow between fixed ports (the probes are one) would keep its
first translation forever. So when a link's networks or their translation change, the entries between our pods and the
peer's are deleted with ``conntrack -D``. Then an empty chain in our table marks the link as flushed: after a crash
in between, the deletion is repeated. Flows that kube-proxy redirected from a service to the peer do not match these
networks; they end by their own timeouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping

from liqod.fabric.agent.kernel.model import HostCommand
from liqod.fabric.state.network import Link

FLUSHED = "nat_"
"""The prefix of chains that note for which links this was done."""
NO_ENTRIES = "0 flow entries have been deleted"
"""The message of conntrack(8) when it exits with 1 because no entry matched."""
NO_TABLE = "No such file or directory"
"""The message of nft(8) about a table that is not there."""


def flushed_mark(link: Link) -> str:
    """Return the name of the chain for a link; it changes with the translation of the link's addresses."""
    view = (*link.remote, *((pair.ours, pair.seen) for pair in link.local), *link.gateways)
    return FLUSHED + hashlib.sha256(repr(view).encode()).hexdigest()[:16]


def flushed_marks(links: Iterable[Link], known: Collection[str]) -> list[str]:
    """Return the chains of those links for which entries were deleted already."""
    return sorted({flushed_mark(link) for link in links} & set(known))


def export_flush_steps(
    sets: Mapping[str, frozenset[str]], known: Mapping[str, frozenset[str]]
) -> Iterator[HostCommand]:
    """Yield the deletion of entries to exported addresses that now map to another address, or to none.

    ``sets`` are those that the table has now and ``known`` those that it had. This comes after the rules.
    """
    for name in sorted(name for name in known if name.startswith("real_")):
        for element in sorted(known[name] - sets.get(name, frozenset())):
            family = "ipv6" if name.endswith("6") else "ipv4"
            argv = ("conntrack", "-D", "-f", family, "--orig-dst", element.partition(" : ")[0])
            yield HostCommand(argv, harmless=NO_ENTRIES)


def flush_steps(table: str, links: Iterable[Link], known: Collection[str]) -> Iterator[HostCommand]:
    """Yield the deletion of entries of new or changed links, and then what notes that; nothing for others.

    ``known`` are the chains that are there. This comes after rules and routes: a packet that came earlier would make an
    entry without them again.
    """
    new = {flushed_mark(link): link for link in links if flushed_mark(link) not in known}
    for link in new.values():
        for network in link.remote:
            for end in ("--orig-src", "--orig-dst"):
                argv = ("conntrack", "-D", "-f", f"ipv{network.version}", end, str(network))
                yield HostCommand(argv, harmless=NO_ENTRIES)
    if new:
        script = "".join(f"add chain {table} {mark}\n" for mark in sorted(new))
        # Where somebody removed the table meanwhile, the next pass finds it missing, and makes all of it again.
        yield HostCommand(("nft", "-f", "-"), script, harmless=NO_TABLE)
