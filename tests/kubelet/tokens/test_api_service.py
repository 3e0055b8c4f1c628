"""The service at the lender that leads to the home API server: what is forged, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import attrs
import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.errors import AlreadyExists, Forbidden
from liqod.kube.resources import Resource
from liqod.kubelet.common.context import ApiServer, Context, NoHomeServices
from liqod.kubelet.common.network import NoNetwork
from liqod.kubelet.common.readiness import READY
from liqod.kubelet.tokens import api_access
from liqod.kubelet.tokens.api_access import HomeApiAccess
from liqod.kubelet.tokens.api_service import (
    NAME,
    ApiService,
    Reach,
    forge_service,
    forge_slice,
    has_streams,
    is_same_slice,
    reach,
    readiness,
    readiness_of_streams,
)
from liqod.model.ids import ClusterID
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.records.views import ShadowEndpointSlice
from tests.hosting.shadowpods.test_controller import Cache

CONTEXT = Context(ClusterID("home"), ClusterID("lender"), "liqo-lender")
SERVER = ApiServer(("192.0.2.1", "192.0.2.2"), 6443)
BOTH = Reach(("10.68.0.1", "10.68.0.2"), 6443)


class Tunnel(NoNetwork):
    """Exports the addresses that it was given, and refuses loopback."""

    is_managed = True

    def __init__(self, given: dict[str, str], families: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.given = given
        self.versions = families

    def endpoint_to_lender(self, address: str) -> str:
        return self.given.get(address, "")

    def must_be_exported(self, address: str) -> bool:
        return not address.startswith("10.1.")

    def objection(self, address: str) -> str:
        return "has a meaning on its own host alone" if address.startswith("127.") else ""

    def families(self) -> frozenset[str]:
        return self.versions


class ReachTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Addresses are claimed with the port alone; what is not exported yet is waited for, what never is is said."""
        one, two = (("192.0.2.1", "TCP/6443"), ("192.0.2.2", "TCP/6443"))
        given = {"192.0.2.1": "10.68.0.1"}
        never = ("the address 127.0.0.1 has a meaning on its own host alone",)
        for server, exported, wanted in (
            (SERVER, {}, Reach((), 6443, frozenset({one, two}), (), True)),
            (SERVER, given, Reach(("10.68.0.1",), 6443, frozenset({one, two}), (), True)),
            (
                SERVER,
                {**given, "192.0.2.2": "10.68.0.2"},
                Reach(("10.68.0.1", "10.68.0.2"), 6443, frozenset({one, two})),
            ),
            (ApiServer(("10.1.0.4",), 443), {"10.1.0.4": "10.9.0.4"}, Reach(("10.9.0.4",), 443)),
            (ApiServer(("127.0.0.1",), 6443), {}, Reach((), 6443, frozenset(), never)),
            (ApiServer(("127.0.0.1", "192.0.2.1"), 6443), given, Reach(("10.68.0.1",), 6443, frozenset({one}), never)),
            # A service has endpoints of one IP version.
            (ApiServer(("192.0.2.1", "2001:db8::1"), 6443), given, Reach(("10.68.0.1",), 6443, frozenset({one}))),
            (ApiServer((), 6443, "api.example.com"), {}, Reach((), 6443)),
        ):
            self.assertEqual(reach(server, Tunnel(exported)), wanted, server)

    def test_what_is_said(self) -> None:
        """The first obstacle is named, and nothing is called broken that is not known."""
        never = Reach((), 6443, objections=("the address 127.0.0.1 has a meaning on its own host alone",))
        for server, found, refused, wanted in (
            (SERVER, BOTH, {}, ("Tunnel", True, True)),
            (SERVER, BOTH, {"shop": "forbidden"}, ("ServiceRefused", False, True)),
            (SERVER, Reach((), 6443, is_waiting=True), {}, ("NotExportedYet", False, True)),
            (SERVER, never, {}, ("NotExported", False, True)),
            (ApiServer((), 6443), Reach((), 6443), {}, ("Unknown", False, False)),
        ):
            said = readiness(server, found, refused)
            self.assertEqual((said.reason, said.ready, said.known), wanted)
            self.assertTrue(said.message)


class ForgeTests(SynchronousTestCase):
    def test_service_and_slice_belong_together(self) -> None:
        """The service has no selector, the port that programs have built in, and that port's name is the slice's."""
        service, there = forge_service("shop-home", BOTH, CONTEXT), forge_slice("shop-home", BOTH, CONTEXT)
        self.assertNotIn("selector", service["spec"])
        (port,), (behind,) = service["spec"]["ports"], there["spec"]["template"]["ports"]
        self.assertEqual((port["port"], behind["port"]), (443, 6443))
        self.assertEqual(port["name"], behind["name"])
        self.assertEqual(there["metadata"]["labels"]["kubernetes.io/service-name"], service["metadata"]["name"])
        self.assertEqual(service["metadata"]["name"], NAME)
        found = [one["addresses"] for one in there["spec"]["template"]["endpoints"]]
        self.assertEqual(found, [["10.68.0.1"], ["10.68.0.2"]])

    def test_the_address_that_pods_call(self) -> None:
        """A service that somebody deleted gets its address again; its version is that of the API server's address."""
        self.assertEqual(forge_service("s", BOTH, CONTEXT, "10.102.0.7")["spec"]["clusterIP"], "10.102.0.7")
        self.assertNotIn("clusterIP", forge_service("s", BOTH, CONTEXT)["spec"])
        six = Reach(("fd00::1",), 6443)
        for families, wanted in ((frozenset({"IPv4"}), None), (frozenset({"IPv4", "IPv6"}), ["IPv6"])):
            context = attrs.evolve(CONTEXT, network=Tunnel({}, families))
            self.assertEqual(forge_service("s", six, context)["spec"].get("ipFamilies"), wanted)
        self.assertEqual(forge_slice("s", six, CONTEXT)["spec"]["template"]["addressType"], "IPv6")

    def test_an_equal_slice_is_not_written(self) -> None:
        """What the lender keeps differs in default values only; other addresses, ports or labels are written."""
        body = forge_slice("s", BOTH, CONTEXT)
        there = msgspec.convert(body, ShadowEndpointSlice)
        self.assertTrue(is_same_slice(there, body))
        for other in (attrs.evolve(BOTH, addresses=("10.68.0.1",)), attrs.evolve(BOTH, port=443)):
            self.assertFalse(is_same_slice(there, forge_slice("s", other, CONTEXT)))
        bare = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, labels={}))
        self.assertFalse(is_same_slice(bare, body))


class Listed(Cache, Service):
    """A watch of the lender's that has synced and shows nothing."""

    error = ""


class Lender:
    """Has a service of that name which is not ours, and answers to a create when the test lets it."""

    def __init__(self) -> None:
        self.answer: Deferred[None] = Deferred()

    async def create(self, *_: Any, **__: Any) -> None:
        await self.answer
        raise AlreadyExists(409, "AlreadyExists", "there is one")

    async def get(self, *_: Any, **__: Any) -> ApiService:
        return ApiService()


class Unwilling:
    """Refuses to make a service until the test lets it."""

    def __init__(self) -> None:
        self.refuses = True
        self.made: list[str] = []

    async def create(self, kind: Resource, *_: Any, **__: Any) -> ApiService:
        if self.refuses:
            raise Forbidden(403, "Forbidden", "exceeded quota")
        self.made.append(kind.plural)
        spec = {"clusterIP": "10.96.0.9"}
        return msgspec.convert({"metadata": {"name": NAME, "resourceVersion": "1"}, "spec": spec}, ApiService)


class LeftNamespaceTests(SynchronousTestCase):
    def test_a_namespace_that_is_left_while_the_lender_is_asked(self) -> None:
        """What the lender answers for it is no longer said: neither a refusal nor an address stays behind."""
        self.patch(api_access, "Informer", lambda *_, **__: Listed())
        clock, lender, followers = Clock(), Lender(), list[Callable[[str, Any], None]]()

        def subscribe(subscriber: Callable[[str, Any], None]) -> Callable[[], None]:
            followers.append(subscriber)
            return lambda: None

        context = attrs.evolve(CONTEXT, network=Tunnel({"192.0.2.1": "10.68.0.1"}))
        access = HomeApiAccess(
            clock,
            context=context,
            home_api=cast(Any, SimpleNamespace(slices=Cache(), own_server=lambda: SERVER)),
            namespaces=cast(Any, SimpleNamespace(subscribe=subscribe, table_synced=True, mappings=dict)),
            health=cast(Any, SimpleNamespace(state=Latest(READY), ok=True)),
        )
        access.startService()
        self.addCleanup(access.stopService)
        (namespace_changed,) = followers
        namespace_changed("left", SimpleNamespace(client=lender, namespace="left-home", since=0.0))
        step = Deferred.fromCoroutine(access.reconcile("left"))
        namespace_changed("left", None)
        namespace_changed("other", SimpleNamespace(client=Lender(), namespace="other-home", since=0.0))
        lender.answer.callback(None)
        self.successResultOf(step)
        self.assertNotEqual(getattr(access.state.value, "reason", ""), "ServiceRefused")
        self.assertEqual(context.services.api_addresses.value, {})


class StreamsTests(SynchronousTestCase):
    """The way to the home API server without a tunnel."""

    def setUp(self) -> None:
        self.patch(api_access, "Informer", lambda *_, **__: Listed())
        self.clock, self.services = Clock(), NoHomeServices()
        followers = list[Callable[[str, Any], None]]()

        def subscribe(subscriber: Callable[[str, Any], None]) -> Callable[[], None]:
            followers.append(subscriber)
            return lambda: None

        self.access = HomeApiAccess(
            self.clock,
            context=attrs.evolve(CONTEXT, services=self.services),
            home_api=cast(Any, SimpleNamespace(slices=Cache(), own_server=lambda: SERVER)),
            namespaces=cast(Any, SimpleNamespace(subscribe=subscribe, table_synced=True, mappings=dict)),
            health=cast(Any, SimpleNamespace(state=Latest(READY), ok=True)),
        )
        self.access.startService()
        self.addCleanup(self.access.stopService)
        (self.namespace_changed,) = followers

    def reason(self) -> str:
        """Return what is said of the way."""
        return str(getattr(self.access.state.value, "reason", ""))

    def test_readiness(self) -> None:
        """As without streams while the lender asks for none; ready with some; what home refuses is said."""
        for granted, refused, ready, reason in (
            (None, {}, False, "NoTunnel"),
            (HomeStreamsGrant(4), {}, True, "Streams"),
            (HomeStreamsGrant(0, "NamesMissing", "not for kubernetes.default"), {}, False, "NamesMissing"),
            (HomeStreamsGrant(4), {"shop": "no"}, False, "ServiceRefused"),
        ):
            found = readiness_of_streams(granted, refused)
            self.assertEqual((found.ready, found.reason), (ready, reason))
            self.assertEqual(has_streams(granted), granted is not None and granted.count > 0)

    def test_what_is_missing_is_said(self) -> None:
        """Streams that were granted serve, and the condition says what does not work all the same."""
        found = readiness_of_streams(HomeStreamsGrant(4, message="not for kubernetes.default.svc"), {})
        self.assertTrue(found.ready)
        self.assertIn("; not for kubernetes.default.svc", found.message)

    def test_it_follows_what_is_granted(self) -> None:
        """Remote namespaces are watched while there are streams, and left when there are none any more."""
        self.namespace_changed("shop", SimpleNamespace(client=Lender(), namespace="shop-home", since=0.0))
        self.assertEqual(self.reason(), "NoTunnel")
        self.services.streams.set(HomeStreamsGrant(4))
        list(self.access._way_changed())
        self.assertEqual(self.reason(), "Streams")
        self.services.streams.set(None)
        list(self.access._way_changed())
        self.assertEqual(self.reason(), "NoTunnel")

    def test_a_refusal_that_is_over(self) -> None:
        """What the lender refused is said until it is made; there is no slice of ours, whose write would end that."""
        lender = Unwilling()
        self.namespace_changed("shop", SimpleNamespace(client=lender, namespace="shop-home", since=-60.0))
        self.services.streams.set(HomeStreamsGrant(4))
        list(self.access._way_changed())
        self.successResultOf(Deferred.fromCoroutine(self.access.reconcile("shop")))
        self.assertEqual(self.reason(), "ServiceRefused")
        self.assertEqual(self.services.api_addresses.value, {"shop": ""})
        lender.refuses = False
        self.clock.advance(60.0)
        self.successResultOf(Deferred.fromCoroutine(self.access.reconcile("shop")))
        self.assertEqual(self.reason(), "Streams")
        self.assertEqual(lender.made, ["services"])
        self.assertEqual(self.services.api_addresses.value, {"shop": "10.96.0.9"})
