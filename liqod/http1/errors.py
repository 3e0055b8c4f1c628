"""What is wrong with a message that is refused."""

from __future__ import annotations

import attrs


@attrs.define
class Malformed(Exception):
    """A message that is refused: the status code that says so to a client, and a sentence.

    The sentence never quotes the message, which may hold credentials.
    """

    code: int
    message: str

    def __str__(self) -> str:
        return self.message
