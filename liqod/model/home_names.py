"""What is known at home of a name that a lender asks for. Pure."""

from __future__ import annotations

from attrs import frozen


@frozen
class HomeRecord:
    """One record: its type by number (RFC 1035, 3.2.2), and its text as in NameAnswer (docs/protocol.md)."""

    name: str
    kind: int
    ttl: int
    data: str


@frozen(kw_only=True)
class HomeAnswer:
    """Records, or none for ``ttl`` seconds, or a reason why nothing is said.

    ``exists``: without records, that the name has others (RFC 2308, NODATA).
    """

    records: tuple[HomeRecord, ...] = ()
    ttl: int = 0
    exists: bool = False
    reason: str = ""
    message: str = ""
