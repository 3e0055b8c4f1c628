"""The diagnosis as a metric: what is wrong by code, of so many different ones."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.problems import Problems
from liqod.agent.wiring import ReadinessCondition
from liqod.kube.resources import FOREIGNCLUSTERS, NETWORKCONFIGS, NODES, TUNNELENDPOINTS, VIRTUALNODES, Resource
from liqod.model.diagnosis.codes import _KNOWN
from liqod.model.diagnosis.installation import Unmet
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeSpec
from liqod.model.records.network import TunnelEndpoint, TunnelEndpointSpec, TunnelEndpointStatus
from liqod.model.records.views import (
    ForeignCluster,
    ForeignClusterSpec,
    ForeignClusterStatus,
    VirtualNode,
    VirtualNodeSpec,
)
from tests.project.test_operations import PAGE


class Informers:
    """The caches of a daemon; ``asked`` are the kinds that somebody asked for."""

    def __init__(self) -> None:
        self.records: dict[Resource, list[Any]] = {}
        self.unread: set[Resource] = set()
        self.asked: set[Resource] = set()

    def of(self, resource: Resource, view: type) -> Any:
        self.asked.add(resource)
        return SimpleNamespace(items=lambda: self.records.get(resource, []), synced=resource not in self.unread)


class ProblemsTests(SynchronousTestCase):
    """``liqod_problems``."""

    def setUp(self) -> None:
        self.informers = Informers()
        self.unmet: list[ReadinessCondition] = []
        self.features: Any = SimpleNamespace(
            informers=self.informers, fabric=object(), requirements=lambda: iter(self.unmet)
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
        for resource in (FOREIGNCLUSTERS, NODES, NETWORKCONFIGS):
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
