"""Names of home's Services, asked over the session: our questions to homes of our tenants, our answers to lenders.

What lenders ask costs requests to this cluster's API server: each has a pace of its own, and a few questions at a time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from liqod.flow.connections.admission import Bucket
from liqod.flow.errors import is_expected
from liqod.flow.tasks import Tasks
from liqod.model.ids import ClusterID
from liqod.model.records.name_service import HomeAnswer, HomeRecord
from liqod.model.records.offer import PeerUnreachable
from liqod.peering.ports import HomeNames
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import MAX_RECORDS, MAX_TTL, plain
from liqod.wire.events import NameAnswer, NameQuery, NameRecord

TIMEOUT: Final = 1.5
"""Seconds that home may take to answer; pods ask their second name server after two."""
PER_SECOND: Final = 50.0
"""Questions a second to one home, and of one lender here."""
BURST: Final = 200
"""The same at once, as when many pods start."""
WAITING: Final = 64
"""Questions to one home, or of one lender, that wait for an answer."""
MOST_KEPT: Final = 1024
"""Answers of one home that are kept; the oldest goes first."""
LONGEST: Final = 30
"""Seconds for which an answer is kept at most, whatever home says."""
NEGATIVE: Final = 5
"""The same of an answer without records, and of a refusal."""

OTHER_RECORDS: Final = "OtherRecords"
"""The reason in an answer without records: the name exists, and has none of the type that was asked for."""

Question = tuple[str, int]


@attrs.frozen
class _Pending:
    """A question without an answer yet: to whom, in which session, and its time-out."""

    peer: ClusterID
    through: PeerConnection
    question: Question
    answer: Deferred[HomeAnswer]
    timer: IDelayedCall


@attrs.define(eq=False)
class _Home:
    """What is known of one home: answers with the time until which they count, and the pace of questions."""

    pace: Bucket = attrs.field(factory=lambda: Bucket(PER_SECOND, BURST))
    kept: OrderedDict[Question, tuple[HomeAnswer, float]] = attrs.field(factory=OrderedDict)
    waiting: int = 0


class NameQueries:
    """Our questions to homes. Those that they did not answer, or may not be asked now, raise PeerUnreachable."""

    def __init__(self, clock: IReactorTime, peers: Mapping[ClusterID, Peer]) -> None:
        self._clock = clock
        self._peers = peers
        self._homes: dict[ClusterID, _Home] = {}
        self._pending: dict[int, _Pending] = {}
        self._number = 0

    async def ask(self, peer: ClusterID, name: str, kind: int) -> HomeAnswer:
        """Return what home says of a name, which may be a refusal."""
        known, now, question = self._peers.get(peer), self._clock.seconds(), (name, kind)
        if known is None:
            raise PeerUnreachable(f"{peer} is no peer")
        home = self._homes.setdefault(peer, _Home())
        kept = home.kept.get(question)
        if kept is not None and now < kept[1]:
            return kept[0]
        if home.waiting >= WAITING or home.pace.delay(now) > 0:
            raise PeerUnreachable(f"{peer} was asked as much as it may be: {PER_SECOND:.0f} questions a second")
        session = known.session
        self._number += 1
        number = self._number
        if session is None or not session.send(NameQuery(number, name, kind)):
            raise PeerUnreachable(f"there is no session with {peer}, or its release answers no names")
        home.pace.take(now)
        home.waiting += 1
        answer: Deferred[HomeAnswer] = Deferred()
        timer = self._clock.callLater(TIMEOUT, self._fail, number, f"{peer} did not answer in {TIMEOUT:g} seconds")
        self._pending[number] = _Pending(peer, session, question, answer, timer)
        try:
            return await answer
        finally:
            home.waiting -= 1
            pending = self._pending.pop(number, None)
            if pending is not None and pending.timer.active():
                pending.timer.cancel()

    def answer_received(self, connection: PeerConnection, event: NameAnswer) -> None:
        """Complete the question that an answer belongs to; an answer to none that waits is dropped."""
        pending = self._pending.get(event.request)
        if pending is None or pending.through is not connection:
            return
        del self._pending[event.request]
        pending.timer.cancel()
        answer = answer_of(event)
        home = self._homes.get(pending.peer)
        if home is not None:
            ttl = min((one.ttl for one in answer.records), default=answer.ttl)
            most = LONGEST if answer.records else NEGATIVE
            home.kept[pending.question] = answer, self._clock.seconds() + min(ttl, most)
            home.kept.move_to_end(pending.question)
            while len(home.kept) > MOST_KEPT:
                home.kept.popitem(last=False)
        pending.answer.callback(answer)

    def session_closed(self, connection: PeerConnection) -> None:
        """Fail what was asked in a session that ended."""
        for number, pending in list(self._pending.items()):
            if pending.through is connection:
                self._fail(number, "the session ended before the answer came")

    def forget(self, peer: ClusterID) -> None:
        """Drop what is known of a peer whose record is gone."""
        self._homes.pop(peer, None)

    def _fail(self, number: int, why: str) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            if pending.timer.active():
                pending.timer.cancel()
            pending.answer.errback(PeerUnreachable(why))


class NameResponses:
    """Our answers to lenders; ``names`` None: this cluster answers none."""

    _log = Logger()

    def __init__(self, names: HomeNames | None, clock: IReactorTime, tasks: Tasks) -> None:
        self._names = names
        self._clock = clock
        self._tasks = tasks
        self._paces: dict[ClusterID, Bucket] = {}
        self._waiting: Counter[ClusterID] = Counter()

    def query_received(self, peer: Peer, connection: PeerConnection, query: NameQuery) -> None:
        """Answer a question of a lender, at once where it is refused."""
        refused = partial(_refused, connection, query.request)
        if self._names is None:
            refused("NamesNotAnswered", "this cluster answers no names ([names] expose)")
        elif not peer.credential:
            refused("NotBorrowing", "this cluster runs no pods with you now")
        elif self._waiting[peer.id] >= WAITING:
            refused("TooManyNames", f"{WAITING} of your questions wait for an answer")
        elif not self._admits(peer.id):
            refused("TooManyNames", f"{PER_SECOND:.0f} questions a second are answered")
        else:
            self._waiting[peer.id] += 1
            self._tasks.spawn(self._serve(self._names, peer.id, connection, query), f"answering a name to {peer.id}")

    def _admits(self, peer: ClusterID) -> bool:
        now = self._clock.seconds()
        pace = self._paces.get(peer)
        if pace is None:
            self._paces = {other: one for other, one in self._paces.items() if not one.is_idle(now)}
            pace = self._paces[peer] = Bucket(PER_SECOND, BURST)
        if pace.delay(now) > 0:
            return False
        pace.take(now)
        return True

    async def _serve(self, names: HomeNames, peer: ClusterID, connection: PeerConnection, query: NameQuery) -> None:
        try:
            answer = await names.answer(peer, query.name, query.kind)
        except CancelledError:
            raise  # the daemon stops
        except Exception as error:
            if not is_expected(error):
                self._log.failure("answering a name to {peer} failed", peer=peer)
            answer = HomeAnswer(reason="Internal", message="the question failed here; ask again later")
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]
        connection.send(event_of(query.request, answer))


def event_of(request: int, answer: HomeAnswer) -> NameAnswer:
    """Return the event that says an answer."""
    if answer.reason:
        return NameAnswer(request, "Refused", reason=answer.reason, message=plain(answer.message))
    if not answer.records:
        # Which of the two it is: a name that is not there ends a search otherwise than one that has other records.
        return NameAnswer(request, "None", ttl=min(answer.ttl, MAX_TTL), reason=OTHER_RECORDS if answer.exists else "")
    records = [NameRecord(one.name, one.kind, min(one.ttl, MAX_TTL), one.data) for one in answer.records[:MAX_RECORDS]]
    return NameAnswer(request, "Records", records)


def answer_of(event: NameAnswer) -> HomeAnswer:
    """Return the answer that an event says; what is refused is kept shortly, as what does not exist."""
    if event.result == "Refused":
        return HomeAnswer(ttl=NEGATIVE, reason=event.reason or "Refused", message=event.message)
    records = tuple(HomeRecord(one.name, one.kind, one.ttl, one.data) for one in event.records)
    return HomeAnswer(records=records, ttl=event.ttl, exists=event.reason == OTHER_RECORDS)


def _refused(connection: PeerConnection, request: int, reason: str, message: str) -> None:
    connection.send(NameAnswer(request, "Refused", reason=reason, message=message))
