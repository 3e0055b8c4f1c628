"""Tests of liqod.kubelet.namespaces.state."""

from __future__ import annotations

from itertools import product
from typing import cast

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.views import HomePod
from liqod.kubelet.namespaces import plan
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.selection import Excluded, Included, Selection, UnknownNode
from liqod.kubelet.namespaces.state import (
    TOLERATED,
    NamespacePending,
    NamespaceRefused,
    NamespaceState,
    NotOffloaded,
    Offloaded,
    is_left_alone,
    state_of_mapped,
    state_of_unmapped,
)
from liqod.kubelet.namespaces.watched import TrackedNamespace
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import ObjectMeta, OwnerReference
from liqod.model.records.views import MappingStatus

THERE = "shop-rome"
INCLUDED, EXCLUDED = Included(), Excluded("not labelled")
READY = MappingStatus(phase=plan.READY)
PENDING = MappingStatus(phase=plan.PENDING)
REFUSED = MappingStatus(phase=plan.REFUSED, reason="NotGranted", message="no")
UNREACHABLE = MappingStatus(phase=plan.PENDING, reason="PeerUnreachable", message="away")


class Watched:
    """What the deciding code reads of a watched remote namespace."""

    def __init__(self, namespace: str = THERE, *, synced: bool = True, shadows: tuple[str, ...] = ()) -> None:
        self.namespace = namespace
        self.synced = synced
        self.shadows = shadows

    def shadow(self, name: str) -> object | None:
        return name if name in self.shadows else None


def watched(namespace: str = THERE, *, synced: bool = True, shadows: tuple[str, ...] = ()) -> RemoteNamespace:
    return cast(RemoteNamespace, Watched(namespace, synced=synced, shadows=shadows))


class MappedTests(SynchronousTestCase):
    """A namespace with an entry in the natting table."""

    def state(
        self, selection: Selection, status: MappingStatus | None, tracked: TrackedNamespace | None = None
    ) -> NamespaceState:
        return state_of_mapped(THERE, selection, status, tracked or TrackedNamespace())

    def test_watched(self) -> None:
        """Where its remote namespace is watched it is offloaded, whatever its status says, and drains if excluded."""
        remote = watched()
        selections: tuple[Selection, ...] = (INCLUDED, EXCLUDED, UnknownNode())
        for selection, status in product(selections, (None, READY, REFUSED, UNREACHABLE)):
            found = self.state(selection, status, TrackedNamespace(remote=remote, unanswered=9))
            self.assertEqual(found, Offloaded(remote, draining=selection == EXCLUDED))

    def test_not_watched(self) -> None:
        """Without that it waits for its grant, or is refused, or has nothing at the lender."""
        other = TrackedNamespace(remote=watched("another"))
        silent = TrackedNamespace(unanswered=TOLERATED + 1)
        none = NotOffloaded(EXCLUDED.message)
        rows: list[tuple[Selection, MappingStatus | None, TrackedNamespace | None, NamespaceState]] = [
            (INCLUDED, None, None, NamespacePending(asked=True)),
            (INCLUDED, PENDING, None, NamespacePending(asked=True)),
            (INCLUDED, READY, None, NamespacePending(asked=True)),
            (INCLUDED, READY, other, NamespacePending(asked=True)),
            (INCLUDED, REFUSED, None, NamespaceRefused("NotGranted", "no")),
            (INCLUDED, UNREACHABLE, TrackedNamespace(unanswered=TOLERATED), NamespacePending(asked=True)),
            (INCLUDED, UNREACHABLE, silent, NamespaceRefused("PeerUnreachable", "away")),
            (INCLUDED, PENDING, silent, NamespacePending(asked=True)),
            (EXCLUDED, None, None, none),
            (EXCLUDED, PENDING, None, none),
            (EXCLUDED, REFUSED, None, none),
            (EXCLUDED, READY, None, NamespacePending(asked=True)),
            (EXCLUDED, READY, TrackedNamespace(left=True), none),
            (UnknownNode(), REFUSED, None, NamespaceRefused("NotGranted", "no")),
        ]
        for selection, status, tracked, expected in rows:
            self.assertEqual(self.state(selection, status, tracked), expected, (selection, status, tracked))


class UnmappedTests(SynchronousTestCase):
    """A namespace without an entry in the natting table."""

    def test_by_selection(self) -> None:
        """It is pending if it may be offloaded, unless the name that users chose is another namespace's."""
        rows: list[tuple[Selection, dict[str, str], NamespaceState]] = [
            (EXCLUDED, {}, NotOffloaded(EXCLUDED.message)),
            (INCLUDED, {}, NamespacePending(asked=False)),
            (UnknownNode(), {}, NamespacePending(asked=False)),
            (Included("web"), {}, NamespacePending(asked=False)),
            (Included("web"), {"web": "shop"}, NamespacePending(asked=False)),
        ]
        for selection, reverse, expected in rows:
            self.assertEqual(state_of_unmapped("shop", selection, reverse, ClusterID("rome")), expected, selection)
        found = state_of_unmapped("shop", Included("web"), {"web": "other"}, ClusterID("rome"))
        assert isinstance(found, NamespaceRefused)
        self.assertEqual(found.reason, "RemoteNameInUse")
        self.assertIn("namespace other of this cluster", found.message)


class LeftAloneTests(SynchronousTestCase):
    """Pods that stay where a namespace is no longer offloaded."""

    def test_pods_of_daemon_sets(self) -> None:
        """Only a DaemonSet's pod that has nothing at the lender is left alone, once that is known."""
        owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="log", uid="u", controller=True)
        pods = [HomePod(metadata=ObjectMeta(name="a", owner_references=owners)) for owners in ([owner], [])]
        states: dict[str, tuple[NamespaceState, bool]] = {
            "not offloaded": (NotOffloaded(""), True),
            "pending": (NamespacePending(asked=True), False),
            "refused": (NamespaceRefused("", ""), False),
            "offloaded": (Offloaded(watched(), draining=False), False),
            "draining": (Offloaded(watched(), draining=True), True),
            "draining, there": (Offloaded(watched(shadows=("a",)), draining=True), False),
            "draining, not known": (Offloaded(watched(synced=False), draining=True), False),
        }
        for name, (state, expected) in states.items():
            self.assertEqual([is_left_alone(pod, state) for pod in pods], [expected, False], name)
