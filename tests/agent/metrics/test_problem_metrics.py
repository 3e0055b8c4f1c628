"""The diagnosis as a metric: what is wrong by code, of so many different ones."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.problems import Problems
from liqod.agent.wiring import ReadinessCondition
from liqod.kube.resources import (
    FOREIGNCLUSTERS,
    NAMESPACES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    TUNNELENDPOINTS,
    VIRTUALNODES,
    Resource,
)
from liqod.kubelet.common.views import HomePod
from liqod.model.diagnosis.codes import _KNOWN
from liqod.model.diagnosis.installation import Unmet
from liqod.model.objects.meta import Object, ObjectMeta
from liqod.model.objects.node import Node, NodeSpec
from liqod.model.records.network import NetworkGateway, TunnelEndpoint, TunnelEndpointSpec, TunnelEndpointStatus
from liqod.model.records.views import (
    ForeignCluster,
    ForeignClusterSpec,
    ForeignClusterStatus,
    VirtualNode,
    VirtualNodeSpec,
)
from tests.project.test_operations import PAGE


class Informers:
    """The caches of a daemon; ``asked`` are kinds that somebody asked for, ``followed`` those that others follow."""

    clock = Clock()

    def __init__(self) -> None:
        self.records: dict[Resource, list[Any]] = {}
        self.unread: set[Resource] = set()
        self.asked: set[Resource] = set()
        self.followed: set[Resource] = set()

    def of(self, resource: Resource, view: type, *, labels: str = "") -> Any:
        self.asked.add(resource)
        return SimpleNamespace(items=lambda: self.records.get(resource, []), synced=resource not in self.unread)

    def known(self, resource: Resource, view: type) -> Any:
        return self.of(resource, view) if resource in self.followed else None


class ProblemsTests(SynchronousTestCase):
    """``liqod_problems``."""

    def setUp(self) -> None:
        self.informers = Informers()
        self.unmet: list[ReadinessCondition] = []
        self.failures: list[Unmet] = []
        self.pods: list[HomePod] = []
        context = SimpleNamespace(node_name="liqo-milan")
        kubelet = SimpleNamespace(context=context, home_pods=lambda: self.pods)
        self.features: Any = SimpleNamespace(
            informers=self.informers,
            fabric=object(),
            kubelets=SimpleNamespace(all=lambda: [kubelet]),
            requirements=lambda: iter(self.unmet),
            failures=lambda: self.failures,
        )

    def found(self) -> dict[tuple[str, ...], float]:
        daemon: Any = SimpleNamespace(features=self.features)
        return {tuple(labels): value for labels, value in Problems(daemon).problems()}

    def peer(self, name: str, phase: str, reason: str = "") -> None:
        status = ForeignClusterStatus(cluster_name=name, phase=phase, reason=reason)
        spec = ForeignClusterSpec(fingerprint=name)
        record = ForeignCluster(metadata=ObjectMeta(name=name), spec=spec, status=status)
        self.informers.records.setdefault(FOREIGNCLUSTERS, []).append(record)

    def misses_the_webhook(self) -> None:
        missing = Unmet("WebhookNotConfigured", "the admission webhook is not configured")
        self.unmet = [ReadinessCondition(False, missing, lambda: None)]  # type: ignore[arg-type,return-value]

    def test_nothing_is_wrong(self) -> None:
        """A cluster without peers has no problem: this daemon leads, and says so of itself."""
        self.assertEqual(self.found(), {})

    def test_what_fails(self) -> None:
        """What fails while the daemon is ready is a problem here as in `liqodctl status`, and so in the alert."""
        self.failures = [Unmet("NetworkFailing", "nft cannot be run")]
        self.assertEqual(self.found(), {("NetworkFailing", "error"): 1.0})

    def test_what_is_wrong(self) -> None:
        """Problems of one code are counted together; causes stand for what they cause, as `liqodctl status` has it."""
        self.peer("milan", "Lost", "Unreachable")
        self.peer("oslo", "Lost", "Unreachable")
        self.peer("turin", "Authenticated")
        tunnels = [
            TunnelEndpoint(
                metadata=ObjectMeta(name=name),
                spec=TunnelEndpointSpec(cluster_id=name),
                status=TunnelEndpointStatus(phase="Error", reason="NoHandshake", message="nothing comes back"),
            )
            for name in ("milan", "turin")
        ]
        self.informers.records[TUNNELENDPOINTS] = tunnels
        self.assertEqual(self.found(), {("NoHandshake", "error"): 1.0, ("Unreachable", "error"): 2.0})

    def test_nodes(self) -> None:
        """Of the Nodes the virtual ones count alone."""
        self.peer("milan", "Authenticated")
        spec = VirtualNodeSpec(cluster_id="milan", node_name="liqo-milan")
        self.informers.records[VIRTUALNODES] = [VirtualNode(metadata=ObjectMeta(name="milan"), spec=spec)]
        cordoned = NodeSpec(unschedulable=True)
        labels = {"liqo.io/type": "virtual-node"}
        self.informers.records[NODES] = [
            Node(metadata=ObjectMeta(name="liqo-milan", labels=labels), spec=cordoned),
            Node(metadata=ObjectMeta(name="worker"), spec=cordoned),
        ]
        self.assertEqual(self.found()["Cordoned", "info"], 1.0)

    def pod(self, name: str, **status: Any) -> None:
        body = {"metadata": {"name": name, "namespace": "shop"}, "status": status}
        self.pods.append(msgspec.json.decode(msgspec.json.encode(body), type=HomePod))

    def test_pods_that_wait(self) -> None:
        """Pods on virtual nodes that do not run are a problem for each lender and reason, those that run are none."""
        self.peer("milan", "Authenticated")
        spec = VirtualNodeSpec(cluster_id="milan", node_name="liqo-milan")
        self.informers.records[VIRTUALNODES] = [VirtualNode(metadata=ObjectMeta(name="milan"), spec=spec)]
        waiting = {"name": "web", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
        for name in ("web-1", "web-2"):
            self.pod(name, phase="Pending", containerStatuses=[waiting])
        self.pod("job", phase="Running", containerStatuses=[waiting])
        full = {"type": "liqo.io/Offloaded", "status": "False", "reason": "QuotaExceeded", "message": "cpu"}
        self.pod("db", phase="Pending", conditions=[full])
        self.pod("odd", phase="Pending", conditions="none")
        self.assertEqual(self.found(), {("ImageMissing", "warning"): 1.0, ("QuotaExceeded", "warning"): 1.0})

    def test_full_tenants(self) -> None:
        """A borrower that has all that it may have here is a problem."""
        self.peer("milan", "Authenticated")
        labels = {"liqo.io/remote-cluster-id": "milan", "offloading.liqo.io/full": "secrets"}
        meta = ObjectMeta(name="shop-milan", labels=labels, annotations={"liqo.io/original-name": "shop"})
        self.informers.records[NAMESPACES] = [Object(metadata=meta)]
        self.assertEqual(self.found(), {("TenantFull", "warning"): 1.0})

    def test_gateways(self) -> None:
        """What a gateway's host lacks is a problem where the daemon follows its record, which is not asked for else."""
        lacking = {"metadata": {"name": "gateway"}, "status": {"address": "192.0.2.1", "lacking": "no WireGuard"}}
        self.informers.records[NETWORKGATEWAYS] = [msgspec.convert(lacking, NetworkGateway)]
        self.informers.records[TUNNELENDPOINTS] = [
            TunnelEndpoint(metadata=ObjectMeta(name="milan"), status=TunnelEndpointStatus(phase="Connected"))
        ]
        self.assertEqual(self.found(), {})
        self.informers.followed = {NETWORKGATEWAYS}
        self.assertEqual(self.found(), {("HostLacks", "warning"): 1.0})

    def test_a_word_that_a_peer_made_up(self) -> None:
        """Nobody makes a series of each word that comes to mind."""
        for number in range(5):
            self.peer(f"milan{number}", "Refused", f"MadeUp{number}")
        self.assertEqual(set(self.found()), {("Other", "warning")})
        self.assertEqual(sum(self.found().values()), 5.0)

    def test_the_process_itself(self) -> None:
        """What keeps the daemon from its work is a problem as well, as on `/readyz`."""
        self.misses_the_webhook()
        self.assertEqual(self.found(), {("WebhookNotConfigured", "error"): 1.0})

    def test_unknown_is_not_empty(self) -> None:
        """Before every kind of record was read, and without leading, nothing is said, of the process itself neither."""
        self.misses_the_webhook()
        self.peer("milan", "Lost", "Unreachable")
        for resource in (FOREIGNCLUSTERS, NODES, NETWORKCONFIGS, NAMESPACES):
            self.informers.unread = {resource}
            self.assertEqual(self.found(), {}, resource)
        self.informers.unread = set()
        self.assertNotEqual(self.found(), {})
        self.features = None
        self.assertEqual(self.found(), {})

    def test_without_a_network(self) -> None:
        """Records of a network that is left to others are not asked for: the daemon has no right to them."""
        self.features.fabric = None
        self.informers.unread = {NETWORKCONFIGS}
        self.found()
        self.assertEqual(self.informers.asked & {NETWORKCONFIGS, TUNNELENDPOINTS}, set())

    def test_every_code(self) -> None:
        """Those that are shown as they are are those that the page for operators explains."""
        reasons = PAGE.read_text().partition("\n## Reasons\n")[2]
        rows = [line.split("|")[1] for line in reasons.splitlines() if line.startswith("| `")]
        explained = {word for row in rows for word in re.findall(r"`([A-Z][A-Za-z0-9]*)`", row)}
        self.assertEqual(explained - _KNOWN, set(), "add to _WORDS in liqod/model/diagnosis/codes.py")
        self.assertEqual(_KNOWN - explained, set(), "explain, or remove from _WORDS")
