"""Bodies of responses: collected within limits, and checked before they are decoded.

A lender's API server is controlled by a peer. msgspec needs 70 bytes for an item of a list that has two bytes of JSON,
so that a limit of the caches, which count what was decoded, comes too late.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IResponse

from liqod.kube.errors import TooLarge, Undecodable

OF_HOME: Final = 64 << 20
"""Maximum bytes of one response of the home API server: a page of 500 objects of 128 KiB each."""
# A page of a single object fits: 1 MiB of data, the most of a ConfigMap, is 6 MiB in JSON where each byte is escaped.
OF_A_PEER: Final = 8 << 20
"""Maximum bytes of one response of a peer's API server, and of one line of a watch; a list with larger pages is read in
smaller ones."""
MOST_PARTS: Final = 1 << 19
"""Objects, lists and items that are decoded at a time of what a peer's API server sends: some 50 MiB for the moment. An
object of etcd's 1.5 MiB has fewer, but for one of a digit and a comma, again and again."""
OF_A_PEER_TOGETHER: Final = 32 << 20
"""Maximum bytes of all responses of a peer's API server that are being read."""


@attrs.define
class AnswerLimits:
    """Limits in bytes of the responses of one server, one and all together; ``reading``: bytes being read now."""

    one: int = OF_HOME
    total: int = 32 * OF_HOME
    strict: bool = False
    reading: int = attrs.field(default=0, init=False)

    @classmethod
    def of_a_peer(cls) -> AnswerLimits:
        """Return the limits for an API server that a peer controls; its pages are checked before they are decoded."""
        return cls(OF_A_PEER, OF_A_PEER_TOGETHER, strict=True)

    def read(self, response: IResponse) -> Deferred[bytes]:
        """Return the body of a response; fails with TooLarge, or as the connection does."""
        collect = Collect(self)
        response.deliverBody(collect)
        return collect.whole


class Collect(Protocol):
    """Collects a response body; ``whole`` fires with it, or fails if the connection broke or a limit was exceeded."""

    def __init__(self, limits: AnswerLimits) -> None:
        self.whole: Deferred[bytes] = Deferred(self._cancelled)
        self._limits = limits
        self._parts: list[bytes] = []
        self._size = 0
        self._refusal: TooLarge | None = None

    def dataReceived(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._size += len(data)
        self._limits.reading += len(data)
        if self._size > self._limits.one:
            self._refuse(f"an answer of more than {self._limits.one >> 20} MiB was not read")
        elif self._limits.reading > self._limits.total:
            self._refuse(f"an answer was not read: {self._limits.total >> 20} MiB of other answers are being read")
        else:
            self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        parts = self._release()
        if self.whole.called:
            return
        if self._refusal is not None:
            self.whole.errback(self._refusal)
        elif isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(b"".join(parts) if len(parts) != 1 else parts[0])
        else:
            self.whole.errback(reason)

    def _refuse(self, message: str) -> None:
        self._refusal = TooLarge(message)
        self._release()
        self._stop()

    def _release(self) -> list[bytes]:
        """Return the collected parts, and count them no longer."""
        self._limits.reading -= self._size
        self._size = 0
        parts, self._parts = self._parts, []
        return parts

    def _cancelled(self, _: Deferred[bytes]) -> None:
        self._release()
        self._stop()

    def _stop(self) -> None:
        # twisted.web passes a TransportProxyProducer here, which has loseConnection but no abortConnection.
        if self.transport is not None:
            self.transport.loseConnection()


class _Nothing(msgspec.Struct, gc=False):
    """Any JSON object."""


class _Item(msgspec.Struct, gc=False):
    metadata: _Nothing


class _Items(msgspec.Struct):
    items: list[_Item] | None = None


_CHECK: Final = msgspec.json.Decoder(_Items)


def check_page(answer: bytes, limit: int) -> None:
    """Raise Undecodable unless a page of a list has objects only, and at most ``limit`` (0: any number).

    The decoder stops at the first item that is no object with metadata; each of those has at least 15 bytes.
    """
    try:
        items = _CHECK.decode(answer).items or ()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"a list is not what the API promises: {error}") from error
    if limit and len(items) > limit:
        raise Undecodable(f"a page of a list has {len(items)} objects, {limit} at most were asked for")
