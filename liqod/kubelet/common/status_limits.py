"""A pod's status without what is long in it: what is kept of a status that no kubelet would write.

What a lender says of a pod is written to the home cluster. A megabyte for each of a few thousand pods would fill the
home's database, and with it the cluster could not write anything any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.model.text import clean_text, clip_utf8

LONGEST: Final = 128 << 10
"""Bytes of a status that is taken as it is. A kubelet's own is a few hundred for each container, plus messages of
12 KiB in all (Kubernetes: "Determine the Reason for Pod Failure")."""
TEXT: Final = 256
CONDITIONS: Final = 16
CONTAINERS: Final = 32
ADDRESSES: Final = 4

_TEXTS: Final = ("phase", "reason", "message", "podIP", "hostIP", "startTime", "qosClass")
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime", "lastProbeTime")
_KINDS: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_CONTAINER: Final = ("name", "image", "imageID", "containerID", "ready", "started", "restartCount")
_STATES: Final = ("terminated", "running", "waiting")
_STATE: Final = ("reason", "message", "exitCode", "signal", "startedAt", "finishedAt", "containerID")


def limited(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a status that decisions are made from, with short texts; at most about ``LONGEST`` bytes,
    whatever is given.
    """
    short: dict[str, Any] = _taken(status, _TEXTS)
    if conditions := [_taken(one, _CONDITION) for one in _maps(status.get("conditions"), CONDITIONS)]:
        short["conditions"] = conditions
    if addresses := [_taken(one, ("ip",)) for one in _maps(status.get("podIPs"), ADDRESSES)]:
        short["podIPs"] = addresses
    left = CONTAINERS
    for kind in _KINDS:
        found = [_container(one) for one in _maps(status.get(kind), left)]
        left -= len(found)
        if found:
            short[kind] = found
    return short


def _container(one: Mapping[str, Any]) -> dict[str, Any]:
    short = _taken(one, _CONTAINER)
    state = one.get("state")
    if isinstance(state, dict):
        kind = next((kind for kind in _STATES if isinstance(state.get(kind), dict)), "")
        short["state"] = {kind: _taken(state[kind], _STATE)} if kind else {}
    return short


def _maps(value: Any, most: int) -> list[dict[str, Any]]:
    return [one for one in value[:most] if isinstance(one, dict)] if isinstance(value, list) else []


def _taken(source: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for field in fields:
        value = source.get(field)
        if isinstance(value, str):
            taken[field] = _cut(value)
        elif isinstance(value, int) and abs(value) < 2**31:
            taken[field] = value
    return taken


def _cut(text: str) -> str:
    return clip_utf8(clean_text(text, TEXT), TEXT)
