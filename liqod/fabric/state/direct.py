"""Direct connections: pods of one home in two clusters that borrow nothing from each other talk by their tunnel. Pure.

A home asks both clusters for it. What it names is checked here again, where it becomes rules: the networks are the
peer's own, by the addresses that this cluster chose for them, and mean nothing else to the pods of that home here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from liqod.fabric.state.network import Link, contains, overlaps
from liqod.fabric.state.validation import disjoint, network
from liqod.model.records.network import MAX_NETWORKS, Network, shift
from liqod.model.records.offer import Refusal


def networks_here(asked: Sequence[str], pairs: Iterable[tuple[Network, Network]]) -> tuple[Network, ...]:
    """Return networks of a peer's pods, named as the peer does, as they are seen here; raises Refusal.

    ``pairs`` are the peer's networks in both views. What is in none of them is not the peer's.
    """
    if not asked or len(asked) > MAX_NETWORKS:
        raise Refusal("TooMany", f"a direct connection has from 1 to {MAX_NETWORKS} networks of pods")
    named = [network(text, "a network of pods at the other lender") for text in asked]
    disjoint(named)
    known = list(pairs)
    found: list[Network] = []
    for one in named:
        pair = next((pair for pair in known if contains(pair[0], one)), None)
        if pair is None:
            raise Refusal("NotItsNetworks", f"the network {one} is none of the other lender's pods")
        first = shift(one.network_address, *pair)
        found.append(ipaddress.ip_network(f"{first}/{one.prefixlen}"))
    return tuple(found)


def meant_otherwise(home: Link) -> tuple[Network, ...]:
    """Return the networks whose addresses mean something else to a home's pods here: their home's own.

    They are those by which home knows our pods, home's pods and its Services: packets to these are translated or go
    home, so that they never get to another lender.
    """
    return (*(pair.seen for pair in home.local), *home.remote, *(one.services for one in home.peer_services))


def check_meaning(networks: Iterable[Network], home: Link) -> None:
    """Raise Refusal where an address of the other lender's pods means something else to a home's pods here."""
    used = meant_otherwise(home)
    for one in networks:
        if other := overlaps(one, used):
            raise Refusal("CIDROverlap", f"the other lender's {one} overlaps {other}, which means something else here")
