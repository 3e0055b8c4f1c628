"""Control's port for questions to homes, over the loopback interface: who is answered, and what is passed on."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.names import dns
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.model.ids import ClusterID
from liqod.model.records.name_service import HomeAnswer, HomeRecord
from liqod.model.records.offer import PeerUnreachable
from liqod.names import answers
from liqod.names.home_port import HomePort
from liqod.names.question import NOERROR, NXDOMAIN, REFUSED, SERVFAIL, Question, read
from liqod.names.resolver import Resolver
from liqod.names.server import Server
from liqod.names.translation import AskHome, TenantView, asked_of_home, home_question, may_be_at_home, plan
from liqod.names.upstream import UpstreamServers
from tests.names.cases import Authority, address, contents, decoded, query
from tests.names.test_server import LOCAL, Pod

reactor: Any = _reactor
VIEW = TenantView("home.example", "cluster.local", {"shop": "shop-rome"}, tenant="rome")
WEB = "web.bank.svc.home.example"


def question(message: bytes) -> Question:
    """Return the question of a message."""
    found = read(message)
    assert isinstance(found, Question)
    return found


class QuestionTests(SynchronousTestCase):
    def test_what_is_asked_of_home(self) -> None:
        """Names of Services in namespaces that are not offloaded here, and of tenants whose home may be asked."""
        self.assertEqual(plan(WEB, 1, VIEW), AskHome())
        self.assertNotEqual(plan(WEB, 1, TenantView("home.example", "cluster.local", {})), AskHome())
        self.assertEqual(plan(f"_http._tcp.{WEB}", 33, VIEW), AskHome())
        outside = "www.example.com.bank.svc.home.example"
        for name in ("10-1-2-3.bank.pod.home.example", "bank.svc.home.example", f"a.{outside}", outside):
            self.assertNotEqual(plan(name, 1, VIEW), AskHome(), name)
        for before, asks in (("web", True), ("_http._tcp.web", True), ("www.example.com", False), ("a.b.c.d", False)):
            name = f"{before}.shop.svc.home.example"
            self.assertEqual(may_be_at_home(name, plan(name, 1, VIEW), VIEW), asks, name)

    def test_there_and_back(self) -> None:
        """The tenant is in the name, and control reads it again; no other name is such a question."""
        asked = home_question(WEB, VIEW)
        assert asked is not None
        self.assertEqual(asked_of_home(asked), (WEB, "rome"))
        for name in (WEB, "home.liqod", "rome.home.liqod", "x.home.liqodx"):
            self.assertIsNone(asked_of_home(name), name)
        self.assertIsNone(home_question("x" * 63 + "." + "y" * 63 + "." + "z" * 63 + "." + "w" * 60, VIEW))


class PassedOnTests(SynchronousTestCase):
    def pass_on(self, answer: HomeAnswer) -> dns.Message | None:
        """Return what a pod gets of an answer of home's."""
        inner = question(query(home_question(WEB, VIEW) or ""))
        got = answers.of_home(answers.said_by_home(inner, answer), question(query(WEB)), VIEW)
        return None if got is None else decoded(got)

    def test_records(self) -> None:
        """Each type of record arrives as it is, under the name that the pod asked for."""
        for kind, data in ((dns.A, "240.0.0.7"), (dns.CNAME, "www.example.com"), (dns.SRV, "0 100 80 web.example")):
            got = self.pass_on(HomeAnswer(records=(HomeRecord(WEB, kind, 5, data),)))
            assert got is not None
            self.assertEqual(contents(got), [(WEB, data.rpartition(" ")[2])])
            self.assertEqual(str(got.queries[0].name), WEB)

    def test_no_record(self) -> None:
        """That there is no such name, or no such record of it, are two answers; a refusal is none."""
        for answer, code in ((HomeAnswer(), NXDOMAIN), (HomeAnswer(exists=True), NOERROR)):
            got = self.pass_on(answer)
            assert got is not None
            self.assertEqual((got.rCode, contents(got)), (code, []))
        self.assertIsNone(self.pass_on(HomeAnswer(reason="NoTunnel")))

    def test_records_about_other_names(self) -> None:
        """Home cannot say anything about names that were not asked for."""
        got = self.pass_on(HomeAnswer(records=(HomeRecord("www.example.com", dns.A, 5, "192.0.2.1"),)))
        assert got is not None
        self.assertEqual(contents(got), [])

    def test_numbers_beyond_their_field(self) -> None:
        """A record that cannot be written is left out; the others arrive."""
        for numbers in ("99999 0 80", "0 65536 80", "0 0 99999"):
            said = (f"{numbers} a.example", "0 0 80 b.example")
            got = self.pass_on(HomeAnswer(records=tuple(HomeRecord(WEB, dns.SRV, 5, one) for one in said)))
            assert got is not None
            self.assertEqual(contents(got), [(WEB, "b.example")])

    def test_what_is_no_message(self) -> None:
        """Bytes that are none are no answer."""
        self.assertIsNone(answers.of_home(b"x" * 20, question(query(WEB)), VIEW))


class HomePortTests(TestCase):
    """A name server of rome's pods, control's port, and a home that answers from a table."""

    timeout = 60

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        self.asked: list[tuple[str, str, int]] = []
        self.home: HomeAnswer | Exception = HomeAnswer(records=(HomeRecord(WEB, dns.A, 5, "240.0.0.7"),))
        self.admitted = {LOCAL}
        probe = reactor.listenUDP(0, Authority({}), interface=LOCAL)
        place = (LOCAL, probe.getHost().port)
        self.authority = Authority({})
        upstream = reactor.listenUDP(0, self.authority, interface=LOCAL)
        self.addCleanup(upstream.stopListening)
        self.dns = upstream.getHost().port
        return Deferred.fromCoroutine(self._begin(probe, place))

    async def _begin(self, probe: Any, place: tuple[str, int]) -> None:
        await probe.stopListening()
        port = HomePort(reactor, self.ask_home, place, lambda host: host in self.admitted)
        port.startService()
        self.addCleanup(port.stopService)
        servers = UpstreamServers(reactor)
        servers.use([(LOCAL, self.dns)])
        self.control = UpstreamServers(reactor, silence=0.5, tries=1)
        self.control.use([place])
        self.addCleanup(servers.close)
        self.addCleanup(self.control.close)
        resolver = Resolver(reactor, servers, VIEW, 1000, home=self.control)
        probe = reactor.listenUDP(0, Authority({}), interface=LOCAL)
        number = probe.getHost().port
        await probe.stopListening()
        server = Server(reactor, resolver, (LOCAL,), number)
        server.listen()
        self.addCleanup(lambda: gatherResults(server.close()))
        self.pod = Pod(number)
        listening = reactor.listenUDP(0, self.pod, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        self.place = place

    async def ask_home(self, tenant: ClusterID, name: str, kind: int) -> HomeAnswer:
        self.asked.append((tenant, name, kind))
        if isinstance(self.home, Exception):
            raise self.home
        return self.home

    async def test_a_name_that_only_home_knows(self) -> None:
        """Home of this tenant is asked once, and the pod gets its answer; the next question costs nothing."""
        for _ in range(3):
            got = await self.pod.ask(query(WEB))
            self.assertEqual(contents(got), [(WEB, "240.0.0.7")])
        self.assertEqual(self.asked, [("rome", WEB, dns.A)])
        self.assertEqual(self.authority.asked, [])

    async def test_this_cluster_is_asked_first(self) -> None:
        """In an offloaded namespace what is reflected is answered here, and home knows the rest."""
        name, here = "web.shop.svc.home.example", "web.shop-rome.svc.cluster.local"
        self.home = HomeAnswer(records=(HomeRecord(name, dns.A, 5, "240.0.0.8"),))
        got = await self.pod.ask(query(name))
        self.assertEqual((contents(got), self.authority.asked), ([(name, "240.0.0.8")], [here]))
        other = "cache.shop.svc.home.example"
        cache = "cache.shop-rome.svc.cluster.local"
        self.authority.table[cache] = [address(cache, "10.0.0.1")]
        self.assertEqual(contents(await self.pod.ask(query(other))), [(other, "10.0.0.1")])
        self.assertEqual(len(self.asked), 1)

    async def test_an_alias(self) -> None:
        """What a name of home leads to is looked up here, as pods do not; but for names of either cluster."""
        self.authority.table["www.example.com"] = [address("www.example.com", "192.0.2.7")]
        table = {"www.example.com": ["192.0.2.7"], "db.bank.svc.home.example": [], "api.default.svc.cluster.local": []}
        for number, (target, addresses) in enumerate(table.items()):
            name = f"far-{number}.bank.svc.home.example"
            self.home = HomeAnswer(records=(HomeRecord(name, dns.CNAME, 5, target),))
            got = contents(await self.pod.ask(query(name)))
            self.assertEqual(got, [(name, target), *((target, one) for one in addresses)])
        self.assertEqual(self.authority.asked, ["www.example.com"])

    async def test_a_home_that_does_not_answer(self) -> None:
        """The name does not exist then, as before: a failure would end a resolver's search of its other domains."""
        for said in (PeerUnreachable("no"), HomeAnswer(reason="NoTunnel")):
            self.home = said
            got = await self.pod.ask(query(f"{type(said).__name__.lower()}.bank.svc.home.example"))
            self.assertEqual(got.rCode, NXDOMAIN)

    async def test_a_daemon_that_is_silent(self) -> None:
        """After two questions that it did not answer nobody waits for it, for a while or until another one leads."""
        self.patch(self.control, "_rest", self.timeout)
        self.admitted.clear()
        for name in ("one", "two"):
            self.assertEqual((await self.pod.ask(query(f"{name}.bank.svc.home.example"))).rCode, NXDOMAIN)
        self.admitted.add(LOCAL)
        self.assertEqual((await self.pod.ask(query("three.bank.svc.home.example"))).rCode, NXDOMAIN)
        self.assertEqual(self.asked, [])
        self.control.use([])
        self.control.use([self.place])
        self.assertEqual(contents(await self.pod.ask(query(WEB))), [(WEB, "240.0.0.7")])

    async def test_who_is_answered(self) -> None:
        """Control answers processes that answer, and no pod that finds its port; nor what names no tenant."""
        stranger = Pod(self.place[1])
        listening = reactor.listenUDP(0, stranger, interface=LOCAL)
        self.addCleanup(listening.stopListening)
        got = await stranger.ask(query("web.bank.svc.home.example"))
        self.assertEqual(got.rCode, REFUSED)
        self.home = PeerUnreachable("no")
        got = await stranger.ask(query(f"{WEB}.rome.home.liqod"))
        self.assertEqual(got.rCode, SERVFAIL)
        self.asked.clear()
        self.admitted.clear()
        stranger.send(query(f"{WEB}.rome.home.liqod"))
        self.assertEqual((await self.pod.ask(query(WEB))).rCode, NXDOMAIN)
        self.assertEqual(self.asked, [])
