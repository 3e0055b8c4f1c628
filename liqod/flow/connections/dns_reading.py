"""Decodes messages of DNS with Twisted, at a cost that their sender does not choose.

Twisted bounds the compression pointers of a message, and no name: 30 KB in which a thousand records lead to one name of
eight thousand labels take seconds. RFC 1035, 3.1: a name has 255 bytes at most.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, cast

from twisted.internet.interfaces import ITCPTransport
from twisted.names import dns
from twisted.names.client import DNSClientFactory, Resolver

MAX_READS: Final = 16_384
"""Pieces of a message that are read one by one, two for each label: those of 300 endpoints with all that is said of
them, which is more than fits into an answer to a pod (``names.answers.MAX_BYTES``)."""


class TooManyNames(ValueError):
    """The names of a message, with those that pointers lead to, are longer or more than those of any answer."""


class _Counted(BytesIO):
    left = MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise TooManyNames(f"more than {MAX_READS} pieces")
        return super().read(size)


def decoded(data: bytes) -> dns.Message:
    """Return a message; raises what Twisted does for one that is none (ValueError, EOFError, ...), or TooManyNames."""
    message = dns.Message()
    message.decode(_Counted(data))
    return message


class _Protocol(dns.DNSProtocol):
    """What a resolver speaks by TCP. By UDP a message has 512 bytes."""

    def stringReceived(self, data: bytes) -> None:
        """Take a message, or end the connection, which fails what was asked."""
        try:
            decoded(data)
        except Exception:
            cast(ITCPTransport, self.transport).abortConnection()
            return
        super().stringReceived(data)


class _Factory(DNSClientFactory):
    def buildProtocol(self, addr: object) -> dns.DNSProtocol:
        protocol = _Protocol(self.controller)
        protocol.factory = self
        return protocol


class BoundedResolver(Resolver):
    """A resolver whose servers cannot make an answer costly."""

    def __init__(self, *, servers: object, reactor: object) -> None:
        super().__init__(servers=servers, reactor=reactor)
        self.factory = _Factory(self, self.timeout)
