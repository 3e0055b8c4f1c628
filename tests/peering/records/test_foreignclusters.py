"""How a key is pinned on a record that others write as well, on an API server that is one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import PeeringSettings
from liqod.kube.errors import AlreadyExists, Conflict
from liqod.kube.events import Recorder
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.records.unpeering import DISTRUSTED, FINALIZER
from liqod.model.records.views import Endpoint, ForeignCluster, ForeignClusterStatus
from liqod.peering.changes import Changes
from liqod.peering.controller import PACE, PeeringContext
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.lending import Lending
from liqod.peering.session.lifecycle import UntrustedKeyShown
from liqod.peering.session.peer import STATUS_BURST, Peer
from tests.clocks import HostClock

ROME = ClusterID("rome")
KEY, OTHER = (Fingerprint("sha256:" + letter * 64) for letter in "ab")


def record(fingerprint: str = "", version: str = "1", **metadata: Any) -> ForeignCluster:
    """Return rome's record."""
    body = {
        "metadata": {"name": ROME, "uid": "u", "resourceVersion": version, **metadata},
        "spec": {"clusterID": ROME, "fingerprint": fingerprint},
    }
    return msgspec.convert(body, ForeignCluster)


class Server:
    """An API server with one record, or none; ``written`` is what was changed, or made; it takes no status."""

    def __init__(self, present: ForeignCluster | None) -> None:
        self.present = present
        self.written: list[Mapping[str, Any]] = []
        self.refused = 0

    async def get(self, resource: object, name: str, **more: object) -> ForeignCluster:
        assert self.present is not None
        return self.present

    async def create(self, resource: object, body: Mapping[str, Any], **more: object) -> ForeignCluster:
        if self.present is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        self.present = msgspec.convert(
            {"spec": body["spec"], "metadata": {"uid": "u", **body["metadata"]}}, ForeignCluster
        )
        self.written.append(body["spec"])
        return self.present

    async def patch(self, resource: object, name: str, body: Mapping[str, Any], *more: object, **view: object) -> Any:
        assert self.present is not None
        if "status" in body:
            self.refused += 1
            raise Conflict(409, "Conflict", "it has changed")
        if body["metadata"]["resourceVersion"] != self.present.metadata.resource_version:
            raise Conflict(409, "Conflict", "it has changed")
        self.present = record(body["spec"]["fingerprint"], "9", finalizers=body["metadata"].get("finalizers", []))
        self.written.append(body["spec"])
        return self.present


class Seen:
    """The informer: what a watch has shown so far."""

    def __init__(self, present: ForeignCluster | None) -> None:
        self.present = present

    def get(self, key: object) -> ForeignCluster | None:
        return self.present

    def keys(self) -> list[Key]:
        return [Key("", ROME)] if self.present is not None else []


def records_of(server: Server, seen: ForeignCluster | None, max_untrusted: int = 8) -> ForeignClusters:
    """Return the records of a cluster whose watch has shown one state so far."""
    clock = cast(Any, HostClock())
    context = PeeringContext(
        client=cast(Any, server), clock=clock, peers={}, changes=Changes(), refusals=cast(Any, None)
    )
    return ForeignClusters(
        context,
        clusters=cast(Any, Seen(seen)),
        offers=cast(Any, Seen(None)),
        nodes=cast(Any, Seen(None)),
        settings=PeeringSettings(max_untrusted=max_untrusted),
        directions=DirectionPolicy("Auto", "Auto"),
        recorder=cast(Recorder, None),
    )


@attrs.frozen
class Resting:
    """A dialer that does not dial."""

    retry_within: int = 0

    @property
    def link(self) -> Resting:
        """Itself."""
        return self

    def stop(self) -> None:
        """Do not dial any more."""


def stranger() -> Peer:
    """Return rome, of which nothing is known."""
    return Peer(id=ROME, dialer=cast(Any, Resting()), broken_at=0.0)


class PinTests(SynchronousTestCase):
    """A key that was found trustworthy a moment ago."""

    def pinned(self, seen: ForeignCluster | None, present: ForeignCluster | None) -> tuple[str, Server]:
        """Pin the key, where a watch has shown one state of the record and the API server has another by now."""
        server = Server(present)
        records = records_of(server, seen)
        made = self.successResultOf(Deferred.fromCoroutine(records.ensure(ROME, KEY)))
        return made.spec.fingerprint, server

    def test_a_stranger_is_pinned(self) -> None:
        """With a record, without one, and with one that the watch has not shown yet or that changed meanwhile."""
        changed = record(version="2")
        for seen, present in ((None, None), (record(), record()), (None, record()), (record(), changed)):
            pin, server = self.pinned(seen, present)
            self.assertEqual((pin, [spec["fingerprint"] for spec in server.written]), (KEY, [KEY]))

    def test_what_a_person_said_meanwhile_stands(self) -> None:
        """Neither a trust that was withdrawn while the key was judged nor another key is written over."""
        for present in (
            record(version="2", finalizers=[FINALIZER]),
            record(version="2", annotations={DISTRUSTED: KEY}),
            record(OTHER, version="2"),
        ):
            for seen in (None, record(), present):
                pin, server = self.pinned(seen, present)
                self.assertEqual((pin, server.written), (present.spec.fingerprint, []))


class UrgentTests(SynchronousTestCase):
    """A status that must be on record before a step is taken."""

    def test_a_lost_race_for_the_finalizer_is_raised(self) -> None:
        """Nothing was written then, so the step must not be taken; a status that is not urgent is only tried again."""
        server = Server(record(KEY, version="2"))
        peer = stranger()
        for seen in (record(KEY), record(KEY, version="0")):
            records = records_of(server, seen)
            self.failureResultOf(Deferred.fromCoroutine(records.sync(peer, urgent=True)), Conflict)
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(records.sync(peer))), 0.1)
        self.assertEqual(server.written, [])

    def test_the_pace_of_strangers_delays_none(self) -> None:
        """Whose key is no longer pinned is written about seldom, but not while a step waits for it."""
        peer = stranger()
        present = msgspec.structs.replace(record(), status=ForeignClusterStatus(phase="Discovered"))
        for urgent in (False, True):
            server = Server(present)
            records = records_of(server, present)
            peer.status_written_at = records._clock.seconds()
            work = Deferred.fromCoroutine(records.sync(peer, urgent=urgent))
            if urgent:
                self.failureResultOf(work, Conflict)
            else:
                self.assertGreater(cast(float, self.successResultOf(work)), 9.0)
            self.assertEqual(server.refused, 2 if urgent else 0)


class PaceTests(SynchronousTestCase):
    """How often a pinned peer has its status written."""

    def setUp(self) -> None:
        self.server = Server(present := record(KEY, finalizers=[FINALIZER]))
        self.records = records_of(self.server, present)
        self.peer = stranger()

    def verdict(self, verdict: str) -> float | None:
        self.peer.lending = Lending().offered({}, 1, 1).answered(verdict, "")
        return self.successResultOf(Deferred.fromCoroutine(self.records.sync(self.peer)))

    def test_a_flood_of_verdicts(self) -> None:
        """Two that take turns, 20 times a second for ten seconds: some at once, then one each second, and no other."""
        for number in range(200):
            again = self.verdict("Refused" if number % 2 else "Accepted")
            cast(HostClock, self.records._clock).advance(0.05)
        self.assertLessEqual(self.server.refused, STATUS_BURST + 10)
        self.assertLessEqual(cast(float, again), PACE)

    def test_an_offer_is_on_record_before_it_is_sent(self) -> None:
        """Whatever was written before, a step that waits for its status is not delayed."""
        for _ in range(STATUS_BURST):
            self.verdict("Accepted")
        before = self.server.refused
        self.failureResultOf(Deferred.fromCoroutine(self.records.sync(self.peer, urgent=True)), Conflict)
        self.assertEqual(self.server.refused, before + 2)


class NoRoomTests(SynchronousTestCase):
    """A stranger that showed its key when there was room for its record, and has none by now."""

    def test_nothing_is_kept_of_one_that_nobody_sees(self) -> None:
        """Who called and left is forgotten; who is in sight, or connected, is not."""
        place = (Endpoint("192.0.2.1:5872", "mDNS"),)
        for sightings, session, left in (((), None, False), (place, None, True), ((), object(), True)):
            records = records_of(Server(None), None, max_untrusted=0)
            peer = stranger()
            peer.sightings, peer.session = sightings, cast(Any, session)
            records._peers[ROME] = peer
            peer.advance(UntrustedKeyShown())
            self.successResultOf(Deferred.fromCoroutine(records.reconcile(ROME)))
            self.assertEqual(ROME in records._peers, left, (sightings, session))

    def test_a_sighting_that_cannot_be_dialled(self) -> None:
        """Names and interfaces may be written in any way: where a stranger is said to be is a place all the same."""
        for address in ("[fe80::1%a@b]:5872", "a b.example:5872"):
            records = records_of(Server(None), None, max_untrusted=0)
            peer = stranger()
            peer.sightings = (Endpoint(address, "mDNS"),)
            records._peers[ROME] = peer
            peer.advance(UntrustedKeyShown())
            self.successResultOf(Deferred.fromCoroutine(records.reconcile(ROME)))
