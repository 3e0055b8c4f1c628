"""How long an ended peering is remembered, under a clock and on an API server that is a dictionary."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import AlreadyExists, Forbidden, NotFound
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.unpeering import FINALIZER, Tombstone, read
from liqod.model.records.unpeering import write as write_tombstone
from liqod.model.records.views import ForeignCluster, ForeignClusterSpec
from liqod.model.timestamps import rfc3339
from liqod.peering.records.tombstones import AFTERWARDS, KEPT, Tombstones
from liqod.peering.trust.distrust import DistrustRecorder
from liqod.peering.trust.records import TrustRecords
from tests.clocks import HostClock
from tests.peering.clusters import context_of

ROME = ClusterID("rome")
KEY = Fingerprint("key-0")
STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Server:
    """Keeps one ConfigMap; ``data`` is None while there is none. ``held``: what the next patch waits for."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.writes = 0
        self.refusals = 0
        self.held: Deferred[None] | None = None

    async def get(self, resource: Any, name: str, namespace: str, *, view: Any) -> Any:
        if self.data is None:
            raise NotFound(404, "NotFound", "there is none")
        return view(data=dict(self.data))

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, *, view: Any) -> None:
        held, self.held = self.held, None
        if held is not None:
            await held
        if self.refusals:
            self.refusals -= 1
            raise Forbidden(403, "Forbidden", "not now")
        if self.data is None:
            raise NotFound(404, "NotFound", "there is none")
        self.writes += 1
        merged = {**self.data, **patch["data"]}
        self.data = {key: text for key, text in merged.items() if text is not None}

    async def create(self, resource: Any, body: Any, *, view: Any) -> None:
        if self.data is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        self.writes += 1
        self.data = dict(body["data"])


class TombstoneCase(SynchronousTestCase):
    """Tombstones, and the ConfigMap that has them."""

    def begin(self) -> None:
        self.clock = HostClock()
        self.clock.advance(1e9)
        self.server = Server()
        self.tombstones = Tombstones(cast(Any, self.server), self.clock, "liqo-system")

    setUp = begin

    def does(self, work: Any) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(work))

    def tombstone(self, number: int = 0, **fields: Any) -> Tombstone:
        return Tombstone(f"key-{number}", rfc3339(self.clock.wall() + timedelta(seconds=number)), **fields)

    def kept(self) -> set[str]:
        return set(self.server.data or {})


class TombstoneTests(TombstoneCase):
    """What is remembered, and until when."""

    @given(st.booleans(), st.booleans(), st.booleans(), st.integers(-3600, 3600))
    @STEADILY
    def test_it_goes_a_day_after_the_peer_was_notified(
        self, reported: bool, by_settings: bool, distrusted: bool, around: int
    ) -> None:
        """Not before; and never while the peer was not notified, or while settings alone would trust the key again."""
        self.begin()
        peer, other = ClusterID("rome"), ClusterID("milan")
        self.does(self.tombstones.put(peer, self.tombstone(by_settings=by_settings, distrusted=distrusted)))
        if reported:
            self.does(self.tombstones.mark_notified(peer))
        self.clock.advance(AFTERWARDS + around)
        goes = reported and not by_settings and not distrusted and around > 0
        self.assertEqual(self.tombstones.get(peer) is None, goes)
        self.assertEqual(self.tombstones.refuses(ClusterID("genoa"), "key-0"), not goes)
        self.does(self.tombstones.put(other, self.tombstone(1)))
        self.assertEqual(self.kept(), {other} if goes else {peer, other})

    def test_a_day_begins_when_the_peer_was_notified_first(self) -> None:
        """A peer that comes back every hour to be notified again does not keep it for ever."""
        peer = ClusterID("rome")
        self.does(self.tombstones.put(peer, self.tombstone()))
        for _ in range(24):
            self.does(self.tombstones.mark_notified(peer))
            self.clock.advance(3601)
        self.assertIsNone(self.tombstones.get(peer))

    def test_the_next_daemon_knows_the_same(self) -> None:
        """What was put, and what was reported, is on record; what is no tombstone is passed over."""
        self.does(self.tombstones.load())
        peer = ClusterID("rome")
        self.does(self.tombstones.put(peer, self.tombstone()))
        self.does(self.tombstones.mark_notified(peer))
        self.does(self.tombstones.mark_notified(ClusterID("nobody")))
        assert self.server.data is not None
        self.assertNotEqual(getattr(read(self.server.data[peer]), "notified", ""), "")
        self.assertIn('"told":', self.server.data[peer], "the name of the field is part of the record")
        self.server.data |= {"not a label": self.server.data[peer], "milan": "{"}
        after = Tombstones(cast(Any, self.server), self.clock, "liqo-system")
        self.does(after.load())
        self.assertEqual(after.get(peer), self.tombstones.get(peer))
        self.assertIsNone(after.get(ClusterID("milan")))
        self.assertIsNone(after.get(ClusterID("not a label")))

    def test_one_that_was_dropped_leaves_nothing_behind(self) -> None:
        """That the write of a tombstone failed is no longer said of its peer once it was dropped."""
        for write in (self.tombstones.put(ROME, self.tombstone()), self.tombstones.mark_notified(ROME)):
            self.server.refusals = 1
            self.failureResultOf(Deferred.fromCoroutine(write), Forbidden)
        self.clock.advance(AFTERWARDS + 1)
        self.does(self.tombstones.put(ClusterID("milan"), self.tombstone(1)))
        self.assertIsNone(self.tombstones.get(ROME))
        self.server.data = {ROME: write_tombstone(self.tombstone(2))}
        self.does(self.tombstones.load())
        self.assertTrue(self.tombstones.is_written(ROME))

    def test_the_end_of_the_last_one_leaves_one_that_is_written_meanwhile(self) -> None:
        """Whichever of the two writes the API server carries out first: another peer's distrust is not lost."""
        self.does(self.tombstones.put(ROME, self.tombstone()))
        held = self.server.held = Deferred()
        deleting = Deferred.fromCoroutine(self.tombstones.delete(ROME))
        putting = Deferred.fromCoroutine(self.tombstones.put(ClusterID("milan"), self.tombstone(1, distrusted=True)))
        held.callback(None)
        self.successResultOf(deleting)
        self.successResultOf(putting)
        after = Tombstones(cast(Any, self.server), self.clock, "liqo-system")
        self.does(after.load())
        self.assertTrue(after.refuses(ClusterID("milan"), "key-1"))
        self.assertFalse(after.refuses(ROME, "key-0"))

    def test_writes_about_one_peer_keep_their_order(self) -> None:
        """Whatever the API server would carry out first: trust after a distrust is the last word, and the reverse."""
        held = self.server.held = Deferred()
        putting = Deferred.fromCoroutine(self.tombstones.put(ROME, self.tombstone()))
        deleting = Deferred.fromCoroutine(self.tombstones.delete(ROME))
        held.callback(None)
        self.successResultOf(putting)
        self.successResultOf(deleting)
        self.assertEqual(self.kept(), set())
        self.does(self.tombstones.put(ROME, self.tombstone()))
        held = self.server.held = Deferred()
        deleting = Deferred.fromCoroutine(self.tombstones.delete(ROME))
        putting = Deferred.fromCoroutine(self.tombstones.put(ROME, self.tombstone(1)))
        held.callback(None)
        self.successResultOf(deleting)
        self.successResultOf(putting)
        self.assertEqual(self.kept(), {ROME})

    def test_the_oldest_make_room(self) -> None:
        """Only so many are kept, and a person's trust takes one away."""
        for number in range(KEPT + 3):
            self.does(self.tombstones.put(ClusterID(f"c{number}"), self.tombstone(number)))
        self.assertEqual(self.kept(), {f"c{number}" for number in range(3, KEPT + 3)})
        self.does(self.tombstones.trusted(ClusterID("c9"), "key-10"))
        self.assertEqual(len(self.kept()), KEPT - 2)
        for number in range(KEPT + 3):
            self.does(self.tombstones.delete(ClusterID(f"c{number}")))
        self.assertEqual(self.kept(), set())


class Record:
    """The ForeignCluster of rome, whose trust was withdrawn; the same stands for tokens and invitations."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ended: list[str] = []
        self.record = ForeignCluster(
            metadata=ObjectMeta(name="rome", finalizers=[FINALIZER]), spec=ForeignClusterSpec(cluster_id=ROME)
        )

    def get(self, peer: ClusterID) -> ForeignCluster:
        return self.record

    async def revoke(self, key: str) -> None:
        self.ended.append(key)

    async def delete(self, peer: ClusterID) -> None:
        pass


class DistrustTests(TombstoneCase):
    """How a distrusted key gets its tombstone."""

    def begin(self) -> None:
        super().begin()
        self.around = cast(Any, Record(self.server))
        around = self.around
        self.recorder = DistrustRecorder(
            context_of(self.clock), around, TrustRecords(tombstones=self.tombstones, tokens=around, invitations=around)
        )

    setUp = begin

    def test_an_equal_tombstone_is_not_written_again(self) -> None:
        """However often the peer is reconciled; another key of it is written."""
        self.recorder.unpinned(ROME, KEY)
        for _ in range(3):
            self.does(self.recorder.reconcile(ROME))
        self.assertTrue(self.recorder.is_settled(ROME))
        self.assertEqual((self.server.writes, self.around.ended), (1, [KEY] * 3))
        self.recorder.unpinned(ROME, Fingerprint("another"))
        self.does(self.recorder.reconcile(ROME))
        self.assertEqual((self.server.writes, self.entry().fingerprint), (2, "another"))

    def test_a_write_that_failed_is_made_again(self) -> None:
        """Until it is on record, nothing counts as settled, and no token is spent for it."""
        self.recorder.unpinned(ROME, KEY)
        self.server.refusals = 1
        self.failureResultOf(Deferred.fromCoroutine(self.recorder.reconcile(ROME)), Forbidden)
        self.assertFalse(self.recorder.is_settled(ROME))
        self.assertEqual(self.around.ended, [])
        self.does(self.recorder.reconcile(ROME))
        self.assertTrue(self.recorder.is_settled(ROME))
        self.assertEqual((self.entry().distrusted, self.around.ended), (True, [KEY]))

    def test_the_tombstone_of_an_ended_peering_becomes_one_of_distrust(self) -> None:
        """For the same key as for another one."""
        for key in (KEY, "key-1"):
            self.begin()
            self.does(self.tombstones.put(ROME, Tombstone(key, rfc3339(self.clock.wall()))))
            self.recorder.unpinned(ROME, KEY)
            self.does(self.recorder.reconcile(ROME))
            self.assertEqual((self.entry().fingerprint, self.entry().distrusted), (KEY, True))

    def test_a_pin_ends_the_tombstone(self) -> None:
        """A record that a user trusts again removes it; one that is being deleted, or never had a pin, does not."""
        for fingerprint, deleted, finalizers, goes in (
            (KEY, None, [FINALIZER], True),
            (KEY, "2030-01-01T00:00:00Z", [FINALIZER], False),
            (Fingerprint(""), None, [], False),
        ):
            self.begin()
            self.does(self.tombstones.put(ROME, Tombstone(KEY, rfc3339(self.clock.wall()), distrusted=True)))
            self.around.record = ForeignCluster(
                metadata=ObjectMeta(name="rome", finalizers=finalizers, deletion_timestamp=deleted),
                spec=ForeignClusterSpec(cluster_id=ROME, fingerprint=fingerprint),
            )
            self.does(self.recorder.reconcile(ROME))
            self.assertEqual(self.tombstones.get(ROME) is None, goes, (fingerprint, deleted))

    def entry(self) -> Tombstone:
        found = read((self.server.data or {}).get(ROME, ""))
        assert found is not None
        return found
