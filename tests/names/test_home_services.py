"""What home answers of its Services: forms of names, records, and why nothing is said."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.name_service import HomeAnswer
from liqod.model.records.views import SliceEndpoint
from liqod.names.home_services import (
    AAAA,
    CNAME,
    MOST,
    NOTHING,
    OTHER,
    SRV,
    A,
    HomeService,
    HomeSlice,
    ServiceName,
    Way,
    answer,
    parse,
    pointer,
)
from liqod.names.translation import address_of
from liqod.peering.exchange.names import event_of
from liqod.wire.check import check

DOMAIN = "home.example"
WHOLE = f"cache.shop.svc.{DOMAIN}"


def seen(address: str) -> str:
    """Return how pods at the lender call an address of a Service."""
    return address.replace("10.96.", "240.0.")


def pods(address: str) -> str:
    """Return how they call a pod."""
    return address.replace("10.1.", "10.71.")


WAY = Way(seen, pods)


def service(**spec: Any) -> HomeService:
    """Return a Service with one named port."""
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    all_of_it = {"clusterIP": "10.96.0.7", "ports": ports, **spec}
    body = {"metadata": {"name": "cache", "namespace": "shop"}, "spec": all_of_it}
    return msgspec.convert(body, HomeService)


HEADLESS = service(clusterIP="None")
SLICE = msgspec.convert(
    {
        "endpoints": [
            {"addresses": ["10.1.0.1"], "hostname": "pg-0", "conditions": {"ready": True}},
            {"addresses": ["10.1.0.2"], "conditions": {"ready": None}},
            {"addresses": ["10.1.0.3"], "conditions": {"ready": False}},
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    },
    HomeSlice,
)


def said(name: str, kind: int, of: HomeService | None = None, way: Way = WAY) -> HomeAnswer:
    """Return the answer to a name below shop.svc."""
    asked = parse(f"{name}.shop.svc.{DOMAIN}", DOMAIN)
    assert asked is not None
    return answer(asked, kind, of, [SLICE], domain=DOMAIN, way=way)


def data(found: HomeAnswer) -> list[str]:
    """Return the texts of an answer's records."""
    return [one.data for one in found.records]


class FormTests(SynchronousTestCase):
    def test_forms(self) -> None:
        """Services, hosts and ports; nothing else below the domain, and nothing elsewhere."""
        for name, wanted in (
            ("cache.shop.svc", ServiceName("shop", "cache")),
            ("pg-0.pg.db.svc", ServiceName("db", "pg", host="pg-0")),
            ("_http._tcp.cache.shop.svc", ServiceName("shop", "cache", port="http", protocol="TCP")),
            ("shop.svc", None),
            ("svc", None),
            ("10-1-2-3.shop.pod", None),
            ("_http._icmp.cache.shop.svc", None),
            ("a.b.cache.shop.svc", None),
            ("x._http._tcp.cache.shop.svc", None),
            ("-.shop.svc", None),
        ):
            self.assertEqual(parse(f"{name}.{DOMAIN}", DOMAIN), wanted, name)
        self.assertIsNone(parse("cache.shop.svc.elsewhere", DOMAIN))

    @given(st.text(alphabet="abc-_.*", max_size=40))
    def test_whatever_is_asked(self, text: str) -> None:
        """A name that is understood is made of labels, and is written again as it was."""
        found = parse(f"{text}.svc.{DOMAIN}", DOMAIN)
        if found is not None:
            of_port = [f"_{found.port}", f"_{found.protocol.lower()}"] if found.port else []
            before = [found.host] if found.host else of_port
            self.assertEqual(".".join([*before, found.service, found.namespace]), text)

    def test_reverse(self) -> None:
        """Whole addresses alone."""
        self.assertEqual(str(address_of("7.0.0.240.in-addr.arpa")), "240.0.0.7")
        six = ".".join("1" + "0" * 27 + "01df") + ".ip6.arpa"
        self.assertEqual(str(address_of(six)), "fd10::1")
        others = ("240.in-addr.arpa", "x.0.0.240.in-addr.arpa", "in-addr.arpa", "ip6.arpa", "12" + six[3:], "a.example")
        for name in others:
            self.assertIsNone(address_of(name), name)


class AnswerTests(SynchronousTestCase):
    def test_cluster_ip(self) -> None:
        """The address as pods at the lender call it; another type of address is none of this Service."""
        self.assertEqual(data(said("cache", A, service())), ["240.0.0.7"])
        self.assertEqual(said("cache", AAAA, service()), OTHER)
        self.assertEqual(said("cache", 16, service()), OTHER)
        self.assertEqual(said("cache", A), NOTHING)

    def test_both_versions(self) -> None:
        """Each version has its own record."""
        both = service(clusterIPs=["10.96.0.7", "fd96::7"])
        self.assertEqual(data(said("cache", AAAA, both)), ["fd96::7"])

    def test_headless(self) -> None:
        """Its endpoints that are ready, each by its host's name as well."""
        self.assertEqual(data(said("cache", A, HEADLESS)), ["10.71.0.1", "10.71.0.2"])
        self.assertEqual(data(said("pg-0.cache", A, HEADLESS)), ["10.71.0.1"])
        self.assertEqual(data(said("10-1-0-2.cache", A, HEADLESS)), ["10.71.0.2"])
        self.assertEqual(said("pg-1.cache", A, HEADLESS), NOTHING)
        all_of_them = service(clusterIP="None", publishNotReadyAddresses=True)
        self.assertEqual(len(said("cache", A, all_of_them).records), 3)

    def test_ports(self) -> None:
        """SRV records: of a Service its own port, of a headless one those of its endpoints."""
        self.assertEqual(data(said("_http._tcp.cache", SRV, service())), [f"0 100 80 {WHOLE}"])
        self.assertEqual(said("_smtp._tcp.cache", SRV, service()), NOTHING)
        self.assertEqual(said("_http._udp.cache", SRV, service()), NOTHING)
        unnamed = [{"port": 80, "protocol": "TCP"}]
        self.assertEqual(said("cache", SRV, service(ports=unnamed)), OTHER)
        slices = [msgspec.structs.replace(SLICE, ports=[])]
        asked = ServiceName("shop", "cache")
        self.assertEqual(answer(asked, SRV, HEADLESS, slices, domain=DOMAIN, way=WAY), OTHER)
        wanted = [f"0 100 8080 pg-0.{WHOLE}", f"0 100 8080 10-1-0-2.{WHOLE}"]
        self.assertEqual(data(said("_http._tcp.cache", SRV, HEADLESS)), wanted)
        six = msgspec.structs.replace(SLICE, endpoints=[SliceEndpoint(addresses=["fd10::1"], hostname="pg-0")])
        asked = ServiceName("shop", "cache", port="http", protocol="TCP")
        self.assertEqual(data(answer(asked, SRV, HEADLESS, [SLICE, six], domain=DOMAIN, way=WAY)), wanted)

    def test_external_name(self) -> None:
        """A name that leads elsewhere is said as it is, in lower case and without the dot at its end."""
        outside = service(type="ExternalName", clusterIP="", externalName="WWW.example.com.")
        found = said("cache", A, outside)
        self.assertEqual([(one.kind, one.data) for one in found.records], [(CNAME, "www.example.com")])
        for wrong in ("", "x" * 64 + ".example", ".".join(["x" * 60] * 5)):
            self.assertEqual(said("cache", A, service(type="ExternalName", externalName=wrong)), NOTHING)

    def test_without_a_way(self) -> None:
        """Where the lender's pods reach no Service here the reason is said, and no address."""
        nowhere = Way(lambda _: "", lambda _: "", "NoTunnel", "there is none")
        self.assertEqual(said("cache", A, service(), nowhere).reason, "NoTunnel")
        self.assertEqual(said("cache", A, service(), Way(lambda _: "", pods)).reason, "NotReached")

    def test_pointer(self) -> None:
        """The Service that has an address."""
        address = address_of("7.0.0.240.in-addr.arpa")
        assert address is not None
        self.assertEqual(data(pointer(address, service(), DOMAIN)), [WHOLE])
        self.assertEqual(pointer(address, None, DOMAIN), NOTHING)

    def test_what_is_answered_can_be_sent(self) -> None:
        """Each answer is an event that the other side takes; of a thousand endpoints as many as it may have."""
        addresses = [f"10.1.{number // 250}.{number % 250 + 1}" for number in range(1000)]
        many = msgspec.convert({"endpoints": [{"addresses": [one]} for one in addresses]}, HomeSlice)
        asked = ServiceName("shop", "cache")
        found = answer(asked, A, HEADLESS, [many], domain=DOMAIN, way=WAY)
        self.assertEqual(len(found.records), MOST)
        for one in (found, said("_http._tcp.cache", SRV, HEADLESS), NOTHING, OTHER, said("cache", AAAA, service())):
            check(event_of(1, one))
