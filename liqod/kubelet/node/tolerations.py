"""Plans the tolerations of an offloaded pod while its virtual node is not Ready (pure).

DefaultTolerationSeconds adds tolerations of 300 s for not-ready and unreachable to every pod; after that the
taint-eviction controller deletes it. For a virtual node that is too soon: its pods keep running at the lender, and an
hour without connection is no reason to delete them. So tolerationSeconds is removed while the lender is unreachable,
which the API allows for existing pods (source: kubernetes/pkg/apis/core/validation ``validateOnlyAddedTolerations``);
the taint-eviction controller then cancels the scheduled deletion. An annotation keeps the original tolerations, to
restore them and to forge the lender's pod from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen

from liqod.model.objects.tolerations import HELD, TAINTS, bare, lengthened, limit_of, matches

LEAD: Final = 240.0
"""Seconds before its eviction at which a pod is patched: enough time to patch ten thousand pods. With the default of
300 s pods are patched after 60 s, so shorter interruptions cost no writes."""

_Tolerations = list[dict[str, Any]]


@frozen
class Rest:
    """Write nothing; ``again``: the seconds after which to plan again (None: only after a change)."""

    again: float | None = None


@frozen
class Rewrite:
    """Patch the pod by this JSON patch (RFC 6902)."""

    patch: list[dict[str, Any]]


@frozen
class Evict:
    """Let the taint-eviction controller delete the pod at once, by this JSON patch of its tolerations."""

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
    """Return the next step for a pod on a node that has been tainted for ``tainted_for`` seconds.

    ``temporary``: the lender is only unreachable; otherwise it withdrew its offer, and the original tolerations are
    restored. ``evict_after``: the cluster's setting in seconds (0: never), which the pod's annotation overrides.
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
        # It tolerates the taints without limit, or at least until the configured eviction.
        return Rest(soon)
    due = max(0.0, seconds - LEAD) - tainted_for
    if due > 0:
        return Rest(due if soon is None else min(due, soon))
    return Rewrite(_rewritten(uid, tolerations, annotations, None))


def shortest_toleration(tolerations: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the smaller tolerationSeconds of a pod for the two taints; None: without limit, or not tolerated."""
    found: list[int] = []
    for taint in TAINTS:
        matching = [one for one in tolerations if matches(one, taint)]
        if not matching:
            # The taint-eviction controller deletes a pod without a matching toleration immediately.
            return None
        found += [int(one["tolerationSeconds"]) for one in matching if one.get("tolerationSeconds") is not None]
    return max(0, min(found)) if found else None


def original_tolerations(tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]) -> _Tolerations:
    """Return the tolerations before liqod extended any."""
    before = _held(annotations)
    restored = [dict(one) for one in tolerations]
    for position, one in enumerate(restored):
        if (old := before.get(str(position))) is not None and bare(old) == bare(one):
            restored[position] = before.pop(str(position))
    for old in before.values():
        # Another writer inserted tolerations before it: match by all fields except tolerationSeconds.
        moved = next((position for position, one in enumerate(restored) if bare(one) == bare(old)), None)
        if moved is not None:
            restored[moved] = old
    return restored


def _rewritten(
    uid: str, tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str], seconds: int | None
) -> list[dict[str, Any]]:
    """Return the patch that sets tolerationSeconds for both taints and annotates the original tolerations."""
    new, held = lengthened(original_tolerations(tolerations, annotations), 0)
    if seconds is not None:
        new = [{**one, "tolerationSeconds": seconds} if str(i) in held else one for i, one in enumerate(new)]
    note = msgspec.json.encode(held).decode()
    path, value = (f"/metadata/annotations/{_PATH}", note) if annotations else ("/metadata/annotations", {HELD: note})
    return [*_guarded(uid, tolerations, new), {"op": "add", "path": path, "value": value}]


def _guarded(uid: str, old: Sequence[Mapping[str, Any]], new: _Tolerations) -> list[dict[str, Any]]:
    # A failed test operation makes the API server refuse the whole patch with 422: the pod changed meanwhile.
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/tolerations", "value": [dict(one) for one in old]},
        {"op": "replace", "path": "/spec/tolerations", "value": new},
    ]


# A JSON pointer writes "/" in a key as "~1" (RFC 6901, section 3).
_PATH: Final = HELD.replace("/", "~1")


def _given_back(
    uid: str, tolerations: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        *_guarded(uid, tolerations, original_tolerations(tolerations, annotations)),
        {"op": "remove", "path": f"/metadata/annotations/{_PATH}"},
    ]


def _held(annotations: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the annotated original tolerations by position; none if the annotation cannot be decoded."""
    try:
        return msgspec.json.decode(annotations.get(HELD, "{}"), type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError:
        return {}
