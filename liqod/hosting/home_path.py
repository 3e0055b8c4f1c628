"""Decides whether the path to a borrower's home is lost, from what the network says and from endpoints there. Pure.

The probes of a tunnel are answered by the borrower's daemon, which may be down while packets pass, and so is the
session where there is no tunnel. So in doubt its endpoints decide: the path is lost when one that used to answer is
silent, and none other answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from attrs import evolve, frozen

from liqod.model.records.network import TunnelEndpointStatus
from liqod.model.records.views import ForeignClusterStatus, ShadowEndpointSlice

SILENT_FOR: Final = 5.0
"""Seconds of doubt without any answer after which the path is lost. Doubt begins when the tunnel's probes were not
answered for 5 s, so that it takes 10 s in all; without a tunnel, when the session has missed three heartbeats."""
Target = tuple[str, int]
"""The address and the TCP port of an endpoint."""
MAX_TARGETS: Final = 4
"""Maximum number of endpoints of one borrower that are called."""


@frozen
class HomePath:
    """What is known of one path; times are seconds of the reactor's clock.

    ``lost`` None: not known, slices stay as they are. ``troubled_since``: when the network's doubt began. ``answered``
    are the endpoints that answered when they were called last.
    """

    lost: bool | None = None
    answered_at: float | None = None
    troubled_since: float | None = None
    answered: Collection[Target] = ()


def tunnel_sign(status: TunnelEndpointStatus | None) -> bool | None:
    """Return whether packets cross a tunnel, as its probes see it; None while that is not known."""
    return {"Connected": True, "Error": False}.get(status.phase) if status is not None else None


def session_sign(status: ForeignClusterStatus | None) -> bool | None:
    """Return whether the borrower's daemon is there, where no tunnel is probed; None while that is not known."""
    phase = status.phase if status is not None else ""
    if phase in ("Suspect", "Lost"):
        return False
    return True if phase in ("Authenticated", "Offered", "Accepted", "Ready") else None


def judge(before: HomePath, sign: bool | None, now: float) -> HomePath:
    """Return the path after a look at the network's ``sign``."""
    if sign is None:
        return before
    if sign:
        return evolve(before, lost=False, troubled_since=None)
    troubled = now if before.troubled_since is None else before.troubled_since
    lost = before.lost
    if before.answered_at is not None:
        quiet_since = max(before.answered_at, troubled)
        if now - quiet_since >= SILENT_FOR:
            lost = True
        elif before.answered_at > troubled:
            lost = False
    return evolve(before, lost=lost, troubled_since=troubled)


def targets_of(
    shadows: Iterable[ShadowEndpointSlice], answered: Collection[Target], is_allowed: Callable[[str], bool]
) -> list[Target]:
    """Return the endpoints of a borrower to call by TCP: those that answered last, then the first one of each slice.

    A borrower chooses addresses and ports: only addresses that ``is_allowed`` accepts are called.
    """
    ranked = sorted(
        (rank, address, port.port)
        for shadow in shadows
        for rank, address in enumerate(
            address
            for endpoint in shadow.spec.template.endpoints or ()
            if endpoint.conditions.ready is not False
            for address in endpoint.addresses[:1]
        )
        for port in (shadow.spec.template.ports or ())[:1]
        if port.port and port.protocol == "TCP" and is_allowed(address)
    )
    named = dict.fromkeys((address, port) for _, address, port in ranked)
    return [*(one for one in named if one in answered), *(one for one in named if one not in answered)][:MAX_TARGETS]
