"""Home's side of names: which namespaces are answered for, and how often the API server is asked."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.making import make_home_names
from liqod.config.load import parse
from liqod.kube.errors import Forbidden
from liqod.kube.pages import Listing
from liqod.kube.resources import SERVICES, Resource
from liqod.model.ids import ClusterID
from liqod.model.records.name_service import HomeAnswer
from liqod.names.home_names import KEPT, MOST_KEPT, HomeNames
from liqod.names.home_services import NOTHING, A, HomeService, Way
from liqod.names.translation import PTR

MILAN = ClusterID("milan")
DOMAIN = "cluster.local"


def service(namespace: str, name: str, address: str) -> HomeService:
    """Return a Service with an address."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address}}, HomeService
    )


class Api:
    """Lists Services by name or address, and counts that."""

    def __init__(self) -> None:
        self.services = [service("shop", "cache", "10.96.0.7"), service("bank", "vault", "10.96.0.8")]
        self.asked: list[str] = []
        self.is_forbidden = False

    async def list(self, resource: Resource, namespace: str = "", **how: Any) -> Listing[Any]:
        self.asked.append(f"{resource.plural} {namespace} {how.get('fields', '')}")
        if self.is_forbidden:
            raise Forbidden(403, "Forbidden", "no")
        if resource is not SERVICES:
            return Listing([], "1")
        key, _, value = str(how["fields"]).partition("=")
        found = [
            one
            for one in self.services
            if namespace in ("", one.metadata.namespace)
            and value == (one.metadata.name if key == "metadata.name" else one.spec.cluster_ip)
        ]
        return Listing(found, "1")


class View:
    """Only ``shop`` is offloaded; addresses of Services are seen in 240.0.0.0/16."""

    def offloaded(self, lender: ClusterID) -> frozenset[str]:
        return frozenset({"shop"})

    def way(self, lender: ClusterID) -> Way:
        return Way(lambda one: one.replace("10.96.", "240.0."), lambda one: "")

    def original(self, lender: ClusterID, address: str) -> str:
        return address.replace("240.0.", "10.96.") if address.startswith("240.0.") else ""


class HomeNamesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock, self.api = Clock(), Api()

    def names(self, expose: Literal["offloaded", "all"] = "offloaded") -> HomeNames:
        made = HomeNames(cast(Any, self.api), self.clock, DOMAIN, expose)
        made.attach(View())
        return made

    def ask(self, names: HomeNames, name: str, kind: int = A) -> HomeAnswer:
        asking: Coroutine[Any, Any, HomeAnswer] = names.answer(MILAN, f"{name}.{DOMAIN}" if kind == A else name, kind)
        found: HomeAnswer = self.successResultOf(Deferred.fromCoroutine(asking))
        return found

    def test_of_offloaded_namespaces_alone(self) -> None:
        """Of others nothing is asked, and the answer is that of what does not exist; "all" answers for them."""
        names = self.names()
        self.assertEqual([one.data for one in self.ask(names, "cache.shop.svc").records], ["240.0.0.7"])
        self.api.asked.clear()
        self.assertEqual(self.ask(names, "vault.bank.svc"), NOTHING)
        self.assertEqual(self.api.asked, [])
        self.assertEqual(len(self.ask(self.names("all"), "vault.bank.svc").records), 1)

    def test_the_api_server_of_home(self) -> None:
        """Its Service is answered for as it comes, and nothing else in its namespace."""
        asked = self.names()
        self.ask(asked, "kubernetes.default.svc")
        self.assertEqual(len(self.api.asked), 1)
        self.ask(asked, "other.default.svc")
        self.ask(asked, "kubernetes.kube-system.svc")
        self.assertEqual(len(self.api.asked), 1)

    def test_addresses(self) -> None:
        """Whose an address is, as pods there call it or as it is here; of Services elsewhere that is not said."""
        names = self.names()
        found = self.ask(names, "7.0.0.240.in-addr.arpa", PTR)
        self.assertEqual([one.data for one in found.records], [f"cache.shop.svc.{DOMAIN}"])
        self.assertEqual(self.ask(names, "8.0.0.240.in-addr.arpa", PTR), NOTHING)
        found = self.ask(names, "7.0.96.10.in-addr.arpa", PTR)
        self.assertEqual([one.data for one in found.records], [f"cache.shop.svc.{DOMAIN}"])
        self.assertEqual(self.ask(names, "8.0.96.10.in-addr.arpa", PTR), NOTHING)
        self.assertEqual(self.ask(names, "9.0.96.10.in-addr.arpa", PTR), NOTHING)

    def test_what_was_read_is_kept_for_seconds(self) -> None:
        """One question to the API server for many of a lender, of what does not exist too; bounded in number."""
        names = self.names()
        for _ in range(10):
            self.ask(names, "cache.shop.svc")
            self.ask(names, "nothing.shop.svc")
        self.assertEqual(len(self.api.asked), 2)
        self.clock.advance(KEPT + 1)
        self.ask(names, "cache.shop.svc")
        self.assertEqual(len(self.api.asked), 3)
        for number in range(MOST_KEPT + 10):
            self.ask(names, f"x{number}.shop.svc")
        self.assertEqual(len(names._kept), MOST_KEPT)

    def test_without_the_right(self) -> None:
        """A reason is said, and what to do."""
        self.api.is_forbidden = True
        self.assertEqual(self.ask(self.names(), "cache.shop.svc").reason, "NotAllowed")

    def test_by_the_settings(self) -> None:
        """Where they say that nothing is answered for there is nobody to ask."""
        for expose, is_made in (("offloaded", True), ("all", True), ("none", False)):
            settings = parse(f'[names]\nexpose = "{expose}"', {})
            context: Any = SimpleNamespace(settings=settings, client=self.api, reactor=self.clock)
            self.assertEqual(make_home_names(context) is not None, is_made, expose)

    def test_before_anything_is_known(self) -> None:
        """Nothing is answered until it is known what lenders there are."""
        names = HomeNames(cast(Any, self.api), self.clock, DOMAIN, "all")
        self.assertEqual(self.ask(names, "cache.shop.svc").reason, "NamesNotAnswered")
