"""What a lender says of a pod that is not for it to say, or cannot be."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.pods.restarts import tally
from liqod.kubelet.pods.status import forge_status
from liqod.model.ids import ClusterID

CONTEXT = Context(home=ClusterID("rome"), lender=ClusterID("milan"), node_name="liqo-milan", node_address="10.0.0.9")


class HostileStatusTests(SynchronousTestCase):
    def forge(self, home: dict[str, Any], remote: dict[str, Any], spec: dict[str, Any] | None = None) -> dict[str, Any]:
        return forge_status(
            home,
            remote,
            tally=tally(None, home, "r1", remote),
            context=CONTEXT,
            now="2026-01-01T00:00:00Z",
            spec=spec or {},
        )

    def test_gates_are_the_homes(self) -> None:
        """A lender that says that a readiness gate is open does not open it, nor close one that is open at home."""
        spec = {"readinessGates": [{"conditionType": "example.com/lb"}]}
        gate = {"type": "example.com/lb", "status": "True"}
        said = {"conditions": [gate, {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]}
        forged = self.forge({}, said, spec)
        self.assertEqual([one["type"] for one in forged["conditions"]], ["Ready"])
        self.assertEqual(forged["conditions"][0]["status"], "False")
        said["conditions"][0] = {**gate, "status": "False", "reason": "Mine"}
        self.assertIn(gate, self.forge({"conditions": [gate]}, said, spec)["conditions"])

    def test_containers_of_the_pod(self) -> None:
        """Only the pod's own containers are shown, each once, whatever else the lender tells of."""
        spec = {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}]}
        reported = {
            "containerStatuses": [{"name": "injected", "image": "x"}, {"name": "main"}, {"name": "main", "image": "y"}],
            "initContainerStatuses": [{"name": "main"}, {"name": "first"}],
        }
        forged = self.forge({}, reported, spec)
        self.assertEqual(forged["containerStatuses"], [{"name": "main", "restartCount": 0}])
        self.assertEqual([one["name"] for one in forged["initContainerStatuses"]], ["first"])

    def test_restarts_that_cannot_be(self) -> None:
        """A count that no API server takes is shown as the largest or the least that it does."""
        for said, shown in ((2**40, 2**31 - 1), (-5, 0)):
            forged = self.forge({}, {"containerStatuses": [{"name": "main", "restartCount": said}]})
            self.assertEqual(forged["containerStatuses"][0]["restartCount"], shown)
