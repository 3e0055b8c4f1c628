"""HTTP connections whose responses have bounded heads.

twisted.web bounds the lines of a head and not their number, nor that of interim responses (RFC 9110, section 15.2): a
server that a peer controls could fill the memory with headers for as long as a request may take.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web._newclient import HEADER, STATUS, HTTP11ClientProtocol
from twisted.web.client import HTTPConnectionPool, _HTTP11ClientFactory

from liqod.kube.errors import TooLarge

MAX_HEAD: Final = 64 << 10
"""Bytes of the head of a response, with all interim responses before it: those of an API server have about 1 KiB."""


class BoundedHeads(HTTP11ClientProtocol):
    """A connection that is lost where the head of a response is longer than ``MAX_HEAD``."""

    _reading: Any = None
    _received = 0

    def dataReceived(self, data: bytes) -> None:
        parser: Any = self._parser
        if parser is not self._reading:
            self._reading, self._received = parser, 0
        if parser is None or parser.state not in (STATUS, HEADER):
            super().dataReceived(data)
            return
        self._received += len(data)
        super().dataReceived(data)
        # A whole body may have come with the head.
        is_head = parser.state in (STATUS, HEADER)
        if self._received > MAX_HEAD and is_head and self._parser is parser:
            connection: Any = self.transport
            self._giveUp(Failure(TooLarge(f"the head of an answer has more than {MAX_HEAD >> 10} KiB")))
            connection.abortConnection()


class _Factory(_HTTP11ClientFactory):
    def buildProtocol(self, addr: IAddress | None) -> BoundedHeads:
        return BoundedHeads(self._quiescentCallback)


class BoundedPool(HTTPConnectionPool):
    """A pool of such connections."""

    _factory = _Factory
