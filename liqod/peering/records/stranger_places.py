"""Decides whose record makes way for a stranger's when there are as many as may be: those of crowded networks. Pure.

Keys cost nothing, addresses do. So the places for strangers are shared by network (an IPv4 address, an IPv6 /64): who
comes from one that has fewer of them gets the place of one from the network that has most, and who answers at an
address that the configuration names gets anybody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    most = max(counts.values())
    if network != NAMED and most < counts[network] + 2:
        return None
    crowded = {other for other, count in counts.items() if count == most}
    return min(
        (peer for peer, place in places.items() if place.network in crowded), key=lambda peer: (places[peer].last, peer)
    )
