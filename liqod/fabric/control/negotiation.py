"""Decides what a peer is assigned, and what came of the exchange with it. Pure.

What is decided is written to the record of the exchange: an assignment before it is judged whether both agree on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs
import msgspec

from liqod.fabric.control.agreed import AgreedPeer
from liqod.fabric.control.agreement.agreement import LocalNetwork, agree, allocation
from liqod.fabric.state.network import Link
from liqod.fabric.state.validation import RemoteNetwork
from liqod.model.ids import ClusterID
from liqod.model.records.network import Network, NetworkConfig, Subnets, TunnelEndpoint
from liqod.model.records.offer import Refusal


@attrs.frozen
class Verdict:
    """The phase of an exchange, with reason and message; ``agreed``: the peer's side and the link, once both agree."""

    phase: str
    reason: str
    message: str
    agreed: tuple[RemoteNetwork, Link] | None = None


_WAITING = Verdict("Pending", "WaitingForPeer", "the peer has not sent its network yet")


def agreed_first(config: NetworkConfig) -> tuple[bool, str]:
    """Sort those with whom all was agreed first: what they are assigned is not given to others."""
    return config.status.phase != "Agreed", config.metadata.name


def assigned_to_others(config: NetworkConfig, everyone: Iterable[NetworkConfig]) -> list[Subnets]:
    """Return what the other peers are assigned."""
    return [one.spec.remap for one in everyone if one.metadata.name != config.metadata.name]


def assignment(
    local: LocalNetwork,
    config: NetworkConfig,
    *,
    others: Iterable[Subnets],
    avoided: Sequence[Network],
    accepted_keys: Collection[str],
) -> Subnets:
    """Return how we see the peer, and which of its keys the tunnel accepts already; as for ``allocation``."""
    remap = allocation(local, config, others, avoided)
    next_key = config.status.remote.next_key
    return msgspec.structs.replace(remap, known_key=next_key) if next_key in accepted_keys else remap


def judge(
    local: LocalNetwork, config: NetworkConfig, *, others: Iterable[Subnets], other_keys: Collection[str]
) -> Verdict:
    """Return what came of the exchange with a peer, whose assignment is on record; as for ``agree``."""
    try:
        found = agree(local, config, config.spec.remap, other_keys, others)
    except Refusal as refusal:
        return Verdict("Refused", refusal.reason, refusal.message)
    if found is None:
        return _WAITING
    return Verdict("Agreed", "Agreed", "both clusters know how each sees the other", found)


def keys_of_others(
    config: NetworkConfig,
    everyone: Iterable[NetworkConfig],
    agreed: Mapping[ClusterID, AgreedPeer],
    tunnels: Iterable[TunnelEndpoint],
) -> set[str]:
    """Return the keys of other peers: the first one that names a key has it, and keeps it once that is on record.

    Keys are no secrets: a peer that names another's would else take that tunnel down. ``agreed`` has the peers that
    were judged before this one.
    """
    held = {one.metadata.name for one in everyone if one.status.phase == "Agreed"} - {config.metadata.name}
    pairs = [(one.link.public_key, one.link.next_key) for one in agreed.values()]
    pairs += [(one.spec.public_key, one.spec.next_key) for one in tunnels if one.metadata.name in held]
    return {key for pair in pairs for key in pair if key}
