"""Who is to blame: every failure of the protocol is either theirs or ours."""

from __future__ import annotations


class ProtocolError(Exception):
    """The base of both; never raised itself."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: a CamelCase reason and a sentence. The session is dead; close the connection."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class LocalProtocolError(ProtocolError):
    """We asked for what the protocol does not allow: a bug on our side. Nothing was sent; the session is unchanged."""
