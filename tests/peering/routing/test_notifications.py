"""Who is notified of what: every change has its controllers, and each of them gets the peer."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.peering.changes import ENQUEUED, Change, Changes, Queue
from liqod.peering.routing.controllers import (
    BorrowingControllers,
    Controllers,
    DirectControllers,
    LendingControllers,
    TrustControllers,
)

ROME = ClusterID("rome")


class FakeController:
    """Keeps the peers that were forgotten."""

    def __init__(self) -> None:
        self.forgotten: list[ClusterID] = []

    def forget(self, peer: ClusterID) -> None:
        self.forgotten.append(peer)


def fakes_of(kind: type) -> dict[str, FakeController]:
    """Return a fake for each field of a group of controllers."""
    return {field.name: FakeController() for field in attrs.fields(kind)}


class NotificationTests(SynchronousTestCase):
    """The table, and what it does."""

    def test_every_change_concerns_somebody_and_every_queue_is_used(self) -> None:
        """No change is without a controller, and no queue is only filled by its own controller."""
        self.assertEqual(set(ENQUEUED), set(Change))
        self.assertEqual({queue for queues in ENQUEUED.values() for queue in queues}, set(Queue))
        self.assertTrue(all(ENQUEUED.values()))

    def test_a_change_enqueues_the_peer_at_the_controllers_of_the_table(self) -> None:
        """Each once, and nobody else."""
        for change in Change:
            changes = Changes()
            enqueued: dict[Queue, list[ClusterID]] = {queue: [] for queue in Queue}
            for queue in Queue:
                changes.of(queue).start(enqueued[queue].append)
            changes.notify(change, ROME)
            expected = {queue: [ROME] if queue in ENQUEUED[change] else [] for queue in Queue}
            self.assertEqual(enqueued, expected)

    def test_a_controller_that_stopped_is_not_notified(self) -> None:
        """Its subscription ends with it; the others keep theirs."""
        changes, stopped, running = Changes(), [ROME][:0], [ROME][:0]
        stop = changes.of(Queue.GRANT).start(stopped.append)
        changes.of(Queue.GRANT).start(running.append)
        stop()
        changes.notify(Change.VERDICT_RECEIVED, ROME)
        self.assertEqual((stopped, running), ([], [ROME]))

    def test_no_controller_starts_before_the_records_are_known(self) -> None:
        """A queue is synced when the peers on record were notified of, and not earlier."""
        changes = Changes()
        synced = changes.of(Queue.KEY_ROTATION).when_synced()
        self.assertNoResult(synced)
        changes.known.open()
        self.assertIsNone(self.successResultOf(synced))

    def test_a_peer_without_a_record_is_forgotten_by_every_controller_with_state(self) -> None:
        """Of offers, rights, credentials, networks and keys nothing outlives the record."""
        kinds = (TrustControllers, LendingControllers, BorrowingControllers, DirectControllers)
        groups = {kind: fakes_of(kind) for kind in kinds}
        made = Controllers(
            **cast(
                Any,
                {
                    **fakes_of(Controllers),
                    "trust": TrustControllers(**cast(Any, groups[TrustControllers])),
                    "lending": LendingControllers(**cast(Any, groups[LendingControllers])),
                    "borrowing": BorrowingControllers(**cast(Any, groups[BorrowingControllers])),
                    "direct": DirectControllers(**cast(Any, groups[DirectControllers])),
                },
            )
        )
        made.forget(ROME)
        forgot = {name for fakes in groups.values() for name, fake in fakes.items() if fake.forgotten == [ROME]}
        kept = {"advertiser", "credential_issuer", "name_queries", "credential_store", "advertisements", "next_keys"}
        kept |= {"slice_grants", "slice_requests"}
        kept |= {"lending", "borrowing"}  # of direct connections
        self.assertEqual(forgot, kept)
