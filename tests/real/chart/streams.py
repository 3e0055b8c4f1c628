"""Daemons as pods, in the network of their node and in that of pods: logs and exec of an offloaded pod, a takeover.

With `hostNetwork=true` the API server reaches the kubelet API of virtual nodes at the node's address, with `false` at
the pod's.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from tests.real.chart.base import MILAN, NAMESPACE, PATIENCE, ROME, ChartCase, eventually
from tests.real.manifests import pod
from tests.real.path import condition, is_running, node_ready, virtual_node

SHOP: Final = "shop"
NAME: Final = "speaker"
SCRIPT: Final = "trap 'exit 0' TERM; echo hello from $HOSTNAME; while :; do sleep 1; done"


class HostNetworkTests(ChartCase):
    """rome's daemons, one on each of two nodes, are in the network of their node."""

    workers = 1
    values: ClassVar[tuple[str, ...]] = ("--set", "hostNetwork=true")

    def speaks(self) -> str:
        """Return what the offloaded pod said, as kubectl shows it."""
        return self.rome.kubectl("-n", SHOP, "logs", NAME)

    def speaker(self) -> dict[str, Any]:
        """Return the offloaded pod."""
        return dict(self.rome.get("pod", NAME, "-n", SHOP))

    def assert_reached(self) -> None:
        """Have logs and exec reach the container: output, standard input, exit status."""
        eventually("the log", lambda: self.speaks() == f"hello from {NAME}\n")
        reach = ("-n", SHOP, "exec")
        self.assertEqual(self.rome.kubectl(*reach, NAME, "--", "hostname").strip(), NAME)
        said = self.rome.kubectl(*reach, "-i", NAME, "--", "cat", input="through both\n")
        self.assertEqual(said, "through both\n")

    def test_01_reached(self) -> None:
        """A pod at milan has a log and runs commands, by way of a daemon that is a pod."""
        self.install(MILAN)
        self.install(ROME, *self.values)
        self.peer()
        self.rome.kubectl("create", "namespace", SHOP)
        self.administrator(self.rome, "offload", "namespace", SHOP, "--placement=Remote")
        eventually("it is accepted", lambda: self.rome.apply(pod(NAME, ["sh", "-c", SCRIPT], namespace=SHOP)))
        eventually("it runs", lambda: is_running(self.speaker()))
        self.assert_reached()

    def test_02_address(self) -> None:
        """The virtual node has the address of the daemon that leads: its node's, or its own."""
        leader = self.daemons(self.rome)[self.leader(self.rome)]
        addresses = {one["address"] for one in virtual_node(self.rome)["status"]["addresses"]}
        self.assertIn(leader["status"]["podIP"], addresses)
        in_host = leader["status"]["podIP"] == leader["status"]["hostIP"]
        self.assertEqual(in_host, "hostNetwork=true" in self.values)

    def test_03_takeover(self) -> None:
        """When the daemon that leads is deleted the other one takes over: node and pod go on, logs and exec work."""
        before = self.speaker()
        first = self.leader(self.rome)
        self.assertEqual(len(self.daemons(self.rome)), 2)
        self.rome.kubectl("-n", NAMESPACE, "delete", "pod", first, "--force", "--grace-period=0", timeout=PATIENCE)
        second = eventually(
            "another leader", lambda: self.leader(self.rome) not in ("", first) and self.leader(self.rome)
        )
        eventually("it is ready", lambda: second in self.daemons(self.rome))
        eventually("the virtual node", lambda: node_ready(self.rome))
        eventually("its address", partial(self.has_address_of, second))
        self.assert_reached()
        after = self.speaker()
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(
            [(one["containerID"], one["restartCount"]) for one in after["status"]["containerStatuses"]],
            [(one["containerID"], one["restartCount"]) for one in before["status"]["containerStatuses"]],
        )
        self.assertEqual(condition(after, "Ready"), "True")

    def has_address_of(self, name: str) -> bool:
        """Tell whether the virtual node has the address of a daemon."""
        address = self.rome.get("pod", name, "-n", NAMESPACE)["status"]["podIP"]
        return address in {one["address"] for one in virtual_node(self.rome)["status"]["addresses"]}

    def test_04_new_pods(self) -> None:
        """The new leader offloads as the old one did, and all is removed in the end."""
        self.addCleanup(self.close)
        eventually("it is accepted", lambda: self.rome.apply(pod("second", ["sh", "-c", SCRIPT], namespace=SHOP)))
        eventually("it runs", lambda: is_running(self.rome.get("pod", "second", "-n", SHOP)))
        self.administrator(self.rome, "unoffload", "namespace", SHOP)
        self.rome.kubectl("delete", "namespace", SHOP, timeout=PATIENCE)
        self.administrator(self.rome, "unpeer", MILAN, "--yes")
        for name, cluster in self.clusters.items():
            self.helm(cluster, "uninstall", "liqod", "--wait", "--timeout=6m")
            cluster.kubectl("delete", "namespace", NAMESPACE, timeout=PATIENCE)
            self.assert_as_before(name, f"helm-{self.values[-1].replace('=', '-')}")


class PodNetworkTests(HostNetworkTests):
    """rome's daemons have addresses of the pod network, and reach milan outbound."""

    values: ClassVar[tuple[str, ...]] = ("--set", "service.type=ClusterIP", "--set", "hostNetwork=false")
