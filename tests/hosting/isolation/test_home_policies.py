"""Home's NetworkPolicies on the sandbox's API server."""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode

from liqod.demo.access import client_config
from liqod.kube.client import Client
from tests.hosting.isolation import cases
from tests.hosting.side import HostingSide


async def begin(case: HostingSide) -> None:
    """Start a cluster of its own for a case."""
    from twisted.internet import reactor

    cluster = SandboxCluster(reactor, "lender", [SandboxNode("one", cpu="64", memory="64Gi")])
    cluster.listen(reactor)
    cluster.startService()
    case.addCleanup(cluster.stop)
    case.admin = Client(client_config(cluster), reactor)
    case.addCleanup(case.admin.close)
    await case.begin()


class HomePoliciesOnTheSandboxTests(cases.HomePoliciesCase):
    """The cases."""

    patience = 15.0
    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        await begin(self)


class RefusedWhereNothingEnforcesTests(cases.UnenforcedCase):
    """With ``unenforced-policies = "refuse"``, on a cluster of which no network plugin is known."""

    patience = 15.0
    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        await begin(self)

    known_plugin = ""

    async def test_refused(self) -> None:
        """A pod that home isolates is refused with the reason, another one runs, and both do once it is known."""
        namespace = await self.isolated()
        status = await self.status_becomes(namespace, "web", reason="PoliciesNotEnforced")
        self.assertIn("not known which network plugin", status["message"])
        await self.is_missing(namespace, "web")
        await self.know("flannel")
        await self.settle()
        await self.is_missing(namespace, "web")
        await self.know("cilium")
        self.assertEqual(await self.label(namespace, "web"), "egress")


class WarnedWhereNothingEnforcesTests(cases.UnenforcedCase):
    """With ``unenforced-policies = "warn"``."""

    patience = 15.0
    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        await begin(self)

    known_plugin = "flannel"
    unenforced = "warn"

    async def test_warned(self) -> None:
        """A pod that home isolates runs with its label, and an event says that nothing enforces it."""
        namespace = await self.isolated()
        self.assertEqual(await self.label(namespace, "web"), "egress")
        await self.is_reported(f"Warning {namespace}/web PoliciesNotEnforced")
