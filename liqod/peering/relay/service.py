"""The relay service: accepts connections of borrowers, authorizes their requests, and forwards them to the API server.

A borrower is identified by the key of its TLS certificate, the same as for its sessions. Each request is authorized
separately: by the pin of that key, the form of its path, and the rights that the lender granted. It is sent with user
impersonation as the borrower's service account, so that RBAC, admission policies and the audit log see the same user
as for a direct connection.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from liqod.flow.tasks import Tasks
from liqod.flow.timer import Timer
from liqod.http1.messages import Header
from liqod.http1.responses import whole_response
from liqod.identity.tls import HTTP, PeerTLS
from liqod.kube.client import Client
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.api_request import RequestAttributes
from liqod.model.records.offer import Refusal
from liqod.peering.relay.channel import HEAD, RelayChannel
from liqod.peering.relay.policy import Call
from liqod.peering.relay.rejection import Rejected, status
from liqod.peering.relay.targets import ask_of
from liqod.peering.relay.upstream import LINGER, Pool, UpstreamConnection
from liqod.peering.session.usage import Usages

MAX_CONNECTIONS: Final = 1024
"""Connections of one borrower at most: each carries one request at a time, and each watch occupies one."""


MAX_TURNED_AWAY: Final = 64
"""Rejected connections that wait for their response at most; more are closed without one."""


class Rights(Protocol):
    """The rights of borrowers, as the lender granted them."""

    def permits(self, peer: ClusterID, ask: RequestAttributes) -> bool:
        """Return whether a borrower may send a request."""
        ...

    def account_of(self, peer: ClusterID) -> str:
        """Return the user name of a borrower at the API server."""
        ...


class CallerLookup(Protocol):
    """Which borrower a key belongs to: ``relay.callers.PinnedCallers``."""

    def caller(self, key: Fingerprint) -> ClusterID | None:
        """Return the admitted peer that a key is pinned for, None for any other key."""
        ...


class RejectionLog(Protocol):
    """Counts and logs rejected requests: ``session.refusal_log.RefusalLog``."""

    def record(self, reason: str, source: str, message: str) -> None:
        """Count a rejected request; ``source`` is an address or a cluster ID."""
        ...


class Relay:
    """Forwards requests of borrowers to the API server of ``client``.

    ``requests`` counts forwarded requests by peer, ``usages`` what each borrower takes of this daemon.
    """

    def __init__(
        self,
        *,
        client: Client,
        clock: IReactorTime,
        tls: PeerTLS,
        rights: Rights,
        callers: CallerLookup,
        refusals: RejectionLog,
        tasks: Tasks,
        usages: Usages | None = None,
    ) -> None:
        self.clock = clock
        self._usages = usages or Usages()
        self.requests: Counter[ClusterID] = Counter()
        self._client = client
        self._tls = tls
        self._rights = rights
        self._callers = callers
        self._refusals = refusals
        self._tasks = tasks
        self._pool = Pool(client, clock)
        self._channels: dict[ClusterID, set[RelayChannel]] = {}
        self._turned_away: set[TurnedAway] = set()

    @property
    def base(self) -> bytes:
        """The path of the API server's URL, without a trailing ``/``."""
        return urlsplit(self._client.config.server).path.rstrip("/").encode("ascii")

    def connections(self, peer: ClusterID) -> int:
        """Return the number of connections of a borrower."""
        return len(self._channels.get(peer, ()))

    def protocol(self, transport: object, address: str) -> TwistedProtocol:
        """Return the protocol for a connection whose TLS handshake agreed on HTTP (ALPN)."""
        try:
            certificate = self._tls.peer_certificate(transport, HTTP)
        except Refusal as refusal:
            return self._turn_away(address, Rejected(401, refusal.reason, refusal.message))
        caller = self._callers.caller(certificate.fingerprint)
        if caller is None:
            return self._turn_away(address, _unknown())
        channels = self._channels.setdefault(caller, set())
        if len(channels) >= MAX_CONNECTIONS:
            message = f"{MAX_CONNECTIONS} connections of the cluster are open"
            rejected = Rejected(429, "RelayTooManyConnections", message)
            return self._turn_away(caller, rejected)
        channel = RelayChannel(self, caller, certificate.fingerprint, address, self._usages.of(caller))
        channels.add(channel)
        return channel

    def _turn_away(self, source: str, rejected: Rejected) -> TwistedProtocol:
        self._refusals.record(rejected.reason, source, rejected.message)
        return TurnedAway(rejected, self.clock, self._turned_away)

    def review(self, peer: ClusterID, *, gone: bool = False) -> None:
        """Abort the connections of a peer whose key is no longer trusted, or that is no longer admitted.

        ``gone``: its record was deleted, so its counters are dropped.
        """
        for channel in tuple(self._channels.get(peer, ())):
            if self._callers.caller(Fingerprint(channel.fingerprint)) != peer:
                channel.abort()
        if gone:
            self.requests.pop(peer, None)

    def close(self) -> None:
        """Abort all connections."""
        for channels in tuple(self._channels.values()):
            for channel in tuple(channels):
                channel.abort()
        for turned_away in tuple(self._turned_away):
            turned_away.cut()
        self._pool.close()

    # channel.RequestGate

    def admit(self, channel: RelayChannel, call: Call) -> str:
        caller = channel.caller
        if self._callers.caller(Fingerprint(channel.fingerprint)) != caller:
            raise _unknown()
        ask = ask_of(call.method, call.target)
        if not ask.path and not self._rights.permits(caller, ask):
            raise Rejected(403, "RelayDenied", f"cluster {caller} may not {ask}: it was not granted that here")
        self.requests[caller] += 1
        self._usages.of(caller).requested(self.clock.seconds())
        return self._rights.account_of(caller)

    def rejected(self, channel: RelayChannel, rejected: Rejected) -> None:
        self._refusals.record(rejected.reason, channel.caller, rejected.message)

    def answered(self, channel: RelayChannel, call: Call, code: int) -> None:
        if code == 401:
            self._tasks.spawn(self._renew(), "reading the daemon's own token again")
        elif code == 403:
            what = f"{call.method.decode()} {call.target.partition(b'?')[0].decode()}"
            self._refusals.record("RelayForbidden", channel.caller, f"the API server forbids {what}")

    async def _renew(self) -> None:
        await self._client.renew()

    def own_headers(self, user: str) -> list[Header]:
        own = self._client.request_headers()
        # The borrower's own Accept header is forwarded.
        own.removeHeader(b"Accept")
        headers = [(name, value) for name, values in own.getAllRawHeaders() for value in values]
        return [*headers, (b"Impersonate-User", user.encode("ascii"))]

    def idle(self) -> UpstreamConnection | None:
        return self._pool.idle()

    def open(self) -> Deferred[UpstreamConnection]:
        return self._pool.open()

    def release(self, upstream: UpstreamConnection) -> None:
        self._pool.release(upstream)

    def channel_lost(self, channel: RelayChannel) -> None:
        channels = self._channels.get(channel.caller)
        if channels is not None:
            channels.discard(channel)
            if not channels:
                del self._channels[channel.caller]


class TurnedAway(TwistedProtocol):
    """A connection that gets one fixed response; its requests are not read. ``all_of_them`` is the set of these."""

    transport: Any

    def __init__(self, rejected: Rejected, clock: IReactorTime, all_of_them: set[TurnedAway]) -> None:
        self._rejected = rejected
        self._all = all_of_them
        self._timer = Timer(clock)
        self._answered = False

    def connectionMade(self) -> None:
        if len(self._all) >= MAX_TURNED_AWAY:
            self.transport.abortConnection()
            return
        self._all.add(self)
        self._timer.start(HEAD, self.cut)

    def dataReceived(self, data: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        self._timer.start(LINGER, self.cut)
        headers = [(b"Content-Type", b"application/json")]
        self.transport.write(whole_response(self._rejected.code, headers, status(self._rejected)))
        # TLS closes when the peer has closed its side, too: the timer bounds the wait for one that does not.
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._all.discard(self)
        self._timer.cancel()

    def cut(self) -> None:
        """Close at once."""
        self.transport.abortConnection()


def _unknown() -> Rejected:
    return Rejected(401, "RelayUnknownKey", "this key is not trusted here, or nothing is lent to its cluster")
