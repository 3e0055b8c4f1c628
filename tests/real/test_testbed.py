"""The testbed is what it says: whole clusters side by side, and nothing of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import RealClusters, eventually, require_clusters
from tests.real.manifests import pod, service
from tests.testbed import process, registry
from tests.testbed.asking import Asker
from tests.testbed.cluster import Cluster
from tests.testbed.host import cgroups
from tests.testbed.lan import TEST_ADDRESS

_CHECKOUT = Path(__file__).resolve().parents[2]


class TwoClustersTests(RealClusters):
    """Two clusters with a real node each."""

    def _start(self, cluster: Cluster, *manifests: dict[str, Any]) -> None:
        cluster.apply(*manifests)
        self.addCleanup(
            cluster.kubectl, "delete", "-f", "-", "--wait=false", input=json.dumps({"kind": "List", "items": manifests})
        )
        pods = [f"pod/{one['metadata']['name']}" for one in manifests if one["kind"] == "Pod"]
        cluster.kubectl("wait", *pods, "--for=condition=Ready", "--timeout=120s", timeout=130)

    def test_nodes(self) -> None:
        """Each cluster has its own node, and neither sees the other's."""
        for cluster in self.clusters:
            names = [node["metadata"]["name"] for node in cluster.get("nodes")["items"]]
            self.assertEqual(names, [cluster.node_name])

    def test_read_without_kubectl(self) -> None:
        """What is read from the API server directly is to the letter what kubectl prints, for all ways to ask."""
        for cluster in self.clusters:
            asker = Asker(cluster.address, cluster.namespace, cluster.directory)
            for args in (
                ("ns",),
                ("namespace", "kube-system"),
                ("cm", "-A"),
                ("configmaps", "kube-root-ca.crt", "-n", "kube-public"),
                ("service", "kubernetes"),
                ("endpointslices.discovery.k8s.io", "-A", "-l", "kubernetes.io/service-name=kubernetes"),
                ("pods", "-l", "app in (nothing, nobody)", "-n", "kube-system"),
                ("csr",),
                ("clusterrole", "system:basic-user"),
            ):
                eventually(partial(self._same, cluster, asker, args), what="the same answer")

    def _same(self, cluster: Cluster, asker: Asker, args: Sequence[str]) -> bool:
        """Have both ways have the same answer, which may change between the two."""
        printed = json.loads(cluster.kubectl("get", *args, "-o=json"))
        if printed["kind"] == "List":
            printed.pop("metadata")
        self.assertEqual(asker.get(args), printed, args)
        return True

    def test_what_is_not_there(self) -> None:
        """What is not there is left to kubectl, whose words say so."""
        for args in (("pod", "nobody"), ("nonsense",), ("pod/nobody",)):
            with self.assertRaises(process.CommandFailed) as failed:
                self.clusters[0].get(*args)
            self.assertRegex(failed.exception.output, "not found|doesn't have a resource type")

    def test_logs_and_exec(self) -> None:
        """A pod runs in a real container: its log is read and commands are run in it."""
        for cluster in self.clusters:
            self._start(cluster, pod("speaker", ["sh", "-c", f"echo I am in {cluster.name}; exec sleep 1000"]))
            self.assertEqual(cluster.kubectl("logs", "speaker"), f"I am in {cluster.name}\n")
            self.assertEqual(cluster.kubectl("exec", "speaker", "--", "hostname"), "speaker\n")

    def test_service(self) -> None:
        """A service's address leads to its pod, from the host and from another pod."""
        cluster = self.clusters[0]
        self._start(
            cluster,
            pod("web", ["httpd", "-f", "-p", "8080", "-h", "/www"], labels={"app": "web"}),
            pod("caller", ["sleep", "1000"]),
            service("web", {"app": "web"}, 8080),
        )
        address = cluster.get("service", "web")["spec"]["clusterIP"]
        call = ["wget", "-q", "-O", "-", f"http://{address}:8080/"]
        self.assertEqual(eventually(lambda: cluster.run(["busybox", *call]), what="an answer to the host"), "hello\n")
        self.assertEqual(cluster.kubectl("exec", "caller", "--", *call), "hello\n")

    def test_network(self) -> None:
        """Hosts of both clusters and the test process reach one another, and nothing beyond."""
        one, two = self.clusters
        for target in (two.address, TEST_ADDRESS):
            one.run(["busybox", "ping", "-c", "1", "-W", "2", target])
        with self.assertRaises(process.CommandFailed):
            one.run(["busybox", "ping", "-c", "1", "-W", "1", "203.0.113.1"])


class EndTests(SynchronousTestCase):
    """Nothing stays behind, however a run ends."""

    _SCRIPT = """
import sys
from tests.testbed.testbed import Testbed
with Testbed(1, name=sys.argv[1]) as testbed:
    one = testbed[1]
    one.kubectl("run", "sleeper", "--image=localhost/busybox:1", "--image-pull-policy=Never", "--", "sleep", "1000")
    one.kubectl("wait", "pod/sleeper", "--for=condition=Ready", "--timeout=120s", timeout=130)
    print("stands", flush=True)
    sys.stdin.read()
"""

    def setUp(self) -> None:
        """Begin only where clusters are possible, with a registry that no other run sweeps."""
        require_clusters()
        self.patch(registry, "ROOT", Path(self.mktemp()).resolve())

    def _end_with(self, signum: int | None, *, guarded: bool = True) -> None:
        name = f"{registry.PREFIX}ending{os.getpid():x}"
        running = subprocess.Popen(
            [sys.executable, "-c", self._SCRIPT, name],
            cwd=_CHECKOUT,
            env={**os.environ, "LIQOD_TESTBED_REGISTRY": str(registry.ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        self.assertEqual(running.stdout.readline(), "stands\n")
        note = registry.read(name)
        inside = process.inhabitants(note["namespaces"][0])
        self.assertGreater(len(inside), 6, "daemons, a shim and so on")
        if not guarded:
            process.kill(pid for pid in process.children(running.pid) if "guard" in _command(pid))
        if signum is None:
            running.communicate("")
        else:
            running.send_signal(signum)
            running.communicate()
        if not guarded:
            eventually(lambda: not any(process.birth(pid) for pid in inside), what="the end of the cluster")
            self.assertEqual(registry.names(), [name])
            self.assertEqual(registry.sweep(), [name])
        eventually(lambda: registry.names() == [], what="the removal")
        self.assertEqual([netns for netns in note["namespaces"] if (process.NETNS / netns).exists()], [])
        self.assertEqual([found for cgroup in note["cgroups"] for found in cgroups(cgroup)], [])
        self.assertEqual([pid for pid in inside if process.birth(pid)], [])
        self.assertFalse(Path(note["directory"]).exists())
        self.assertNotIn(name, Path("/proc/self/mountinfo").read_text())

    def test_in_order(self) -> None:
        """A run that ends in order removes its clusters with all containers."""
        self._end_with(None)

    def test_terminated(self) -> None:
        """A run that is asked to end has its clusters removed."""
        self._end_with(signal.SIGTERM)

    def test_killed(self) -> None:
        """A run that is killed, and can do nothing any more, has its clusters removed all the same."""
        self._end_with(signal.SIGKILL)

    def test_killed_with_its_guard(self) -> None:
        """When nobody is left to remove anything, the cluster ends all the same and the next run sweeps."""
        self._end_with(signal.SIGKILL, guarded=False)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
