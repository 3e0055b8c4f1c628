"""Plans the tolerations of an offloaded pod while its virtual node is not Ready (pure).

DefaultTolerationSeconds adds 300 s for not-ready and unreachable to every pod; then the taint-eviction controller
deletes it. For a virtual node that is too soon: its pods run on at the lender, and a link that is down for an hour is
no reason to end them. So tolerationSeconds is removed while the lender is unreachable, which Kubernetes allows for pods
(source: kubernetes/pkg/apis/core/validation ``validateOnlyAddedTolerations``; the taint-eviction controller cancels
what it had planned for a pod that tolerates the taint for ever). What the pod had before is kept in an annotation, so
that it can be given back, and so that the lender's pod never notices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.model.objects.tolerations import HELD, TAINTS, bare, lengthened, limit_of, matches

LEAD: Final = 240.0
"""Seconds before Kubernetes would evict a pod that it is held: enough for ten thousand pods, and most interruptions are
over sooner than pods with the usual five minutes are written to at all."""

_Tolerations = list[dict[str, Any]]


@frozen
class Rest:
    """Nothing to write; ``again``: the seconds after which that may change (None: not by time alone)."""

    again: float | None = None


@frozen
class Rewrite:
    """Change the pod by this JSON patch (RFC 6902)."""

    patch: list[dict[str, Any]]


@frozen
class Evict:
    """Have Kubernetes evict the pod at once, by this JSON patch of its tolerations."""

    patch: list[dict[str, Any]]


Plan = Rest | Rewrite | Evict


def plan(
    uid: str,
    tolerations: Sequence[Mapping[str, Any]],
    annotations: Mapping[str, str],
    *,
    tainted_for: float,
    temporary: bool,
    evict_after: float,
) -> Plan:
    """Return what to do about a pod on a node that has been tainted for ``tainted_for`` seconds.

    ``temporary`` tells that the lender is only away; when it took its offer back instead, pods get the time again that
    they had. ``evict_after`` is the cluster's setting (0: never), which the pod's annotation overrides.
    """
    held = HELD in annotations
    if not temporary:
        return Rewrite(_given_back(uid, tolerations, annotations)) if held else Rest()
    seconds = shortest_toleration(tolerations)
    limit = limit_of(annotations, evict_after)
    if limit and (held or seconds is not None):
        if tainted_for >= limit:
            return Rest() if seconds == 0 else Evict(_rewritten(uid, tolerations, annotations, 0))
        soon = limit - tainted_for
    else:
        soon = None
    if seconds is None or (held and limit and seconds >= limit):
        # For ever, or, said when the pod was made, for just as long as it is to stay.
        return Rest(soon)
    due = max(0.0, seconds - LEAD) - tainted_for
    if due > 0:
        return Rest(due if soon is None else min(due, soon))
    return Rewrite(_rewritten(uid, tolerations, annotations, None))


def shortest_toleration(tolerations: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many seconds a pod tolerates the worse of the two taints; None: for ever, or not at all."""
    found: list[int] = []
    for taint in TAINTS:
        matching = [one for one in tolerations if matches(one, taint)]
        if not matching:
            # Kubernetes deletes such a pod the moment the taint is there.
            return None
        found += [int(one["tolerationSeconds"]) for one in matching if one.get("tolerationSeconds") is not None]
    return max(0, min(found)) if found else None


def original_tolerations(tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]) -> _Tolerations:
    """Return the tolerations as they were before any was held."""
    before = _held(annotations)
    restored = [dict(one) for one in tolerations]
    for position, one in enumerate(restored):
        if (old := before.get(str(position))) is not None and bare(old) == bare(one):
            restored[position] = before.pop(str(position))
    for old in before.values():
        # Somebody put others before it: it is known by everything but the seconds.
        moved = next((position for position, one in enumerate(restored) if bare(one) == bare(old)), None)
        if moved is not None:
            restored[moved] = old
    return restored


def _rewritten(
    uid: str, tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str], seconds: int | None
) -> list[dict[str, Any]]:
    """Return the patch that lets the pod tolerate both taints for so long, and notes what it had before."""
    new, held = lengthened(original_tolerations(tolerations, annotations), 0)
    if seconds is not None:
        new = [{**one, "tolerationSeconds": seconds} if str(i) in held else one for i, one in enumerate(new)]
    note = msgspec.json.encode(held).decode()
    path, value = (f"/metadata/annotations/{_PATH}", note) if annotations else ("/metadata/annotations", {HELD: note})
    return [*_guarded(uid, tolerations, new), {"op": "add", "path": path, "value": value}]


def _guarded(uid: str, old: Sequence[Mapping[str, Any]], new: _Tolerations) -> list[dict[str, Any]]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/tolerations", "value": [dict(one) for one in old]},
        {"op": "replace", "path": "/spec/tolerations", "value": new},
    ]


_PATH: Final = HELD.replace("/", "~1")


def _given_back(
    uid: str, tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        *_guarded(uid, tolerations, original_tolerations(tolerations, annotations)),
        {"op": "remove", "path": f"/metadata/annotations/{_PATH}"},
    ]


def _held(annotations: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what was noted, by position."""
    try:
        return msgspec.json.decode(annotations.get(HELD, "{}"), type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError:
        return {}
