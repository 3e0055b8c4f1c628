"""Assigns a network here to each network of a peer. Pure and deterministic: the records are the only memory.

An assignment is kept as long as it fits. Each network of a peer is known here by the first free one of its size from
the pools: which addresses are routed to a peer is not the peer's choice, or it would get this host's traffic to what
the host reaches by its default route. Only inside the networks that the settings accept it is taken as it is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from liqod.fabric.state.network import contains, overlap, overlaps
from liqod.model.records.network import Network
from liqod.model.records.offer import Refusal


def allocate(
    wanted: Sequence[Network],
    held: Sequence[Network | None],
    taken: Iterable[Network],
    avoided: Iterable[Network],
    pools: Sequence[Network],
    *,
    accepted: Sequence[Network] = (),
    from_end: bool = False,
) -> list[Network]:
    """Return one network here for each of a peer's, aligned with ``wanted``; ``accepted`` are taken as they are.

    ``held`` is what the peer has already, None for nothing. ``taken`` are the networks of this cluster and of other
    peers, which nothing may overlap; ``avoided`` (routes of the host, say) counts for a new choice and does not undo
    an old one. ``from_end``: the last free network of a pool instead of the first. Raises Refusal when the pools are
    used up.
    """
    blocked = list(taken)
    avoid = list(avoided)
    assigned: list[Network] = []
    for index, network in enumerate(wanted):
        before = held[index] if len(held) == len(wanted) else None
        choice = _keep(network, before, blocked, [*pools, *accepted])
        if choice is None:
            free = _is_inside(network, accepted) and overlaps(network, [*blocked, *avoid]) is None
            choice = network if free else _fresh(network, [*blocked, *avoid], pools, from_end=from_end)
        assigned.append(choice)
        blocked.append(choice)
    return assigned


def _is_private(network: Network, pools: Iterable[Network]) -> bool:
    """Return whether a network may stay assigned: it is not public (``ipaddress``: IANA registries), or in a pool."""
    return not network.is_global or _is_inside(network, pools)


def _is_inside(network: Network, wider: Iterable[Network]) -> bool:
    return any(contains(one, network) for one in wider)


def _keep(
    wanted: Network, held: Network | None, blocked: Sequence[Network], pools: Sequence[Network]
) -> Network | None:
    if held is None or held.version != wanted.version or held.prefixlen != wanted.prefixlen:
        return None
    return held if overlaps(held, blocked) is None and _is_private(held, pools) else None


def _fresh(wanted: Network, blocked: Sequence[Network], pools: Sequence[Network], *, from_end: bool) -> Network:
    for pool in pools:
        if pool.version == wanted.version and pool.prefixlen <= wanted.prefixlen:
            found = (_last_free if from_end else _first_free)(pool, wanted.prefixlen, blocked)
            if found is not None:
                return found
    raise Refusal(
        "PoolExhausted",
        f"no free network of the size of {wanted} is left in the pools "
        f"({', '.join(map(str, pools)) or 'there are none'}); add one to network.pools, or the network itself "
        "to network.accept",
    )


def _first_free(pool: Network, prefixlen: int, blocked: Sequence[Network]) -> Network | None:
    size = 1 << (pool.max_prefixlen - prefixlen)
    at, end = int(pool.network_address), int(pool.broadcast_address)
    make = ipaddress.IPv4Network if pool.version == 4 else ipaddress.IPv6Network
    near = [other for other in blocked if overlap(pool, other)]
    while at + size - 1 <= end:
        candidate = make((at, prefixlen))
        obstacle = overlaps(candidate, near)
        if obstacle is None:
            return candidate
        # Past the whole obstacle, on the next boundary of this size.
        at = (max(int(obstacle.broadcast_address), at + size - 1) + size) // size * size
    return None


def _last_free(pool: Network, prefixlen: int, blocked: Sequence[Network]) -> Network | None:
    size = 1 << (pool.max_prefixlen - prefixlen)
    start, at = int(pool.network_address), int(pool.broadcast_address) + 1 - size
    make = ipaddress.IPv4Network if pool.version == 4 else ipaddress.IPv6Network
    near = [other for other in blocked if overlap(pool, other)]
    while at >= start:
        candidate = make((at, prefixlen))
        obstacle = overlaps(candidate, near)
        if obstacle is None:
            return candidate
        at = (min(int(obstacle.network_address), at) - 1) // size * size
    return None
