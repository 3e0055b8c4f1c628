"""A lender that answers requests for slices: what is on record before it is said, and what a hostile borrower gets."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import SharingSettings
from liqod.flow.controller import After
from liqod.kube.errors import Conflict
from liqod.model.ids import ClusterID
from liqod.model.records.views import MAX_SLICES, ForeignCluster, Lent
from liqod.peering.controller import PACE
from liqod.peering.lending.slice_grants import UNWRITABLE, SliceGrants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.session.lending import Lending
from liqod.wire.events import AskSlice, RemoveSlice, SliceDecided
from tests.peering.clusters import context_of

ROME = ClusterID("rome")


class Session:
    """A session with a borrower of some minor; ``sent`` is what it gets."""

    def __init__(self, minor: int = 2) -> None:
        self.minor = minor
        self.writable = True
        self.sent: list[SliceDecided] = []

    def send(self, event: SliceDecided) -> bool:
        self.sent.append(event)
        return True

    def said(self) -> list[tuple[str, str, str]]:
        """Return the decisions since the last look: name, decision and reason."""
        sent, self.sent = self.sent, []
        return [(one.name, one.decision, one.reason) for one in sent]


@attrs.define
class Borrower:
    """A peer that accepted an offer of ten CPUs."""

    id: ClusterID = ROME
    session: Session | None = attrs.Factory(Session)
    lending: Lending = attrs.Factory(lambda: Lending(lent=Lent(resources={"cpu": "10"}, verdict="Accepted")))

    @property
    def lent(self) -> Lent | None:
        return self.lending.lent


class Records:
    """The ForeignCluster of the borrower; ``written`` are the names of its slices at each write."""

    def __init__(self, borrower: Borrower) -> None:
        self._borrower = borrower
        self.written: list[list[str]] = []
        self.fails = False

    def get(self, peer: ClusterID) -> ForeignCluster:
        return ForeignCluster()

    async def sync(self, peer: object, *, urgent: bool) -> None:
        assert urgent
        if self.fails:
            raise Conflict(409, "Conflict", "not now")
        self.written.append([one.name for one in self._borrower.lending.slices])


class Tenants:
    """What the borrower's pods use."""

    def used_by(self, peer: ClusterID) -> Mapping[str, Fraction]:
        return {}


class GrantTests(SynchronousTestCase):
    """One borrower, and what it gets."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.borrower = Borrower()
        self.records = Records(self.borrower)
        self.context = context_of(self.clock, {ROME: self.borrower})
        self.grants = SliceGrants(
            self.context,
            records=cast(Any, self.records),
            sharing=SharingSettings(slice_classes={"default": {}, "small": {"cpu": "2"}}),
            tenants=cast(Any, Tenants()),
            directions=DirectionPolicy("Auto", "Auto"),
        )

    @property
    def session(self) -> Session:
        assert self.borrower.session is not None
        return self.borrower.session

    def says(self, *events: AskSlice | RemoveSlice) -> After | None:
        """Let the borrower say something, and the lender take a step a while later."""
        for event in events:
            self.grants.request_received(cast(Any, self.borrower), cast(Any, self.session), event)
        self.clock.advance(PACE)
        return self.step()

    def step(self) -> After | None:
        return self.successResultOf(Deferred.fromCoroutine(self.grants.reconcile(ROME)))

    def test_it_is_on_record_and_then_said(self) -> None:
        """What was asked, reduced and refused, each once in a session."""
        asks = (
            AskSlice("a", "default", {"cpu": "4"}, 1),
            AskSlice("b", "small", {"cpu": "4"}, 1),
            AskSlice("c", "default", {"cpu": "9"}, 1),
        )
        self.assertIsNone(self.says(*asks))
        self.assertEqual(
            self.session.said(), [("a", "Granted", ""), ("b", "Reduced", "ClassLimit"), ("c", "Refused", "TooLarge")]
        )
        self.assertEqual(self.records.written, [["a", "b"]])
        self.assertIsNone(self.step())
        self.assertEqual(self.session.said(), [])
        self.borrower.session = Session()
        self.assertIsNone(self.step())
        self.assertEqual(len(self.session.said()), 3)
        self.assertEqual(len(self.records.written), 1)

    def test_what_cannot_be_recorded_is_not_said(self) -> None:
        """And is not taken for recorded at the next attempt."""
        self.records.fails = True
        self.grants.request_received(
            cast(Any, self.borrower), cast(Any, self.session), AskSlice("a", "default", {"cpu": "4"}, 1)
        )
        self.failureResultOf(Deferred.fromCoroutine(self.grants.reconcile(ROME)), Conflict)
        self.assertEqual((self.session.said(), list(self.borrower.lending.slices)), ([], []))
        self.records.fails = False
        self.assertIsNone(self.step())
        self.assertEqual(self.session.said(), [("a", "Granted", "")])

    def test_one_that_did_not_fit_is_granted_once_it_does(self) -> None:
        """With the next verdict, when the offer is larger, or when another slice was given back."""
        self.says(AskSlice("a", "default", {"cpu": "8"}, 1), AskSlice("b", "default", {"cpu": "4"}, 1))
        self.assertEqual(self.session.said(), [("a", "Granted", ""), ("b", "Refused", "TooLarge")])
        self.says(RemoveSlice("a", 1))
        self.assertEqual(self.session.said(), [("a", "Removed", ""), ("b", "Granted", "")])
        self.assertEqual(self.records.written, [["a"], ["b"]])

    def test_what_there_is_not_is_given_back_all_the_same(self) -> None:
        """The borrower waits for the answer."""
        self.says(RemoveSlice("x", 7))
        self.assertEqual(self.session.said(), [("x", "Removed", "")])
        self.assertEqual(self.records.written, [])

    def test_nothing_before_the_offer_is_accepted(self) -> None:
        """It is decided on with the verdict."""
        self.borrower.lending = Lending(lent=Lent(resources={"cpu": "10"}))
        self.says(AskSlice("a", "default", {"cpu": "4"}, 1))
        self.assertEqual(self.session.said(), [])
        self.borrower.lending = self.borrower.lending.answered("Accepted", "")
        self.step()
        self.assertEqual(self.session.said(), [("a", "Granted", "")])

    def test_a_borrower_may_have_so_many(self) -> None:
        """More names than that are refused at once, and counted; those that it has can be changed."""
        self.says(*(AskSlice(f"s{number}", "default", {"cpu": "100m"}, 1) for number in range(MAX_SLICES)))
        self.assertEqual(len(self.session.said()), MAX_SLICES)
        self.says(AskSlice("more", "default", {"cpu": "100m"}, 1), RemoveSlice("none", 1))
        self.assertEqual(self.session.said(), [("more", "Refused", "TooManySlices"), ("none", "Removed", "")])
        self.assertEqual(self.context.refusals.counts["TooManySlices"], 2)
        self.says(AskSlice("s1", "default", {"cpu": "200m"}, 2))
        self.assertEqual(self.session.said(), [("s1", "Granted", "")])

    def test_a_flood_is_written_slowly(self) -> None:
        """A borrower that changes its mind at any rate causes one write in a second; the newest counts."""
        self.says(AskSlice("a", "default", {"cpu": "1"}, 1))
        for number in range(2, 9):
            event = AskSlice("a", "default", {"cpu": str(number)}, number)
            self.grants.request_received(cast(Any, self.borrower), cast(Any, self.session), event)
            self.assertIsInstance(self.step(), After)
        self.assertEqual(len(self.records.written), 1)
        self.clock.advance(PACE)
        self.assertIsNone(self.step())
        self.assertEqual(len(self.records.written), 2)
        self.assertEqual(self.borrower.lending.slices[0].resources, {"cpu": "8"})

    def test_who_gets_no_answer(self) -> None:
        """A peer of an earlier minor is not spoken to, and one that does not read gets it later."""
        self.borrower.session = Session(minor=1)
        self.assertIsNone(self.says(AskSlice("a", "default", {"cpu": "4"}, 1)))
        self.assertEqual((self.session.said(), self.records.written), ([], []))
        self.borrower.session = Session()
        self.session.writable = False
        self.assertEqual(self.step(), After(UNWRITABLE))
        self.session.writable = True
        self.assertIsNone(self.step())
        self.assertEqual(self.session.said(), [("a", "Granted", "")])

    def test_a_forgotten_peer(self) -> None:
        """Nothing of what it asked is kept."""
        self.says(AskSlice("a", "default", {"cpu": "4"}, 1))
        self.grants.forget(ROME)
        self.borrower.lending, self.borrower.session = Lending(), Session()
        self.assertIsNone(self.step())
        self.assertEqual(self.session.said(), [])
