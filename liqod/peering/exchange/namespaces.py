"""Namespace requests: sends ours to lenders, and answers those of borrowers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.connections.admission import Bucket
from liqod.flow.errors import is_expected
from liqod.flow.tasks import Tasks
from liqod.model.ids import ClusterID
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.peering.ports import Tenants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.check import plain
from liqod.wire.events import Bye, MapNamespace, NamespaceMapped, ReleaseNamespace

TIMEOUT: Final = 15.0
"""Seconds that a lender may take to answer."""
MAX_WAITING: Final = 256
"""Queued requests of one borrower at most; a borrower that sends more is disconnected."""

PER_SECOND: Final = 5.0
"""Requests of one borrower that are carried out in a second: each may create or delete a namespace with all in it."""
BURST: Final = 100
"""The same at once, as when a borrower starts."""

Request = MapNamespace | ReleaseNamespace


@attrs.frozen
class _PendingRequest:
    """A request that has no response yet: the session it was sent in, its Deferred and its time-out."""

    through: PeerConnection
    answer: Deferred[str]
    timer: IDelayedCall


class NamespaceRequests:
    """Our pending requests to lenders, by number."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._pending: dict[int, _PendingRequest] = {}
        self._number = 0

    async def request(self, peer: Peer | None, peer_id: ClusterID, make: Callable[[int], Request]) -> str:
        """Send a request and return the namespace's name; raises Refusal, or PeerUnreachable without a response."""
        connection = peer.session if peer is not None else None
        self._number += 1
        number = self._number
        if connection is None or not connection.send(make(number)):
            raise PeerUnreachable(f"there is no session with {peer_id}; pending again when there is")
        answer: Deferred[str] = Deferred()
        timer = self._clock.callLater(TIMEOUT, self._fail, number, f"{peer_id} did not answer in {TIMEOUT:.0f} seconds")
        self._pending[number] = _PendingRequest(connection, answer, timer)
        try:
            return await answer
        finally:
            pending = self._pending.pop(number, None)
            if pending is not None and pending.timer.active():
                pending.timer.cancel()

    def response_received(self, connection: PeerConnection, event: NamespaceMapped) -> None:
        """Complete the request that a response belongs to; a response to no pending request is dropped."""
        pending = self._pending.get(event.request)
        if pending is None or pending.through is not connection:
            return
        del self._pending[event.request]
        pending.timer.cancel()
        if event.reason:
            pending.answer.errback(Refusal(event.reason, event.message))
        else:
            pending.answer.callback(event.remote)

    def session_closed(self, connection: PeerConnection) -> None:
        """Fail the requests that were pending in a session that ended."""
        for number, pending in list(self._pending.items()):
            if pending.through is connection:
                self._fail(number, "the session ended before the answer came; pending again in the next one")

    def _fail(self, number: int, why: str) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            if pending.timer.active():
                pending.timer.cancel()
            pending.answer.errback(PeerUnreachable(why))


class NamespaceResponses:
    """Answers requests of borrowers: those of one peer in order and at a pace, those of several at the same time.

    ``left_over`` is called with a peer whose rights ended while a namespace was made for it.
    """

    _log = Logger()

    def __init__(
        self,
        tenants: Tenants,
        tasks: Tasks,
        records: ForeignClusters,
        directions: DirectionPolicy,
        audit: Audit = NO_AUDIT,
        *,
        left_over: Callable[[ClusterID], None],
        clock: IReactorTime,
    ) -> None:
        self._clock = clock
        self._tenants = tenants
        self._left_over = left_over
        self._tasks = tasks
        self._records = records
        self._directions = directions
        self._audit = audit
        self._waiting: dict[PeerConnection, deque[Request]] = {}
        self._paces: dict[ClusterID, Bucket] = {}

    def request_received(self, peer: Peer, connection: PeerConnection, request: Request) -> None:
        """Queue a request of a peer."""
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = deque([request])
            self._tasks.spawn(self._serve(peer, connection, waiting), f"granting namespaces to {peer.id}")
        elif len(waiting) >= MAX_WAITING:
            connection.end(Bye("TooManyRequests", f"more than {MAX_WAITING} requests wait for an answer", 10.0))
        else:
            waiting.append(request)

    async def _serve(self, peer: Peer, connection: PeerConnection, waiting: deque[Request]) -> None:
        now = self._clock.seconds()
        self._paces = {other: pace for other, pace in self._paces.items() if not pace.is_idle(now)}
        try:
            while waiting and connection.established:
                # Looked up each time: a session that takes this one's place shares the pace, and drops idle ones.
                pace = self._paces.setdefault(peer.id, Bucket(PER_SECOND, BURST))
                if delay := pace.delay(self._clock.seconds()):
                    await deferLater(self._clock, delay)
                    continue
                pace.take(self._clock.seconds())
                request = waiting.popleft()
                connection.send(await self._answer(peer, request))
        finally:
            del self._waiting[connection]

    async def _answer(self, peer: Peer, request: Request) -> NamespaceMapped:
        namespace = f"namespace/{request.remote}"
        try:
            lends = self._directions.of(self._records.get(peer.id)).lends
            # A borrower whose offer was withdrawn may still release its namespaces.
            leaving = isinstance(request, ReleaseNamespace) and bool(peer.lending.namespace)
            if not leaving and (not lends or peer.lending.verdict != "Accepted"):
                raise Refusal("NotLending", "we lend nothing to you now: accept an offer of ours first")
            if isinstance(request, MapNamespace):
                had_rights = bool(peer.lending.namespace)
                try:
                    is_new = await self._tenants.map_namespace(peer.id, request.local, request.remote)
                finally:
                    is_revoked = self._is_revoked(peer, had_rights)
                    if is_revoked:
                        # Made in part or not released, it would stay: the rights were revoked without it.
                        self._left_over(peer.id)
                if is_revoked:
                    await self._tenants.release_namespace(peer.id, request.remote)
                    raise Refusal("NotLending", "we stopped lending to you meanwhile: accept an offer of ours first")
                if is_new:
                    self._audit.record(AuditEvent("AccessGranted", "NamespaceGranted", peer=peer.id, object=namespace))
            elif await self._tenants.release_namespace(peer.id, request.remote):
                self._audit.record(AuditEvent("AccessRevoked", "NamespaceReleased", peer=peer.id, object=namespace))
        except CancelledError:
            raise  # the daemon stops: the borrower repeats its request in the next session
        except Refusal as refusal:
            return NamespaceMapped(request.request, request.remote, refusal.reason, plain(refusal.message))
        except Exception as error:
            if is_expected(error):
                self._log.warn("granting a namespace to {peer} failed: {error}", peer=peer.id, error=str(error))
            else:
                self._log.failure("granting a namespace to {peer} failed", peer=peer.id)
            return NamespaceMapped(request.request, request.remote, "Internal", "the lender failed; ask again later")
        return NamespaceMapped(request.request, request.remote)

    def _is_revoked(self, peer: Peer, had_rights: bool) -> bool:
        """Return whether the rights of a peer ended, or end without time for it to drain its pods."""
        record = self._records.get(peer.id)
        untrusted = record is not None and is_trust_withdrawn(record)
        return untrusted or peer.lending.verdict != "Accepted" or (had_rights and not peer.lending.namespace)
