"""The verdict on an offer: a union of three frozen values."""

from __future__ import annotations

import attrs


@attrs.frozen
class Accept:
    """Accepted; the reason names the rule."""

    reason: str = "Accepted"
    message: str = ""


@attrs.frozen
class Refuse:
    """Refused, with a CamelCase reason and a message for people."""

    reason: str
    message: str


@attrs.frozen
class Defer:
    """Not decided yet: the reason says what is awaited."""

    reason: str
    message: str


Verdict = Accept | Refuse | Defer
