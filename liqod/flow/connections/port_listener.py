"""A service that listens on the first port that can be bound, and tries again while none can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import Reactor
from liqod.flow.connections.listening import address_text, server_endpoint
from liqod.flow.observe import Latest
from liqod.flow.timer import Timer

RETRY: Final = 10.0
"""Seconds between two attempts to listen."""
RETRY_STANDBY: Final = 1.0
"""The same while another daemon of the host may have the port, which is free when that one dies."""


class PortListener(Service):
    """Listens on the first of several endpoint descriptions that can be bound; tries again after ``RETRY`` seconds.

    ``service`` and ``setting`` are named in the log: what is served, and the setting that has the descriptions. With
    ``stands_by`` a port that is in use is taken for that of the daemon that leads: it is waited for in silence.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        descriptions: Sequence[str],
        factory: IProtocolFactory,
        *,
        service: str,
        setting: str,
        stands_by: bool = False,
    ) -> None:
        self.bound: Latest[int] = Latest(0)
        """The bound port; 0 before."""
        self._reactor = reactor
        self._descriptions = descriptions
        self._factory = factory
        self._service = service
        self._setting = setting
        self._stands_by = stands_by
        self._listening: IListeningPort | None = None
        self._attempt: Deferred[Any] | None = None
        self._timer = Timer(reactor)
        self._logged = ""

    def startService(self) -> None:
        super().startService()
        self._bind(0)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        self.bound.set(0)
        self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        stopping: Deferred[Any] = maybeDeferred(listening.stopListening)
        return stopping

    def _bind(self, number: int) -> None:
        endpoint = server_endpoint(self._reactor, self._descriptions[number])
        attempt: Deferred[Any] = maybeDeferred(endpoint.listen, self._factory)
        self._attempt = attempt
        attempt.addCallbacks(self._bound, self._not_bound, errbackArgs=(number,))

    def _bound(self, listening: IListeningPort) -> None:
        self._attempt = None
        self._listening = listening
        self._log.info(
            "listening on {address} for {service}", service=self._service, address=address_text(listening.getHost())
        )
        self.bound.set(int(getattr(listening.getHost(), "port", 0)))

    def _not_bound(self, failure: Failure, number: int) -> None:
        self._attempt = None
        if not self.running or failure.check(CancelledError):
            return
        if self._stands_by:
            self._timer.start(RETRY_STANDBY, self._bind, 0)
            return
        # EADDRINUSE: another program has the port.
        if number + 1 < len(self._descriptions):
            self._bind(number + 1)
            return
        message = failure.getErrorMessage()
        if message != self._logged:
            self._logged = message
            listen = self._descriptions[number]
            self._log.warn(
                "{setting} = {listen}: {error}; tried again", setting=self._setting, listen=listen, error=message
            )
        self._timer.start(RETRY, self._bind, 0)
