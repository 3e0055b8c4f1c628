"""Several virtual nodes of one lender, and the one record of a namespace's policies there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from liqod.flow.observe import Latest
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import NODES
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.isolation.controller import LOOKED_AT, HomePolicies
from liqod.kubelet.reflection.writer_election import WriterElection
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Object
from liqod.model.records.network import ExportRequests
from tests.kube.cases import Answer
from tests.kubelet.reflection.sides import Server

RULES = [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]
POLICY: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "p1"},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": RULES},
}


def requests(*exported: str, complete: bool = True) -> ExportRequests:
    return ExportRequests(frozenset((one, "TCP/443") for one in exported), complete)


class Home(Server):
    """Home, with NetworkPolicies and nothing else."""

    def answer(self, request: Request) -> Answer:
        policies = self.objects
        if not request.path.endswith(b"/networkpolicies"):
            self.objects = {}
        try:
            return super().answer(request)
        finally:
            self.objects = policies


class Lender(Server):
    """A lender, whose records are patched as JSON."""

    def write(self, method: bytes, name: str, body: Any) -> Answer:
        if method != b"PATCH":
            return super().write(method, name, body)
        (operation,) = body
        return 200, self.put(name, {**self.objects[name], "spec": operation["value"]})


class Namespaces:
    """The namespaces of one virtual node: one, until it is left."""

    def __init__(self, remote: RemoteNamespace) -> None:
        self.remote = remote
        self.listeners: list[Callable[[str, RemoteNamespace | None], None]] = []

    def subscribe(self, listener: Callable[[str, RemoteNamespace | None], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        listener("shop", self.remote)
        return lambda: self.listeners.remove(listener)

    def leave(self) -> None:
        for listener in self.listeners:
            listener("shop", None)


class RecordOfTwoNodesTests(SynchronousTestCase):
    """Two virtual nodes of a lender that offload one namespace."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        self.home, self.lender = Home(self.clock), Lender(self.clock)
        self.home.put("web", {**POLICY, "metadata": dict(POLICY["metadata"])})
        self.informers = Informers(self.home.client, self.clock)
        self.by_namespace = NamespacedInformers(self.informers)
        self.nodes = self.informers.of(NODES, Object)
        self.informers.startService()
        self.addCleanup(self.informers.stopService)
        self.election = WriterElection()
        self.taken: Latest[Any] = Latest({})
        self.withheld: Latest[frozenset[str]] = Latest(frozenset())
        self.exports: Latest[int] = Latest(0)
        self.export_requests: dict[str, ExportRequests] = {}

    def node(self, name: str, *exported: str) -> Namespaces:
        """Run what keeps the record for one virtual node, which sees these addresses exported."""
        self.export_requests.setdefault(name, requests(*exported))
        context = Context(ClusterID("home"), ClusterID("lender"), name, policies=self.taken)
        health = LenderHealth(self.clock, Latest(None), 36000.0)
        health.request_succeeded()
        namespaces: Any = Namespaces(RemoteNamespace(self.clock, self.lender.client, "shop-home", context))
        policies = HomePolicies(
            self.clock,
            context=context,
            informers=self.by_namespace,
            nodes=self.nodes,
            election=self.election,
            namespaces=namespaces,
            health=health,
            exported=lambda: self.export_requests[name],
            exports=self.exports,
            withheld=self.withheld,
            workers=1,
        )
        policies.startService()
        self.addCleanup(policies.stopService)
        return namespaces  # type: ignore[no-any-return]

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            for server in (self.home, self.lender):
                server.wire.flush()
            self.clock.advance(step)

    def mapped(self) -> list[str]:
        return [one["home"] for one in self.lender.objects["home"]["spec"].get("addresses", [])]

    def test_one_of_them_writes(self) -> None:
        """The record is written once, however long both nodes look at it and whatever the second one does not know."""
        self.node("first", "192.0.2.9")
        self.pass_time(5.0)
        self.node("second")
        self.pass_time(2 * LOOKED_AT + 10.0)
        self.assertEqual((len(self.lender.writes), self.mapped()), (1, ["192.0.2.9"]))

    def test_the_next_one_goes_on(self) -> None:
        """When the node that wrote leaves the namespace another one follows it; pods of both know what is there."""
        first = self.node("first", "192.0.2.9")
        self.node("second", "192.0.2.9", "192.0.2.10")
        self.pass_time(5.0)
        self.assertEqual((self.taken.value, self.mapped()), ({"shop": True}, ["192.0.2.9"]))
        first.leave()
        self.assertEqual(self.taken.value, {})
        self.pass_time(5.0)
        self.assertEqual((self.taken.value, self.mapped()), ({"shop": True}, ["192.0.2.10", "192.0.2.9"]))
        self.assertEqual(len(self.lender.writes), 2)

    def test_what_is_withheld_from_pods_of_any_node(self) -> None:
        """The record has it when it changes, for policies that name nobody too."""
        self.home.objects.clear()
        self.node("first")
        self.pass_time(5.0)
        self.withheld.set(frozenset({"team"}))
        self.pass_time(5.0)
        self.assertEqual(self.lender.objects["home"]["spec"]["withheld"], ["team"])

    def test_a_restart(self) -> None:
        """An exported address stays in the record until all are known again, and goes when it is none any more."""
        before = self.node("before", "192.0.2.9", "192.0.2.10")
        self.pass_time(5.0)
        before.leave()
        self.export_requests["after"] = requests("192.0.2.11", complete=False)
        self.node("after")
        self.pass_time(5.0)
        self.assertEqual(self.mapped(), ["192.0.2.10", "192.0.2.11", "192.0.2.9"])
        self.export_requests["after"] = requests("192.0.2.11", "192.0.2.9")
        self.exports.set(1)
        self.pass_time(5.0)
        self.assertEqual(self.mapped(), ["192.0.2.11", "192.0.2.9"])
