"""What may be said to an offer: a union of three frozen values."""

from __future__ import annotations

import attrs


@attrs.frozen
class Accept:
    """Yes; the reason says which rule said so."""

    reason: str = "Accepted"
    message: str = ""


@attrs.frozen
class Refuse:
    """No, with a CamelCase reason and a sentence for people."""

    reason: str
    message: str


@attrs.frozen
class Defer:
    """Not decided: the reason says what is being waited for."""

    reason: str
    message: str


Verdict = Accept | Refuse | Defer
