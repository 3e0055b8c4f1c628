"""Names over the session: questions to homes and answers to lenders, within their budgets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.tasks import Tasks
from liqod.model.ids import ClusterID
from liqod.model.records.name_service import HomeAnswer, HomeRecord
from liqod.model.records.offer import PeerUnreachable
from liqod.peering.exchange.names import (
    BURST,
    LONGEST,
    MOST_KEPT,
    NEGATIVE,
    TIMEOUT,
    WAITING,
    NameQueries,
    NameResponses,
)
from liqod.wire.check import MAX_TTL
from liqod.wire.events import Event, NameAnswer, NameQuery, NameRecord

ROME = ClusterID("rome")
NAME = "cache.shop.svc.cluster.local"
FOUND = [NameRecord(NAME, 1, MAX_TTL, "240.0.0.7")]


class Session:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.works = True

    def send(self, event: Event) -> bool:
        if self.works:
            self.sent.append(event)
        return self.works


def peer(session: Session | None) -> Any:
    return SimpleNamespace(id=ROME, session=session, credential=True)


class QueryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock, self.session = Clock(), Session()
        self.queries = NameQueries(self.clock, {ROME: peer(self.session)})

    def ask(self, name: str = NAME) -> Deferred[HomeAnswer]:
        return Deferred.fromCoroutine(self.queries.ask(ROME, name, 1))

    def answer(self, **event: Any) -> None:
        """Let home answer the question that was sent last."""
        number = self.session.sent[-1].request
        self.queries.answer_received(cast(Any, self.session), NameAnswer(number, **event))

    def test_an_answer(self) -> None:
        """It completes its question, and is kept: no longer than a bound, whatever home says."""
        asking = self.ask()
        self.answer(result="Records", records=FOUND)
        self.assertEqual(self.successResultOf(asking).records, (HomeRecord(NAME, 1, MAX_TTL, "240.0.0.7"),))
        self.clock.advance(LONGEST - 1)
        self.successResultOf(self.ask())
        self.assertEqual(len(self.session.sent), 1)
        self.clock.advance(2)
        self.assertNoResult(self.ask())

    def test_nothing_is_kept_shortly(self) -> None:
        """That there is no such name, or that it is refused, is asked again after seconds."""
        for event in ({"result": "None", "ttl": MAX_TTL}, {"result": "Refused", "reason": "NoTunnel"}):
            asking = self.ask()
            self.answer(**event)
            self.successResultOf(asking)
            self.successResultOf(self.ask())
            self.clock.advance(NEGATIVE + 1)

    def test_no_such_record_and_no_such_name(self) -> None:
        """The two are different answers."""
        for reason, exists in (("OtherRecords", True), ("", False)):
            asking = self.ask(f"{reason.lower()}x.shop.svc.cluster.local")
            self.answer(result="None", reason=reason)
            self.assertEqual(self.successResultOf(asking).exists, exists)

    def test_no_answer(self) -> None:
        """Silence, the end of the session, an older release: each fails, and nothing of it is kept."""
        asking = self.ask()
        self.clock.advance(TIMEOUT + 0.1)
        self.failureResultOf(asking, PeerUnreachable)
        asking = self.ask()
        self.queries.session_closed(cast(Any, self.session))
        self.failureResultOf(asking, PeerUnreachable)
        self.session.works = False
        self.failureResultOf(self.ask(), PeerUnreachable)

    def test_answers_to_nothing(self) -> None:
        """An answer to no question, of another session, or a second one is dropped."""
        asking = self.ask()
        number = self.session.sent[-1].request
        self.queries.answer_received(cast(Any, Session()), NameAnswer(number, "Records", FOUND))
        self.queries.answer_received(cast(Any, self.session), NameAnswer(number + 1, "Records", FOUND))
        self.assertNoResult(asking)
        self.answer(result="None")
        self.answer(result="Records", records=FOUND)
        self.assertEqual(self.successResultOf(asking).records, ())

    def test_what_waits_is_bounded(self) -> None:
        """So many questions wait at the same time; the next one is not sent."""
        asking = [self.ask(f"x{number}.shop.svc.cluster.local") for number in range(WAITING)]
        self.failureResultOf(self.ask(), PeerUnreachable)
        self.assertEqual(len(self.session.sent), WAITING)
        self.clock.advance(TIMEOUT + 0.1)
        for one in asking:
            self.failureResultOf(one, PeerUnreachable)

    def test_what_is_kept_and_sent_is_bounded(self) -> None:
        """Of a home that answers everything so many answers are kept, and it is asked so much a second."""
        for number in range(MOST_KEPT + 50):
            self.clock.advance(0.05)
            asking = self.ask(f"x{number}.shop.svc.cluster.local")
            self.answer(result="None", ttl=1)
            self.successResultOf(asking)
        self.assertEqual(len(self.queries._homes[ROME].kept), MOST_KEPT)


class Names:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.waiting: list[Deferred[HomeAnswer]] = []

    async def answer(self, lender: ClusterID, name: str, kind: int) -> HomeAnswer:
        one: Deferred[HomeAnswer] = Deferred()
        self.waiting.append(one)
        return await one


class ResponseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock, self.session, self.names = Clock(), Session(), Names()
        self.peer = peer(self.session)
        self.responses = NameResponses(self.names, self.clock, Tasks())

    def ask(self, number: int = 1) -> None:
        self.responses.query_received(self.peer, cast(Any, self.session), NameQuery(number, NAME, 1))

    def test_an_answer(self) -> None:
        """What is known is sent under the question's number."""
        self.ask(7)
        self.names.waiting[0].callback(HomeAnswer(records=(HomeRecord(NAME, 1, 5, "240.0.0.7"),)))
        self.assertEqual(self.session.sent, [NameAnswer(7, "Records", [NameRecord(NAME, 1, 5, "240.0.0.7")])])

    def test_a_failure_says_nothing_of_this_cluster(self) -> None:
        """The lender gets a reason, and not the text of the error."""
        self.ask()
        self.names.waiting[0].errback(PeerUnreachable("https://10.0.0.1:6443 does not answer"))
        self.assertEqual(self.session.sent[0].reason, "Internal")
        self.assertNotIn("10.0.0.1", self.session.sent[0].message)

    def test_who_is_answered(self) -> None:
        """A peer where no pods of ours may run is refused without a look."""
        self.peer.credential = None
        self.ask()
        self.assertEqual(self.session.sent[0].reason, "NotBorrowing")
        NameResponses(None, self.clock, Tasks()).query_received(
            peer(self.session), cast(Any, self.session), NameQuery(2, NAME, 1)
        )
        self.assertEqual(self.session.sent[1].reason, "NamesNotAnswered")

    def test_a_flood(self) -> None:
        """So many wait, so many are looked up in a second; the others are refused at once, and it goes on after."""
        for number in range(WAITING + 10):
            self.ask(number)
        self.assertEqual(len(self.names.waiting), WAITING)
        self.assertEqual({one.reason for one in self.session.sent}, {"TooManyNames"})
        for one in self.names.waiting:
            one.callback(HomeAnswer())
        looked = len(self.names.waiting)
        for number in range(BURST + 100):
            self.ask(number)
            if len(self.names.waiting) > looked:
                looked += 1
                self.names.waiting[-1].callback(HomeAnswer())
        self.assertLessEqual(looked, BURST)
        self.clock.advance(10)
        self.ask()
        self.assertEqual(len(self.names.waiting), looked + 1)
