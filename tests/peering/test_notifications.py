"""Who is notified of what: every change has its controllers, and each of them gets the peer."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.peering.routing.controllers import Controllers, NoNetworks
from liqod.peering.routing.notifications import ENQUEUED, Change, Queue

ROME = ClusterID("rome")
FIELDS = {
    Queue.RECORD: "records",
    Queue.OFFER: "advertiser",
    Queue.GRANT: "credential_issuer",
    Queue.ADVERTISEMENT: "advertisements",
    Queue.VIRTUAL_NODE: "accept",
    Queue.UNPEERING: "unpeering",
    Queue.DISTRUST: "distrust",
    Queue.NETWORK: "networks",
}


class FakeController:
    """Keeps the peers that were enqueued, and those that were forgotten."""

    def __init__(self) -> None:
        self.enqueued: list[ClusterID] = []
        self.forgotten: list[ClusterID] = []

    def enqueue(self, key: ClusterID, after: float = 0.0) -> None:
        self.enqueued.append(key)

    def forget(self, peer: ClusterID) -> None:
        self.forgotten.append(peer)


def controllers(**others: object) -> tuple[Controllers, dict[str, FakeController]]:
    """Return controllers that are all fakes, but for ``others``, and the fakes by their field."""
    fakes = {field.name: FakeController() for field in attrs.fields(Controllers)}
    return Controllers(**cast(Any, {**fakes, **others})), fakes


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
            made, fakes = controllers()
            made.notify(change, ROME)
            expected = {FIELDS[queue] for queue in ENQUEUED[change]}
            self.assertEqual({name for name, fake in fakes.items() if fake.enqueued == [ROME]}, expected)
            self.assertEqual(sum(len(fake.enqueued) for fake in fakes.values()), len(expected))

    def test_a_peer_without_a_record_is_forgotten_by_whoever_keeps_something(self) -> None:
        """Of offers, rights, credentials, networks and keys nothing outlives the record."""
        made, fakes = controllers(networks=NoNetworks())
        made.forget(ROME)
        kept = {"advertiser", "credential_issuer", "credential_store", "advertisements", "next_keys"}
        self.assertEqual({name for name, fake in fakes.items() if fake.forgotten == [ROME]}, kept)

    def test_without_a_network_a_session_is_routed_all_the_same(self) -> None:
        """The null object takes what would be the network's."""
        made, fakes = controllers(networks=NoNetworks())
        made.notify(Change.SESSION_OPENED, ROME)
        self.assertEqual(fakes["advertiser"].enqueued, [ROME])
