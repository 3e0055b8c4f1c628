"""What to do next about one home namespace: a pure function of the label, the natting table and the pods.

The order is what makes a crash harmless: the translation is written before the lender is asked for the namespace, and
taken out only after the namespace was given back.
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
"""What a lender answers to a name that it will not give us: nothing of ours is in that namespace."""


@frozen
class WriteEntry:
    """Write the translation into the natting table."""

    remote: str


@frozen
class Ask:
    """Ask the lender for the namespace."""

    remote: str


@frozen
class Serve:
    """The namespace is mapped: watch it and offload its pods."""

    remote: str


@frozen
class Drain:
    """The namespace is no longer offloaded: its pods leave first."""

    remote: str


@frozen
class Release:
    """Nothing runs there any more: give the remote namespace back and take out the translation."""

    remote: str


@frozen
class Rest:
    """Nothing to do."""


Step = WriteEntry | Ask | Serve | Drain | Release | Rest


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

    ``pods`` tells whether unfinished pods of the namespace are on the virtual node. ``asked`` tells that the
    lender's answer is to be had again (it was refused, or access was lost). ``wanted`` is the remote name that its
    users chose; it changes a translation only as long as the lender refuses the one that there is.
    """
    remote = table.get(local)
    if remote is None:
        chosen = choose_remote(local, home, reverse, wanted)
        return WriteEntry(chosen) if enabled and pods and chosen is not None else Rest()
    if not enabled:
        return Drain(remote) if pods else Release(remote)
    if pods and status is not None and status.phase == REFUSED and status.reason in NAME_REFUSED:
        chosen = choose_remote(local, home, reverse, wanted)
        if chosen not in (None, remote):
            return WriteEntry(str(chosen))
    if status is None or status.phase != READY or asked:
        # A namespace that no pod asks for any more is not asked for either; its translation does no harm.
        return Ask(remote) if pods or status is None or status.phase == PENDING else Rest()
    return Serve(remote)
