"""Switches between the endpoints of a lender's API server when the current one fails or the preferred one recovers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kube.client import Client
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.lender.endpoint_choice import Endpoint, EndpointState, plan
from liqod.kubelet.lender.health import probe


class Endpoints(Protocol):
    """The endpoints of a lender's API server (``lender.access.LenderAccess``)."""

    endpoint: Latest[Endpoint | None]
    """The endpoint in use."""
    endpoints: Latest[tuple[Endpoint, ...]]
    """The endpoints that both sides allow."""

    def use(self, endpoint: Endpoint) -> None:
        """Switch to an endpoint."""
        ...

    def client_for(self, endpoint: Endpoint) -> Client | None:
        """Return a new client for an endpoint; None without a credential."""
        ...


class Failover(Service):
    """Observes the health of the endpoint in use, and probes and switches according to ``endpoint_choice.plan``."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        access: Endpoints,
        health: Latest[Readiness],
        *,
        probe: Callable[[IReactorTime, Client], Awaitable[Readiness]] = probe,
    ) -> None:
        self._clock = clock
        self._access = access
        self._health = health
        self._probe = probe
        self._state: EndpointState | None = None
        self._known: tuple[Endpoint, ...] = ()
        self._timer = Timer(clock)
        self._probing: Deferred[None] | None = None
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._access.endpoints.subscribe(lambda _: self._endpoints_changed()),
            self._health.subscribe(lambda _: self._health_changed()),
        ]
        self._endpoints_changed()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._timer.cancel()
        probing, self._probing = self._probing, None
        if probing is None:
            return succeed(None)
        probing.cancel()
        return probing

    def _endpoints_changed(self) -> None:
        endpoint, endpoints = self._access.endpoint.value, self._access.endpoints.value
        other = next((each for each in endpoints if each != endpoint), None)
        untried = other == "direct" and other not in self._known
        self._known = endpoints
        # The other endpoint counts as just probed: if it was left because of a failure, an immediate probe would fail
        # too.
        probed_at = float("-inf") if untried else self._clock.seconds()
        self._state = EndpointState(endpoint, other, probed_at=probed_at, untried=untried) if endpoint else None
        self._health_changed()

    def _health_changed(self) -> None:
        state, health = self._state, self._health.value
        if state is None or not self.running:
            return
        if health.ready:
            state = attrs.evolve(state, proven=True, failing_since=None)
        elif health.known and state.failing_since is None:
            state = attrs.evolve(state, failing_since=self._clock.seconds(), successes=0)
            if not state.proven:
                state = attrs.evolve(state, probed_at=float("-inf"))
        self._state = state
        self._apply()

    def _apply(self) -> None:
        self._timer.cancel()
        state = self._state
        if state is None or state.other is None or self._probing is not None or not self.running:
            return
        step, again = plan(state, self._clock.seconds())
        if step == "probe":
            self._start_probe(state.other)
        elif step == "switch":
            self._switch(state, state.other)
        elif again is not None:
            self._timer.start(again, self._apply)

    def _switch(self, state: EndpointState, to: Endpoint) -> None:
        self._log.info("switched to the {endpoint} endpoint of the lender's API server", endpoint=to)
        # It answered a probe, so it is proven: FAILURE_TOLERANCE applies before the next switch.
        self._state = EndpointState(to, state.endpoint, proven=True, probed_at=self._clock.seconds())
        self._access.use(to)
        self._health_changed()

    def _start_probe(self, endpoint: Endpoint) -> None:
        probing = self._probing = Deferred.fromCoroutine(self._probe_endpoint(endpoint))
        probing.addErrback(self._probe_failed)
        probing.addCallback(self._probe_done)

    def _probe_failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("probing the other endpoint of a lender failed", failure)

    def _probe_done(self, _: object) -> None:
        self._probing = None
        self._apply()

    async def _probe_endpoint(self, endpoint: Endpoint) -> None:
        client = self._access.client_for(endpoint)
        if client is None:
            return
        try:
            succeeded = (await self._probe(self._clock, client)).ready
        finally:
            await client.close()
        state = self._state
        if state is not None and state.other == endpoint:
            self._state = attrs.evolve(
                state,
                successes=state.successes + 1 if succeeded else 0,
                probed_at=self._clock.seconds(),
                untried=state.untried and succeeded,
            )
