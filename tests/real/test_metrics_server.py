"""The real metrics-server in three clusters: ``kubectl top`` of virtual nodes, and an autoscaler of offloaded pods."""

from __future__ import annotations

import atexit
import time
from functools import partial
from itertools import product
from typing import Any, ClassVar, Final
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects import quantity
from tests.environment import require
from tests.real import metrics_server
from tests.real.base import failures, require_built, require_clusters
from tests.real.daemons import Daemon
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    peer_of,
)
from tests.real.programs import images
from tests.testbed import versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images
from tests.testbed.process import tail
from tests.testbed.testbed import Testbed

LENDERS: Final = ("milan", "paris")
SETTINGS: Final = "\n[sharing]\npercentage = 80\n"
REQUEST: Final = 50
"""Millicores that each pod requests."""
MOST: Final = 4
BUSY: Final = (
    "while :; do if [ -e /tmp/busy ]; then i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.02; "
    "else sleep 0.5; fi; done"
)
"""To begin a program takes time of the processor as well: those that rest begin few."""
LONG: Final = 300.0


class MetricsServerTests(SynchronousTestCase):
    """Rome borrows from milan and paris; the tests are steps in the order of their numbers."""

    _testbed: ClassVar[Testbed | None] = None
    daemons: ClassVar[dict[str, Daemon]] = {}

    def setUp(self) -> None:
        """Make the clusters before the first step, with metrics-server in each."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            require(images.lacking())
            require_built([metrics_server.PROGRAM])
            cls._testbed = testbed = Testbed(3, nodes=True, aggregated=True, snapshotter="overlayfs")
            atexit.register(testbed.stop)
            testbed.start()
            archive = testbed.directory / "metrics-server.tar"
            program = {metrics_server.PROGRAM: versions.program(metrics_server.PROGRAM)}
            images.make_image(archive, program, packages=("bash", "coreutils"), name=metrics_server.IMAGE)
            for cluster, name in zip(testbed.clusters, ("rome", *LENDERS), strict=True):
                import_images(cluster.host, archive, "overlayfs")
                metrics_server.start(cluster)
                cls.daemons[name] = Daemon(cluster, name, extra=SETTINGS)
                cls.daemons[name].start()
            archive.unlink()

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run one step; when it fails, show what the daemons said."""
        before = failures(result)
        done: TestResult | None = super().run(result)
        if failures(result) > before:
            for daemon in self.daemons.values():
                print(f"--- {daemon.name}", tail(daemon.log, 40), sep="\n")
        return done

    @property
    def rome(self) -> Cluster:
        """The cluster whose pods are offloaded."""
        return self.daemons["rome"].cluster

    def top(self, *words: str) -> dict[str, tuple[float, float]]:
        """Return what ``kubectl top`` prints: cores and bytes of each node or pod."""
        found = {}
        for line in self.rome.kubectl("top", *words, "--no-headers").splitlines():
            columns = line.split()
            # Nodes have a percentage after each figure.
            cpu, memory = (columns[1], columns[3]) if len(columns) > 3 else (columns[1], columns[2])
            found[columns[0]] = (float(quantity.parse(cpu)), float(quantity.parse(memory)))
        return found

    def app(self, lender: str, replicas: int = 1) -> dict[str, Any]:
        """Return pods for one lender, which work while there is a file of theirs."""
        body = deployment(f"work-{lender}", replicas)
        spec = body["spec"]["template"]["spec"]
        spec["nodeSelector"] = {"kubernetes.io/hostname": f"liqo-{lender}"}
        (main,) = spec["containers"]
        main["command"] = ["sh", "-c", f"trap 'exit 0' TERM; {BUSY}"]
        main["resources"] = {"requests": {"cpu": f"{REQUEST}m", "memory": "8Mi"}}
        return body

    def pods(self, lender: str) -> dict[str, dict[str, Any]]:
        """Return the pods at home that run at a lender and are Ready."""
        return {name: one for name, one in live_pods(self.rome, f"work-{lender}").items() if is_running(one)}

    def work(self, lender: str, *, busy: bool) -> None:
        """Have the pods of a lender work, or rest."""
        script = "touch /tmp/busy" if busy else "rm -f /tmp/busy"
        for name in self.pods(lender):
            self.rome.kubectl("exec", "-n", NAMESPACE, name, "--", "sh", "-c", script)

    def is_served(self, cluster: Cluster) -> bool:
        """Tell whether a cluster has the API of metrics."""
        return condition(cluster.get("apiservice", "v1beta1.metrics.k8s.io"), "Available") == "True"

    def test_01_joined(self) -> None:
        """Metrics-server answers in each cluster, and rome has a virtual node of both lenders."""
        for name, daemon in self.daemons.items():
            eventually(f"metrics of {name}", partial(self.is_served, daemon.cluster), LONG)
        for one, two in [*product(["rome"], LENDERS), *product(LENDERS, ["rome"])]:
            eventually(f"{one} sees {two}", partial(peer_of, self.daemons[one].cluster, two))
            self.daemons[one].liqodctl("trust", two, "--yes")
        for lender in LENDERS:
            node = partial(self.rome.get, "node", f"liqo-{lender}")
            eventually(f"{lender}'s node", lambda node=node: condition(node(), "Ready") == "True")  # type: ignore[misc]
        self.rome.apply(enabled_namespace(), *(self.app(lender) for lender in LENDERS))
        for lender in LENDERS:
            eventually(f"a pod at {lender}", partial(self.pods, lender), LONG)

    def test_02_top_pods(self) -> None:
        """``kubectl top pod`` has the pods of both lenders; the one that works uses more than the one that rests."""
        (milan,), (paris,) = self.pods("milan"), self.pods("paris")
        self.work("milan", busy=True)

        def measured() -> bool:
            found = self.top("pod", "-n", NAMESPACE)
            self.assertEqual(set(found), {milan, paris})
            return found[milan][0] > 0.1 > found[paris][0] and all(memory > 0 for _, memory in found.values())

        eventually("the one at milan works", measured, LONG)

    def test_03_top_nodes(self) -> None:
        """``kubectl top node`` has rome's own node and both virtual ones; a virtual node uses what its pods use."""

        def measured() -> bool:
            found = self.top("node")
            self.assertEqual(set(found), {self.rome.node_name, "liqo-milan", "liqo-paris"})
            return found["liqo-milan"][0] > 0.1 > found["liqo-paris"][0]

        eventually("the nodes", measured, LONG)

    def test_04_autoscaler(self) -> None:
        """An autoscaler makes more pods at the lender while they work, and fewer when they rest."""
        value = {"type": "Utilization", "averageUtilization": 60}
        target = {"type": "Resource", "resource": {"name": "cpu", "target": value}}
        soon = {"stabilizationWindowSeconds": 10}
        scaler = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "work", "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "work-milan"},
                "minReplicas": 1,
                "maxReplicas": MOST,
                "metrics": [target],
                "behavior": {"scaleDown": soon, "scaleUp": {"stabilizationWindowSeconds": 0}},
            },
        }
        self.rome.apply(scaler)
        eventually("more pods", lambda: len(self.pods("milan")) == MOST, LONG)
        status = self.rome.get("hpa", "work", "-n", NAMESPACE)["status"]
        self.assertEqual(condition({"status": status}, "ScalingActive"), "True")
        self.assertEqual({one["spec"]["nodeName"] for one in self.pods("milan").values()}, {"liqo-milan"})
        self.work("milan", busy=False)
        eventually("one pod", lambda: len(live_pods(self.rome, "work-milan")) == 1, 2 * LONG)

    def test_05_a_lender_without_metrics(self) -> None:
        """Where milan's metrics-server is away its pods are left out, and those of paris are there all the same."""
        milan = self.daemons["milan"].cluster
        milan.kubectl("scale", "-n", "kube-system", "deployment/metrics-server", "--replicas=0")

        def only_paris() -> bool:
            return set(self.top("pod", "-n", NAMESPACE)) == set(self.pods("paris"))

        eventually("those of paris", only_paris, LONG)
        milan.kubectl("scale", "-n", "kube-system", "deployment/metrics-server", "--replicas=1")
        both = {**self.pods("milan"), **self.pods("paris")}
        eventually("all of them", lambda: set(self.top("pod", "-n", NAMESPACE)) == set(both), LONG)
        time.sleep(2 * metrics_server.RESOLUTION)
        self.assertEqual(set(self.top("pod", "-n", NAMESPACE)), set(both))
