"""The acceptance loop under a clock: what a run costs when one of many offers moves, and what it never leaves out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.pipeline import Ruling
from liqod.acceptance.stages import AcceptanceRules
from liqod.kube.errors import Conflict
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.names import advertisement_name
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.offer import Offer
from liqod.model.records.views import (
    Advertisement,
    AdvertisementSpec,
    AdvertisementStatus,
    ForeignCluster,
    ForeignClusterSpec,
)
from liqod.model.timestamps import rfc3339
from liqod.peering.borrowing.acceptance_loop import ALL, RETURN, SPACING, AcceptanceLoop
from liqod.peering.changes import Change
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.session.peer import Received
from tests.clocks import HostClock
from tests.peering.clusters import context_of, use_rules

TTL = 1800
READY = {
    "metadata": {"name": "peer-7"},
    "spec": {"clusterID": "peer-7", "fingerprint": "f" * 64},
    "status": {"phase": "Ready"},
}
RULES = AcceptanceRules(policy="AutoAcceptAll", maximum=5)


class FakeAdvertisements:
    """An informer's cache: what the API server has is seen at once."""

    def __init__(self) -> None:
        self.records: dict[Key, Advertisement] = {}

    def get(self, key: Key) -> Advertisement | None:
        return self.records.get(key)

    def keys(self) -> list[Key]:
        return list(self.records)


class FakeServer:
    """Takes status patches, and says Conflict to the next ``conflicts`` of them."""

    def __init__(self, shelf: FakeAdvertisements) -> None:
        self.shelf = shelf
        self.patched: list[str] = []
        self.conflicts = 0

    async def patch(
        self, resource: Any, name: str, patch: Any, namespace: str = "", *, kind: str, subresource: str, view: Any
    ) -> Advertisement:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(409, "Conflict", "the object has been modified")
        self.patched.append(name)
        key = Key("", name)
        before = self.shelf.records[key]
        status = msgspec.convert({**msgspec.to_builtins(before.status), **patch["status"]}, AdvertisementStatus)
        after = versioned(msgspec.structs.replace(before, status=status))
        self.shelf.records[key] = after
        return after


class TrustedClusters:
    """ForeignClusters of peers that are all trusted."""

    def get(self, peer: ClusterID) -> ForeignCluster:
        return ForeignCluster(
            metadata=ObjectMeta(name=peer), spec=ForeignClusterSpec(cluster_id=peer, fingerprint=Fingerprint("f" * 64))
        )


@attrs.define
class FakePeer:
    """What the loop asks about a peer."""

    received: Received


def versioned(record: Advertisement) -> Advertisement:
    version = str(int(record.metadata.resource_version or "0") + 1)
    return msgspec.structs.replace(record, metadata=msgspec.structs.replace(record.metadata, resource_version=version))


class AcceptanceLoopTests(SynchronousTestCase):
    """Sixty-four offers."""

    def setUp(self) -> None:
        self.clock = HostClock()
        self.clock.advance(1e9)
        self.shelf = FakeAdvertisements()
        self.server = FakeServer(self.shelf)
        self.peers: dict[ClusterID, FakePeer] = {}
        self.changed: list[str] = []
        self.ids = [ClusterID(f"peer-{number}") for number in range(64)]
        for peer in self.ids:
            self.offers(peer, "10")
        self.restart()

    def restart(self) -> None:
        """Begin with nothing but what the records say."""
        self.context = context_of(self.clock, self.peers, self.server)
        self.decisions = AcceptanceLoop(
            self.context,
            records=cast(Any, TrustedClusters()),
            offers=MutationCache(cast(Any, self.shelf), self.clock),
            rules=RULES,
            directions=DirectionPolicy("Yes", "Yes"),
            subscriber=self,
        )
        for source in self.decisions.sources():
            source.start(self.decisions.enqueue)

    def offer_decided(self, peer: ClusterID, ruling: Ruling) -> None:
        self.changed.append(f"{peer} {ruling.phase}")

    def offers_changed(self, peer: ClusterID | None = None) -> None:
        """Let the loop know of a change of one offer, or of the rules and so of all."""
        if peer is None:
            use_rules(self.decisions, RULES)
        else:
            self.context.changes.notify(Change.OFFER_RECEIVED, peer)

    def offers(self, peer: ClusterID, cpu: str, epoch: int = 1) -> None:
        key = Key("", advertisement_name(peer))
        offer = Offer(resources={"cpu": cpu})
        spec = AdvertisementSpec(cluster_id=peer, epoch=epoch, seq=1, time_to_live=TTL, offer=offer)
        before = self.shelf.records.get(key)
        if before is None:
            before = Advertisement(metadata=ObjectMeta(name=key.name), spec=spec)
        self.shelf.records[key] = versioned(msgspec.structs.replace(before, spec=spec))
        self.hears(peer)

    def hears(self, peer: ClusterID) -> None:
        self.peers[peer] = FakePeer(
            Received(epoch=1, seq=1, ttl=TTL, offer=Offer(), problem="", at=self.clock.seconds())
        )

    def run_once(self) -> float | None:
        after = self.successResultOf(Deferred.fromCoroutine(self.decisions.reconcile(ALL)))
        return after.seconds if after is not None else None

    def begin(self) -> None:
        self.offers_changed()
        self.run_once()
        self.assertEqual(len(self.server.patched), 64)
        self.assertEqual(len(self.changed), 64)
        self.run_once()  # from now on they are not accepted but kept
        self.server.patched.clear()
        self.changed.clear()

    def test_one_that_moved_is_all_that_is_reported(self) -> None:
        """The others are ruled, and neither written nor passed on again."""
        self.begin()
        self.offers(self.ids[7], "11")
        self.offers_changed(self.ids[7])
        self.run_once()
        self.assertEqual(self.changed, ["peer-7 Accepted"])
        self.assertEqual(self.server.patched, [])

    def test_a_peer_that_was_started_again(self) -> None:
        """The time of receipt is noted again, once: by the one before, the peer's clock would seem to be ahead."""
        self.begin()
        self.clock.advance(120.0)
        peer = self.ids[7]
        self.offers(peer, "11", epoch=int(self.clock.wall().timestamp()) - 5)
        self.offers_changed(peer)
        for _ in range(3):
            self.run_once()
        record = self.shelf.records[Key("", advertisement_name(peer))]
        self.assertEqual(record.status.received_at, rfc3339(self.clock.wall()))
        self.assertEqual(self.server.patched, [advertisement_name(peer)])
        facts = ClusterRecords(peers=[msgspec.convert(READY, ForeignCluster)], offers=[record])
        self.assertEqual([one.code for one in problems_of(facts, peer) if one.code == "PeerClockAhead"], [])

    def test_one_that_lends_less(self) -> None:
        """What an offer lends is read again when it moves: too much for the quota, it is accepted when it shrinks."""
        use_rules(self.decisions, AcceptanceRules(policy="AutoAcceptAll", quota={"cpu": Fraction(5)}))
        self.run_once()
        self.assertEqual([reported for reported in self.changed if reported.endswith(" Accepted")], [])
        self.changed.clear()
        self.offers(self.ids[7], "3")
        self.offers_changed(self.ids[7])
        self.run_once()
        self.assertIn("peer-7 Accepted", self.changed)

    def test_who_is_named_is_informed_though_nothing_is_new(self) -> None:
        """An acknowledgement or an answer through a new session may be owed; new rules concern everybody."""
        self.begin()
        self.offers_changed(self.ids[3])
        self.run_once()
        self.assertEqual(self.changed, ["peer-3 Accepted"])
        self.changed.clear()
        self.offers_changed()
        self.run_once()
        self.assertEqual(len(self.changed), 64)

    def test_a_ruling_that_turned_by_itself_is_reported_to_all_it_concerns(self) -> None:
        """Nobody named them: their time to live passed, or the rules changed."""
        self.begin()
        self.clock.advance(RETURN + TTL)
        self.hears(self.ids[0])
        self.offers_changed(self.ids[0])
        self.run_once()
        self.assertEqual(len(self.changed), 64)
        self.assertEqual(len([reported for reported in self.changed if reported.endswith("Expired")]), 63)

    def test_after_an_outage_peers_have_a_minute_to_renew_their_offers(self) -> None:
        """A daemon that was away for longer than their time to live takes none for expired before they could."""
        self.begin()
        self.clock.advance(10 * TTL)
        self.peers.clear()  # whatever was received is in the records only
        self.restart()
        self.clock.advance(RETURN - 1)
        self.offers_changed()
        self.run_once()
        self.assertEqual({reported.partition(" ")[2] for reported in self.changed}, {"Accepted"})
        self.changed.clear()
        self.hears(self.ids[0])
        self.clock.advance(2)
        self.offers_changed()
        self.run_once()
        self.assertEqual(len([reported for reported in self.changed if reported.endswith(" Expired")]), 63)
        self.assertIn("peer-0 Accepted", self.changed)

    def test_setting_the_clock_ends_no_offer_and_keeps_none(self) -> None:
        """The date of the host is set by an hour, both ways: offers end when their time to live has passed, those that
        a session brought and those that are only on record since a restart.
        """
        for hours in (1, -1):
            for restarted in (False, True):
                self.setUp()
                self.begin()
                self.clock.advance(RETURN)
                for peer in self.ids:
                    self.hears(peer)
                self.offers_changed()
                self.run_once()
                if restarted:
                    self.peers.clear()
                    self.restart()
                    self.offers_changed()
                    self.run_once()
                self.clock.set_date(hours * 3600.0)
                self.clock.advance(RETURN + 1)
                self.changed.clear()
                self.offers_changed()
                self.run_once()
                self.assertEqual({reported.partition(" ")[2] for reported in self.changed}, {"Accepted"})
                self.clock.advance(TTL - RETURN)
                self.changed.clear()
                self.offers_changed()
                self.run_once()
                self.assertEqual({reported.partition(" ")[2] for reported in self.changed}, {"Expired"})

    def test_an_offer_that_nobody_noted_has_a_minute(self) -> None:
        """A daemon that ended before it wrote when an offer was received leaves it to the peer to renew it."""
        self.peers.clear()
        self.restart()
        for seconds, phase in ((RETURN - 1, "Accepted"), (2, "Expired")):
            self.clock.advance(seconds)
            self.changed.clear()
            self.offers_changed()
            self.run_once()
            self.assertEqual({reported.partition(" ")[2] for reported in self.changed}, {phase})

    def test_the_note_of_when_an_offer_was_received_is_kept_fresh(self) -> None:
        """A renewed offer changes nothing but the note, once in half a time to live."""
        self.begin()
        self.clock.advance(TTL / 2 + 1)
        for peer in self.ids[:5]:
            self.hears(peer)
        self.offers_changed(self.ids[0])
        self.run_once()
        self.assertEqual(len(self.server.patched), 5)

    def test_what_was_not_written_is_tried_again(self) -> None:
        """A conflict leaves the one that it met to the next run."""
        self.offers_changed()
        self.server.conflicts = 1
        self.assertLess(cast(float, self.run_once()), 1.0)
        self.assertEqual((len(self.changed), len(self.server.patched)), (63, 63))
        self.run_once()
        self.assertEqual((len(set(self.changed)), len(set(self.server.patched))), (64, 64))

    def test_first_answers_do_not_wait_and_moves_do(self) -> None:
        """An offer that has no ruling yet is looked at at once, those that move are gathered for a moment."""
        self.begin()
        queue = self.decisions._queue
        taken = queue.get()
        self.clock.advance(0)
        queue.done(self.successResultOf(taken))
        self.offers_changed(self.ids[1])
        self.offers_changed(self.ids[2])
        self.assertEqual((len(queue), queue.delayed), (0, 1))
        self.offers_changed(ClusterID("newcomer"))
        self.assertEqual(len(queue), 1)
        self.clock.advance(SPACING)
        self.assertEqual(queue.delayed, 0)
        self.offers_changed(self.ids[1])
        self.assertEqual(len(queue), 1)

    def test_nothing_is_kept_of_offers_that_are_gone(self) -> None:
        """A record that comes back is reported afresh, though it is ruled as before."""
        self.begin()
        key = Key("", advertisement_name(self.ids[0]))
        record = self.shelf.records.pop(key)
        self.offers_changed(self.ids[0])
        self.run_once()
        self.assertEqual(self.changed, [])
        self.shelf.records[key] = record
        self.offers_changed(self.ids[1])
        self.run_once()
        self.assertEqual(sorted(self.changed), ["peer-0 Accepted", "peer-1 Accepted"])
