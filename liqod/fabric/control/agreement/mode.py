"""Decides, with ``[network] mode = "auto"``, whether there is a tunnel to a peer: once, by both sides alike. Pure.

Each side says once what it can, by what it sends: its networks with a key (``Network``), or an answer with the reason
NoTunnel (``NetworkAck``). A side that has said the first does not take it back. It takes the tunnel for decided when
the peer answered as one that has a tunnel too, and does without at the first word that there is none. So both decide
alike.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from liqod.model.objects.meta import MAX_MESSAGE, find_condition
from liqod.model.records.network import (
    NO_TUNNEL,
    NO_TUNNEL_HERE,
    TUNNEL,
    UNDECIDED,
    Decision,
    NetworkConfig,
    Subnets,
    TunnelSide,
)
from liqod.model.records.views import ForeignCluster
from liqod.model.timestamps import parse_rfc3339

NEW: Final = timedelta(seconds=60)
"""How long a peering is new: one that is older and has no record of a network was made without a tunnel."""
ACCEPTED_BEFORE: Final = "OfferExpired"
"""The reason of the condition Accepted of an offer that was accepted, and was not renewed since."""
_AGAIN: Final = "; a peering that is made again is decided again"


def first_decision(setting: str, record: ForeignCluster, now: datetime) -> Decision:
    """Return what the record of a peer says that has none yet."""
    if setting != UNDECIDED:
        return Decision()
    times = [
        parse_rfc3339(state.last_transition_time)
        for kind in ("Accepted", "Lending")
        if (state := find_condition(record.status.conditions, kind)) is not None and state.status == "True"
    ]
    if was_accepted(record) or any(time is not None and now - time > NEW for time in times):
        message = "the peering was made before this cluster decided about tunnels by itself" + _AGAIN
        return Decision(mode=NO_TUNNEL, reason="KeptFromBefore", message=message)
    return Decision(mode=UNDECIDED)


def was_accepted(record: ForeignCluster) -> bool:
    """Return whether a peer's offer was accepted and expired: such a peering is older than its conditions."""
    state = find_condition(record.status.conditions, "Accepted")
    return state is not None and state.status == "False" and state.reason == ACCEPTED_BEFORE


def decide(config: NetworkConfig, lacking: str) -> Decision:
    """Return the decision about a peer; the one in its record, unless that is still open.

    ``lacking`` is what this cluster's host lacks for tunnels, with what to do; empty where it lacks nothing.
    """
    decision, status = config.spec.decision, config.status
    if decision.mode != UNDECIDED:
        return decision
    has_spoken = config.spec.local != TunnelSide()
    if lacking and not has_spoken:
        return Decision(mode=NO_TUNNEL, reason="HostLacks", message=lacking + _AGAIN)
    if status.ack.reason == NO_TUNNEL_HERE:
        why = status.ack.message or "it did not say why"
        return Decision(
            mode=NO_TUNNEL, reason="PeerHasNone", message=f"the peer can hold no tunnel: {why}"[:MAX_MESSAGE]
        )
    if has_spoken and status.remote != TunnelSide() and status.ack != Subnets():
        return Decision(mode=TUNNEL, reason="BothCan", message="the hosts of both clusters can hold a tunnel")
    if status.silent:
        message = "the peer announced no network: its settings or its release have no tunnel" + _AGAIN
        return Decision(mode=NO_TUNNEL, reason="PeerSilent", message=message)
    return decision


def refusal(decision: Decision) -> Subnets:
    """Return what is sent to a peer with which there is no tunnel."""
    return Subnets(reason=NO_TUNNEL_HERE, message=decision.message)
