"""mDNS on loopback, with real sockets on the reactor's loop; needs ``--reactor=asyncio``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.names import dns
from twisted.trial.unittest import SkipTest, TestCase
from zeroconf import RecordUpdate, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo

from liqod.config import schema
from liqod.discovery import interfaces
from liqod.discovery import mdns as module
from liqod.discovery.candidate import Announcement, BadRecord, Candidate
from liqod.discovery.interfaces import Interface
from liqod.discovery.mdns import MAX_NAMES, MAX_PENDING, MAX_RECORDS, MAX_RESOLVING, TYPE, Mdns
from liqod.discovery.merge import Lost, Resolved
from liqod.discovery.service import Discovery
from liqod.flow import aio
from liqod.flow.workqueue import TURN
from tests.netns.mdns_flood import packet

FAKE = f"fake-1.{TYPE}"
LOOPBACK = schema.DiscoverySettings(interfaces=["127.0.0.1"])


class LoopbackTests(TestCase):
    """Two or more discoveries in one process."""

    timeout = 30

    def setUp(self) -> None:
        if not aio.reactor_is_asyncio(reactor):
            raise SkipTest("run with --reactor=asyncio")

    def discover(self, cluster_id: str, port: int = 5872, name: str = "turin") -> tuple[Discovery, list[Candidate]]:
        """Return a running discovery, and a list that always holds its candidates."""
        current: list[Candidate] = []

        def changed(candidates: tuple[Candidate, ...]) -> None:
            current[:] = candidates

        me = Announcement(cluster_id, name, "sha256:" + "0" * 64, port)
        discovery = Discovery(LOOPBACK, me, reactor, changed)
        discovery.startService()
        self.addCleanup(lambda: discovery.stopService() if discovery.running else None)
        return discovery, current

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await deferLater(reactor, 0.02)

    async def test_two_see_each_other_and_never_themselves(self) -> None:
        """Each sees the other's claims, port and address; zeroconf starts no thread; stopping turns it stale."""
        threads = threading.active_count()
        one, at_one = self.discover("alpha", 1111)
        _, at_two = self.discover("beta", 2222)
        await self.until(lambda: bool(at_one and at_two))
        expected = Candidate("127.0.0.1", 2222, "mDNS", "beta", "turin", fingerprint="sha256:" + "0" * 64)
        self.assertEqual((at_one, [found.port for found in at_two]), ([expected], [1111]))
        self.assertEqual(threading.active_count(), threads)
        await one.stopService()
        await self.until(lambda: at_two[0].stale)

    async def test_port_zero_watches_without_being_seen(self) -> None:
        """Without a port nothing is announced, and others are seen all the same."""
        _, at_watcher = self.discover("watcher", 0)
        _, at_beta = self.discover("beta")
        await self.until(lambda: bool(at_watcher))
        await deferLater(reactor, 0.5)
        self.assertEqual(at_beta, [])

    async def test_stop_during_start_is_quiet(self) -> None:
        """A service stopped in the turn in which it was started leaves nothing behind."""
        discovery, _ = self.discover("alpha")
        await discovery.stopService()
        again, found = self.discover("alpha")
        await deferLater(reactor, 0.1)
        await again.stopService()
        self.assertEqual(found, [])

    async def test_missing_interface_is_a_problem_not_an_end(self) -> None:
        """Where no interface fits, the reason is kept and the daemon lives on."""
        there: list[Interface] = []
        seen: list[Resolved | Lost] = []
        me = Announcement("alpha", "turin", "", 5872)
        mdns = Mdns(me, ("none0",), reactor, seen.extend, observe=lambda: there)
        mdns.startService()
        await deferLater(reactor, 0.05)
        self.assertIn("none0", mdns.problem)
        await mdns.stopService()

    async def test_changes_beyond_the_bound_are_dropped_and_counted(self) -> None:
        """More changes than can wait are dropped; the waiting ones are worked off in portions."""
        batches: list[int] = []
        mdns = Mdns(Announcement("alpha", "turin", "", 5872), ("127.0.0.1",), reactor, lambda s: batches.append(len(s)))
        mdns.startService()
        for number in range(MAX_PENDING + 88):
            mdns._changed(f"n{number}.{TYPE}", False)
        mdns._changed("n0._other._tcp.local.", False)
        mdns._changed("n" * 300 + f".{TYPE}", False)
        self.assertEqual((len(mdns._pending), mdns.dropped), (MAX_PENDING, 88))
        await self.until(lambda: not mdns._pending)
        await mdns.stopService()
        # What the network shows meanwhile, this cluster's own announcement among it, may come on top.
        self.assertEqual(batches[: MAX_PENDING // 64], [64] * (MAX_PENDING // 64))

    async def test_names_that_are_none(self) -> None:
        """A name that nobody could have is passed over, and what came together with it is not."""
        seen: list[Resolved | Lost] = []
        mdns = Mdns(Announcement("alpha", "turin", "", 5872), ("127.0.0.1",), reactor, seen.extend)
        mdns.startService()
        await self.until(lambda: mdns._responder is not None)
        names = [f"{label}.{TYPE}" for label in ("a\x01b", "a" * 64, "")]
        mdns._changed(f"before.{TYPE}", False)
        for name in names:
            mdns._changed(name, True)
        mdns._changed(f"after.{TYPE}", False)
        with capturedLogs() as logged:
            await self.until(lambda: Lost(f"after.{TYPE}") in seen)
        lines = [formatEvent(event) for event in logged]
        self.assertEqual(len([line for line in lines if "a?b" in line]), 1)
        self.assertEqual([line for line in lines if not line.isprintable()], [])
        self.assertIn(Lost(f"before.{TYPE}"), seen)
        self.assertEqual([name for name in names if Lost(name) not in seen], [])
        await mdns.stopService()

    async def start(
        self, observe: Callable[[], Iterable[Interface]] = interfaces.observe
    ) -> tuple[Mdns, list[Resolved | Lost], list[int]]:
        """Return a running source, all it sees, and the sizes of its batches."""
        seen: list[Resolved | Lost] = []
        batches: list[int] = []

        def saw(sightings: Sequence[Resolved | Lost]) -> None:
            seen.extend(sightings)
            batches.append(len(sightings))

        mdns = Mdns(Announcement("alpha", "turin", "", 5872), ("127.0.0.1",), reactor, saw, observe=observe)
        mdns.startService()
        self.addCleanup(lambda: mdns.stopService() if mdns.running else None)
        await self.until(lambda: mdns._responder is not None and bool(_zeroconf(mdns).engine.protocols))
        return mdns, seen, batches

    async def test_a_host_with_many_addresses_is_not_read(self) -> None:
        """Zeroconf compares each address with all before: of a host that shows more than a few none is read."""
        mdns, seen, _ = await self.start()
        for name in (1, 2):
            _receive(mdns, packet(name))
        for number in range(MAX_RECORDS):
            _receive(mdns, _packet(_address("fake-2.local.", number)))
        responder = mdns._responder
        assert responder is not None
        self.assertIsNotNone(responder.known(f"fake-1.{TYPE}"))
        self.assertRaises(BadRecord, responder.known, f"fake-2.{TYPE}")
        await self.until(lambda: Lost(f"fake-2.{TYPE}") in seen)
        self.assertEqual(_flood(_zeroconf(mdns).cache.cache), [FAKE])
        resolving = aio.from_coroutine(responder.resolve(f"fake-2.{TYPE}"))
        await self.assertFailure(resolving, BadRecord)

    async def test_a_host_with_many_addresses_is_not_read_while_it_is_asked_for(self) -> None:
        """Nor when they arrive after the question: in one packet, in many, or before the name of the host."""
        mdns, _, _ = await self.start()
        for number in range(4):
            _receive(mdns, packet(number, pointer_only=True))
        await self.until(lambda: len(_asked(mdns)) == 4)
        many = [_address("h.local.", number) for number in range(2 * MAX_RECORDS)]
        _receive(mdns, _packet(_service("fake-0", "h.local."), *many))
        _receive(mdns, _packet(_service("fake-1", "i.local.")))
        for number in range(2 * MAX_RECORDS):
            _receive(mdns, _packet(_address("i.local.", number)))
        _receive(mdns, _packet(_service("fake-2", "h.local.")))
        _receive(mdns, _packet(_service("fake-3", "j.local."), _address("j.local.", 1)))
        sizes = {info.name.partition(".")[0]: len(info.parsed_addresses()) for info in _asked(mdns)}
        self.assertEqual(sizes, {"fake-0": 0, "fake-1": MAX_RECORDS, "fake-2": 0, "fake-3": 1})

    async def test_addresses_of_one_host_count_once(self) -> None:
        """Zeroconf goes through all instances of a host for each address: once for a packet, and never for a crowd."""
        looked_at: list[str] = []
        real = AsyncServiceBrowser.async_update_records

        def update(browser: AsyncServiceBrowser, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
            looked_at.extend(each.new.key for each in records if each.new.type == dns.A)
            real(browser, zc, now, records)

        self.patch(AsyncServiceBrowser, "async_update_records", update)
        mdns, seen, _ = await self.start()
        _receive(mdns, packet(1))
        await self.until(lambda: _names(seen, Resolved) >= {FAKE})
        looked_at.clear()
        _receive(mdns, _packet(*[_address("fake-1.local.", number) for number in range(20)]))
        await self.until(lambda: any(each.candidates[1:] for each in seen if isinstance(each, Resolved)))
        _receive(mdns, _packet(*[_service(f"crowd-{number}", "h.local.") for number in range(MAX_RECORDS + 1)]))
        _receive(mdns, _packet(_address("h.local.", 1)))
        self.assertEqual([host for host in looked_at if host in ("fake-1.local.", "h.local.")], ["fake-1.local."])

    async def test_slow_names_share_no_turn(self) -> None:
        """What takes long to read is read in portions, at first and again, and the reactor runs in between."""
        self.patch(module, "RECHECK_DELAY", 0.3)
        mdns, _, batches = await self.start()
        responder = mdns._responder
        assert responder is not None

        def known(name: str) -> Resolved:
            time.sleep(0.6 * TURN)
            return Resolved(name, ())

        responder.known = known  # type: ignore[method-assign]
        batches.clear()
        for number in range(12):
            _receive(mdns, packet(number))
        await self.until(lambda: sum(batches) >= 24 and not mdns._to_recheck)
        self.assertLessEqual(max(batches), 2)

    async def test_what_was_shown_is_lost_with_the_network(self) -> None:
        """A closed responder's records are gone, and who leaves meanwhile says no goodbye that we receive."""
        self.patch(module, "CHECK_INTERVAL", 0.2)
        up = [*interfaces.observe()]
        there = list(up)
        mdns, seen, _ = await self.start(lambda: there)
        _receive(mdns, packet(1))
        await self.until(lambda: _names(seen, Resolved) >= {FAKE})
        there.clear()
        await self.until(lambda: Lost(FAKE) in seen)
        there += up
        await self.until(lambda: mdns._responder is not None and bool(_zeroconf(mdns).engine.protocols))
        seen.clear()
        _receive(mdns, packet(1))
        await self.until(lambda: _names(seen, Resolved) >= {FAKE})

    async def test_a_removal_counts_while_too_many_changes_wait(self) -> None:
        """What is dropped in a crowd is what was never reported, not the goodbye of an instance that was."""
        mdns, seen, _ = await self.start()
        _receive(mdns, packet(1))
        await self.until(lambda: _names(seen, Resolved) >= {FAKE})
        self.patch(module, "MAX_PENDING", 0)
        _receive(mdns, _packet(_pointer(FAKE, 0)))
        await self.until(lambda: Lost(FAKE) in seen)

    async def test_what_the_cache_has_no_longer_is_lost(self) -> None:
        """An instance that left zeroconf's cache without a sign, or promised to stay for a century, ends as well."""
        self.patch(module, "CHECK_INTERVAL", 0.2)
        mdns, seen, _ = await self.start()
        for number in (1, 2, 3):
            _receive(mdns, packet(number))
        other, third = FAKE.replace("1", "2"), FAKE.replace("1", "3")
        await self.until(lambda: _names(seen, Resolved) >= {FAKE, other, third})
        _receive(mdns, _packet(_pointer(other, 2**32 - 1)))
        responder = mdns._responder
        assert responder is not None
        responder.forget(FAKE)
        for record in _zeroconf(mdns).cache.async_entries_with_name(TYPE):
            if record.alias == other:
                record.created -= 4501 * 1000
        await self.until(lambda: {Lost(FAKE), Lost(other)} <= {*seen})
        self.assertEqual(_flood(_zeroconf(mdns).cache.cache), [third])
        self.assertNotIn(Lost(third), seen)

    async def test_a_goodbye_soon_after_the_announcement_is_the_last_word(self) -> None:
        """Reading an instance again does not bring back one that said goodbye."""
        self.patch(module, "RECHECK_DELAY", 0.3)
        mdns, seen, _ = await self.start()
        _receive(mdns, packet(1))
        await self.until(lambda: _names(seen, Resolved) >= {FAKE})
        _receive(mdns, _packet(_pointer(FAKE, 0)))
        await self.until(lambda: not mdns._to_recheck)
        self.assertEqual(_names(seen[seen.index(Lost(FAKE)) :], Resolved) & {FAKE}, set())

    async def test_capitals_make_no_other_instance(self) -> None:
        """Names are compared without case: an instance is lost under the name under which it was seen."""
        mdns, seen, _ = await self.start()
        _receive(mdns, packet(1).replace(b"fake-1\x06_liqod", b"FAKE-1\x06_liqod"))
        await self.until(lambda: bool({name for name in _names(seen, Resolved) if name.lower() == FAKE}))
        (name,) = {name for name in _names(seen, Resolved) if name.lower() == FAKE}
        _receive(mdns, _packet(_pointer("fAKE-1" + FAKE[6:], 0)))
        await self.until(lambda: Lost(name) in seen)

    async def test_stopping_while_the_network_is_lost(self) -> None:
        """Stopping ends the loop also while it closes a responder, and none is opened afterwards."""
        self.patch(module, "CHECK_INTERVAL", 0.2)
        there = [*interfaces.observe()]
        mdns, _, _ = await self.start(lambda: there)
        responder = mdns._responder
        assert responder is not None

        async def close() -> None:
            await asyncio.sleep(3600)

        real = responder.close
        responder.close = close  # type: ignore[method-assign]
        self.addCleanup(lambda: aio.from_coroutine(real()))
        there.clear()
        await self.until(lambda: mdns._responder is None)
        self.patch(module, "CHECK_INTERVAL", 3600.0)
        await mdns.stopService()
        self.assertIsNone(mdns._responder)

    async def test_a_new_key_is_announced(self) -> None:
        """Another fingerprint reaches those who look, under the same name."""
        one, _ = self.discover("alpha", 1111)
        _, at_two = self.discover("beta", 2222)
        await self.until(lambda: bool(at_two))
        one.announce_key("sha256:" + "1" * 64)
        await self.until(lambda: [found.fingerprint for found in at_two] == ["sha256:" + "1" * 64])

    async def test_a_flood_is_not_kept(self) -> None:
        """Of ten thousand names at once some 1,500 are kept: what a question goes through stays short, a peer stays."""
        discovery, at_alpha = self.discover("alpha", 1111)
        self.discover("beta", 2222)
        await self.until(lambda: bool(at_alpha))
        source = discovery._mdns
        assert isinstance(source, Mdns)
        assert source._responder is not None
        zeroconf = source._responder._zeroconf
        listener = zeroconf.engine.protocols[0]
        for number in range(10_000):
            listener.datagram_received(packet(number), ("127.0.0.1", 5353))
        self.assertLess(len(zeroconf.cache.cache[TYPE]), MAX_NAMES + MAX_PENDING)
        self.assertGreater(source.dropped + source._responder.refused, 8_000)
        await deferLater(reactor, 0.3)
        self.assertIn("beta", [found.cluster_id for found in at_alpha])

    async def test_what_is_not_resolved_is_new_when_it_is_announced_again(self) -> None:
        """An instance for which there was no query left, or no answer, is forgotten, as if it had not been there."""
        mdns = Mdns(Announcement("alpha", "turin", "", 5872), ("127.0.0.1",), reactor, lambda sightings: None)
        mdns.startService()
        self.addCleanup(mdns.stopService)
        await self.until(lambda: mdns._responder is not None)
        responder = mdns._responder
        assert responder is not None
        # Its sockets are opened a moment later, by a task of zeroconf's.
        await self.until(lambda: bool(responder._zeroconf.engine.protocols))
        self.patch(module, "RESOLVE_TIMEOUT", 300)
        listener = responder._zeroconf.engine.protocols[0]
        for number in range(MAX_RESOLVING + 4):
            listener.datagram_received(packet(number, pointer_only=True), ("127.0.0.1", 5353))
        cache = responder._zeroconf.cache.cache
        self.assertGreaterEqual(len(cache[TYPE]), MAX_RESOLVING + 4)
        await self.until(lambda: len(mdns._resolving) == MAX_RESOLVING)
        self.assertEqual((mdns.dropped, len(_flood(cache))), (4, MAX_RESOLVING))
        await self.until(lambda: not mdns._resolving)
        self.assertEqual(_flood(cache), [])

    async def test_a_responder_that_cannot_announce_is_made_again(self) -> None:
        """Another one takes its place after a while, and announces the new record."""
        mdns = Mdns(Announcement("alpha", "turin", "", 5872), ("127.0.0.1",), reactor, lambda sightings: None)
        self.patch(module, "CHECK_INTERVAL", 0.2)
        mdns.startService()
        self.addCleanup(mdns.stopService)
        await self.until(lambda: mdns._responder is not None)
        await deferLater(reactor, 0.5)
        first = mdns._responder
        assert first is not None

        async def renew(me: Announcement) -> None:
            raise OSError("no buffer space")

        first.renew = renew  # type: ignore[method-assign]
        new = Announcement("alpha", "turin", "sha256:" + "1" * 64, 5872)
        mdns.announce(new)
        await self.until(lambda: "no buffer space" in mdns.problem)
        await self.until(lambda: mdns._responder not in (None, first) and not mdns.problem)
        assert mdns._responder is not None
        self.assertEqual(mdns._responder._me, new)


def _names(sightings: Sequence[Resolved | Lost], kind: type) -> set[str]:
    return {each.instance for each in sightings if isinstance(each, kind)}


def _zeroconf(mdns: Mdns) -> Any:
    """Return the zeroconf of a running source."""
    assert mdns._responder is not None
    return mdns._responder._zeroconf


def _receive(mdns: Mdns, data: bytes) -> None:
    """Let a packet arrive."""
    _zeroconf(mdns).engine.protocols[0].datagram_received(data, ("127.0.0.1", 5353))


def _asked(mdns: Mdns) -> list[Any]:
    """Return the instances for which a query is in flight."""
    return [each for each in _zeroconf(mdns).record_manager.listeners if isinstance(each, AsyncServiceInfo)]


def _packet(*records: dns.RRHeader) -> bytes:
    """Return one response with some records."""
    message = dns.Message(answer=1, auth=True, maxSize=0)
    message.answers = list(records)
    return message.toStr()


def _address(host: str, number: int) -> dns.RRHeader:
    return dns.RRHeader(host, dns.A, ttl=120, payload=dns.Record_A(f"10.9.{number >> 8}.{number & 255}"))


def _pointer(name: str, ttl: int) -> dns.RRHeader:
    return dns.RRHeader(TYPE, dns.PTR, ttl=ttl, payload=dns.Record_PTR(name))


def _service(label: str, host: str) -> dns.RRHeader:
    return dns.RRHeader(f"{label}.{TYPE}", dns.SRV, ttl=120, payload=dns.Record_SRV(0, 0, 5872, host))


def _flood(cache: Any) -> list[str]:
    """Return the instances of a flood that zeroconf knows."""
    return [record.alias for record in cache.get(TYPE, ()) if record.alias.startswith("fake-")]
