"""Chooses the endpoint of a lender's API server: its own address ("direct") or its daemon's relay ("relay") (pure).

Direct is preferred because it costs the lender's daemon nothing. After ``FAILURE_TOLERANCE`` seconds of failures the
other endpoint is used if it answers a probe. The direct endpoint is used again only after several successful probes in
a row: a change of endpoint restarts every watch of the lender, and a flapping endpoint would do so repeatedly. For a
direct endpoint that the lender offers for the first time one successful probe suffices.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

Endpoint = Literal["direct", "relay"]
EndpointSetting = Literal["auto", "direct", "relay"]

FAILURE_TOLERANCE: Final = 10.0
"""Seconds that a proven endpoint may fail before the other one is probed: the restart of an API server is shorter."""
PROBE_INTERVAL: Final = 5.0
"""Seconds between two probes of the other endpoint while the current one fails."""
DIRECT_PROBE_INTERVAL: Final = 60.0
"""Seconds between two probes of the direct endpoint while the relay works."""
SUCCESSES_TO_RETURN: Final = 3
"""Successful probes in a row after which the direct endpoint is used again."""


def allowed_endpoints(setting: EndpointSetting, *, direct: bool, relay: bool) -> tuple[Endpoint, ...]:
    """Return the endpoints that both sides allow, the preferred one first.

    ``setting`` is ours ([peering] api); ``direct`` and ``relay``: whether the lender offers them.
    """
    offered: list[Endpoint] = []
    if direct and setting != "relay":
        offered.append("direct")
    if relay and setting != "direct":
        offered.append("relay")
    return tuple(offered)


@frozen
class EndpointState:
    """The state of the endpoint in use and of the other one; times are seconds of one clock.

    ``proven``: the lender has answered on ``endpoint``. ``failing_since``: when it started to fail; None while it
    works. ``other``: the other endpoint, if any. ``successes``: successful probes of it in a row, the last one at
    ``probed_at``. ``untried``: it was offered later than the one in use, and no probe of it has failed.
    """

    endpoint: Endpoint
    other: Endpoint | None
    proven: bool = False
    failing_since: float | None = None
    successes: int = 0
    probed_at: float = float("-inf")
    untried: bool = False


Step = Literal["stay", "probe", "switch"]


def plan(state: EndpointState, now: float) -> tuple[Step, float | None]:
    """Return the next step, and the seconds until the next plan (None: after a change of the state)."""
    if state.other is None:
        return "stay", None
    if state.failing_since is not None:
        left = state.failing_since + (FAILURE_TOLERANCE if state.proven else 0.0) - now
        if left > 0:
            return "stay", left
        if state.successes and state.probed_at >= state.failing_since:
            return "switch", None
        return _probe_every(state, now, PROBE_INTERVAL)
    if state.endpoint == "direct":
        return "stay", None
    if state.successes >= (1 if state.untried else SUCCESSES_TO_RETURN):
        return "switch", None
    return _probe_every(state, now, DIRECT_PROBE_INTERVAL)


def _probe_every(state: EndpointState, now: float, seconds: float) -> tuple[Step, float | None]:
    left = state.probed_at + seconds - now
    return ("probe", None) if left <= 0 else ("stay", left)
