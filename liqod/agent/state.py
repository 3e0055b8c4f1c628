"""The states of the daemon, and how each is shown on the status line and on ``/readyz``. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from liqod.model.diagnosis.installation import Unmet, process_problems
from liqod.model.diagnosis.processes import Activity


@attrs.frozen
class Starting:
    """Connecting to the API server and preparing the home cluster for the first time."""


@attrs.frozen
class Waiting:
    """A failure keeps the daemon from starting; it retries after a back-off. ``reason`` is that in one word."""

    reason: str
    problem: str
    details: tuple[str, ...] = ()


@attrs.frozen
class Campaigning:
    """A candidate for the lease that does not know yet who holds it."""


@attrs.frozen
class StandingBy:
    """Another daemon of the cluster leads; this one is ready to take over."""

    leader: str


@attrs.frozen
class Leading:
    """The features run; ``missing`` are the conditions of readiness that are not met, none when ready."""

    missing: tuple[Unmet, ...] = ()


@attrs.frozen
class Routing:
    """One thing alone is done that records say: a node's routes, the gateway's tunnels, or answers for names."""

    summary: str
    converged: bool = False


@attrs.frozen
class Stopping:
    """The features are being stopped."""


DaemonState = Starting | Waiting | Campaigning | StandingBy | Leading | Routing | Stopping


def status_line(state: DaemonState) -> str:
    """Return the state as the one line that the service manager shows (``STATUS=`` of sd_notify(3))."""
    match state:
        case Starting():
            return "starting"
        case Waiting(reason=reason, problem=problem):
            return f"waiting: {reason}: {problem}"
        case Campaigning():
            return "waiting for the lease"
        case StandingBy(leader=leader):
            return f"standby: {leader} leads"
        case Leading(missing=missing):
            return f"leading, but {missing[0].cause}" if missing else "leading"
        case Routing(summary=summary):
            return summary
        case Stopping():
            return "stopping"


def activity(state: DaemonState) -> Activity:
    """Return what the process does, as its Lease says it."""
    match state:
        case Waiting():
            return "waits"
        case StandingBy():
            return "stands by"
        case Leading() | Routing():
            return "works"
        case Stopping():
            return "ends"
        case _:
            return "begins"


def unmet(state: DaemonState) -> list[Unmet]:
    """Return what keeps the daemon from its work; a standby lacks nothing."""
    match state:
        case Waiting(reason=reason, problem=problem, details=details):
            return [Unmet(reason, sentence) for sentence in (problem, *details)]
        case StandingBy() | Routing(converged=True):
            return []
        case Leading(missing=missing):
            return list(dict.fromkeys(missing))
        case Routing(summary=summary):
            return [Unmet("NotConverged", summary)]
        case Stopping():
            return [Unmet("Stopping", "the daemon is stopping")]
        case Campaigning():
            return [Unmet("LeaderUnknown", "the daemon waits for the lease")]
        case _:
            return [Unmet("Starting", "the daemon is starting")]


def unready(unmet: Sequence[Unmet]) -> list[str]:
    """Return the lines of ``/readyz``: reason and sentence of each problem that the diagnosis finds."""
    return [problem.text for problem in process_problems(unmet)]
