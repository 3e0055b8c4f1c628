"""Which of a peer's offers counts, in whatever order they arrive."""

from __future__ import annotations

from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID
from liqod.model.records.offer import Offer
from liqod.peering.borrowing.advertisements import Advertisements
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


class OrderTests(SynchronousTestCase):
    """Offers of one session: the newest counts."""

    @given(st.lists(st.tuples(st.sampled_from((EPOCH - 1, EPOCH, EPOCH + 1)), st.integers(0, 9)), max_size=9))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_newest_of_this_life_counts(self, sent: list[tuple[int, int]]) -> None:
        """One that is older than what is known, or of another life than the session's, is counted and not taken."""
        context = context_of(Clock())
        stale = context.refusals.counts
        intake = Advertisements(context, cast(Any, None), cast(Any, None))
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
        intake = Advertisements(context_of(Clock()), cast(Any, None), cast(Any, None))
        lender = Lender()
        intake.offer_received(cast(Any, lender), Advertise(EPOCH, 9, 1800, Offer(resources={"cpu": "1"})))
        lender.epoch = EPOCH + 1
        intake.offer_received(cast(Any, lender), Advertise(EPOCH + 1, 0, 1800, Offer(resources={"cpu": "2"})))
        assert lender.received is not None
        self.assertEqual((lender.received.epoch, lender.received.seq), (EPOCH + 1, 0))
