"""Limits of open connections of peers, with and without a session: in total, and per source address."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from liqod.flow.connections import admission
from liqod.model.host_port import join_address
from liqod.peering.session.protocol import PeerConnection


class ConnectionLimits(admission.Admission):
    """Admits incoming connections; those with a session are never evicted for new ones."""

    def __init__(
        self,
        make: Callable[[str], PeerConnection],
        maximum: int,
        refused: Callable[[str, str, str], None],
        clock: IReactorTime,
    ) -> None:
        super().__init__(
            clock,
            admission.PortLimits(maximum),
            refused,
            full="TooManySessions",
            setting="peering.max-sessions",
            remembers=True,
        )
        self._make = make

    def connection(self, host: str, port: int) -> PeerConnection:
        """Return the protocol for an admitted connection."""
        connection = self._make(join_address(host, port))
        self.enters(connection, host)
        return connection
