"""Asks this cluster's DNS: by UDP, by TCP where an answer was truncated, another server where one is silent.

An answer counts only if it comes from the server that was asked, to the socket that asked, under the ID and with the
question that were sent; IDs and sockets are chosen by chance (RFC 5452). What nobody answers in time fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import DatagramProtocol
from twisted.protocols.basic import Int16StringReceiver
from twisted.python.failure import Failure

from liqod.flow.clocks import Reactor
from liqod.flow.connections.factories import quiet
from liqod.names.question import LARGEST, is_answer_to

SILENCE: Final = 0.8
"""Seconds after which another server is asked: two tries are over before a client asks its second name server."""
TRIES: Final = 2
BY_TCP: Final = 2.0
"""Seconds for an answer by TCP."""
SOCKETS: Final = 8
"""Sockets for each server, so that who wants to guess an answer has to guess the port as well."""
Address = tuple[str, int]
_chance = random.SystemRandom()


class Unanswered(Exception):
    """No server answered in time, or there is none."""


class _Waiting:
    """One question to one server: what is compared with an answer, who waits for it, and until when."""

    __slots__ = ("answer", "question", "timer")

    def __init__(self, question: bytes, answer: Deferred[bytes], timer: IDelayedCall) -> None:
        self.question = question
        self.answer = answer
        self.timer = timer


class _Socket(DatagramProtocol):
    """A socket that is connected to one server, so that the kernel drops what others send to it."""

    noisy = False
    transport: Any

    def __init__(self, reactor: Reactor, server: Address, silence: float) -> None:
        self._reactor = reactor
        self._server = server
        self._silence = silence
        self._waiting: dict[int, _Waiting] = {}
        self._is_connected = False

    def startProtocol(self) -> None:
        with suppress(OSError):  # there is no route to the server, say
            self.transport.connect(*self._server)
            self._is_connected = True

    def ask(self, make: Callable[[int], bytes], question: bytes) -> Deferred[bytes]:
        number = _chance.randrange(1 << 16)
        while number in self._waiting:
            number = _chance.randrange(1 << 16)
        answer: Deferred[bytes] = Deferred()
        timer = self._reactor.callLater(self._silence, self._fail, number)
        self._waiting[number] = _Waiting(question, answer, timer)
        try:
            self.transport.write(make(number))
        except OSError:  # no route, or a firewall of this host: the next server is asked at once
            self._fail(number)
        return answer

    def datagramReceived(self, datagram: bytes, addr: object) -> None:
        number = int.from_bytes(datagram[:2], "big")
        waiting = self._waiting.get(number)
        if waiting is not None and is_answer_to(datagram, number, waiting.question):
            self._forget(number)
            waiting.answer.callback(datagram)

    def connectionRefused(self) -> None:
        """Nobody listens there (ICMP): what waits is asked of the next server at once."""
        self._fail_all()

    def stopProtocol(self) -> None:
        """The socket is closed: by ``close``, or by Twisted, where reading failed (an ICMP error: EHOSTUNREACH)."""
        self._fail_all()

    @property
    def is_open(self) -> bool:
        """Whether questions can be asked by it."""
        return self.transport is not None and self._is_connected

    def close(self) -> None:
        self._fail_all()
        if self.transport is not None:
            self.transport.stopListening()

    def _forget(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and waiting.timer.active():
            waiting.timer.cancel()
        return waiting

    def _fail_all(self) -> None:
        for number in list(self._waiting):
            self._fail(number)

    def _fail(self, number: int) -> None:
        waiting = self._forget(number)
        if waiting is not None:
            waiting.answer.errback(Unanswered())


class _ByTcp(Int16StringReceiver):
    """One question by TCP (RFC 7766); the connection is closed with the answer."""

    transport: Any

    def __init__(self, number: int, message: bytes, question: bytes, answer: Deferred[bytes]) -> None:
        self._number = number
        self._message = message
        self._question = question
        self._answer = answer

    def connectionMade(self) -> None:
        self.sendString(self._message)

    def stringReceived(self, string: bytes) -> None:
        if not self._answer.called and is_answer_to(string, self._number, self._question):
            self._answer.callback(string)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        if not self._answer.called:
            self._answer.errback(Unanswered())


class UpstreamServers:
    """The servers of this cluster's DNS; ``use`` says which. One is asked again, or another one, after ``silence``.

    ``rest``: seconds for which nobody is asked by UDP after two questions in turn that nobody answered.
    """

    def __init__(self, reactor: Reactor, *, silence: float = SILENCE, tries: int = TRIES, rest: float = 0.0) -> None:
        self._reactor = reactor
        self._silence = silence
        self._tries = tries
        self._rest = rest
        self._unanswered = 0
        self._rests_until = float("-inf")
        self._servers: tuple[Address, ...] = ()
        self._sockets: dict[Address, list[_Socket]] = {}

    @property
    def servers(self) -> tuple[Address, ...]:
        """The servers that are asked, the first one first."""
        return self._servers

    def use(self, servers: Sequence[Address]) -> None:
        """Ask these servers from now on; questions to others fail, and are asked again of these."""
        if tuple(servers) != self._servers:
            self._unanswered, self._rests_until = 0, float("-inf")
        self._servers = tuple(servers)
        for server in [one for one in self._sockets if one not in self._servers]:
            for socket in self._sockets.pop(server):
                socket.close()

    def close(self) -> None:
        """Ask nobody any more."""
        self.use(())

    async def ask(self, make: Callable[[int], bytes], question: bytes) -> bytes:
        """Return the answer to a question by UDP, which may be truncated; raises Unanswered.

        ``make`` returns the message for an ID, ``question`` is its question section.
        """
        servers = self._servers
        if self._reactor.seconds() < self._rests_until:
            raise Unanswered
        for attempt in range(self._tries):
            if not self._servers:
                break
            server = self._servers[attempt % len(self._servers)]
            try:
                answer = await self._socket(server).ask(make, question)
            except Unanswered:
                continue
            self._unanswered = 0
            return answer
        if servers == self._servers:
            self._unanswered += 1
            if self._unanswered > 1:
                self._rests_until = self._reactor.seconds() + self._rest
        raise Unanswered

    async def ask_by_tcp(self, make: Callable[[int], bytes], question: bytes) -> bytes:
        """Return the whole answer to a question, of the first server that gives one; raises Unanswered."""
        for server in self._servers:
            with suppress(Unanswered):
                return await self._ask_by_tcp(server, make, question)
        raise Unanswered

    async def _ask_by_tcp(self, server: Address, make: Callable[[int], bytes], question: bytes) -> bytes:
        number = _chance.randrange(1 << 16)
        answer: Deferred[bytes] = Deferred()
        answer.addTimeout(BY_TCP, self._reactor)
        host, port = server
        connecting: Deferred[Any] = HostnameEndpoint(self._reactor, host, port, timeout=BY_TCP).connect(
            quiet(lambda: _ByTcp(number, make(number), question, answer))
        )
        connecting.addErrback(lambda failure: None if answer.called else answer.errback(Unanswered()))
        try:
            return await answer
        except TimeoutError:
            raise Unanswered from None
        finally:
            connecting.addCallback(lambda made: made and made.transport.abortConnection())
            connecting.cancel()

    def _socket(self, server: Address) -> _Socket:
        """Return one of a server's sockets, all of which are opened first, again where one was lost."""
        sockets = [one for one in self._sockets.get(server, ()) if one.is_open]
        while len(sockets) < SOCKETS:
            one = _Socket(self._reactor, server, self._silence)
            try:
                self._reactor.listenUDP(0, one, interface="::" if ":" in server[0] else "", maxPacketSize=LARGEST + 1)
            except CannotListenError:
                break
            if not one.is_open:
                one.close()
                break
            sockets.append(one)
        if not sockets:
            self._sockets.pop(server, None)
            raise Unanswered
        self._sockets[server] = sockets
        return _chance.choice(sockets)
