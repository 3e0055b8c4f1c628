"""Answers the questions of one tenant, within its own limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.connections.admission import Bucket
from liqod.names import answers
from liqod.names.cache import Cache
from liqod.names.question import NOERROR, SERVFAIL, Question, RejectedQuestion, is_truncated, read, wire
from liqod.names.translation import (
    AskHome,
    Empty,
    Forward,
    Plan,
    Reverse,
    TenantView,
    Translate,
    home_question,
    may_be_at_home,
    plan,
)
from liqod.names.upstream import Unanswered, UpstreamServers

IN_FLIGHT: Final = 256
"""Questions of a tenant that wait for this cluster's DNS at the same time; more are answered by a failure."""
Way = Literal["udp", "tcp"]


@attrs.define
class Counts:
    """What became of the questions of a tenant."""

    answered: int = 0
    from_cache: int = 0
    rejected: int = 0
    failed: int = 0


class Resolver:
    """The questions of one tenant, which sees ``view``; ``rate`` is how many it may ask per second.

    ``home`` is asked what the tenant's home says, where this cluster has no such name; None: nobody is.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        upstream: UpstreamServers,
        view: TenantView,
        rate: int,
        *,
        home: UpstreamServers | None = None,
    ) -> None:
        self._clock = clock
        self._upstream = upstream
        self._home = home
        self._view = view
        self._pace = Bucket(float(rate), max(1, rate // 4))
        self._cache = Cache()
        self._in_flight = 0
        self.counts = Counts()

    def see(self, view: TenantView) -> None:
        """Answer by other tables from now on; what was kept by the old ones is forgotten."""
        if view != self._view:
            self._view = view
            self._cache.clear()

    def wait(self) -> float:
        """Return the seconds until the tenant may ask again; 0 for now."""
        return self._pace.delay(self._clock.seconds())

    def ask(self, message: bytes, way: Way, reply: Callable[[bytes], None]) -> None:
        """Answer a message of a pod by calling ``reply``, at once or later, once or not at all; raises nothing."""
        self._pace.take(self._clock.seconds())
        asked = read(message)
        if isinstance(asked, RejectedQuestion):
            self.counts.rejected += 1
            if asked.reply:
                self._send(reply, asked.reply)
            return
        view = self._view
        todo = plan(asked.name, asked.kind, view)
        if isinstance(todo, Empty):
            self.counts.answered += 1
            self._send(reply, answers.empty(asked, view, exists=todo.exists))
            return
        most = asked.by_udp if way == "udp" else answers.MAX_WIRE
        kept = None if isinstance(todo, Forward) else self._cache.get(_key(asked), self._clock.seconds())
        if kept is not None:
            self.counts.from_cache += 1
            self._send(reply, answers.fitting(asked.id.to_bytes(2, "big") + kept, asked, most))
        elif self._in_flight >= IN_FLIGHT:
            self.counts.failed += 1
            self._send(reply, asked.answer(SERVFAIL))
        else:
            self._in_flight += 1
            asking = Deferred.fromCoroutine(self._answer(asked, todo, view, way))
            asking.addErrback(partial(self._failed, asked))
            asking.addCallback(lambda answer: self._send(reply, answers.fitting(answer, asked, most)))
            asking.addErrback(lambda failure: self._log.failure("an answer could not be sent", failure))
            asking.addBoth(self._done)

    async def _answer(self, asked: Question, todo: Plan, view: TenantView, way: Way) -> bytes:
        """Return the answer of this cluster's DNS, translated."""
        if isinstance(todo, AskHome):
            said = await self._of_home(asked, view)
            self.counts.answered += 1
            return self._keep(asked, view, said if said is not None else answers.empty(asked, view, exists=False))
        name = todo.name if isinstance(todo, Translate) else None
        section = asked.section if name is None else wire(name) + asked.section[-4:]
        make = partial(asked.asked, name=name)
        answer = await self._upstream.ask(make, section)
        if is_truncated(answer):
            if way == "udp":
                return asked.answer(NOERROR, truncated=True)
            answer = await self._upstream.ask_by_tcp(make, section)
        self.counts.answered += 1
        if isinstance(todo, Forward):
            return asked.id.to_bytes(2, "big") + answer[2:]
        translated = (
            answers.reversed_names(answer, asked, view, todo)
            if isinstance(todo, Reverse)
            else answers.translated(answer, asked, view)
        )
        missing = answers.is_missing(translated) and may_be_at_home(asked.name, todo, view)
        if missing and (said := await self._of_home(asked, view)) is not None:
            translated = said
        return self._keep(asked, view, translated)

    async def _of_home(self, asked: Question, view: TenantView) -> bytes | None:
        """Return what the tenant's home says, by control; None where that is not found out."""
        name = home_question(asked.name, view)
        if name is None or self._home is None:
            return None
        answer = await self._whole(self._home, asked, name)
        target = answers.alias(answer, asked)
        further = b""
        if target and isinstance(plan(target, asked.kind, view), Forward):
            # Resolvers of pods follow no alias. One that leads to a name of either cluster leads nowhere.
            further = await self._whole(self._upstream, asked, target)
        return answers.of_home(answer, asked, view, further)

    async def _whole(self, servers: UpstreamServers, asked: Question, name: str) -> bytes:
        """Return what servers say of another name than was asked for; nothing where they do not answer."""
        section = wire(name) + asked.section[-4:]
        make = partial(asked.asked, name=name)
        try:
            answer = await servers.ask(make, section)
            return await servers.ask_by_tcp(make, section) if is_truncated(answer) else answer
        except Unanswered:
            return b""

    def _keep(self, asked: Question, view: TenantView, answer: bytes) -> bytes:
        """Keep an answer for the next question, unless the tables changed meanwhile."""
        if view is self._view and (ttl := answers.lifetime(answer)):
            self._cache.put(_key(asked), answer[2:], self._clock.seconds() + ttl)
        return answer

    def _failed(self, asked: Question, failure: Failure) -> bytes:
        self.counts.failed += 1
        if failure.check(Unanswered) is None:
            self._log.failure("a question failed", failure)
        return asked.answer(SERVFAIL)

    def _send(self, reply: Callable[[bytes], None], answer: bytes) -> None:
        # A firewall of this host, or no route to the pod: EPERM, ENETUNREACH. The client asks again.
        try:
            reply(answer)
        except OSError:
            self.counts.failed += 1

    def _done(self, _: object) -> None:
        self._in_flight -= 1


def _key(asked: Question) -> tuple[bytes, int, bool, bool]:
    """Return what an answer is kept by: the question as it came, and what of its header comes back."""
    edns = asked.edns
    return asked.section, asked.flags & 0x0110, edns is not None, edns is not None and edns.signed
