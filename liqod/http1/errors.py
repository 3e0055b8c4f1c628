"""The error of a message that is refused."""

from __future__ import annotations

import attrs


@attrs.define
class Malformed(Exception):
    """A message is refused: the status code for the client, and a message.

    The sentence never quotes the message, which may hold credentials.
    """

    code: int
    message: str

    def __str__(self) -> str:
        return self.message
