"""SearchDomain records: searches each domain when the TTLs of its answers expire; keeps the results while DNS fails.

Sightings of a search go into the same table as those of mDNS. A failing domain, or a failing instance in it, changes
nothing in that table; an instance is lost only when a search that succeeded does not list it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.names import dns
from twisted.names.client import Resolver

from liqod.discovery.merge import Lost, Resolved
from liqod.discovery.unicast import SearchFailed, SearchResult, search
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import Reactor
from liqod.flow.connections.dns_reading import BoundedResolver
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.resources import SEARCHDOMAINS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import READ_AGAIN, RefusedWrite, Retry
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.host_port import join_address, split_address
from liqod.model.ids import Key
from liqod.model.objects.meta import MAX_MESSAGE
from liqod.model.records.search_domain import MAX_DOMAINS, FoundPeer, SearchDomain, SearchDomainStatus, is_domain

AFTER_FAILURE: Final = Backoff(initial=5.0, factor=2.0, cap=300.0, jitter=0.2)
MAX_SERVERS: Final = 8


def make_resolver(reactor: Reactor, servers: Sequence[str]) -> Resolver:
    """Return a resolver for one search: it asks the given servers (``host`` or ``host:port``), else the system's.

    Each search has its own, so that a changed resolv.conf counts from the next one on and nothing has to be closed.
    """
    named = [split_address(text, dns.PORT) for text in servers] or [(address, dns.PORT) for address in system_servers()]
    return BoundedResolver(servers=named or [("127.0.0.1", dns.PORT)], reactor=reactor)


def system_servers(path: str = "/etc/resolv.conf") -> list[str]:
    """Return the addresses of the system's DNS servers, none where there is no such file."""
    try:
        lines = Path(path).read_text("ascii", "replace").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [each[1] for each in words if len(each) > 1 and each[0] == "nameserver"][:MAX_SERVERS]


@attrs.define
class _Searched:
    """What was found in one domain, by instance, and how often in a row its search failed."""

    found: dict[str, Resolved] = attrs.Factory(dict)
    failures: int = 0


class DomainSearch(Controller[str]):
    """Searches the domains of all SearchDomains; ``on_sightings`` gets all that one lists with each search of it.

    Not only its changes: the table may have had no place for it.
    """

    name = "searchdomains"
    workers = 4

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        domains: Informer[SearchDomain],
        *,
        resolver: Callable[[], Any],
        on_sightings: Callable[[Sequence[Resolved | Lost]], None],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._domains: MutationCache[SearchDomain] = MutationCache(domains, clock)
        self._status_writer = StatusWriter(client, SEARCHDOMAINS, SearchDomain, self._domains)
        self._resolver = resolver
        self._on_sightings = on_sightings
        self._searched: dict[str, _Searched] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Every record, and those of which the spec changed: our own writes of statuses are no reason to search."""
        yield watch(self._domains.informer, self._to_search)

    def _to_search(self, key: Key, old: SearchDomain | None, new: SearchDomain | None) -> Iterable[str]:
        if old is not None and new is not None:
            return () if old.spec == new.spec else (key.name,)
        # One that comes or goes changes which are the first, and only those are searched.
        return {key.name, *(self._searched.keys() ^ self._first())}

    def _first(self) -> list[str]:
        return sorted(each.metadata.name for each in self._domains.items())[:MAX_DOMAINS]

    async def reconcile(self, key: str) -> After | None:
        """Search one domain; again when the first of its records expires."""
        again = await self._search(key)
        return After(again) if again is not None else None

    async def _search(self, name: str) -> float | None:
        record = self._domains.get(Key("", name))
        if record is None or record.metadata.deleting:
            self._forget(name)
            return None
        domain = record.spec.domain
        if not is_domain(domain):
            await self._not_searched(record, "NotADomain", f"{domain[:80]!r} is no DNS domain")
            return None
        if name not in self._first():
            await self._not_searched(
                record, "TooManyDomains", f"{MAX_DOMAINS} domains are searched at most; remove one"
            )
            return None
        known = self._searched.setdefault(name, _Searched())
        try:
            found = await search(self._resolver(), domain, name)
        except SearchFailed as failure:
            return await self._failed(record, known, str(failure))
        known.failures = 0
        self._report(known, {seen.instance: seen for seen in found.seen}, found.unknown)
        await self._record(record, self._success(record, known.found, found))
        return found.again

    async def _failed(self, record: SearchDomain, known: _Searched, sentence: str) -> float:
        attempt = known.failures
        known.failures += 1
        kept = f"{sentence}; searched again within {int(AFTER_FAILURE.longest)} s"
        if known.found:
            kept += ", what was found stays"
        elif record.status.found:
            kept += ", what is listed was found by an earlier process and is not used"
        await self._record(record, self._status(record, "Stale" if known.found else "Failed", "NoAnswer", kept))
        return AFTER_FAILURE.delay(attempt)

    async def _not_searched(self, record: SearchDomain, reason: str, sentence: str) -> None:
        self._forget(record.metadata.name)
        status = self._status(record, "Failed", reason, sentence)
        await self._record(record, msgspec.structs.replace(status, found=[]))

    def _forget(self, name: str) -> None:
        """Report everything that was found for a record as lost."""
        known = self._searched.pop(name, None)
        if known is not None:
            self._report(known, {}, ())

    def _report(self, known: _Searched, now: dict[str, Resolved], unknown: Container[str]) -> None:
        """Report what is found now, and what no longer is; an instance that could not be resolved stays as it was."""
        before = known.found
        kept = {instance: seen for instance, seen in before.items() if instance in unknown and instance not in now}
        now = known.found = {**now, **kept}
        sightings: list[Resolved | Lost] = [*now.values()]
        sightings += [Lost(instance) for instance in before if instance not in now]
        if sightings:
            self._on_sightings(sightings)

    def _success(self, record: SearchDomain, known: Mapping[str, Resolved], found: SearchResult) -> SearchDomainStatus:
        peers = [
            FoundPeer(
                cluster_id=candidate.cluster_id,
                cluster_name=candidate.cluster_name,
                address=join_address(candidate.host, candidate.port),
            )
            for _, seen in sorted(known.items())
            for candidate in seen.candidates
        ]
        unresolved = "; ".join(
            f"{instance.rpartition(':')[2]}: {why}" for instance, why in sorted(found.unknown.items())
        )
        message = f"{len(known)} clusters" + (f"; not resolved: {unresolved}" if unresolved else "")
        status = self._status(
            record, "Found" if peers else "Empty", "PartlyResolved" if unresolved else "Searched", message
        )
        return msgspec.structs.replace(status, found=peers[:64], refresh_seconds=int(found.again))

    def _status(self, record: SearchDomain, phase: str, reason: str, message: str) -> SearchDomainStatus:
        return msgspec.structs.replace(record.status, phase=phase, reason=reason, message=message[:MAX_MESSAGE])

    async def _record(self, record: SearchDomain, status: SearchDomainStatus) -> None:
        """Write a status that differs."""
        # A caching resolver returns decreasing TTLs, so the time of the next search alone must not cause a write.
        same = msgspec.structs.replace(status, refresh_seconds=record.status.refresh_seconds) == record.status
        if same and record.status.refresh_seconds:
            return
        outcome = await self._status_writer.write(record, status)
        if isinstance(outcome, RefusedWrite) and outcome.retry is Retry.AT_ONCE:
            self.enqueue(record.metadata.name, READ_AGAIN)
