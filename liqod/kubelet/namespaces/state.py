"""Decides the state of a namespace, as the controllers of its pods and other objects see it: a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from liqod.kubelet.common.naming import choose_remote
from liqod.kubelet.common.views import HomePod, is_started
from liqod.kubelet.namespaces.plan import READY, REFUSED
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection
from liqod.kubelet.namespaces.watched import TrackedNamespace
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import is_of_daemon_set
from liqod.model.records.views import MappingStatus

TOLERATED: Final = 3
"""Requests without an answer before the pods' status shows that the lender cannot be reached."""


@frozen
class NotOffloaded:
    """Pods of the namespace are not offloaded through this node, for the reason in ``message``."""

    message: str


@frozen
class NamespacePending:
    """The namespace must be offloaded but cannot be used yet; ``asked``: it may have been requested already."""

    asked: bool


@frozen
class NamespaceRefused:
    """The lender refuses the namespace at present."""

    reason: str
    message: str


@frozen
class Offloaded:
    """Pods of the namespace are offloaded to ``remote``; while ``draining`` no new ones are."""

    remote: RemoteNamespace
    draining: bool


NamespaceState = NotOffloaded | NamespacePending | NamespaceRefused | Offloaded


def state_of_mapped(
    remote: str, selection: Selection, status: MappingStatus | None, tracked: TrackedNamespace
) -> NamespaceState:
    """Return the state of a namespace that the natting table maps to ``remote``."""
    if tracked.remote is not None and tracked.remote.namespace == remote:
        return Offloaded(tracked.remote, draining=isinstance(selection, Excluded))
    if isinstance(selection, Excluded) and (status is None or status.phase != READY or tracked.left):
        # It is not granted, or other nodes alone use it: there is nothing at the lender to wait for.
        return NotOffloaded(selection.message)
    if status is not None and status.phase == REFUSED:
        return NamespaceRefused(status.reason, status.message)
    if status is not None and status.reason == "PeerUnreachable" and tracked.unanswered > TOLERATED:
        return NamespaceRefused(status.reason, status.message)
    return NamespacePending(asked=True)


def state_of_unmapped(local: str, selection: Selection, reverse: Mapping[str, str], home: ClusterID) -> NamespaceState:
    """Return the state of a namespace that is not in the natting table; ``reverse`` maps remote to local names."""
    if isinstance(selection, Excluded):
        return NotOffloaded(selection.message)
    wanted = selection.remote_name if isinstance(selection, Included) else ""
    if choose_remote(local, home, reverse, wanted) is None:
        return NamespaceRefused(
            "RemoteNameInUse",
            f"the namespace {wanted} at the lender is mapped to the namespace {reverse[wanted]} of this cluster; "
            "choose another remoteNamespaceName in the NamespaceOffloading",
        )
    return NamespacePending(asked=False)


def is_left_alone(pod: HomePod, state: NamespaceState) -> bool:
    """Return whether a pod is not evicted from a namespace that is no longer offloaded, and may be there without it.

    Such are the pods of DaemonSets that have nothing at the lender: for each that is evicted there is another one.
    """
    if is_started(pod) or not is_of_daemon_set(pod):
        return False
    match state:
        case NotOffloaded():
            return True
        case Offloaded(remote, draining):
            return draining and remote.synced and remote.shadow(pod.metadata.name) is None
    return False
