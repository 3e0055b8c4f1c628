"""Dials one target: a cluster at its known addresses, or an address whose cluster is not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from liqod.flow.backoff import Backoff
from liqod.flow.timer import Timer
from liqod.identity.tls import PeerTLS
from liqod.model.ids import ClusterID
from liqod.peering.session.dial import Race, connect
from liqod.peering.session.link import LinkCore, make_link
from liqod.peering.session.protocol import Owner, PeerConnection, Times
from liqod.wire.events import Bye

NETWORK = Backoff(initial=0.5, factor=2.0, cap=30.0, jitter=0.3)
"""After a failure of the network."""
UNTIL_TRUSTED = Backoff(initial=0.5, factor=1.5, cap=3.0, jitter=0.3)
"""While the peer does not trust us yet: the side that trusts last dials at once, so this serves peers that cannot dial.
"""
AFTER_REFUSAL = Backoff(initial=30.0, factor=2.0, cap=300.0, jitter=0.3)
"""After a refusal that only an administrator can resolve."""
BREAK = Backoff(initial=0.2, factor=1.0, cap=0.2, jitter=0.9)
"""After a session that was established: soon, with jitter, so that both sides do not dial at the same moment."""

NO_ADDRESS = (
    "no address of the peer is known here: it has to connect to this cluster, be found by discovery, or be named with "
    "'liqodctl peer HOST'"
)
_RESTING = ("TrustPending", "Self", "Unpeered")


class Target(Protocol):
    """Where a dialer dials: a cluster, or an address whose cluster is not known. It is asked at each attempt."""

    @property
    def expected(self) -> ClusterID | None:
        """The cluster that must answer, None for any."""

    def addresses(self) -> Sequence[str]:
        """Return the addresses to try."""

    def expected_key(self) -> str:
        """Return the only fingerprint that anything may be sent to, empty for any."""

    def unreachable(self, why: str) -> None:
        """An attempt failed before there was a connection."""


class Dialer:
    """Dials one target when its link starts an attempt."""

    def __init__(
        self,
        *,
        reactor: IReactorTime,
        tls: PeerTLS,
        owner: Owner,
        times: Times,
        random: Callable[[], float],
        target: Target,
    ) -> None:
        self.link = make_link(LinkCore(reactor, self._attempt, self.abandon))
        self.target = target
        self.connection: PeerConnection | None = None
        self._reactor = reactor
        self._tls = tls
        self._owner = owner
        self._times = times
        self._random = random
        self.retry_within = 0
        """Upper bound in whole seconds until the next attempt; 0 while none is planned."""
        self._failures = 0
        self._up = False
        self._turn = 0
        self._starting = Timer(reactor)
        self._race: Race | None = None

    def dial_now(self) -> None:
        """Reset the back-off and dial now: there is a sign that the peer is reachable again."""
        self._failures = 0
        self.link.wake()

    def session_opened(self) -> None:
        """Stop dialling: a session is open, from either side."""
        self._failures = self.retry_within = 0
        self._up = True
        self.link.connected()

    def abandon(self) -> None:
        """Cancel the attempt in progress, if there is one."""
        self._starting.cancel()
        if self._race is not None:
            self._race.result.cancel()
            self._race = None
        connection, self.connection = self.connection, None
        if connection is not None and not connection.established:
            connection.abort(Bye("NotNeeded", "the peer reached us first"))

    def connection_closed(self, connection: PeerConnection, ending: Bye) -> None:
        """Decide when to dial again after a connection to the target ended, with or without a session.

        ``ending``: its meaning for us, which may differ from the Bye that was received.
        """
        if self.connection is connection:
            self.connection = None
        self._up = False
        if connection.ended_by_peer:
            self._closed_by_peer(ending, was_up=connection.established_at is not None)
        elif ending.reason == "TrustPending" and connection.established_at is not None:
            self._retry(BREAK)  # trust was withdrawn: dial to see which key the peer has now
        elif ending.reason == "Unpeered" and connection.established_at is None:
            self._retry(AFTER_REFUSAL)  # the peer may stop before it acts on the Bye: it is sent again
        elif ending.reason in _RESTING:
            self._rest()
        elif ending.reason in ("ClusterIDRepetition", "UnexpectedIdentity", "UnexpectedKey"):
            self._retry(AFTER_REFUSAL)
        elif connection.established_at is not None:
            self._retry(BREAK)
        else:
            self._retry(NETWORK)

    def _closed_by_peer(self, ending: Bye, *, was_up: bool) -> None:
        if ending.reason in ("Self", "Unpeered"):
            self._rest()
        elif ending.reason == "TrustPending":
            self._retry(UNTIL_TRUSTED)
        elif ending.reason in ("ClusterIDRepetition", "TokenRefused"):
            self._retry(AFTER_REFUSAL, ending.retry_after)
        else:
            self._retry(BREAK if was_up else NETWORK, ending.retry_after)

    def _rest(self) -> None:
        self.retry_within = 0
        self.link.rest()

    def _retry(self, backoff: Backoff, at_least: float = 0.0) -> None:
        delay = backoff.using(self._random).delay(self._failures)
        self._failures += 1
        self.retry_within = math.ceil(max(backoff.longest, at_least))
        self.link.retry(max(delay, at_least))

    def _attempt(self) -> None:
        self.abandon()
        # Not within the link's transition: an attempt may fail synchronously, and the machine is not reentrant.
        self._starting.start(0, self._begin)

    def _begin(self) -> None:
        addresses = list(self.target.addresses())
        if not addresses:
            if not self._up:
                self.target.unreachable(NO_ADDRESS)
                self._rest()
            return
        # Rotated: an address that opens TCP but fails in TLS must not be the first one in every attempt.
        first = self._turn % len(addresses)
        self._turn += 1
        race = self._race = Race(self._reactor, addresses[first:] + addresses[:first], self._connect)
        race.result.addCallbacks(self._opened, self._not_opened)

    def _connect(self, address: str) -> Deferred[PeerConnection]:
        def make() -> PeerConnection:
            return PeerConnection(
                "dialer",
                self._owner,
                tls=self._tls,
                clock=self._reactor,
                times=self._times,
                address=address,
                expected=self.target.expected,
                expected_key=self.target.expected_key(),
            )

        return connect(self._reactor, self._tls, address, make)

    def _opened(self, connection: PeerConnection) -> None:
        self._race = None
        self.connection = connection

    def _not_opened(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        self._race = None
        if not self._up:  # the peer may have reached us while we did not reach it
            self.target.unreachable(failure.getErrorMessage())
            self._retry(NETWORK)
