"""Plans the next step for one home namespace: a pure function of the label, the natting table and the pods.

The order makes a crash harmless: a mapping is written before the namespace is requested of the lender, and removed only
after the namespace was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from liqod.kubelet.common.naming import choose_remote
from liqod.model.ids import ClusterID
from liqod.model.records.views import MappingStatus

PENDING: Final = "Pending"
READY: Final = "Ready"
REFUSED: Final = "Refused"
RELEASING: Final = "Releasing"
NAME_REFUSED: Final = frozenset({"InvalidName", "NameReserved", "NameNotYours", "NamespaceTaken"})
"""The lender's reasons to refuse a name: no object of ours is in that namespace."""
FINAL: Final = frozenset({"NotGranted", "NotLending", "InvalidClusterID"})
"""The lender's reasons not to release a namespace after which nothing of ours is in it; any other failure may pass."""


@frozen
class WriteEntry:
    """Write the mapping to the natting table."""

    remote: str


@frozen
class Ask:
    """Request the namespace of the lender."""

    remote: str


@frozen
class Serve:
    """Watch the mapped namespace and offload its pods."""

    remote: str


@frozen
class Drain:
    """Evict the pods of a namespace that is no longer offloaded."""

    remote: str


@frozen
class Release:
    """Release the remote namespace, in which no pod is left, and remove the mapping."""

    remote: str


@frozen
class Rest:
    """Do nothing."""


Step = WriteEntry | Ask | Serve | Drain | Release | Rest


def is_name_refused(status: MappingStatus | None) -> bool:
    """Return whether the lender refuses the name of a mapping."""
    return status is not None and status.phase == REFUSED and status.reason in NAME_REFUSED


def plan(
    local: str,
    *,
    enabled: bool,
    pods: bool,
    table: Mapping[str, str],
    reverse: Mapping[str, str],
    status: MappingStatus | None,
    asked: bool,
    home: ClusterID,
    wanted: str = "",
) -> Step:
    """Return the next step for a namespace.

    ``pods``: whether unfinished pods of the namespace are on the virtual node. ``asked``: the namespace must be
    requested again (a write was refused, or access was lost). ``wanted``: the remote name that users chose; it replaces
    an existing mapping only while the lender refuses that one. A release that was begun is completed unless there are
    pods again.
    """
    remote = table.get(local)
    if remote is None:
        chosen = choose_remote(local, home, reverse, wanted)
        return WriteEntry(chosen) if enabled and pods and chosen is not None else Rest()
    if not enabled:
        return Drain(remote) if pods else Release(remote)
    if not pods and status is not None and status.phase == RELEASING:
        return Release(remote)
    if pods and is_name_refused(status):
        chosen = choose_remote(local, home, reverse, wanted)
        if chosen not in (None, remote):
            return WriteEntry(str(chosen))
    if status is None or status.phase != READY or asked:
        # Without pods the namespace is not requested; its mapping does no harm.
        return Ask(remote) if pods or status is None or status.phase == PENDING else Rest()
    return Serve(remote)
