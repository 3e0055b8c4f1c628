"""Counts container restarts of an offloaded pod across its remote pods (pure).

A re-created remote pod starts counting at 0. To the home cluster it is the same pod, so the counts of its predecessors
are added, plus one for each re-creation. As with a kubelet, the count does not decrease (API,
ContainerStatus.restartCount).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

MOST: Final = 2**31 - 1
"""restartCount is an int32: with a larger number the API server cannot decode the status and refuses all of it."""


@frozen
class Tally:
    """The offsets to add to the counts of one remote pod, and the counts last shown for it, both by container name."""

    remote_uid: str
    offsets: Mapping[str, int]
    shown: Mapping[str, int]

    def count(self, container: str, remote_count: int) -> int:
        """Return the count to show at home for a container."""
        return min(MOST, max(self.offsets.get(container, 0) + remote_count, self.shown.get(container, 0)))


def counts(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the restart counts of a pod status by container name (unique across init and main containers)."""
    found: dict[str, int] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or []:
            found[str(container.get("name", ""))] = int(container.get("restartCount") or 0)
    return found


def tally(known: Tally | None, home: Mapping[str, Any], remote_uid: str, remote: Mapping[str, Any]) -> Tally:
    """Return the tally for the observed statuses; equal to ``known`` when nothing was restarted.

    Without a tally (the daemon was restarted) it is inferred: for the same remote pod the offset is the difference of
    the counts; another startTime means that the remote pod was re-created meanwhile.
    """
    at_home, at_lender = counts(home), counts(remote)
    if known is not None and known.remote_uid == remote_uid:
        offsets = known.offsets
    elif known is not None or _replaced(home, remote):
        before = {**at_home} if known is None else {**at_home, **_highest(at_home, known.shown)}
        offsets = {name: count + 1 for name, count in before.items()}
    else:
        offsets = {name: max(0, count - at_lender.get(name, 0)) for name, count in at_home.items()}
    current = Tally(remote_uid, offsets, at_home if known is None else _highest(at_home, known.shown))
    return Tally(remote_uid, offsets, {**current.shown, **{n: current.count(n, c) for n, c in at_lender.items()}})


def _highest(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _replaced(home: Mapping[str, Any], remote: Mapping[str, Any]) -> bool:
    before, now = home.get("startTime"), remote.get("startTime")
    return bool(before and now and before != now)
