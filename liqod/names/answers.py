"""Translates an answer of this cluster's DNS for a tenant, and makes the answers that need nobody else.

The decoder is Twisted's; how much it reads is bounded. What it reads are answers of this
cluster's own DNS about this cluster's own names: answers about public names pass unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from twisted.names import dns

from liqod.flow.connections.dns_reading import decoded
from liqod.model.records.name_service import HomeAnswer, HomeRecord
from liqod.names import question as messages
from liqod.names.question import Question
from liqod.names.translation import MAX_NAME, Reverse, TenantView, is_of_lender, translate_back

MAX_TTL: Final = 5
"""Seconds for which an answer may be kept, by us and by the client: endpoints change (CoreDNS has 5 by default too)."""
NEGATIVE_TTL: Final = 2
"""The same for a name that does not exist: a service that was just made is soon found."""
MAX_BYTES: Final = 16 * 1024
"""Bytes of an answer: pointers of compressed names reach no further (RFC 1035, 4.1.4)."""
MAX_WIRE: Final = 65535
"""Bytes of a message by TCP (RFC 1035, 4.2.2)."""
_TYPES: Final = (dns.A, dns.AAAA, dns.CNAME, dns.PTR, dns.SRV)
"""What is answered about names of a cluster; Kubernetes' specification has no other records for services and pods."""

MAX_NUMBER: Final = 2**16 - 1
"""The highest priority, weight and port of an SRV record (RFC 2782)."""

Record = dns.RRHeader


def translated(data: bytes, asked: Question, view: TenantView) -> bytes:
    """Return the answer for a tenant whose question was translated; never raises for what a server sends."""
    return _answer(data, asked, view, partial(translate_back, view=view))


def reversed_names(data: bytes, asked: Question, view: TenantView, plan: Reverse) -> bytes:
    """Return the answer for a tenant that asked whose an address is: names of its own, and public ones."""

    def known(name: str) -> str | None:
        if plan.closed and name != asked.name and not is_of_lender(name, view):
            return None
        return translate_back(name, view)

    return _answer(data, asked, view, known)


def empty(asked: Question, view: TenantView, *, exists: bool) -> bytes:
    """Return an answer without records; without ``exists``, that the name does not exist (RFC 2308)."""
    return _encoded(asked, messages.NOERROR if exists else messages.NXDOMAIN, [], [_authority(view)], [])


def of_home(data: bytes, asked: Question, view: TenantView, further: bytes = b"") -> bytes | None:
    """Return what a tenant's home says as control passed it on; None where nothing was found out.

    Of records only those are taken that are about what was asked. ``further`` is what this cluster's DNS says of the
    name that they lead to (``alias``).
    """
    try:
        message = decoded(data)
    except Exception:
        return None
    if message.rCode == messages.NXDOMAIN:
        return empty(asked, view, exists=False)
    if message.rCode != messages.NOERROR:
        return None
    answers = [record for record in _translated(message.answers, lambda name: name) if str(record.name) == asked.name]
    if not answers:
        return empty(asked, view, exists=True)
    if further:
        answers += _read(further, partial(translate_back, view=view))
    whole = _encoded(asked, messages.NOERROR, answers, [], [])
    return whole if len(whole) <= MAX_BYTES else asked.answer(messages.SERVFAIL)


def alias(data: bytes, asked: Question) -> str | None:
    """Return the name that home says to look up for the address that was asked for; None where it says none."""
    found = [one for one in _read(data, lambda name: name) if str(one.name) == asked.name]
    if asked.kind not in (dns.A, dns.AAAA) or [one.type for one in found] != [dns.CNAME]:
        return None
    payload: Any = found[0].payload
    return str(payload.name)


def said_by_home(asked: Question, answer: HomeAnswer) -> bytes:
    """Return the message by which control passes on what a tenant's home says; a refusal or a failure is REFUSED."""
    if answer.reason:
        return asked.answer(messages.REFUSED)
    if not answer.records:
        return asked.answer(messages.NOERROR if answer.exists else messages.NXDOMAIN)
    records = [record for one in answer.records if (record := _record(one)) is not None]
    whole = _encoded(asked, messages.NOERROR, records, [], [])
    return whole if len(whole) <= MAX_BYTES else asked.answer(messages.SERVFAIL)


def is_missing(answer: bytes) -> bool:
    """Return whether an answer of ours says that a name does not exist."""
    return answer[3] & 0xF == messages.NXDOMAIN


def _record(one: HomeRecord) -> Record | None:
    """Return a record of home's; its text was checked where it was received (``wire.check``)."""
    ttl = min(one.ttl, MAX_TTL)
    payload: dns.IEncodableRecord
    try:
        if one.kind == dns.A:
            payload = dns.Record_A(one.data, ttl)
        elif one.kind == dns.AAAA:
            payload = dns.Record_AAAA(one.data, ttl)
        elif one.kind == dns.CNAME:
            payload = dns.Record_CNAME(one.data, ttl)
        elif one.kind == dns.PTR:
            payload = dns.Record_PTR(one.data, ttl)
        elif one.kind == dns.SRV:
            *numbers, target = one.data.split(" ")
            priority, weight, port = map(int, numbers)
            if max(priority, weight, port) > MAX_NUMBER:
                return None
            payload = dns.Record_SRV(priority, weight, port, target, ttl)
        else:
            return None
    except (OSError, ValueError):
        return None
    return Record(one.name, one.kind, dns.IN, ttl, payload)


def lifetime(answer: bytes) -> int:
    """Return for how many seconds an answer of ours may be kept; 0 for a failure."""
    code = answer[3] & 0xF
    if code == messages.NOERROR and messages.HEADER.unpack_from(answer)[3]:
        return MAX_TTL
    return NEGATIVE_TTL if code in (messages.NOERROR, messages.NXDOMAIN) else 0


def fitting(answer: bytes, asked: Question, most: int) -> bytes:
    """Return an answer, or, where it is larger than the client takes, one that says to ask by TCP."""
    return answer if len(answer) <= most else asked.answer(messages.NOERROR, truncated=True)


def _answer(data: bytes, asked: Question, view: TenantView, known: Callable[[str], str | None]) -> bytes:
    try:
        message = decoded(data)
    except Exception:
        return asked.answer(messages.SERVFAIL)
    if message.rCode not in (messages.NOERROR, messages.NXDOMAIN):
        return asked.answer(messages.SERVFAIL)
    answers = list(_translated(message.answers, known))
    if not answers:
        gone = message.rCode == messages.NXDOMAIN or bool(message.answers)
        return empty(asked, view, exists=not gone)
    more = list(_translated(message.additional, known))
    whole = _encoded(asked, messages.NOERROR, answers, [], more)
    if len(whole) > MAX_BYTES:
        whole = _encoded(asked, messages.NOERROR, answers, [], [])
    return whole if len(whole) <= MAX_BYTES else asked.answer(messages.SERVFAIL)


def _read(data: bytes, known: Callable[[str], str | None]) -> list[Record]:
    """Return the answers in a message, as ``_translated`` does; none of what is no message."""
    try:
        message = decoded(data)
    except Exception:
        return []
    return list(_translated(message.answers, known))


def _translated(records: Iterable[Record], known: Callable[[str], str | None]) -> Iterable[Record]:
    """Yield the records that the tenant may know, translated; a record of a name that it may not is left out."""

    def text(name: dns.Name | None) -> str | None:
        said = _text(name)
        return None if said is None else known(said)

    for record in records:
        if record.type not in _TYPES or record.cls != dns.IN:
            continue
        owner = text(record.name)
        payload = None if owner is None else _payload(record, text)
        if owner is not None and payload is not None:
            yield Record(owner, record.type, dns.IN, min(record.ttl, MAX_TTL), payload)


def _payload(record: Record, text: Callable[[dns.Name | None], str | None]) -> dns.IEncodableRecord | None:
    payload: Any = record.payload
    ttl = min(record.ttl, MAX_TTL)
    if isinstance(payload, dns.Record_A | dns.Record_AAAA):
        return payload
    if isinstance(payload, dns.Record_SRV):
        target = text(payload.target)
        return None if target is None else dns.Record_SRV(payload.priority, payload.weight, payload.port, target, ttl)
    if isinstance(payload, dns.Record_CNAME | dns.Record_PTR):
        target = text(payload.name)
        return None if target is None else type(payload)(target, ttl)
    return None


def _authority(view: TenantView) -> Record:
    """Return the record by which a client keeps for how long there is nothing (RFC 2308, 5)."""
    soa = dns.Record_SOA(f"ns.dns.{view.home}", f"hostmaster.{view.home}", 1, 7200, 1800, 86400, NEGATIVE_TTL)
    return Record(view.home, dns.SOA, dns.IN, NEGATIVE_TTL, soa)


def _encoded(asked: Question, code: int, answers: list[Record], authority: list[Record], more: list[Record]) -> bytes:
    body = dns.Message(maxSize=0)
    body.queries = [dns.Query(asked.name, asked.kind, dns.IN)]
    body.answers, body.authority, body.additional = answers, authority, more
    # Of the encoder's message the records are taken: header, question and EDNS are those of the client's question.
    records = body.toStr()[messages.HEADER.size + len(asked.section) :]
    head = asked.head(code, len(answers), len(authority), more=len(more))
    return head + asked.section + records + messages.opt(asked.edns)


def _text(name: dns.Name | None) -> str | None:
    """Return a name in lower case; None for one that cannot be written again: not ASCII, or with a dot in a label."""
    text = b"" if name is None else name.name
    if not text.isascii() or len(text) > MAX_NAME or not all(0 < len(one) < 64 for one in text.split(b".") if text):
        return None
    return text.decode("ascii").lower()
