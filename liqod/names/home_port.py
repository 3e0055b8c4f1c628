"""Control's port for questions to tenants' homes: DNS, from the processes that answer, and from nobody else.

Those processes have no session and no rights but to watch: what home says is asked for them here, over the session. The
tenant is in the name that they ask (``translation.home_question``); control asks that tenant's home and no other one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import Reactor
from liqod.flow.connections.admission import Bucket
from liqod.flow.errors import is_expected
from liqod.flow.timer import Timer
from liqod.model.ids import ClusterID, parse_cluster_id
from liqod.model.records.name_service import HomeAnswer
from liqod.names import answers
from liqod.names.question import REFUSED, SERVFAIL, Question, RejectedQuestion, read
from liqod.names.server import Server
from liqod.names.translation import asked_of_home

RATE: Final = 1000.0
"""Questions a second of all processes together; each home has a pace of its own (``peering.exchange.names``)."""
BURST: Final = 1000
IN_FLIGHT: Final = 512
"""Questions that wait for homes at the same time."""
TAKEN: Final = 10.0
"""Seconds until a port that another program has is tried again."""
AskHome = Callable[[ClusterID, str, int], Awaitable[HomeAnswer]]


class HomeQuestions:
    """The questions of the processes that answer; ``ask_home`` raises PeerUnreachable where home does not answer."""

    _log = Logger()

    def __init__(self, reactor: Reactor, ask_home: AskHome) -> None:
        self._reactor = reactor
        self._ask_home = ask_home
        self._pace = Bucket(RATE, BURST)
        self._in_flight: set[Deferred[Any]] = set()

    def wait(self) -> float:
        """Return the seconds until more may be asked; 0 for now."""
        return self._pace.delay(self._reactor.seconds())

    def ask(self, message: bytes, way: Literal["udp", "tcp"], reply: Callable[[bytes], None]) -> None:
        """Answer a message by calling ``reply``, at once or later, once or not at all; raises nothing."""
        self._pace.take(self._reactor.seconds())
        asked = read(message)
        if isinstance(asked, RejectedQuestion):
            if asked.reply:
                self._send(reply, asked.reply)
            return
        parsed = _parsed(asked)
        if parsed is None or len(self._in_flight) >= IN_FLIGHT:
            self._send(reply, asked.answer(REFUSED if parsed is None else SERVFAIL))
            return
        most = asked.by_udp if way == "udp" else answers.MAX_WIRE
        asking = Deferred.fromCoroutine(self._answer(asked, *parsed))
        self._in_flight.add(asking)
        asking.addErrback(partial(self._failed, asked))
        asking.addCallback(lambda answer: self._send(reply, answers.fitting(answer, asked, most)))
        asking.addErrback(lambda failure: self._log.failure("an answer could not be sent", failure))
        asking.addBoth(lambda _: self._in_flight.discard(asking))

    def close(self) -> None:
        """Ask nobody any more."""
        for asking in list(self._in_flight):
            asking.cancel()

    async def _answer(self, asked: Question, name: str, tenant: ClusterID) -> bytes:
        return answers.said_by_home(asked, await self._ask_home(tenant, name, asked.kind))

    def _failed(self, asked: Question, failure: Failure) -> bytes:
        error = failure.value
        if error is not None and not isinstance(error, CancelledError) and not is_expected(error):
            self._log.failure("a question to a home failed", failure)
        return asked.answer(SERVFAIL)

    def _send(self, reply: Callable[[bytes], None], answer: bytes) -> None:
        try:
            reply(answer)
        except OSError:
            self._log.debug("an answer about a name at home could not be sent")


class HomePort(Service):
    """Listens for these questions at one address; ``admits`` says which sources are processes that answer."""

    _log = Logger()

    def __init__(
        self, reactor: Reactor, ask_home: AskHome, place: tuple[str, int], admits: Callable[[str], bool]
    ) -> None:
        self._reactor = reactor
        self._questions = HomeQuestions(reactor, ask_home)
        address, port = place
        self._server = Server(reactor, self._questions, (address,), port, admits=admits)
        self._again = Timer(reactor)

    def startService(self) -> None:
        super().startService()
        self._listen()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        self._again.cancel()
        self._questions.close()
        closing: Deferred[Any] = DeferredList(self._server.close())
        return closing

    def _listen(self) -> None:
        try:
            self._server.listen()
        except CannotListenError as error:
            self._log.error(
                "port {port} is taken: names are not asked of homes; [names] home-port is another one", port=error.port
            )
            self._again.start(TAKEN, self._listen)


def _parsed(asked: Question) -> tuple[str, ClusterID] | None:
    """Return the name at home and the tenant of a question; None for one that is about no tenant's home."""
    found = asked_of_home(asked.name)
    if found is None:
        return None
    name, tenant = found
    try:
        return name, parse_cluster_id(tenant)
    except ValueError:
        return None
