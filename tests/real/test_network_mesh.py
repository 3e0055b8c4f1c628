"""Three real clusters with the same pod network, all peers of each other: every pod reaches every other one.

So does every service: also one that has pods in all three, and one whose endpoint is a machine outside.
"""

from __future__ import annotations

import atexit
import ipaddress
import sys
from collections.abc import Callable
from functools import partial
from itertools import combinations, permutations
from typing import Any, ClassVar
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.names import REFLECTED_SLICE, remote_namespace
from tests.real.base import require_clusters
from tests.real.daemons import Daemon, HostDaemon
from tests.real.manifests import pod, service, slice_of
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    peer_of,
    trust_each_other,
)
from tests.real.test_network import WEB, fetch
from tests.testbed.cluster import Cluster
from tests.testbed.lan import TEST_ADDRESS
from tests.testbed.process import spawn_in, tail
from tests.testbed.testbed import Testbed

NAMES = ("rome", "milan", "turin")
SERVICE, OUTSIDE, SERVICE_PORT, OUTSIDE_PORT = "db", "legacy", 8080, 8090
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
            eventually(f"the pod of {name}", partial(running, cluster))
            (pods[name],) = live_pods(cluster, "web").values()
        for here, there in permutations(NAMES, 2):
            cluster, name = self.daemons[here].cluster, pods[here]["metadata"]["name"]
            address = self.seen(here, there, pods[there]["status"]["podIP"])
            eventually(f"{here} reaches {there}", partial(answered, cluster, name, address))
            caller = self.seen(there, here, pods[here]["status"]["podIP"])
            said = partial(
                self.daemons[there].cluster.kubectl, "logs", "-n", "default", pods[there]["metadata"]["name"]
            )
            eventually(f"its log names {caller}", partial(names, said, caller))

    def space(self, name: str) -> str:
        """Return what rome's namespace is called in a cluster."""
        if name == "rome":
            return NAMESPACE
        return remote_namespace(NAMESPACE, peer_of(self.daemons[name].cluster, "rome")["metadata"]["name"])

    def pod_of(self, name: str) -> dict[str, Any]:
        """Return a pod of rome's service that is to run in a cluster, and says in which one it is."""
        node = self.daemons["rome"].cluster.node_name if name == "rome" else f"liqo-{name}"
        script = f"echo at-{name} > /tmp/index.html; exec busybox httpd -f -p {SERVICE_PORT} -h /tmp"
        body = pod(f"at-{name}", ["sh", "-c", script], namespace=NAMESPACE, labels={"app": SERVICE})
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        return body

    def all_run(self) -> bool:
        """Tell whether the pods of rome's service run in all three clusters, as rome sees it."""
        pods = live_pods(self.daemons["rome"].cluster, SERVICE)
        return all(is_running(pods[f"at-{name}"]) for name in NAMES)

    def test_03_a_service_with_pods_in_all_three(self) -> None:
        """A pod in each cluster, calling rome's service by its address there, is answered by the pods of all three."""
        rome = self.daemons["rome"].cluster
        pods = [self.pod_of(name) for name in NAMES]
        rome.apply(enabled_namespace(), service(SERVICE, {"app": SERVICE}, SERVICE_PORT, namespace=NAMESPACE), *pods)
        eventually("all three run", self.all_run, 180)
        for name in NAMES:
            found: set[str] = set()
            eventually(f"all answer to {name}", partial(self.hear, name, found), 120)
        # The two lenders know each other's pods by addresses of rome's, not by those that they know them by as peers.
        for name in ("milan", "turin"):
            eventually(f"{name} knows one as rome's", partial(self.one_is_external, name))

    def one_is_external(self, name: str) -> bool:
        """Announce to a cluster two endpoints elsewhere, one of them by an address of rome's external network."""
        remote = self.reported(name, SERVICE)
        self.assertEqual([self.is_external(name, address) for address in remote].count(True), 1, remote)
        self.assertEqual(len(remote), 2, remote)
        return True

    def hear(self, name: str, found: set[str]) -> bool:
        """Have the pod in a cluster call the service, and add who answered; true when all three did."""
        cluster, space = self.daemons[name].cluster, self.space(name)
        address = cluster.get("service", SERVICE, "-n", space)["spec"]["clusterIP"]
        script = f"for i in 1 2 3 4 5 6; do {ask(address, SERVICE_PORT)}; done"
        said = cluster.kubectl("exec", "-n", space, f"at-{name}", "--", "sh", "-c", script)
        found.update(word for word in said.split() if word.startswith("at-"))
        return found == {f"at-{other}" for other in NAMES}

    def reported(self, name: str, what: str) -> list[str]:
        """Return the addresses of the endpoints that a cluster got for a service of rome's."""
        label = f"kubernetes.io/service-name={what},endpointslice.kubernetes.io/managed-by={REFLECTED_SLICE}"
        slices = self.daemons[name].cluster.get("endpointslices", "-n", self.space(name), "-l", label)["items"]
        endpoints = [one for each in slices for one in each.get("endpoints") or ()]
        return sorted(address for one in endpoints for address in one["addresses"])

    def is_external(self, at: str, address: str) -> bool:
        """Tell whether an address is one of rome's external network, as a cluster sees that."""
        seen = self.record("networkconfig", at, "rome")["spec"]["remap"]["externalCIDR"]
        return ipaddress.ip_address(address) in ipaddress.ip_network(seen)

    def test_04_a_service_in_front_of_a_machine_outside(self) -> None:
        """A pod at milan calls rome's service without selector; the machine sees rome's gateway as its caller."""
        rome = self.daemons["rome"].cluster
        assert self._testbed is not None
        page = self._testbed.directory / "outside"
        page.mkdir()
        (page / "index.html").write_text("at-outside\n")
        log = self._testbed.directory / "outside.log"
        words = ["-u", "-m", "http.server", str(OUTSIDE_PORT), "--bind", TEST_ADDRESS, "--directory", str(page)]
        machine = spawn_in(self._testbed.lan, [sys.executable, *words], log=log)
        self.addCleanup(machine.stop)
        front = service(OUTSIDE, {}, OUTSIDE_PORT, namespace=NAMESPACE)
        del front["spec"]["selector"]
        rome.apply(front, slice_of(OUTSIDE, TEST_ADDRESS, OUTSIDE_PORT, namespace=NAMESPACE))
        (address,) = eventually("milan has the address", partial(self.reported, "milan", OUTSIDE))
        self.assertTrue(self.is_external("milan", address), address)
        cluster, space = self.daemons["milan"].cluster, self.space("milan")
        called = cluster.get("service", OUTSIDE, "-n", space)["spec"]["clusterIP"]
        words = ["exec", "-n", space, "at-milan", "--", "sh", "-c", ask(called, OUTSIDE_PORT)]
        eventually("the machine's answer", lambda: "at-outside" in cluster.kubectl(*words))
        eventually("its caller in its log", lambda: f"{rome.address} - -" in log.read_text())
        rome.kubectl("delete", "endpointslice", "-n", NAMESPACE, f"{OUTSIDE}-1")
        eventually("what was exported is released", lambda: not self.exports("milan", TEST_ADDRESS))

    def exports(self, peer: str, address: str) -> bool:
        """Tell whether rome exports an address to a peer."""
        exports = self.record("networkconfig", "rome", peer)["spec"].get("exports", [])
        return any(one["address"] == address for one in exports)


def ask(address: str, port: int) -> str:
    """Return the line of shell that fetches a page."""
    return f"printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {port}"


def names(log: Callable[[], str], caller: str) -> bool:
    """Tell whether a log, read again, names a caller."""
    return caller in log()


def running(cluster: Cluster) -> bool:
    """Tell whether a cluster's pod runs."""
    return [is_running(pod) for pod in live_pods(cluster, "web").values()] == [True]


def answered(cluster: Cluster, pod: str, address: str) -> bool:
    """Tell whether a pod gets the page from an address."""
    return "hello" in fetch(cluster, pod, "default", address)
