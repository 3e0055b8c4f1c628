"""Which of a peer's offers counts, in whatever order they arrive."""

from __future__ import annotations

from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import AcceptanceSettings
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

    def test_the_selector_sees_what_it_names(self) -> None:
        """A label that offers must not have does not escape it by being left out."""
        self.assertEqual(self.shown({"spot": "yes", "other": "x"}, selector="!spot"), {"spot": "yes"})
