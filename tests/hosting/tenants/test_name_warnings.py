"""Whether a pod has the names of its home, and what is reported where it has not."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed

from liqod.model.ids import Key
from liqod.model.objects.meta import Object, ObjectMeta
from tests.hosting.shadowpods.test_controller import ControllerCases, shadow

SERVER = "10.96.7.53"


class Servers:
    """The name servers of the tenant."""

    def __init__(self, *servers: str, expected: bool = True) -> None:
        self.servers = servers
        self.expected = expected

    def when_synced(self) -> Deferred[None]:
        return succeed(None)

    def of(self, tenant: str) -> tuple[str, ...]:
        return self.servers if tenant == "borrower" else ()

    def is_lacking(self, tenant: str) -> bool:
        return self.expected and not self.of(tenant)


class NameTests(ControllerCases):
    """A pod that asks the cluster's DNS finds the services of its home, or its home learns that it does not."""

    def made(self, servers: Servers | None, **fields: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the spec with which a pod is created, and the reasons of the events about it."""
        self.shadows.put(shadow(**fields))
        self.name_servers = servers
        self.start()
        self.pass_time(1.0)
        (body,) = self.server.bodies
        return body["spec"], [reason for reason in self.events.reasons if reason != "CreatedPod"]

    def test_with_a_name_service(self) -> None:
        """It asks that one, and there is nothing to report."""
        spec, reasons = self.made(Servers(SERVER))
        self.assertEqual((spec["dnsConfig"]["nameservers"], reasons), ([SERVER], []))

    def test_while_none_is_ready(self) -> None:
        """It runs all the same, and that it has no names is reported."""
        spec, reasons = self.made(Servers())
        self.assertNotIn("dnsConfig", spec)
        self.assertEqual(reasons, ["NoNameService"])

    def test_where_none_is_expected(self) -> None:
        """Where nobody is known to answer, and names are not switched on either, there is nothing to report."""
        spec, reasons = self.made(Servers(expected=False))
        self.assertEqual(("dnsConfig" in spec, reasons), (False, []))

    def test_in_a_namespace_of_no_home(self) -> None:
        """Its search list cannot be known: that is reported as well."""
        for known in (None, Object(metadata=ObjectMeta(name="shop"))):
            self.setUp()
            del self.namespaces.held[Key("", "shop")]
            self.assertEqual(self._name(known), (False, {"containers": []}))

    def _name(self, known: Object | None) -> tuple[bool, dict[str, Any]]:
        if known is not None:
            self.namespaces.held[known.metadata.key] = known
        self.name_servers = Servers(SERVER)
        self.start()
        body: dict[str, Any] = {"spec": {"containers": []}}
        return self.controller._name(body, shadow(), "borrower"), body["spec"]

    def test_a_pod_that_asks_others(self) -> None:
        """It has the names that it asks for: nothing is missing, whether there is a name service or not."""
        for servers in (Servers(), Servers(SERVER)):
            self.setUp()
            spec, reasons = self.made(servers, dnsPolicy="Default")
            self.assertEqual((spec["dnsPolicy"], "dnsConfig" in spec, reasons), ("Default", False, []))

    def test_a_lender_without_names(self) -> None:
        """Where names of home are switched off nobody misses them."""
        spec, reasons = self.made(None)
        self.assertEqual(("dnsConfig" in spec, reasons), (False, []))
