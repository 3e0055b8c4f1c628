"""Connects to a peer at several addresses: staggered attempts, of which the first that succeeds is used (RFC 8305)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from liqod.flow.connections.factories import quiet
from liqod.flow.connections.handshake import BoundedClient
from liqod.flow.timer import Timer
from liqod.identity.tls import PeerTLS
from liqod.model.host_port import split_address
from liqod.model.records.offer import PeerUnreachable
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import Bye

STAGGER: Final = 0.25
"""Seconds between the starts of attempts at different addresses (RFC 8305, section 5: Connection Attempt Delay)."""
# Linux retries a SYN for two minutes (tcp(7), tcp_syn_retries); a peer that is up answers within seconds.
CONNECT_TIMEOUT: Final = 10.0
MAX_ADDRESSES: Final = 8


def connect(
    reactor: IReactorTime, tls: PeerTLS, address: str, make: Callable[[], PeerConnection]
) -> Deferred[PeerConnection]:
    """Open TCP to one address and start TLS; fires when TCP is open, before the peer is authenticated."""
    host, port = split_address(address)
    # HostnameEndpoint staggers the addresses of one name (RFC 8305, "Happy Eyeballs"); Race staggers the names.
    endpoint = BoundedClient(tls.client_creator(), HostnameEndpoint(reactor, host.encode(), port, CONNECT_TIMEOUT))
    # The endpoint returns the protocol of the factory; its interface declares IProtocol only.
    return cast("Deferred[PeerConnection]", endpoint.connect(quiet(make)))


class Race:
    """Staggered attempts at several addresses; the first success wins and cancels the others.

    ``result`` fires with the winner, or fails with PeerUnreachable, which names the failure of each address. Cancelling
    it cancels all attempts.
    """

    def __init__(
        self, clock: IReactorTime, addresses: Sequence[str], attempt: Callable[[str], Deferred[PeerConnection]]
    ) -> None:
        self._waiting = list(addresses[:MAX_ADDRESSES])
        self._attempt = attempt
        self._running: dict[str, Deferred[PeerConnection]] = {}
        self._failures: dict[str, str] = {}
        self._timer = Timer(clock)
        self._decided = False
        self.result: Deferred[PeerConnection] = Deferred(lambda _: self._end())
        self._next()

    def _next(self) -> None:
        if self._decided:
            return
        if self._waiting:
            address = self._waiting.pop(0)
            if self._waiting:
                self._timer.start(STAGGER, self._next)
            self._begin(address)
        elif not self._running:
            self._end()
            self.result.errback(Failure(PeerUnreachable(_sentence(self._failures))))

    def _begin(self, address: str) -> None:
        try:
            running = self._attempt(address)
        except ValueError as error:
            self._failed(Failure(error), address)
            return
        self._running[address] = running
        running.addCallbacks(self._won, self._failed, (address,), {}, (address,), {})

    def _won(self, connection: PeerConnection, address: str) -> None:
        self._running.pop(address, None)
        if self._decided:
            connection.abort(Bye("NotNeeded", "another address of the peer answered first"))
            return
        self._end()
        self.result.callback(connection)

    def _failed(self, failure: Failure, address: str) -> None:
        self._running.pop(address, None)
        if self._decided or failure.check(CancelledError):
            return
        self._failures[address] = _describe(failure)
        self._timer.cancel()
        self._next()

    def _end(self) -> None:
        self._decided = True
        self._timer.cancel()
        for running in list(self._running.values()):
            running.cancel()


def _sentence(failures: Mapping[str, str]) -> str:
    """Return why no address answered.

    One of the link is a second way to a peer that has others: while those fail too, it says nothing of why.
    """
    shown = [one for one in failures if not one.startswith("[fe80:")] or list(failures)
    return "; ".join(f"cannot connect to {one}: {failures[one]}" for one in shown) or "no address is known"


def _describe(failure: Failure) -> str:
    """Return the cause of a failure as text that is equal for equal causes, so that no status write is repeated."""
    text = failure.getErrorMessage() or type(failure.value).__name__
    return text.rstrip(".")
