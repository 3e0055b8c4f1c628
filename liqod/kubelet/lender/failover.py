"""Changes over between the ways to a lender's API server when the one in use fails, or the better one is back."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.kubelet.lender.access import Access
from liqod.kubelet.lender.endpoint_choice import Course, Way, plan
from liqod.kubelet.lender.health import Reach, answers


class Approach(Service):
    """Looks at the way in use through ``reach``, and at the other one by asking it now and then."""

    _log = Logger()

    def __init__(self, reactor: Any, access: Access, reach: Reach) -> None:
        self._reactor = reactor
        self._access = access
        self._reach = reach
        self._course: Course | None = None
        self._offered: tuple[Way, ...] = ()
        self._timer: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None
        self._unsubscribe: list[Any] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._access.ways.subscribe(lambda _: self._begin()),
            self._reach.state.subscribe(lambda _: self._heard()),
        ]
        self._begin()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._disarm()
        looking, self._looking = self._looking, None
        if looking is None:
            return succeed(None)
        looking.cancel()
        return looking

    def _begin(self) -> None:
        """The ways that there are have changed."""
        way, ways = self._access.way.value, self._access.ways.value
        other = next((each for each in ways if each != way), None)
        untried = other == "direct" and other not in self._offered
        self._offered = ways
        # A look at the relay right at the start of its use would tell what the failure told that led to it.
        looked = float("-inf") if untried else self._reactor.seconds()
        self._course = Course(way, other, looked=looked, untried=untried) if way else None
        self._heard()

    def _heard(self) -> None:
        course, state = self._course, self._reach.state.value
        if course is None or not self.running:
            return
        if state.ready:
            course = attrs.evolve(course, proven=True, ill_since=None)
        elif state.known and course.ill_since is None:
            course = attrs.evolve(course, ill_since=self._reactor.seconds(), answers=0)
            if not course.proven:
                course = attrs.evolve(course, looked=float("-inf"))
        self._course = course
        self._follow()

    def _follow(self) -> None:
        self._disarm()
        course = self._course
        if course is None or course.other is None or self._looking is not None or not self.running:
            return
        step, again = plan(course, self._reactor.seconds())
        if step == "look":
            self._look(course.other)
        elif step == "change":
            self._change(course, course.other)
        elif again is not None:
            self._timer = self._reactor.callLater(again, self._follow)

    def _change(self, course: Course, to: Way) -> None:
        self._log.info("the lender's API server is reached by {way} from now on", way=to)
        # It has just answered: it may fail for a while before it is doubted.
        self._course = Course(to, course.way, proven=True, looked=self._reactor.seconds())
        self._access.take(to)
        self._heard()

    def _look(self, way: Way) -> None:
        looking = self._looking = Deferred.fromCoroutine(self._ask(way))
        looking.addErrback(self._failed)
        looking.addCallback(self._looked)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("looking at the other way to a lender failed", failure)

    def _looked(self, _: object) -> None:
        self._looking = None
        self._follow()

    async def _ask(self, way: Way) -> None:
        client = self._access.client_by(way)
        if client is None:
            return
        try:
            answered = await answers(self._reactor, client)
        finally:
            await client.close()
        course = self._course
        if course is not None and course.other == way:
            heard = course.answers + 1 if answered else 0
            untried = course.untried and answered
            self._course = attrs.evolve(course, answers=heard, looked=self._reactor.seconds(), untried=untried)

    def _disarm(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
