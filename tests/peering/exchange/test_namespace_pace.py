"""How fast a borrower has namespaces made and removed."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.audit.events import AuditEvent
from liqod.flow.tasks import Tasks
from liqod.kube.errors import KubeError
from liqod.model.ids import ClusterID
from liqod.peering.exchange.namespaces import BURST, MAX_WAITING, PER_SECOND, NamespaceResponses
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.session.lending import Lending
from liqod.peering.session.peer import Peer
from liqod.wire.events import Event, MapNamespace, NamespaceMapped, ReleaseNamespace
from tests.peering.clusters import FakeLender

BETA = ClusterID("beta")


@attrs.define(eq=False)
class Session:
    """A session with a borrower."""

    established: bool = True
    sent: list[Event] = attrs.field(factory=list)

    def send(self, event: Event) -> bool:
        self.sent.append(event)
        return True

    def end(self, bye: object) -> None:
        self.established = False


class NoRecords:
    """ForeignClusters without any."""

    def get(self, peer: ClusterID) -> None:
        return None


def borrower(peer: ClusterID) -> Peer:
    """Return a peer that may have namespaces."""
    lending = Lending().offered({}, 1, 1).answered("Accepted", "").granted(f"liqo-tenant-{peer}")
    return Peer(id=peer, dialer=cast(Any, None), broken_at=0.0, lending=lending)


class PaceTests(SynchronousTestCase):
    """Requests of one borrower."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.responses = NamespaceResponses(
            FakeLender(),
            Tasks(),
            cast(Any, NoRecords()),
            DirectionPolicy("Yes", "Yes"),
            left_over=self.fail,
            clock=self.clock,
        )
        self.beta = borrower(BETA)

    def ask(self, session: Session, count: int, peer: Peer | None = None) -> None:
        for number in range(count):
            kind = ReleaseNamespace(number, "shop") if number % 2 else MapNamespace(number, "shop", "shop")
            self.responses.request_received(peer or self.beta, cast(Any, session), kind)

    def test_a_loop(self) -> None:
        """Beyond what a start needs, a few a second are carried out, in order; the others wait."""
        session = Session()
        self.ask(session, BURST + 50)
        self.assertEqual(len(session.sent), BURST)
        for second in range(1, 11):
            self.clock.pump([0.1] * 10)
            self.assertApproximates(len(session.sent), BURST + PER_SECOND * second, 1)
        self.clock.advance(1)
        numbers = [event.request for event in session.sent if isinstance(event, NamespaceMapped)]
        self.assertEqual(numbers, list(range(BURST + 50)))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_an_ordinary_start(self) -> None:
        """Tens of namespaces are made at once, also those of another borrower, and again after a while."""
        self.ask(flood := Session(), BURST + 50)
        other = Session()
        self.ask(other, 60, borrower(ClusterID("gamma")))
        self.assertEqual(len(other.sent), 60)
        self.clock.pump([0.1] * 1000)
        self.assertEqual(len(flood.sent), BURST + 50)
        self.ask(again := Session(), 60)
        self.assertEqual(len(again.sent), 60)

    def test_another_session(self) -> None:
        """It does not begin with a fresh allowance; requests of the session that ended are not carried out."""
        former = Session()
        self.ask(former, BURST + 50)
        former.established = False
        self.ask(later := Session(), 50)
        self.assertEqual(later.sent, [])
        self.clock.pump([0.1] * 20)
        self.assertApproximates(len(later.sent), 2 * PER_SECOND, 1)
        self.assertEqual(len(former.sent), BURST)

    def test_too_many(self) -> None:
        """What waits is bounded as before."""
        self.ask(session := Session(), BURST + MAX_WAITING)
        self.assertTrue(session.established)
        self.ask(session, 1)
        self.assertFalse(session.established)


class Events:
    """An audit that notes the events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def record(self, event: AuditEvent) -> None:
        self.seen.append((event.type, event.object))


class AuditTests(SynchronousTestCase):
    """What borrowers can have written."""

    def test_equal_states_are_no_events(self) -> None:
        """A namespace that is there already, and one that never was, are no change of rights."""
        events = Events()
        responses = NamespaceResponses(
            FakeLender(),
            Tasks(),
            cast(Any, NoRecords()),
            DirectionPolicy("Yes", "Yes"),
            events,
            left_over=self.fail,
            clock=Clock(),
        )
        for request in (
            ReleaseNamespace(1, "kube-system"),
            MapNamespace(2, "shop", "shop-beta"),
            MapNamespace(3, "shop", "shop-beta"),
            ReleaseNamespace(4, "shop-beta"),
            ReleaseNamespace(5, "shop-beta"),
        ):
            responses.request_received(borrower(BETA), cast(Any, Session()), request)
        granted = [("AccessGranted", "namespace/shop-beta"), ("AccessRevoked", "namespace/shop-beta")]
        self.assertEqual(events.seen, granted)


class SlowLender(FakeLender):
    """A lender that makes a namespace when ``made`` fires."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Deferred[None] = Deferred()

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> bool:
        await self.made
        return await super().map_namespace(peer, local, remote)


class EndTests(SynchronousTestCase):
    """A request whose namespace is being made when the lender stops lending."""

    def setUp(self) -> None:
        self.lender, self.beta, self.session = SlowLender(), borrower(BETA), Session()
        self.left_over: list[ClusterID] = []
        self.responses = NamespaceResponses(
            self.lender,
            Tasks(),
            cast(Any, NoRecords()),
            DirectionPolicy("Yes", "Yes"),
            left_over=self.left_over.append,
            clock=Clock(),
        )
        self.responses.request_received(self.beta, cast(Any, self.session), MapNamespace(1, "shop", "shop-beta"))

    def answered(self) -> NamespaceMapped:
        self.lender.made.callback(None)
        (answer,) = self.session.sent
        assert isinstance(answer, NamespaceMapped)
        return answer

    def test_what_was_made_meanwhile_goes(self) -> None:
        """The rights were revoked, and the namespaces of that time deleted: this one is no exception."""
        self.beta.lending = self.beta.lending.retracted("TrustWithdrawn").revoked()
        self.assertEqual((self.answered().reason, self.lender.namespaces), ("NotLending", {}))

    def test_what_was_made_during_a_dismissal_goes(self) -> None:
        """Where its time to drain was over meanwhile: its verdict is as before, its rights are not."""
        self.beta.lending = self.beta.lending.revoked()
        self.assertEqual((self.answered().reason, self.lender.namespaces), ("NotLending", {}))

    def test_what_could_not_be_made_or_released(self) -> None:
        """It is the rights that are revoked once more, until nothing is left; while they stand nothing is."""
        self.beta.lending = self.beta.lending.revoked()
        self.patch(self.lender, "release_namespace", self.fails)
        self.assertEqual((self.answered().reason, self.left_over), ("Internal", [BETA]))
        self.setUp()
        self.beta.lending = self.beta.lending.revoked()
        self.lender.made.errback(KubeError("the API server is away"))
        self.assertEqual((len(self.session.sent), self.left_over), (1, [BETA]))
        self.setUp()
        self.lender.made.errback(KubeError("the API server is away"))
        self.assertEqual((len(self.session.sent), self.left_over), (1, []))

    async def fails(self, *given: Any) -> bool:
        raise KubeError("the API server is away")

    def test_a_verdict_that_stands(self) -> None:
        """While a peer has time to drain its pods, a namespace that may have been there before is not deleted."""
        self.patch(self.responses, "_directions", DirectionPolicy("No", "No"))
        self.assertEqual((self.answered().reason, self.lender.namespaces), ("", {(BETA, "shop-beta"): "shop"}))
