"""Protocol errors, by the side whose fault they are (as in h11)."""

from __future__ import annotations


class ProtocolError(Exception):
    """The base class of both."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: a CamelCase reason and a message. The session has failed; close the connection."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class LocalProtocolError(ProtocolError):
    """Our own code sent what the protocol does not allow: a bug. Nothing was sent; the session is unchanged."""
