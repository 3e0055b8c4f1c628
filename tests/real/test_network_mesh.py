"""Three real clusters with the same pod network, all peers of each other: every pod reaches every other one."""

from __future__ import annotations

import atexit
from functools import partial
from itertools import combinations, permutations
from typing import Any, ClassVar
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import require_clusters
from tests.real.daemons import Daemon
from tests.real.path import deployment, eventually, is_running, live_pods, peer_of, trust_each_other
from tests.real.test_network import WEB, HostDaemon, fetch
from tests.testbed.cluster import Cluster
from tests.testbed.process import tail
from tests.testbed.testbed import Testbed

NAMES = ("rome", "milan", "turin")
CONFIGURATION = """
[network]
mode = "wireguard"
policy = "open"
"""


class MeshTests(SynchronousTestCase):
    """Steps on three clusters, in the order of their names; made once, and removed when the process ends."""

    _testbed: ClassVar[Testbed | None] = None
    daemons: ClassVar[dict[str, Daemon]] = {}

    def setUp(self) -> None:
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(len(NAMES), nodes=True, same_pod_cidr=True)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            for cluster, name in zip(cls._testbed.clusters, NAMES, strict=True):
                cls.daemons[name] = HostDaemon(cluster, name, extra=CONFIGURATION)
                cls.daemons[name].start()

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run one step; when it fails, show what the daemons said."""
        before = len(result.failures) + len(result.errors) if isinstance(result, TestResult) else 0
        done: TestResult | None = super().run(result)
        if isinstance(result, TestResult) and len(result.failures) + len(result.errors) > before:
            for name, daemon in self.daemons.items():
                print(f"--- {name}", tail(daemon.log, 30), sep="\n")
        return done

    def record(self, kind: str, here: str, there: str) -> dict[str, Any]:
        """Return what a cluster's record of a peer says."""
        cluster = self.daemons[here].cluster
        return dict(cluster.get(kind, peer_of(cluster, there)["metadata"]["name"]))

    def seen(self, here: str, there: str, address: str) -> str:
        """Return how a pod address of one cluster reads in another."""
        after = self.record("networkconfig", here, there)["spec"]["remap"]["podCIDRs"][0]
        return ".".join([*after.split(".")[:2], *address.split(".")[2:]])

    def connected(self, here: str, there: str) -> bool:
        """Tell whether packets cross."""
        return bool(self.record("tunnelendpoint", here, there)["status"].get("phase") == "Connected")

    def test_01_mesh(self) -> None:
        """Each cluster sees the two others at two different places, neither of them its own; all six ways are up."""
        for one, two in combinations(NAMES, 2):
            trust_each_other(self.daemons[one], self.daemons[two])
        for here, there in permutations(NAMES, 2):
            eventually(f"the tunnel from {here} to {there}", partial(self.connected, here, there), 120)
        for here in NAMES:
            places = {self.seen(here, there, "10.201.0.2") for there in NAMES if there != here}
            self.assertEqual(len(places - {"10.201.0.2"}), 2)

    def test_02_every_pod_reaches_every_pod(self) -> None:
        """By the address that its cluster sees; the other one sees it mapped as well."""
        pods: dict[str, dict[str, Any]] = {}
        for daemon in self.daemons.values():
            web = deployment("web", 1, namespace="default")
            template = web["spec"]["template"]["spec"]
            template["containers"][0]["command"] = ["sh", "-c", WEB]
            template["nodeSelector"] = {"kubernetes.io/hostname": daemon.cluster.node_name}
            daemon.cluster.apply(web)
        for name, daemon in self.daemons.items():
            cluster = daemon.cluster
            eventually(f"the pod of {name}", partial(running, cluster), 90)
            (pods[name],) = live_pods(cluster, "web").values()
        for here, there in permutations(NAMES, 2):
            cluster, name = self.daemons[here].cluster, pods[here]["metadata"]["name"]
            address = self.seen(here, there, pods[there]["status"]["podIP"])
            eventually(f"{here} reaches {there}", partial(answered, cluster, name, address), 60)
            said = self.daemons[there].cluster.kubectl("logs", "-n", "default", pods[there]["metadata"]["name"])
            self.assertIn(self.seen(there, here, pods[here]["status"]["podIP"]), said)


def running(cluster: Cluster) -> bool:
    """Tell whether a cluster's pod runs."""
    return [is_running(pod) for pod in live_pods(cluster, "web").values()] == [True]


def answered(cluster: Cluster, pod: str, address: str) -> bool:
    """Tell whether a pod gets the page from an address."""
    return "hello" in fetch(cluster, pod, "default", address)
