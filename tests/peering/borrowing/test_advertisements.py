"""Which of a peer's offers counts, in whatever order they arrive."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import AcceptanceSettings
from liqod.kube.errors import Conflict
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import to_dict
from liqod.model.records.offer import RECLAIMED_BY, Offer
from liqod.model.records.views import Advertisement
from liqod.peering.borrowing.advertisements import AGAIN, PROBLEM, WITHDRAWN, Advertisements, is_sound
from liqod.peering.controller import PACE
from liqod.peering.session.peer import Received
from liqod.wire.events import Advertise
from tests.peering.clusters import context_of

EPOCH = 7


@attrs.define
class Lender:
    """What the intake asks about a peer."""

    id: ClusterID = attrs.field(factory=lambda: ClusterID("rome"))
    epoch: int = EPOCH
    received: Received | None = None
    session: None = None


class OrderTests(SynchronousTestCase):
    """Offers of one session: the newest counts."""

    @given(st.lists(st.tuples(st.sampled_from((EPOCH - 1, EPOCH, EPOCH + 1)), st.integers(0, 9)), max_size=9))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_newest_of_this_life_counts(self, sent: list[tuple[int, int]]) -> None:
        """One that is older than what is known, or of another life than the session's, is counted and not taken."""
        context = context_of(Clock())
        stale = context.refusals.counts
        intake = Advertisements(context, cast(Any, None), cast(Any, None), AcceptanceSettings())
        lender = Lender()
        newest: int | None = None
        for epoch, seq in sent:
            before = stale["StaleOffer"]
            intake.offer_received(
                cast(Any, lender), Advertise(epoch, seq, 1800, Offer(resources={"cpu": str(seq + 1)}))
            )
            if epoch == EPOCH and (newest is None or seq >= newest):
                newest = seq
                self.assertEqual(stale["StaleOffer"], before)
            else:
                self.assertEqual(stale["StaleOffer"], before + 1)
            known = lender.received
            if newest is None:
                self.assertIsNone(known)
            else:
                assert known is not None
                self.assertEqual((known.epoch, known.seq), (EPOCH, newest))
                self.assertEqual(known.offer.resources, {"cpu": str(newest + 1)})

    def test_a_peer_that_began_again_counts_from_the_start(self) -> None:
        """Its sequence begins again with each epoch; what it said before does not outrank it."""
        intake = Advertisements(context_of(Clock()), cast(Any, None), cast(Any, None), AcceptanceSettings())
        lender = Lender()
        intake.offer_received(cast(Any, lender), Advertise(EPOCH, 9, 1800, Offer(resources={"cpu": "1"})))
        lender.epoch = EPOCH + 1
        intake.offer_received(cast(Any, lender), Advertise(EPOCH + 1, 0, 1800, Offer(resources={"cpu": "2"})))
        assert lender.received is not None
        self.assertEqual((lender.received.epoch, lender.received.seq), (EPOCH + 1, 0))


class LabelTests(SynchronousTestCase):
    """Which labels a lender sets on a node of this cluster."""

    def shown(self, offered: dict[str, str], **settings: Any) -> dict[str, str]:
        intake = Advertisements(context_of(Clock()), cast(Any, None), cast(Any, None), AcceptanceSettings(**settings))
        lender = Lender()
        intake.offer_received(cast(Any, lender), Advertise(EPOCH, 1, 1800, Offer(labels=offered)))
        assert lender.received is not None
        self.assertEqual(lender.received.problem, "")
        return lender.received.offer.labels

    def test_a_label_that_pods_choose_their_node_by_is_left_out(self) -> None:
        """By name or by the domain of a provider; what the configuration names is shown, and nothing like it."""
        place = {"region": "eu", "topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "arm64"}
        lures = {
            "dedicated": "payments",
            "compliance": "pci",
            "eks.amazonaws.com/nodegroup": "prod",
            "cloud.google.com/gke-nodepool": "prod",
            "region.example": "x",
            "Region": "x",
        }
        self.assertEqual(self.shown({**place, **lures}), place)
        granted = self.shown({**place, **lures}, labels=["dedicated", "eks.amazonaws.com/"])
        self.assertEqual(set(granted) - set(place), {"dedicated", "eks.amazonaws.com/nodegroup"})
        self.assertNotIn("region", granted)

    def test_when_an_offer_is_taken_back(self) -> None:
        """That label is kept whatever is configured, if it holds a moment."""
        known = {RECLAIMED_BY: "20300101T001000Z"}
        self.assertEqual(self.shown({**known, "other": "x"}), known)
        self.assertEqual(self.shown({RECLAIMED_BY: "soon"}), {})

    def test_the_selector_sees_what_it_names(self) -> None:
        """A label that offers must not have does not escape it by being left out."""
        self.assertEqual(self.shown({"spot": "yes", "other": "x"}, selector="!spot"), {"spot": "yes"})


class Record:
    """One Advertisement: the API server that has it, and the cache that shows it at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: Advertisement | None = None
        self.written: list[float] = []
        self.conflicts = 0

    def get(self, key: Key) -> Advertisement | None:
        return self.kept

    def wrote(self, key: Key, before: Advertisement | None, after: Advertisement) -> None:
        self.kept = after

    def forget(self, key: Key) -> None:
        pass

    async def create(self, resource: Any, body: dict[str, Any], *, view: Any) -> Advertisement:
        self.written.append(self.clock.seconds())
        return msgspec.convert(body, Advertisement)

    async def patch(self, resource: Any, name: str, patch: dict[str, Any], *_: Any, view: Any) -> Advertisement:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(409, "Conflict", "the object has been modified")
        self.written.append(self.clock.seconds())
        return msgspec.convert(apply_merge_patch(to_dict(self.kept), patch), Advertisement)


class PaceTests(SynchronousTestCase):
    """How often a peer has its offer written."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.record = Record(self.clock)
        self.lender = Lender()
        context = context_of(self.clock, {self.lender.id: self.lender}, self.record)
        self.intake = Advertisements(context, cast(Any, self.record), cast(Any, None), AcceptanceSettings())
        context.changes.known.open()
        self.intake.startService()
        self.addCleanup(self.intake.stopService)
        self.seq = 0

    def offer(self, cpu: int) -> None:
        self.seq += 1
        event = Advertise(EPOCH, self.seq, 1800, Offer(resources={"cpu": str(cpu)}))
        self.intake.offer_received(cast(Any, self.lender), event)

    def offered(self) -> dict[str, str]:
        assert self.record.kept is not None
        return self.record.kept.spec.offer.resources

    def test_a_flood(self) -> None:
        """Two offers that take turns, 200 times a second, are written once a second, and the last of them is."""
        for number in range(1000):
            self.offer(1 + number % 2)
            self.clock.advance(0.005)
        self.clock.advance(PACE)
        self.assertLessEqual(len(self.record.written), 7)
        self.assertEqual(self.offered(), {"cpu": "2"})

    def test_withdrawals(self) -> None:
        """They count like offers: taking turns with one they are written no faster, and the last of them is."""
        for _ in range(500):
            self.offer(1)
            self.clock.advance(0.005)
            self.intake.offer_withdrawn(cast(Any, self.lender), "Tired")
            self.clock.advance(0.005)
        self.clock.advance(PACE)
        self.assertLessEqual(len(self.record.written), 7)
        assert self.record.kept is not None
        self.assertEqual(self.record.kept.metadata.annotations.get(WITHDRAWN), "Tired")

    def test_a_withdrawal_before_an_invalid_offer(self) -> None:
        """The invalid one replaces none, but what was withdrawn before it does not stay in force."""
        self.offer(1)
        self.clock.advance(0)
        self.intake.offer_withdrawn(cast(Any, self.lender), "Tired")
        self.seq += 1
        invalid = Advertise(EPOCH, self.seq, 1800, Offer(resources={"cpu": "a lot"}))
        self.intake.offer_received(cast(Any, self.lender), invalid)
        self.clock.pump([PACE] * 4)
        assert self.record.kept is not None
        self.assertFalse(is_sound(self.record.kept))
        self.assertIn(PROBLEM, self.record.kept.metadata.annotations)

    def test_an_ordinary_change(self) -> None:
        """It is written at once, also after another one a second before, and after a conflict."""
        for number in range(3):
            self.record.conflicts = number
            begun = self.clock.seconds()
            self.offer(1 + number)
            self.clock.advance(0)
            for _ in range(number):
                self.clock.advance(AGAIN)
            self.assertEqual(self.offered(), {"cpu": str(1 + number)})
            self.assertAlmostEqual(self.record.written[-1] - begun, number * AGAIN)
            self.clock.advance(PACE)
