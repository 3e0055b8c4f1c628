"""The states of the daemon, and how each is shown on the status line and on ``/readyz``. Pure."""

from __future__ import annotations

import attrs


@attrs.frozen
class Starting:
    """Connecting to the API server and preparing the home cluster for the first time."""


@attrs.frozen
class Waiting:
    """A failure keeps the daemon from starting; it retries after a back-off."""

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
    """The features run; ``missing`` is the first condition of readiness that is not met, empty when ready."""

    missing: str = ""


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
        case Waiting(problem=problem):
            return f"waiting: {problem}"
        case Campaigning():
            return "waiting for the lease"
        case StandingBy(leader=leader):
            return f"standby: {leader} leads"
        case Leading(missing=missing):
            return f"leading, but {missing}" if missing else "leading"
        case Routing(summary=summary):
            return summary
        case Stopping():
            return "stopping"


def unready(state: DaemonState) -> list[str]:
    """Return why the daemon does not do its work, one sentence each; a standby is ready."""
    match state:
        case Waiting(problem=problem, details=details):
            return [problem, *details]
        case StandingBy() | Leading(missing="") | Routing(converged=True):
            return []
        case Leading(missing=missing):
            return [missing]
        case _:
            return [status_line(state)]
