"""The mDNS source: announces this cluster on the LAN and browses for others. The only user of zeroconf.

Two kinds of coroutine meet here: those of ``Responder`` are asyncio's, and run only through ``liqod.flow.aio``; those
of ``Mdns`` are Twisted's. Zeroconf is created inside a coroutine on the reactor's loop, because anywhere else it would
start a thread of its own.

Probing (RFC 6762, 8.1) is skipped: the names of instance and host have a digest of the cluster ID, so no other cluster
claims them, and the first announcement goes out at once instead of after a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zeroconf import Error as ZeroconfError
from zeroconf import RecordUpdate, ServiceInfo, ServiceStateChange, Zeroconf, current_time_millis
from zeroconf._dns import DNSAddress, DNSPointer, DNSRecord, DNSService
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from liqod.discovery import interfaces
from liqod.discovery.candidate import Announcement, BadRecord, candidates_of, from_txt, instance_label, to_txt
from liqod.discovery.interfaces import InterfaceChoice
from liqod.discovery.merge import Lost, Resolved
from liqod.flow import aio
from liqod.flow.timer import Timer
from liqod.flow.workqueue import TURN
from liqod.model.text import clean_text

TYPE: Final = "_liqod._tcp.local."
POINTER: Final = 12
SERVICE: Final = 33
INTERNET: Final = 1
"""DNS numbers (RFC 1035, RFC 2782): the types PTR and SRV, and the class IN."""
CHECK_INTERVAL: Final = 30.0
"""Seconds between two checks of our own addresses, and until a failed start is tried again."""
COALESCE: Final = 0.05
"""Seconds that changes are collected (debounced) before they are processed."""
MAX_PENDING: Final = 512
"""Names waiting to be processed: twice what the table can hold. More are dropped, unless they were reported as shown;
they are announced again."""
MAX_NAMES: Final = 1024
"""Names in zeroconf's cache: for each query it goes through all of them without yielding to the reactor."""
MAX_PER_TURN: Final = 64
"""Names processed before the reactor may do something else: some 5 ms, and never begun after ``TURN`` seconds."""
MAX_RECORDS: Final = 64
"""Records of an instance, of its host, and of one packet that are read: zeroconf compares each address with all others.
"""
MAX_RESOLVING: Final = 16
"""Queries in flight for instances that came without their addresses."""
RESOLVE_TIMEOUT: Final = 3000
"""Milliseconds, as zeroconf takes them, until a query is given up."""
RECHECK_DELAY: Final = 15.0
"""Seconds after a change: flushed addresses live one second longer (RFC 6762, 10.2), and zeroconf expires its cache
every ten."""
MAX_POINTER_TTL: Final = 4500
"""Seconds for which an instance is shown without being announced again: the TTL that RFC 6762 (10) recommends."""
MAX_INSTANCE: Final = 255
"""Maximum octets of a DNS name (RFC 1035, section 2.3.4)."""
CLOSE_DEADLINE: Final = 3.0
"""Seconds for the goodbyes: without them peers keep the records for their TTL (RFC 6762, section 10.1)."""


class Responder:
    """Runs zeroconf; all coroutines of this class are asyncio coroutines."""

    def __init__(self, me: Announcement, choice: InterfaceChoice, on_change: Callable[[str, bool], None]) -> None:
        self._me = me
        self._on_change = on_change
        self.choice = choice
        self.moved = False
        self.refused = 0
        """Instances that were not cached because there were too many."""
        self._zeroconf = Zeroconf(interfaces=list(choice.listen), use_asyncio=True)
        self._service = AsyncZeroconf(zc=self._zeroconf)
        self._browser: _Browser | None = None

    async def start(self) -> None:
        """Browse first, then announce; returns when all repetitions of the announcement are sent (RFC 6762, 8.3)."""
        await self._zeroconf.async_wait_for_start()
        self._browser = _Browser(self._zeroconf, TYPE, handlers=[self._changed])
        if self._me.port:
            announcing = await self._service.async_register_service(self._record(), cooperating_responders=True)
            await announcing

    async def move(self, choice: InterfaceChoice) -> None:
        """Use other interfaces and announce their addresses."""
        self.choice = choice
        if not self._me.port:
            await self._service.async_update_interfaces(interfaces=list(choice.listen))
            return
        # The record first: new sockets announce what is registered, and an old address that was announced once more
        # within the last second would not be flushed from the peers' caches (RFC 6762, 10.2).
        announcing = await self._service.async_update_service(self._record())
        await self._service.async_update_interfaces(interfaces=list(choice.listen))
        await announcing
        self.moved = True

    async def renew(self, me: Announcement) -> None:
        """Announce another record under the same name."""
        self._me = me
        if me.port:
            await (await self._service.async_update_service(self._record()))

    async def repeat(self) -> None:
        """Announce once more some time after a move: by then every old record is old enough to be flushed."""
        self.moved = False
        await (await self._service.async_update_service(self._record()))

    def known(self, name: str) -> Resolved | None:
        """Return the cached records of an instance, or None while they are incomplete; raises BadRecord."""
        info = _info(self._zeroconf, name)
        return self._sighting(info) if info.load_from_cache(self._zeroconf) else None

    async def resolve(self, name: str) -> Resolved | None:
        """Query the records of an instance; None without an answer. Raises BadRecord."""
        info = _info(self._zeroconf, name)
        return self._sighting(info) if await info.async_request(self._zeroconf, RESOLVE_TIMEOUT) else None

    @property
    def crowded(self) -> bool:
        """Whether the cache holds more than MAX_NAMES names."""
        return len(self._zeroconf.cache.cache.get(TYPE, ())) > MAX_NAMES

    def shows(self, name: str) -> bool:
        """Whether the cache has an instance that was announced within MAX_POINTER_TTL seconds."""
        known = self._pointer(name)
        return known is not None and current_time_millis() < known.created + 1000 * min(known.ttl, MAX_POINTER_TTL)

    def forget(self, name: str) -> None:
        """Remove an instance from the cache, as if it had not been announced."""
        known = self._pointer(name)
        if known is not None:
            self._zeroconf.cache.async_remove_records([known])

    async def close(self) -> None:
        """Send goodbyes (TTL 0) and close the sockets."""
        if self._browser is not None:
            await self._browser.async_cancel()
        await self._service.async_close()

    def _pointer(self, name: str) -> DNSRecord | None:
        return self._zeroconf.cache.async_get_unique(DNSPointer(TYPE, POINTER, INTERNET, 0, name))

    def _record(self) -> ServiceInfo:
        label = instance_label(self._me)
        return ServiceInfo(
            TYPE,
            f"{label}.{TYPE}",
            port=self._me.port,
            properties=to_txt(self._me),
            server=f"{label}.local.",
            parsed_addresses=[*(self._me.addresses or self.choice.addresses)],
        )

    def _sighting(self, info: ServiceInfo) -> Resolved:
        text_record = from_txt(info.properties)
        if text_record.cluster_id == self._me.cluster_id:
            return Resolved(info.key, ())
        found = candidates_of(
            text_record,
            # With their zones: a link-local address is not usable without its interface (RFC 4007, section 11).
            info.parsed_scoped_addresses(),
            info.port or 0,
            local=self.choice.networks,
            loopback=self.choice.loopback,
        )
        return Resolved(info.key, found)

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Added and self.crowded:
            self.forget(name)
            self.refused += 1
            return
        self._on_change(name, state_change is not ServiceStateChange.Removed)


class _Browser(AsyncServiceBrowser):
    """Looks at new addresses once for each host in a packet, and at none of a host with a crowd of instances.

    Zeroconf goes through all instances of the host for each, only to note that they may have changed.
    """

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        hosts: set[str] = set()
        kept = []
        for each in records:
            if isinstance(each.new, DNSAddress):
                host = each.new.key
                if each.old is not None or host in hosts or len(zc.cache.service_cache.get(host, ())) > MAX_RECORDS:
                    continue
                hosts.add(host)
            kept.append(each)
        super().async_update_records(zc, now, kept)


class _Info(AsyncServiceInfo):
    """What is to be read of an instance: while it is asked for, packets that would make it too much are passed over."""

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        hosts = [each.new.server for each in records if isinstance(each.new, DNSService)]
        known = len(self._ipv4_addresses) + len(self._ipv6_addresses)
        if len(records) + known <= MAX_RECORDS and not any(_has_too_many(zc, host) for host in hosts):
            super().async_update_records(zc, now, records)


def _info(zeroconf: Zeroconf, name: str) -> AsyncServiceInfo:
    """Return what is to be read of an instance; raises BadRecord for a name that zeroconf takes for none, and for one
    with more than MAX_RECORDS records.
    """
    host = zeroconf.cache.get_by_details(name, SERVICE, INTERNET)
    if _has_too_many(zeroconf, name) or (isinstance(host, DNSService) and _has_too_many(zeroconf, host.server)):
        raise BadRecord(f"it or its host has more than {MAX_RECORDS} records")
    try:
        return _Info(TYPE, name)
    except ZeroconfError as error:
        raise BadRecord("its name has a part that is empty, too long or not text") from error


def _has_too_many(zeroconf: Zeroconf, name: str) -> bool:
    return len(zeroconf.cache.cache.get(name.lower(), ())) > MAX_RECORDS


def _readable(name: str) -> str:
    return clean_text(name, 80, replacement="?")


class Mdns(Service):
    """Keeps a Responder running on the chosen interfaces and reports its sightings, in batches.

    ``on_sightings`` gets what was read in batches, at most every 50 ms, and what had to be asked for one by one.
    Needs Twisted's asyncio reactor, which ``twistd liqod`` installs; with another one, starting raises RuntimeError.
    """

    _log = Logger()

    def __init__(
        self,
        me: Announcement,
        wanted: Sequence[str],
        clock: IReactorTime,
        on_sightings: Callable[[Sequence[Resolved | Lost]], None],
        *,
        observe: Callable[[], Iterable[interfaces.Interface]] = interfaces.observe,
    ) -> None:
        self._me = me
        self._wanted = tuple(wanted)
        self._clock = clock
        self._on_sightings = on_sightings
        self._observe = observe
        self._responder: Responder | None = None
        self._pending: dict[str, bool] = {}
        self._shown: set[str] = set()
        self._drain_timer = Timer(clock)
        self._to_recheck: dict[str, float] = {}
        self._recheck_timer = Timer(clock)
        self._resolving: dict[str, Deferred[None]] = {}
        self._loop: Deferred[None] | None = None
        self.problem = ""
        """The reason why mDNS is not running; empty while it runs."""
        self.dropped = 0
        """Changes that were not processed because too many came at once."""

    def announce(self, me: Announcement) -> None:
        """Replace what is announced; a responder that cannot is closed, and the next check opens another one."""
        self._me = me
        responder = self._responder
        if responder is None or not self.running:
            return
        renewing = aio.from_coroutine(responder.renew(me))
        renewing.addErrback(self._not_renewed, responder)

    def _not_renewed(self, failure: Failure, responder: Responder) -> Deferred[None] | None:
        if not self.running or self._responder is not responder:
            return None
        self._set_problem(f"announcing failed: {failure.getErrorMessage()}")
        return Deferred.fromCoroutine(self._close())

    def startService(self) -> None:
        if not aio.reactor_is_asyncio(self._clock):
            raise RuntimeError(
                "mDNS needs Twisted's asyncio reactor, which `twistd liqod` installs: leave out --reactor, or set "
                "mdns = false under [discovery]"
            )
        super().startService()
        self._loop = Deferred.fromCoroutine(self._run())
        self._loop.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._drain_timer.cancel()
        self._recheck_timer.cancel()
        self._pending.clear()
        self._shown.clear()
        self._to_recheck.clear()
        for resolving in list(self._resolving.values()):
            resolving.cancel()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
            await loop
        await self._close()

    async def _run(self) -> None:
        while self.running:
            await self._converge()
            self._report_gone()
            if not self.running:  # closing ends quietly when it is cancelled
                return
            await deferLater(self._clock, CHECK_INTERVAL)

    async def _converge(self) -> None:
        """Open, move or close the responder, as the host's interfaces are now."""
        try:
            choice = interfaces.choose(self._observe(), self._wanted)
            if not choice.listen:
                await self._close()
                self._set_problem(
                    f"none of the interfaces {', '.join(self._wanted)} is up"
                    if self._wanted
                    else "no interface is up, multicast and not a container's: name one under [discovery] interfaces"
                )
            elif self._responder is None:
                await self._open(choice)
            elif self._responder.choice != choice:
                self._log.info("our addresses changed: announcing {addresses}", addresses=", ".join(choice.addresses))
                await aio.from_coroutine(self._responder.move(choice))
            elif self._responder.moved:
                await aio.from_coroutine(self._responder.repeat())
        except (OSError, RuntimeError, ZeroconfError) as error:
            # A responder that was changed halfway is not repaired: the next check opens another one.
            self._set_problem(f"mDNS cannot use the network: {error}")
            await self._close()

    async def _open(self, choice: InterfaceChoice) -> None:
        async def opened() -> None:
            self._responder = Responder(self._me, choice, self._changed)
            await self._responder.start()

        await aio.from_coroutine(opened())
        self.problem = ""
        if not self._me.port:
            return
        self._log.info(
            "announcing {name} port {port} by mDNS at {addresses}",
            name=instance_label(self._me),
            port=self._me.port,
            addresses=", ".join(self._me.addresses or choice.addresses),
        )

    async def _close(self) -> None:
        responder, self._responder = self._responder, None
        if responder is None:
            return
        self._report_gone()
        closing = aio.from_coroutine(responder.close())
        closing.addTimeout(CLOSE_DEADLINE, self._clock)
        # Not try/except: a cancelled asyncio task raises asyncio.CancelledError, a BaseException.
        closing.addErrback(
            lambda failure: self._log.warn("closing mDNS failed: {error}", error=failure.getErrorMessage())
        )
        await closing

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warn("{error}; trying again every {seconds} s", error=problem, seconds=int(CHECK_INTERVAL))
        self.problem = problem

    def _ended(self, failure: Failure) -> None:
        if self.running:
            self._log.failure("mDNS ended", failure)

    def _report(self, sightings: Sequence[Resolved | Lost]) -> None:
        """Report sightings; an instance that left the cache while it was read is lost."""
        responder = self._responder
        reported: list[Resolved | Lost] = []
        for each in sightings:
            if isinstance(each, Resolved) and responder is not None and responder.shows(each.instance):
                self._shown.add(each.instance)
                reported.append(each)
            else:
                self._shown.discard(each.instance)
                reported.append(Lost(each.instance))
        if reported and self.running:
            self._on_sightings(reported)

    def _report_gone(self) -> None:
        """Report what zeroconf ceased to show without a sign: with its cache, under a flood, or out of date."""
        responder = self._responder
        for name in self._shown:
            if responder is None or not responder.shows(name):
                if responder is not None:
                    responder.forget(name)  # so that zeroconf reports it when it is announced again
                self._changed(name, False)

    def _changed(self, name: str, shown: bool) -> None:
        """Note a change; zeroconf calls it in the middle of its own work, so it must not raise."""
        name = name.lower()
        if not self.running:
            return
        if not name.endswith(f".{TYPE}") or len(name) > MAX_INSTANCE:
            return
        if name not in self._pending and name not in self._shown and len(self._pending) >= MAX_PENDING:
            self.dropped += 1
            if shown and self._responder is not None:
                self._responder.forget(name)  # so that zeroconf reports it when it is announced again
            return
        self._pending[name] = shown
        self._drain_timer.start_unless_running(COALESCE, self._drain)

    def _drain(self) -> None:
        sightings: list[Resolved | Lost] = []
        for name in self._one_turn(self._pending):
            shown = self._pending.pop(name)
            sighting = self._process(name) if shown else Lost(name)
            if sighting is not None:
                sightings.append(sighting)
        if self._pending:
            self._drain_timer.start(COALESCE, self._drain)
        self._report(sightings)

    def _one_turn(self, names: Iterable[str]) -> Iterator[str]:
        """Yield as many names as may be processed in one turn of the reactor, one at least."""
        begun = self._clock.seconds()
        for name in list(islice(names, MAX_PER_TURN)):
            yield name
            if self._clock.seconds() - begun > TURN:
                return

    def _process(self, name: str) -> Resolved | Lost | None:
        if self._responder is None:
            return None
        try:
            known = self._responder.known(name)
        except BadRecord as error:
            self._ignore(name, error)
            return Lost(name)
        if known is None and name not in self._resolving:
            if len(self._resolving) < MAX_RESOLVING:
                self._resolve(self._responder, name)
            else:
                self.dropped += 1
                self._responder.forget(name)  # so that zeroconf reports it when it is announced again
        if known is not None:
            self._schedule_recheck(name)
        return known

    def _ignore(self, name: str, error: object) -> None:
        self._log.debug("ignoring the announcement {name}: {error}", name=_readable(name), error=error)
        if self._responder is not None:
            self._responder.forget(name)  # so that zeroconf reports it when it is announced again, even unchanged

    def _schedule_recheck(self, name: str) -> None:
        """Read an instance again when flushed addresses have left the cache: zeroconf does not report that."""
        if len(self._to_recheck) < MAX_PENDING:
            self._to_recheck.setdefault(name, self._clock.seconds() + RECHECK_DELAY)
        self._recheck_timer.start_unless_running(RECHECK_DELAY, self._recheck)

    def _recheck(self) -> None:
        sightings: list[Resolved | Lost] = []
        now = self._clock.seconds()
        for name in self._one_turn(name for name, due in self._to_recheck.items() if due <= now):
            del self._to_recheck[name]
            try:
                known = self._responder.known(name) if self._responder is not None else None
            except BadRecord:
                continue  # its own change was, or will be, processed
            if known is not None:
                sightings.append(known)
        if self._to_recheck:
            due = next(iter(self._to_recheck.values()))
            self._recheck_timer.start(max(COALESCE, due - now), self._recheck)
        self._report(sightings)

    def _resolve(self, responder: Responder, name: str) -> None:
        def ended(_: object) -> None:
            self._resolving.pop(name, None)

        def failed(failure: Failure) -> None:
            if failure.check(BadRecord):
                self._ignore(name, failure.value)
            elif self.running:
                self._log.failure("resolving {name} failed", failure, name=_readable(name))

        def found(seen: Resolved | None) -> None:
            if seen is None:
                responder.forget(name)  # as if it had not been announced: it is asked when it is once more
            else:
                self._report([seen])

        asking = aio.from_coroutine(responder.resolve(name)).addCallback(found).addErrback(failed)
        self._resolving[name] = asking
        asking.addBoth(ended)
