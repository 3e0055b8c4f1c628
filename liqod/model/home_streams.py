"""What home grants a lender whose pods reach its API server by streams between the daemons. Pure."""

from __future__ import annotations

from attrs import frozen


@frozen
class HomeStreamsGrant:
    """How many idle streams are kept ready for a lender; the reason and a sentence where that is fewer than asked."""

    count: int
    reason: str = ""
    message: str = ""
