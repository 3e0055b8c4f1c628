"""Decides whose record makes way for a stranger's when there are as many as may be: those of crowded networks. Pure.

Keys cost nothing, addresses do. So the places for strangers are shared by network (an IPv4 address, an IPv6 /64): who
comes from one that has fewer of them gets the place of one from the network that has most, and who answers at an
address that the configuration names gets anybody's. Some have many networks side by side: where all have a place or
none, the places are shared by what holds these (an IPv4 /24, an IPv6 /48, which is the most that one site has by RFC
6177).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from liqod.model.ids import ClusterID

NAMED: Final = ""
"""The network of strangers at addresses that the configuration names: no place is taken from them."""


@attrs.frozen
class StrangerRecord:
    """A stranger's record: the network that it comes from, and when there was a sign of it last."""

    network: str
    last: float


def evicted(places: Mapping[ClusterID, StrangerRecord], network: str) -> ClusterID | None:
    """Return the stranger whose record makes way for one from a network; None if all places are fairly shared.

    Two fewer, so that two networks do not take one place from each other again and again.
    """
    counts = Counter(place.network for place in places.values() if place.network != NAMED)
    if not counts:
        return None
    if network == NAMED or max(counts.values()) >= counts[network] + 2:
        return _longest_unseen(places, _largest(counts))
    sites: Counter[str] = Counter()
    for other, count in counts.items():
        sites[_site(other)] += count
    crowded = _largest(sites)
    there = Counter({other: count for other, count in counts.items() if _site(other) in crowded})
    if sites[next(iter(crowded))] < sites[_site(network)] + 2 or max(there.values()) <= counts[network]:
        return None
    return _longest_unseen(places, _largest(there))


def _largest(counts: Mapping[str, int]) -> set[str]:
    most = max(counts.values())
    return {name for name, count in counts.items() if count == most}


def _longest_unseen(places: Mapping[ClusterID, StrangerRecord], networks: Collection[str]) -> ClusterID:
    return min(
        (peer for peer, place in places.items() if place.network in networks),
        key=lambda peer: (places[peer].last, peer),
    )


def _site(network: str) -> str:
    """Return the network around one; what is none is alone."""
    try:
        inner = ipaddress.ip_network(network)
    except ValueError:
        return network
    return str(inner.supernet(new_prefix=24 if inner.version == 4 else 48))
