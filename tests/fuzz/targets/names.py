"""Packets of DNS and mDNS: questions of pods, answers of servers, what is announced on the LAN or by a domain."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.names import dns
from zeroconf._cache import DNSCache
from zeroconf._protocol.incoming import DNSIncoming

from liqod.discovery.candidate import Announcement, BadRecord
from liqod.discovery.interfaces import InterfaceChoice
from liqod.discovery.mdns import MAX_INSTANCE, TYPE, Responder
from liqod.discovery.merge import MAX_CANDIDATES, Lost, Resolved, candidates, fold
from liqod.discovery.unicast import SearchFailed, SearchResult, search
from liqod.flow.connections.dns_reading import decoded
from liqod.names import answers, question
from liqod.names.translation import Empty, Forward, Reverse, TenantView, Translate, plan
from tests.fuzz.cost import Target

VIEW: Final = TenantView("home.example", "cluster.local", {"shop": "shop-rome", "db": "db-rome"})
OWN: Final = ("shop-rome", "db-rome")


def asked(data: bytes) -> None:
    """A question: read, or refused in one message; what is asked on the tenant's behalf is in its own namespaces."""
    found = question.read(data)
    if isinstance(found, question.RejectedQuestion):
        assert len(found.reply) <= len(data) + question.HEADER.size
        return
    assert found.section in data
    assert len(found.answer(question.SERVFAIL)) <= question.SMALLEST
    assert question.SMALLEST <= found.by_udp <= question.LARGEST
    todo = plan(found.name, found.kind, VIEW)
    if isinstance(todo, Translate):
        labels = todo.name.removesuffix(".cluster.local").split(".")
        assert labels[-2] in OWN, todo
        assert question.read(found.asked(7, todo.name)) != question.RejectedQuestion(b"")
        again = question.read(found.asked(7, todo.name))
        assert isinstance(again, question.Question)
        assert again.name == todo.name
    elif isinstance(todo, Forward):
        assert not f".{found.name}".endswith(".cluster.local")
    else:
        assert isinstance(todo, Empty | Reverse)


def answered(data: bytes) -> None:
    """An answer to what was asked: nothing of other namespaces is in what the tenant gets, and it can be decoded.

    It is read once, as the daemon does; what it costs is that of one answer.
    """
    questions = {name: found for name in ASKED if isinstance(found := question.read(name), question.Question)}
    by_size = list(ASKED)[len(data) % len(ASKED)]
    name = next((one for one, found in questions.items() if question.is_answer_to(data, 7, found.section)), by_size)
    found, todo = questions[name], ASKED[name]
    whole = data if question.is_answer_to(data, 7, found.section) else name[:2] + b"\x80" + data
    if isinstance(todo, Reverse) and len(data) % 2:
        reply = answers.reversed_names(whole, found, VIEW, todo)
    else:
        reply = answers.translated(whole, found, VIEW)
    assert len(reply) <= answers.MAX_BYTES
    assert answers.lifetime(reply) <= answers.MAX_TTL
    assert len(answers.fitting(reply, found, found.by_udp)) <= found.by_udp
    for owner in _owners(reply):
        assert not f".{owner}".endswith(".cluster.local"), owner


def announced(data: bytes) -> None:
    """A packet of mDNS: what zeroconf made of it, as we read it."""
    packet = DNSIncoming(data)
    if not packet.valid:
        return
    cache = DNSCache()
    cache.async_add_records(packet.answers())
    responder = Responder.__new__(Responder)
    responder._me = Announcement("alpha", "turin", "sha256:" + "0" * 64, 5872)
    responder.choice = InterfaceChoice((), (), (), loopback=False)
    responder._zeroconf = SimpleNamespace(cache=cache)  # type: ignore[assignment]
    seen: list[Resolved | Lost] = []
    # Of what a stranger says, these reach the part that reads them (``Mdns._changed``).
    aliases = {str(record.alias) for record in packet.answers() if hasattr(record, "alias")}
    for name in sorted(one for one in aliases if one.endswith(f".{TYPE}") and len(one) <= MAX_INSTANCE):
        try:
            found = responder.known(name)
        except BadRecord as error:
            assert str(error)
            continue
        if found is not None:
            seen.append(found)
    for candidate in candidates(fold({}, [*seen, *[Lost(one.instance) for one in seen[:1]]], 0.0)):
        assert not ipaddress.ip_address(candidate.host).is_loopback
        assert 0 < candidate.port < 65536
    assert len(candidates(fold({}, seen, 0.0))) <= MAX_CANDIDATES


def searched(data: bytes) -> None:
    """Four answers of a server of a domain, each with its length: found, or a failure that says why."""
    parts: list[bytes] = []
    while len(data) > 1 and len(parts) < 4:
        length = int.from_bytes(data[:2], "big")
        parts.append(data[2 : 2 + length])
        data = data[2 + length :]
    outcome: list[Any] = []
    work = Deferred.fromCoroutine(search(_Server(parts), "example.org"))
    work.addBoth(outcome.append)
    (found,) = outcome
    if not isinstance(found, SearchResult):
        assert isinstance(found.value, SearchFailed), found
        return
    for one in found.seen:
        assert one.instance.isprintable()
        assert len(one.candidates) <= 8


class _Server:
    """Answers each kind of question with one of the given messages."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    def _answer(self, number: int) -> Deferred[Any]:
        message = decoded(self._parts[number] if number < len(self._parts) else b"")
        return succeed((message.answers, message.authority, message.additional))

    def lookupPointer(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        return self._answer(0)

    def lookupService(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        return self._answer(1)

    def lookupText(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        return self._answer(2)

    def lookupAddress(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        return self._answer(3)

    lookupIPV6Address = lookupAddress


def _owners(reply: bytes) -> list[str]:
    """Return all names in an answer; raises for one that cannot be decoded."""
    message = dns.Message()
    message.fromStr(reply)
    found = []
    for record in (*message.answers, *message.additional):
        names = [record.name, getattr(record.payload, "name", None), getattr(record.payload, "target", None)]
        found += [bytes(name.name).decode("latin-1").lower() for name in names if isinstance(name, dns.Name)]
    return found


def _query(name: str, kind: int, size: int = 0) -> bytes:
    message = dns.Message(7, recDes=1, maxSize=0)
    message.queries = [dns.Query(name, kind, dns.IN)]
    data: bytes = message.toStr()
    more = b"\0\0\x29" + size.to_bytes(2, "big") + bytes(6)
    return data[:11] + b"\x01" + data[12:] + more if size else data


def _message(*records: dns.RRHeader, asked: bytes = b"", more: Sequence[dns.RRHeader] = ()) -> bytes:
    message = dns.Message(7, answer=1, maxSize=0)
    if asked:
        message.fromStr(asked)
        message.answer = 1
    message.maxSize = 0
    message.answers, message.additional = list(records), list(more)
    data: bytes = message.toStr()
    return data


def _record(name: str, payload: Any) -> dns.RRHeader:
    return dns.RRHeader(name, payload.TYPE, dns.IN, 60, payload)


def _txt(*strings: bytes) -> dns.Record_TXT:
    return dns.Record_TXT(*strings, ttl=60)


_HERE: Final = "cache.shop-rome.svc.cluster.local"
_REVERSE: Final = "7.0.0.10.in-addr.arpa"
ASKED: Final = {
    _query("cache.shop.svc.home.example", dns.A): None,
    _query("_http._tcp.cache.shop.svc.home.example", dns.SRV, 1232): None,
    _query(_REVERSE, dns.PTR): Reverse(closed=True),
}
_CLAIMS: Final = (b"proto=1", b"id=milan", b"name=milan", b"fp=sha256:" + b"0" * 64)
_INSTANCE: Final = "milan-00000000." + TYPE.rstrip(".")
_OTHER: Final = "milan._liqod._tcp.example.org"
TARGETS: Final[Mapping[str, Target]] = {
    "dns-question": asked,
    "dns-answer": answered,
    "mdns": announced,
    "dns-search": searched,
}
SEEDS: Final[Mapping[str, list[bytes]]] = {
    "dns-question": [
        *ASKED,
        _query("kubernetes.default.svc.cluster.local", dns.A, 4096),
        _query("x." * 60 + "example.org", dns.AAAA),
        _query("b.a.9.8." + "0." * 28 + "ip6.arpa", dns.PTR),
        _query("shop.svc.home.example", dns.TXT),
    ],
    "dns-answer": [
        _message(_record(_HERE, dns.Record_A("10.0.0.7", 60)), asked=next(iter(ASKED))),
        _message(
            _record("_http._tcp." + _HERE, dns.Record_SRV(0, 1, 80, "web-0." + _HERE, 60)),
            asked=list(ASKED)[1],
            more=[_record("web-0." + _HERE, dns.Record_AAAA("fd00::7", 60))],
        ),
        _message(
            _record(_REVERSE, dns.Record_PTR("a.kube-system.svc.cluster.local", 60)),
            _record(_REVERSE, dns.Record_PTR("10-0-0-7." + _HERE, 60)),
            asked=list(ASKED)[2],
        ),
        _message(_record(_HERE, dns.Record_CNAME("example.org", 60)), asked=next(iter(ASKED)))[:60] + b"\xc0\x0c" * 9,
    ],
    "mdns": [
        _message(
            _record(TYPE.rstrip("."), dns.Record_PTR(_INSTANCE, 60)),
            _record(_INSTANCE, dns.Record_SRV(0, 0, 5872, "milan.local", 60)),
            _record(_INSTANCE, _txt(*_CLAIMS)),
            _record("milan.local", dns.Record_A("192.0.2.7", 60)),
            _record("milan.local", dns.Record_AAAA("fe80::7", 60)),
        ),
        _message(_record(TYPE.rstrip("."), dns.Record_PTR(_INSTANCE, 0))),
        _query(TYPE.rstrip("."), dns.PTR),
    ],
    "dns-search": [
        b"".join(
            len(one).to_bytes(2, "big") + one
            for one in (
                _message(_record("_liqod._tcp.example.org", dns.Record_PTR(_OTHER, 60))),
                _message(_record(_OTHER, dns.Record_SRV(0, 0, 5872, "gw.example.org", 60))),
                _message(_record(_OTHER, _txt(*_CLAIMS))),
                _message(_record("gw.example.org", dns.Record_A("192.0.2.7", 60))),
            )
        ),
        b"\0\0",
    ],
}
