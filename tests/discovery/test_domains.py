"""DNS-SD over unicast DNS: against a server of twisted.names that can be broken at will, and against a real one."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.names import dns, server
from twisted.names.authority import FileAuthority
from twisted.names.client import Resolver
from twisted.names.error import DNSServerError
from twisted.trial.unittest import FailTest, SynchronousTestCase, TestCase

from liqod.demo.access import client_config
from liqod.discovery import domains as module
from liqod.discovery.candidate import Announcement, Candidate
from liqod.discovery.domains import DomainSearch, make_resolver, system_servers
from liqod.discovery.merge import Lost, Resolved, Table, candidates, fold
from liqod.discovery.unicast import EMPTY_DELAY, MIN_DELAY, SearchFailed, search
from liqod.discovery.zone import zone_lines
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import SEARCHDOMAINS
from liqod.model.records.search_domain import SearchDomain, is_domain
from tests.discovery import nsd

REACTOR: Any = reactor
T = TypeVar("T")
KEY = "sha256:" + "a" * 64
MILAN = Announcement("milan-id", "milan", KEY, 5872)
TURIN = Announcement("turin-id", "turin", "", 6000)
SOA = """\
example.com. 300 IN SOA ns.example.com. admin.example.com. 1 3600 600 86400 60
example.com. 300 IN NS ns.example.com.
ns.example.com. 300 IN A 127.0.0.1
"""


def zone(*lines: str) -> str:
    return SOA + "\n".join(lines) + "\n"


def both() -> list[str]:
    return [
        *zone_lines(MILAN, "example.com", "milan.example.com", ["192.0.2.1", "2001:db8::1"], 120),
        *zone_lines(TURIN, "example.com", "turin.example.com", ["192.0.2.2"], 600),
    ]


class ZoneTests(SynchronousTestCase):
    """What is to be published."""

    def test_lines_of_a_zone(self) -> None:
        """PTR, SRV, TXT and the addresses, all names complete."""
        lines = zone_lines(MILAN, "example.com.", "gw.example.com", ["192.0.2.1", "2001:db8::1"], 60)
        instance = lines[0].split()[-1].split(".")[0]
        self.assertEqual(
            lines,
            [
                f"_liqod._tcp.example.com. 60 IN PTR {instance}._liqod._tcp.example.com.",
                f"{instance}._liqod._tcp.example.com. 60 IN SRV 0 0 5872 gw.example.com.",
                f'{instance}._liqod._tcp.example.com. 60 IN TXT "id=milan-id" "name=milan" "fp={KEY}" "proto=1"',
                "gw.example.com. 60 IN A 192.0.2.1",
                "gw.example.com. 60 IN AAAA 2001:db8::1",
            ],
        )

    def test_domains(self) -> None:
        """ASCII labels with dots; nothing that could be anything else."""
        self.assertTrue(all(map(is_domain, ("example.com", "example.com.", "x", "_sub.xn--bcher-kva.example"))))
        self.assertFalse(any(map(is_domain, ("", ".", "a..b", "exa mple", "a/b", "bücher.example", "x" * 300))))


class Flawed(Resolver):
    """A resolver that fails for the names it is given."""

    bad: Sequence[bytes] = ()

    def _lookup(self, name: bytes, cls: int, type: int, timeout: Any) -> Any:
        if any(part in name for part in self.bad):
            return fail(DNSServerError("SERVFAIL"))
        return super()._lookup(name, cls, type, timeout)


class Zone(FileAuthority):
    """A zone that is not read from a file."""

    def __init__(self, soa: Any, records: Any) -> None:
        super().__init__("")
        self.soa, self.records = soa, records

    def loadFile(self, filename: str) -> None:
        """There is no file."""


def authority(text: str) -> FileAuthority:
    """Return what a zone file says; only what these tests write is understood."""
    records: dict[bytes, list[Any]] = {}
    soa = dns.Record_SOA(b"ns.example.com", b"admin.example.com", 1, 3600, 600, 86400, 60, 300)
    for line in text.splitlines():
        words = shlex.split(line)
        if len(words) < 5 or words[3] in ("SOA", "NS"):
            continue
        name, ttl, values = words[0].rstrip(".").encode(), int(words[1]), words[4:]
        record: Any
        match words[3]:
            case "PTR":
                record = dns.Record_PTR(values[0].rstrip(".").encode(), ttl)
            case "SRV":
                priority, weight, port = map(int, values[:3])
                record = dns.Record_SRV(priority, weight, port, values[3].rstrip(".").encode(), ttl)
            case "TXT":
                record = dns.Record_TXT(*[value.encode() for value in values], ttl=ttl)
            case "A":
                record = dns.Record_A(values[0], ttl)
            case _:
                record = dns.Record_AAAA(values[0], ttl)
        records.setdefault(name.lower(), []).append(record)
    records.setdefault(b"example.com", []).append(soa)
    return Zone((b"example.com", soa), records)


class DnsCase(TestCase):
    """A DNS server on loopback."""

    timeout = 60

    def serve(self, text: str) -> int:
        """Serve a zone by UDP and TCP; returns the port."""
        factory = server.DNSServerFactory(authorities=[authority(text)])
        factory.noisy = False
        port = REACTOR.listenUDP(0, dns.DNSDatagramProtocol(factory), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    def resolver(self, text: str) -> Flawed:
        return Flawed(servers=[("127.0.0.1", self.serve(text))], reactor=REACTOR)

    async def becomes(self, check: Callable[[], Awaitable[T | None]], what: str, patience: float = 10.0) -> T:
        end, last = REACTOR.seconds() + patience, None
        while REACTOR.seconds() < end:
            last = await check()
            if last:
                return last
            await deferLater(REACTOR, 0.05)
        raise FailTest(f"{what}; last seen: {last!r}")


class SearchTests(DnsCase):
    """One search."""

    async def test_instances_addresses_and_ttl(self) -> None:
        """Every instance with its addresses, IPv4 and IPv6; searched again when the first record expires."""
        found = await search(self.resolver(zone(*both())), "example.com")
        by_id = {seen.candidates[0].cluster_id: seen.candidates for seen in found.seen}
        self.assertEqual({candidate.host for candidate in by_id["milan-id"]}, {"192.0.2.1", "2001:db8::1"})
        self.assertEqual(by_id["turin-id"], (Candidate("192.0.2.2", 6000, "DNS-SD", "turin-id", "turin"),))
        self.assertEqual(by_id["milan-id"][0].fingerprint, KEY)
        self.assertEqual((found.again, found.unknown), (120.0, {}))

    async def test_a_domain_without_instances(self) -> None:
        """Nothing there is an answer, not a failure."""
        found = await search(self.resolver(zone()), "example.com")
        self.assertEqual((found.seen, found.again), ((), EMPTY_DELAY))

    async def test_the_floor(self) -> None:
        """A TTL of a second does not make us ask every second."""
        lines = zone_lines(MILAN, "example.com", "milan.example.com", ["192.0.2.1"], 1)
        self.assertEqual((await search(self.resolver(zone(*lines)), "example.com")).again, MIN_DELAY)

    async def test_each_instance_is_on_its_own(self) -> None:
        """One without TXT, one with a wrong TXT, one whose target does not exist: the others are found."""
        lines = [
            *both(),
            "_liqod._tcp.example.com. 300 IN PTR bare._liqod._tcp.example.com.",
            "bare._liqod._tcp.example.com. 300 IN SRV 0 0 1 milan.example.com.",
            "_liqod._tcp.example.com. 300 IN PTR odd._liqod._tcp.example.com.",
            "odd._liqod._tcp.example.com. 300 IN SRV 0 0 1 milan.example.com.",
            'odd._liqod._tcp.example.com. 300 IN TXT "id=UPPER" "proto=1"',
            *zone_lines(Announcement("lost-id", "lost", "", 1), "example.com", "nowhere.example.com", [], 300),
        ]
        found = await search(self.resolver(zone(*lines)), "example.com")
        self.assertEqual({seen.candidates[0].cluster_id for seen in found.seen}, {"milan-id", "turin-id"})
        self.assertEqual(len(found.unknown), 3, found.unknown)

    async def test_no_server(self) -> None:
        """A server that fails is a failure with a sentence."""
        resolver = self.resolver(zone())
        resolver.bad = (b"_liqod",)
        with self.assertRaises(SearchFailed) as caught:
            await search(resolver, "example.com")
        self.assertIn("example.com cannot be searched", str(caught.exception))


class Silent:
    """A resolver that answers nothing but, if it has one, the first question."""

    def __init__(self, instances: Sequence[bytes] = ()) -> None:
        self._instances = instances

    def lookupPointer(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        answers = [dns.RRHeader(name, dns.PTR, payload=dns.Record_PTR(each)) for each in self._instances]
        return succeed((answers, [], [])) if answers else Deferred()

    def lookupService(self, name: bytes, timeout: Sequence[int]) -> Deferred[Any]:
        return Deferred()

    lookupText = lookupService


class CancelledTests(SynchronousTestCase):
    """A search that is no longer wanted."""

    def test_a_cancelled_search_has_no_result(self) -> None:
        """Cancelling it is no failure of the domain's or an instance's, in whichever part it was."""
        for resolver in (Silent(), Silent([b"milan._liqod._tcp.example.com"])):
            searching = Deferred.fromCoroutine(search(resolver, "example.com"))
            self.assertNoResult(searching)
            searching.cancel()
            self.failureResultOf(searching, CancelledError)


class RecordTests(DnsCase):
    """SearchDomain records on a cluster."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.cluster = SandboxCluster(REACTOR, "home")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        await manifests.ensure(self.client)
        self.seen: dict[str, Resolved] = {}
        self.lost: list[str] = []
        self.table: Table = {}

    def saw(self, changes: Sequence[Resolved | Lost]) -> None:
        self.table = fold(self.table, changes, 0.0)
        for change in changes:
            if isinstance(change, Resolved):
                self.seen[change.instance] = change
            else:
                self.lost.append(change.instance)

    async def start(self, resolver: Any) -> DomainSearch:
        informers = Informers(self.client, REACTOR)
        domains = informers.of(SEARCHDOMAINS, SearchDomain)
        running = DomainSearch(REACTOR, self.client, domains, resolver=lambda: resolver, on_sightings=self.saw)
        informers.startService()
        running.startService()

        async def stop() -> None:
            await running.stopService()
            await informers.stopService()

        self.addCleanup(lambda: Deferred.fromCoroutine(stop()))
        await self.create("wan")
        return running

    async def create(self, name: str) -> None:
        await self.client.create(SEARCHDOMAINS, {"metadata": {"name": name}, "spec": {"domain": "example.com"}})

    async def phase(self, wanted: str, name: str = "wan") -> SearchDomain:
        async def check() -> SearchDomain | None:
            record = await self.client.get(SEARCHDOMAINS, name, view=SearchDomain)
            return record if record.status.phase == wanted else None

        return await self.becomes(check, f"the domain is {wanted}")

    async def shown(self, wanted: set[str]) -> None:
        async def check() -> bool:
            return {found.cluster_id for found in candidates(self.table) if not found.stale} == wanted

        await self.becomes(check, f"{wanted} are shown")

    async def test_a_domain_is_searched_and_what_it_found_outlives_its_failure(self) -> None:
        """Found, then DNS fails: Stale, nothing is lost; the record says what was found and why it is stale."""
        resolver = self.resolver(zone(*both()))
        running = await self.start(resolver)
        record = await self.phase("Found")
        self.assertEqual({peer.cluster_id for peer in record.status.found}, {"milan-id", "turin-id"})
        self.assertEqual(record.status.refresh_seconds, 120)
        self.assertEqual(len(self.seen), 2)
        resolver.bad = (b"_liqod",)
        running._queue.add("wan")
        stale = await self.phase("Stale")
        self.assertIn("what was found stays", stale.status.message)
        self.assertEqual(stale.status.found, record.status.found)
        self.assertEqual(self.lost, [])

    async def test_an_instance_that_fails_stays_and_one_that_is_gone_goes(self) -> None:
        """Only an answer without an instance lets it go; deleting the record lets all go."""
        resolver = self.resolver(zone(*both()))
        running = await self.start(resolver)
        await self.phase("Found")
        resolver.bad = (b"turin",)
        running._queue.add("wan")

        async def partly() -> bool:
            record = await self.client.get(SEARCHDOMAINS, "wan", view=SearchDomain)
            return record.status.reason == "PartlyResolved" and len(record.status.found) == 3

        await self.becomes(partly, "the record names what could not be resolved")
        self.assertEqual(self.lost, [])
        resolver.bad = ()
        resolver.servers = [("127.0.0.1", self.serve(zone(*both()[:5])))]
        running._queue.add("wan")

        async def gone() -> bool:
            return len(self.lost) == 1

        await self.becomes(gone, "turin is not published any more")
        await self.client.delete(SEARCHDOMAINS, "wan")

        async def all_gone() -> bool:
            return len(self.lost) == 2

        await self.becomes(all_gone, "nothing of a deleted domain stays")

    async def test_two_records_of_one_domain_are_apart(self) -> None:
        """Deleting one of two that search the same domain takes nothing of what the other found."""
        await self.start(self.resolver(zone(*both())))
        await self.create("xan")
        await self.phase("Found")
        await self.phase("Found", "xan")
        self.assertEqual(len(self.seen), 4)
        await self.client.delete(SEARCHDOMAINS, "wan")

        async def gone() -> bool:
            return len(self.lost) == 2

        await self.becomes(gone, "what the deleted one found is lost")
        await self.shown({"milan-id", "turin-id"})

    async def test_every_search_reports_all_that_it_found(self) -> None:
        """What found no place in the table is offered again, for the table forgets what it refused."""
        running = await self.start(self.resolver(zone(*both())))
        await self.phase("Found")
        self.table = {}
        running._queue.add("wan")
        await self.shown({"milan-id", "turin-id"})

    async def test_a_domain_too_many_is_searched_when_another_goes(self) -> None:
        """Too many ends when one goes, and begins for a searched one when an earlier one comes: its finds are lost."""
        self.patch(module, "MAX_DOMAINS", 1)
        await self.start(self.resolver(zone(*both())))
        await self.phase("Found")
        await self.create("early")
        record = await self.phase("Failed")
        self.assertEqual((record.status.reason, record.status.found), ("TooManyDomains", []))
        await self.phase("Found", "early")
        self.assertEqual(len(self.lost), 2)
        await self.client.delete(SEARCHDOMAINS, "early")
        await self.phase("Found")
        await self.shown({"milan-id", "turin-id"})

    async def test_what_is_no_domain_any_more_has_no_finds(self) -> None:
        """A record whose domain became none loses what was found."""
        await self.start(self.resolver(zone(*both())))
        await self.phase("Found")
        self.patch(module, "is_domain", lambda text: text == "example.com")
        await self.client.patch(SEARCHDOMAINS, "wan", {"spec": {"domain": "example.org"}})
        record = await self.phase("Failed")
        self.assertEqual((record.status.reason, record.status.found), ("NotADomain", []))
        await self.shown(set())

    async def test_what_another_process_found_is_not_called_kept(self) -> None:
        """After a restart nothing of the status is dialled, and the record does not say so while DNS fails."""
        found = [{"clusterID": "milan-id", "clusterName": "milan", "address": "192.0.2.1:5872"}]
        await self.create("before")
        await self.client.patch(SEARCHDOMAINS, "before", {"status": {"found": found}}, subresource="status")
        resolver = self.resolver(zone())
        resolver.bad = (b"_liqod",)
        await self.start(resolver)
        record = await self.phase("Failed", "before")
        self.assertEqual(record.status.reason, "NoAnswer")
        self.assertNotIn("stays", record.status.message)
        self.assertIn("not used", record.status.message)
        self.assertEqual(len(record.status.found), 1)

    async def test_a_quiet_domain_is_not_written_again(self) -> None:
        """A search that finds the same writes nothing."""
        running = await self.start(self.resolver(zone(*both())))
        record = await self.phase("Found")
        for _ in range(3):
            running._queue.add("wan")
            await deferLater(REACTOR, 0.2)
        after = await self.client.get(SEARCHDOMAINS, "wan", view=SearchDomain)
        self.assertEqual(after.metadata.resource_version, record.metadata.resource_version)


class SystemTests(SynchronousTestCase):
    """The system's DNS servers."""

    def test_resolv_conf(self) -> None:
        """Its nameserver lines, at most eight; a file that is not there names none."""
        path = self.mktemp()
        Path(path).write_text("# x\nsearch example.com\nnameserver 192.0.2.53\nnameserver\nnameserver 2001:db8::53\n")
        self.assertEqual(system_servers(path), ["192.0.2.53", "2001:db8::53"])
        self.assertEqual(system_servers(path + "-not"), [])


class _Server(ProcessProtocol):
    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()
        self.said = b""

    def errReceived(self, data: bytes) -> None:
        self.said += data

    def processEnded(self, reason: Any) -> None:
        self.ended.callback(None)


class RealServerTests(DnsCase):
    """Against Debian's nsd."""

    async def test_nsd(self) -> None:
        """What ``dns-records`` prints is a zone that nsd serves and a search finds, by the resolver of the daemon."""
        free = REACTOR.listenUDP(0, dns.DNSDatagramProtocol(server.DNSServerFactory()), interface="127.0.0.1")
        port = free.getHost().port
        await free.stopListening()
        directory = Path(self.mktemp()).absolute()
        command = nsd.furnish(directory, "127.0.0.1", port, "example.com", zone(*both()))
        running = _Server()
        process = REACTOR.spawnProcess(running, command[0], command, env=None)

        async def stop() -> None:
            if not running.ended.called:
                process.signalProcess("TERM")
            await running.ended

        self.addCleanup(lambda: Deferred.fromCoroutine(stop()))
        resolver = make_resolver(REACTOR, [f"127.0.0.1:{port}"])

        async def found() -> set[str] | None:
            try:
                answer = await search(resolver, "example.com")
            except SearchFailed as failure:
                self.last = str(failure)
                return None
            return {seen.candidates[0].cluster_id for seen in answer.seen}

        self.assertEqual(await self.becomes(found, f"nsd answers: {running.said!r}", 30), {"milan-id", "turin-id"})
