"""What tests of names share: a tenant's view, questions as pods send them, and a server that answers from a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.protocol import DatagramProtocol
from twisted.names import dns

from liqod.names.translation import TenantView

VIEW = TenantView("home.example", "cluster.local", {"shop": "shop-rome", "db": "db-rome"})


def query(name: str, kind: int = dns.A, *, number: int = 7, size: int = 0) -> bytes:
    """Return a question; with a size, by EDNS."""
    message = dns.Message(number, recDes=1, maxSize=0)
    message.queries = [dns.Query(name, kind, dns.IN)]
    data: bytes = message.toStr()
    if not size:
        return data
    return data[:11] + b"\x01" + data[12:] + b"\0" + b"\0\x29" + size.to_bytes(2, "big") + bytes(6)


def decoded(data: bytes) -> dns.Message:
    """Return a message."""
    message = dns.Message()
    message.fromStr(data)
    return message


def contents(message: dns.Message, section: str = "answers") -> list[tuple[str, str]]:
    """Return owner and content of the records of a section, an address or a name."""
    found = []
    for record in getattr(message, section):
        payload: Any = record.payload
        content = payload.dottedQuad() if isinstance(payload, dns.Record_A) else str(getattr(payload, "name", ""))
        content = str(payload.target) if isinstance(payload, dns.Record_SRV) else content
        found.append((str(record.name), content))
    return found


def answer_to(
    asked: bytes, records: Sequence[dns.RRHeader], *, code: int = 0, more: Sequence[dns.RRHeader] = ()
) -> bytes:
    """Return the answer of a server to a question."""
    message = decoded(asked)
    message.answer, message.rCode, message.recAv, message.maxSize = 1, code, 1, 0
    message.answers, message.additional = list(records), list(more)
    data: bytes = message.toStr()
    return data


class Authority(DatagramProtocol):
    """This cluster's DNS: answers from a table of names, and remembers what it was asked."""

    noisy = False

    def __init__(self, table: dict[str, list[dns.RRHeader]]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.silent = False

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        message = decoded(datagram)
        name = str(message.queries[0].name)
        self.asked.append(name)
        if self.silent or self.transport is None:
            return
        known = self.table.get(name.lower())
        self.transport.write(answer_to(datagram, known or [], code=0 if known is not None else dns.ENAME), addr)


def address(name: str, text: str, ttl: int = 30) -> dns.RRHeader:
    """Return a record with an address."""
    return dns.RRHeader(name, dns.A, dns.IN, ttl, dns.Record_A(text, ttl))
