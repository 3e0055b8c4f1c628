"""Limits the size of a remote pod's status that is longer than any kubelet's.

The lender's pod status is written to the home cluster. A megabyte for each of a few thousand pods would exceed the
quota of etcd (2 GiB by default); etcd then raises NOSPACE and refuses all writes of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liqod.model.text import clean_text, clip_utf8

LONGEST: Final = 16 << 10
"""Size in bytes up to which a status is kept unchanged. A kubelet writes a few hundred bytes for each container, plus
termination messages of 12 KiB in total (Kubernetes, "Determine the Reason for Pod Failure")."""
TEXT: Final = 256
"""Size in bytes to which texts are cut first."""
TEXTS: Final = (TEXT, 64, 16)
"""The sizes that are tried until the status is short enough."""
CONDITIONS: Final = 16
CONTAINERS: Final = 32
ADDRESSES: Final = 4

_TEXTS: Final = ("phase", "reason", "message", "podIP", "hostIP", "startTime", "qosClass", "observedGeneration")
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime", "lastProbeTime", "observedGeneration")
_KINDS: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_CONTAINER: Final = ("name", "image", "imageID", "containerID", "ready", "started", "restartCount")
_STATES: Final = ("terminated", "running", "waiting")
_STATE: Final = ("reason", "message", "exitCode", "signal", "startedAt", "finishedAt", "containerID")


def limited(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a status that decisions need, with shortened texts: at most about ``LONGEST`` bytes.

    Fields of the wrong type are left out.
    """
    for text in TEXTS:
        short = _limited(status, text)
        if len(msgspec.json.encode(short)) < LONGEST:
            break
    return short


def _limited(status: Mapping[str, Any], text: int) -> dict[str, Any]:
    short: dict[str, Any] = _taken(status, _TEXTS, text)
    if conditions := [_taken(one, _CONDITION, text) for one in _maps(status.get("conditions"), CONDITIONS)]:
        short["conditions"] = conditions
    if addresses := [_taken(one, ("ip",), text) for one in _maps(status.get("podIPs"), ADDRESSES)]:
        short["podIPs"] = addresses
    left = CONTAINERS
    for kind in _KINDS:
        found = [_container(one, text) for one in _maps(status.get(kind), left)]
        left -= len(found)
        if found:
            short[kind] = found
    return short


def _container(one: Mapping[str, Any], text: int) -> dict[str, Any]:
    short = _taken(one, _CONTAINER, text)
    state = one.get("state")
    if isinstance(state, dict):
        kind = next((kind for kind in _STATES if isinstance(state.get(kind), dict)), "")
        short["state"] = {kind: _taken(state[kind], _STATE, text)} if kind else {}
    return short


def _maps(value: Any, most: int) -> list[dict[str, Any]]:
    return [one for one in value[:most] if isinstance(one, dict)] if isinstance(value, list) else []


def _taken(source: Mapping[str, Any], fields: tuple[str, ...], text: int) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for field in fields:
        value = source.get(field)
        if isinstance(value, str):
            taken[field] = _cut(value, text)
        elif isinstance(value, int) and abs(value) < 2**31:
            taken[field] = value
    return taken


def _cut(text: str, size: int) -> str:
    return clip_utf8(clean_text(text, size), size)
