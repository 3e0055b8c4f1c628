"""One search of a DNS-SD domain (RFC 6763) over unicast DNS: PTR, then SRV and TXT of each instance, then addresses.

Instances are independent: one that cannot be resolved is reported as unknown and delays no other. What DNS answers is a
hint where to dial, like any other sighting.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.names import dns
from twisted.names.error import DNSNameError, DomainError

from liqod.discovery.candidate import DNS_SD, MAX_ADDRESSES, BadRecord, Candidate, candidates_of, from_txt
from liqod.discovery.merge import Resolved
from liqod.model.text import clean_text

SERVICE: Final = "_liqod._tcp"
MAX_INSTANCES: Final = 64
"""Instances of one domain that are resolved."""
MAX_TARGETS: Final = 4
"""SRV records of one instance that are followed; each costs two more queries."""
MIN_DELAY: Final = 30.0
MAX_DELAY: Final = 3600.0
"""Seconds between two searches at least and at most, whatever the records' TTL."""
EMPTY_DELAY: Final = 300.0
"""Seconds until a domain without instances is searched again."""
TIMEOUT: Final = (1, 3, 5)
"""Seconds for each attempt of a query; the default of twisted.names, (1, 3, 11, 45), would hold a search for a
minute."""

T = TypeVar("T")
Answer = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
Lookup = Callable[[bytes, Sequence[int]], Deferred[Answer]]


class SearchFailed(Exception):
    """The domain itself could not be searched; the message has the cause."""


@attrs.frozen
class SearchResult:
    """The result of a search: resolved instances, the problem of each other one by name, seconds until the next."""

    seen: tuple[Resolved, ...]
    unknown: dict[str, str]
    again: float


async def search(resolver: Any, domain: str, record: str = "") -> SearchResult:
    """Search a domain for a SearchDomain record; raises SearchFailed when its instances cannot be listed."""
    name = f"{SERVICE}.{domain.strip('.')}".encode("ascii")
    try:
        answers = await _query(resolver.lookupPointer, name, dns.PTR)
    except DNSNameError:
        return SearchResult((), {}, EMPTY_DELAY)
    except CancelledError:
        raise
    except Exception as error:
        raise SearchFailed(f"{domain} cannot be searched: {_problem(error)}") from error
    ttls = [answer.ttl for answer in answers]
    instances = list(dict.fromkeys(bytes(answer.payload.name.name) for answer in answers))[:MAX_INSTANCES]
    own = [instance for instance in instances if instance.lower().endswith(b"." + name.lower())]
    outcomes = await _all([_resolve(resolver, instance) for instance in own])
    seen, unknown = [], {}
    for instance, (outcome, problem) in zip(own, outcomes, strict=True):
        shown = key_of(record, domain, instance)
        if outcome is None:
            unknown[shown] = problem
        else:
            candidates, ttl = outcome
            ttls.append(ttl)
            seen.append(Resolved(shown, candidates))
    return SearchResult(tuple(seen), unknown, min(MAX_DELAY, max(MIN_DELAY, min(ttls, default=EMPTY_DELAY))))


def key_of(record: str, domain: str, instance: bytes) -> str:
    """Return the key of an instance in the table of sightings: two records may search one domain."""
    label = instance.split(b"." + SERVICE.encode())[0].decode("utf-8", "replace")
    return f"dns:{record}:{domain}:{clean_text(label, len(label), replacement='?')}"


async def _resolve(resolver: Any, instance: bytes) -> tuple[tuple[Candidate, ...], float]:
    """Return the candidates of one instance, and the smallest TTL; raises SearchFailed, BadRecord or DomainError."""
    (services, why), (texts, why_not) = await _all(
        [_query(resolver.lookupService, instance, dns.SRV), _query(resolver.lookupText, instance, dns.TXT)]
    )
    if services is None or texts is None:
        raise SearchFailed(why or why_not)
    if not services or not texts:
        raise SearchFailed("it has no SRV or no TXT record")
    text_record = from_txt(_properties(texts[0].payload.data))
    ttls = [answer.ttl for answer in (*services, *texts)]
    # RFC 2782 asks for a weighted random order within a priority. All targets are tried here, so a fixed order does.
    ordered = sorted(services, key=lambda answer: (answer.payload.priority, -answer.payload.weight))[:MAX_TARGETS]
    candidates: list[Candidate] = []
    problem = "its target has no address"
    for answer in ordered:
        target, port = bytes(answer.payload.target.name), int(answer.payload.port)
        for records, why in await _all(
            [_query(resolver.lookupAddress, target, dns.A), _query(resolver.lookupIPV6Address, target, dns.AAAA)]
        ):
            problem = why or problem
            addresses = [_address(record) for record in records or ()]
            ttls += [record.ttl for record in records or ()]
            candidates += candidates_of(text_record, addresses, port, local=(), loopback=False, source=DNS_SD)
    if not candidates:
        raise SearchFailed(problem)
    return tuple(dict.fromkeys(candidates))[:MAX_ADDRESSES], float(min(ttls))


async def _query(lookup: Lookup, name: bytes, kind: int) -> list[Any]:
    """Return the records of the queried type; CNAMEs and additional records are left out."""
    answers, _, _ = await lookup(name, TIMEOUT)
    return [answer for answer in answers if answer.type == kind][:MAX_INSTANCES]


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[tuple[T | None, str]]:
    """Run coroutines concurrently; return for each (result, ""), or (None, problem). Raises CancelledError."""
    running = [Deferred.fromCoroutine(each) for each in work]
    results: list[tuple[bool, Any]] = await DeferredList(running, consumeErrors=True)
    if any(not ok and value.check(CancelledError) for ok, value in results):
        raise CancelledError
    return [(value, "") if ok else (None, _problem(value.value)) for ok, value in results]


def _address(record: Any) -> str:
    return str(record.payload.dottedQuad() if record.type == dns.A else ipaddress.IPv6Address(record.payload.address))


def _properties(data: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """Return the entries of a TXT record; of several with one key the first counts (RFC 6763, 6.4)."""
    found: dict[bytes, bytes | None] = {}
    for entry in data[:64]:
        key, equals, value = bytes(entry).partition(b"=")
        found.setdefault(key.lower(), value if equals else None)
    return found


def _problem(error: BaseException) -> str:
    """Return the cause of a failure as a stable text, so that an unchanged status is not written again."""
    if isinstance(error, SearchFailed | BadRecord):
        return str(error)
    if isinstance(error, DNSNameError):
        return "there is no such name"
    if isinstance(error, DomainError):
        return f"the DNS server refuses ({type(error).__name__})"
    return f"no DNS server answers ({type(error).__name__})"
