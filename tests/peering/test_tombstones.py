"""How long an ended peering is remembered, under a clock and on an API server that is a dictionary."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import AlreadyExists, NotFound
from liqod.model.ids import ClusterID
from liqod.model.records.unpeering import Tombstone, read
from liqod.model.timestamps import rfc3339
from liqod.peering.records.tombstones import AFTERWARDS, KEPT, Tombstones
from tests.clocks import HostClock

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Server:
    """Keeps one ConfigMap; ``data`` is None while there is none."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None

    async def get(self, resource: Any, name: str, namespace: str, *, view: Any) -> Any:
        if self.data is None:
            raise NotFound(404, "NotFound", "there is none")
        return view(data=dict(self.data))

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, *, view: Any) -> None:
        if self.data is None:
            raise NotFound(404, "NotFound", "there is none")
        merged = {**self.data, **patch["data"]}
        self.data = {key: text for key, text in merged.items() if text is not None}

    async def create(self, resource: Any, body: Any, *, view: Any) -> None:
        if self.data is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        self.data = dict(body["data"])

    async def delete(self, resource: Any, name: str, namespace: str) -> None:
        self.data = None


class TombstoneTests(SynchronousTestCase):
    """What is remembered, and until when."""

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

    @given(st.booleans(), st.booleans(), st.booleans(), st.integers(-3600, 3600))
    @STEADILY
    def test_it_goes_a_day_after_the_peer_was_told(
        self, told: bool, joined: bool, distrusted: bool, around: int
    ) -> None:
        """Not before; and never while the peer was not told, or while settings alone would trust the key again."""
        self.begin()
        peer, other = ClusterID("rome"), ClusterID("milan")
        self.does(self.tombstones.put(peer, self.tombstone(joined=joined, distrusted=distrusted)))
        if told:
            self.does(self.tombstones.mark_notified(peer))
        self.clock.advance(AFTERWARDS + around)
        goes = told and not joined and not distrusted and around > 0
        self.assertEqual(self.tombstones.get(peer) is None, goes)
        self.assertEqual(self.tombstones.refuses(ClusterID("genoa"), "key-0"), not goes)
        self.does(self.tombstones.put(other, self.tombstone(1)))
        self.assertEqual(self.kept(), {other} if goes else {peer, other})

    def test_a_day_begins_when_the_peer_was_told_first(self) -> None:
        """A peer that comes back every hour to be told again does not keep it for ever."""
        peer = ClusterID("rome")
        self.does(self.tombstones.put(peer, self.tombstone()))
        for _ in range(24):
            self.does(self.tombstones.mark_notified(peer))
            self.clock.advance(3601)
        self.assertIsNone(self.tombstones.get(peer))

    def test_the_next_daemon_knows_the_same(self) -> None:
        """What was put, and what was told, is on record; what is no tombstone is passed over."""
        self.does(self.tombstones.load())
        peer = ClusterID("rome")
        self.does(self.tombstones.put(peer, self.tombstone()))
        self.does(self.tombstones.mark_notified(peer))
        self.does(self.tombstones.mark_notified(ClusterID("nobody")))
        assert self.server.data is not None
        self.assertNotEqual(getattr(read(self.server.data[peer]), "told", ""), "")
        self.server.data |= {"not a label": self.server.data[peer], "milan": "{"}
        after = Tombstones(cast(Any, self.server), self.clock, "liqo-system")
        self.does(after.load())
        self.assertEqual(after.get(peer), self.tombstones.get(peer))
        self.assertIsNone(after.get(ClusterID("milan")))
        self.assertIsNone(after.get(ClusterID("not a label")))

    def test_the_oldest_make_room(self) -> None:
        """Only so many are kept, and a person's trust takes one away; with the last one the ConfigMap goes."""
        for number in range(KEPT + 3):
            self.does(self.tombstones.put(ClusterID(f"c{number}"), self.tombstone(number)))
        self.assertEqual(self.kept(), {f"c{number}" for number in range(3, KEPT + 3)})
        self.does(self.tombstones.trusted(ClusterID("c9"), "key-10"))
        self.assertEqual(len(self.kept()), KEPT - 2)
        for number in range(KEPT + 3):
            self.does(self.tombstones.delete(ClusterID(f"c{number}")))
        self.assertIsNone(self.server.data)
