"""Decides whether the path to a borrower's home is lost, from what the network says and from endpoints there. Pure.

The probes of a tunnel are answered by the borrower's daemon, which may be down while packets pass, and so is the
session where there is no tunnel. So in doubt its endpoints decide: the path is lost when one that used to answer is
silent, and none other answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from attrs import evolve, frozen

from liqod.model.records.network import TunnelEndpointStatus
from liqod.model.records.views import ForeignClusterStatus, ShadowEndpointSlice

SILENT_FOR: Final = 5.0
"""Seconds of doubt without any answer after which the path is lost. Doubt begins when the tunnel's probes were not
answered for 5 s, so that it takes 10 s in all; without a tunnel, when the session has missed three heartbeats."""
IN_DOUBT: Final = 2.0
"""Seconds between two rounds of calls while the network is in doubt."""
AT_EASE: Final = 60.0
"""Seconds between two calls while it is not: only an endpoint that used to answer says something when it is silent."""
Target = tuple[str, int]
"""The address and the TCP port of an endpoint."""
MAX_TARGETS: Final = 4
"""Maximum number of endpoints of one borrower that are called, and that are looked at of one slice."""
MAX_CANDIDATES: Final = 64
"""Maximum number of endpoints of one borrower that are judged, to find those to call."""


@frozen
class HomePath:
    """What is known of one path; times are seconds of the reactor's clock.

    ``lost`` None: not known, slices stay as they are. ``troubled_since``: when the network's doubt began. ``answered``
    are the endpoints that answered when they were called last; ``looked_at``: when endpoints were last looked
    for, None since the doubt began.
    """

    lost: bool | None = None
    answered_at: float | None = None
    troubled_since: float | None = None
    answered: Collection[Target] = ()
    looked_at: float | None = None


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
    looked_at = None if before.troubled_since is None else before.looked_at
    lost = before.lost
    if before.answered_at is not None:
        quiet_since = max(before.answered_at, troubled)
        if now - quiet_since >= SILENT_FOR:
            lost = True
        elif before.answered_at > troubled:
            lost = False
    return evolve(before, lost=lost, troubled_since=troubled, looked_at=looked_at)


def pause(path: HomePath, now: float) -> float:
    """Return the seconds until endpoints to call may be looked for; 0 for at once, as when a doubt begins."""
    until = now if path.looked_at is None else path.looked_at + IN_DOUBT
    if path.troubled_since is None and path.answered_at is not None:
        until = max(until, path.answered_at + AT_EASE)
    return max(0.0, until - now)


def targets_of(
    shadows: Iterable[ShadowEndpointSlice], answered: Collection[Target], is_allowed: Callable[[str], bool]
) -> list[Target]:
    """Return the endpoints of a borrower to call by TCP: those that answered last, then the first one of each slice.

    A borrower chooses addresses and ports: only addresses that ``is_allowed`` accepts are called.
    """
    ranked = sorted(
        (rank, address, port.port)
        for shadow in shadows
        for port in (shadow.spec.template.ports or ())[:1]
        if port.port and port.protocol == "TCP"
        for rank, address in enumerate(islice(_ready(shadow), MAX_TARGETS))
    )
    named = dict.fromkeys((address, port) for _, address, port in ranked)
    candidates = [*(one for one in named if one in answered), *(one for one in named if one not in answered)]
    return list(islice((one for one in candidates[:MAX_CANDIDATES] if is_allowed(one[0])), MAX_TARGETS))


def _ready(shadow: ShadowEndpointSlice) -> Iterator[str]:
    """Yield the first address of each endpoint that may be ready."""
    for endpoint in shadow.spec.template.endpoints or ():
        if endpoint.conditions.ready is not False:
            yield from endpoint.addresses[:1]
