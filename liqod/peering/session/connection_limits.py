"""How many connections of peers may be open, and how many of them without a session: in all, and from one place."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from liqod.flow.connections import admission
from liqod.peering.session.dial import join_address
from liqod.peering.session.protocol import PeerConnection


class ConnectionLimits(admission.Admission):
    """Makes a connection for everybody who comes in; who has a session keeps it, who has none yet waits."""

    def __init__(
        self,
        make: Callable[[str], PeerConnection],
        maximum: int,
        refused: Callable[[str, str, str], None],
        clock: IReactorTime,
    ) -> None:
        super().__init__(
            clock, admission.Limits(maximum), refused, full="TooManySessions", setting="peering.max-sessions"
        )
        self._make = make

    def connection(self, host: str, port: int) -> PeerConnection:
        """Return the protocol for a connection that was let in."""
        connection = self._make(join_address(host, port))
        self.enters(connection, host)
        return connection
