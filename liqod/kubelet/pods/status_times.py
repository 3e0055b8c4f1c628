"""Dates in a remote pod's status that have not come yet. Pure.

A Job's back-off counts from the end of a container, ``minReadySeconds`` from a condition's time: in the year 9999 both
would wait forever. Such a date is shown as the present one; what home shows already stays, since every other pass would
write the status again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from liqod.model.timestamps import parse_rfc3339

_STATES: Final = ("state", "lastState")
_OF_STATE: Final = ("startedAt", "finishedAt")
_OF_CONDITION: Final = ("lastTransitionTime", "lastProbeTime")


def of_containers(
    remote: Iterable[Mapping[str, Any]], home: Iterable[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return statuses of containers without dates after ``now``; ``home`` are those that home shows."""
    before = {container.get("name"): container for container in home}
    return [_of_container(container, before.get(container.get("name")), now) for container in remote]


def of_condition(remote: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a condition without dates after ``now``."""
    return _past(remote, {}, _OF_CONDITION, now)


def of_start(status: Mapping[str, Any], home: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a pod's status whose startTime is not after ``now``."""
    return _past(status, home, ("startTime",), now)


def _of_container(remote: Mapping[str, Any], old: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    found = dict(remote)
    same = old is not None and old.get("containerID") == remote.get("containerID")
    for field in _STATES:
        if isinstance(states := found.get(field), Mapping):
            shown = _part(old, field) if same else {}
            found[field] = {
                kind: _past(state, _shown(shown, kind, state), _OF_STATE, now) if isinstance(state, Mapping) else state
                for kind, state in states.items()
            }
    return found


def _shown(states: Mapping[str, Any], kind: str, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state as home shows it; empty if that is one of another container."""
    shown = _part(states, kind)
    return shown if shown.get("containerID") == state.get("containerID") else {}


def _past(remote: Mapping[str, Any], shown: Mapping[str, Any], fields: tuple[str, ...], now: str) -> dict[str, Any]:
    found = dict(remote)
    for field in fields:
        if found.get(field) and not _has_come(found[field], now):
            before = shown.get(field)
            found[field] = before if before and _has_come(before, now) else now
    return found


def _has_come(date: Any, now: str) -> bool:
    """Return whether a date is not after another; what is no date here (the year 9999 west of UTC) is after it."""
    moment, present = (parse_rfc3339(one) if isinstance(one, str) else None for one in (date, now))
    return moment is not None and moment <= (present or datetime.max.replace(tzinfo=moment.tzinfo))


def _part(whole: Mapping[str, Any] | None, field: str) -> Mapping[str, Any]:
    part = (whole or {}).get(field)
    return part if isinstance(part, Mapping) else {}
