"""Helm with tunnels: an upgrade to another release and a rollback, while pods run at the peer and a connection is open.

Both clusters have their agents and wireguard-go as pods. The other release is the same program with another number, in
an image and a chart of its own. Afterwards all is removed, and clusters and hosts are as they were.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final

from tests.real.chart import images
from tests.real.chart.base import MILAN, NAMESPACE, PATIENCE, ChartCase, eventually, keep_figure, stopwatch
from tests.real.manifests import pod
from tests.real.path import deployment, is_running, live_pods, offloaded
from tests.testbed.cluster import Cluster

SHOP: Final = "shop"
HERE: Final = "here"
APP: Final = "crowd"
COUNT: Final = 6
PORT: Final = 7000
SEEN: Final = "/tmp/seen"
ECHO: Final = ["nc", "-l", "-p", str(PORT), "-e", "cat"]
"""Sends back what one connection brings, and ends with it: a second one is not accepted."""
ASK: Final = (
    "(i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done) | nc {address} {port}"
    " | while read n; do read up rest < /proc/uptime; echo $n $up; done > {seen}"
)
"""Sends numbers through one connection and notes each that comes back, with the second; ends with the connection."""
TUNNEL: Final = ("--set", "network.enabled=true", "--set", "network.userspace=true")
Ledger = dict[str, tuple[str, list[tuple[str, int, str]]]]
"""For each pod its UID, and for each container its ID, how often it was started again, and when it began."""


def ledger(pods: dict[str, dict[str, Any]]) -> Ledger:
    """Return what a restart of a pod or of a container would change. Pure."""
    return {
        name: (
            one["metadata"]["uid"],
            [
                (each["containerID"], each["restartCount"], each["state"]["running"]["startedAt"])
                for each in one["status"]["containerStatuses"]
            ],
        )
        for name, one in pods.items()
    }


def echoed(text: str) -> tuple[list[int], float]:
    """Return the numbers that came back, and the longest time between two of them. Pure."""
    # The last line may be in the middle of being written.
    rows = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    times = [float(second) for _, second in rows]
    pauses = [after - before for before, after in pairwise(times)]
    return [int(number) for number, _ in rows], max(pauses, default=0.0)


class UnderLoadTests(ChartCase):
    """One walk: tunnels, load, upgrade of both clusters, rollback of both, removal."""

    workers = 1
    versions = (images.VERSION, images.NEXT)
    _ledgers: ClassVar[dict[str, Ledger]] = {}

    def ledgers(self) -> dict[str, Ledger]:
        """Return the ledger of the offloaded pods as rome shows them, and as milan runs them."""
        found = {}
        for name, cluster in self.clusters.items():
            pods = live_pods(cluster, APP)
            self.assertEqual(len(pods), COUNT)
            found[name] = ledger(pods)
        return found

    def is_connected(self, cluster: Cluster) -> bool:
        """Tell whether packets cross to the peer."""
        tunnels = cluster.get("tunnelendpoints")["items"]
        return [one.get("status", {}).get("phase") for one in tunnels] == ["Connected"]

    def seen(self) -> tuple[list[int], float]:
        """Return what came back through the connection so far."""
        return echoed(self.rome.kubectl("-n", HERE, "exec", "asking", "--", "cat", SEEN))

    def goes_on(self) -> int:
        """Wait until more comes back than until now, through the one connection; returns how much there is."""
        before = len(self.seen()[0])
        eventually("more comes back", lambda: len(self.seen()[0]) > before + 10)
        numbers, _ = self.seen()
        self.assertEqual(numbers, list(range(len(numbers))), "each number came back once, in order")
        return len(numbers)

    def assert_untouched(self, title: str) -> None:
        """Have no pod be restarted, and the connection be the first one."""
        self.assertEqual(self.ledgers(), self._ledgers)
        count = self.goes_on()
        for cluster, name, namespace in ((self.rome, "asking", HERE), (self.rome, "echo", SHOP)):
            one = cluster.get("pod", name, "-n", namespace)
            self.assertTrue(is_running(one), one["status"])
            self.assertEqual([each["restartCount"] for each in one["status"]["containerStatuses"]], [0])
        text = f"{2 * COUNT} pods not restarted, {count} numbers back in order, longest pause {self.seen()[1]:.2f} s"
        keep_figure(title, text)

    def test_01_tunnels(self) -> None:
        """Helm makes the tunnels of both clusters, with wireguard-go in pods; a token joins them."""
        for name, cluster in self.clusters.items():
            cluster.kubectl("label", "node", cluster.node_name, "liqod.io/gateway=true")
            # A node for each: the upgrade of one more would wait for a node for ever.
            self.install(name, *TUNNEL, "--set", f"replicas={1 + len(cluster.workers)}")
        self.peer()
        for name, cluster in self.clusters.items():
            eventually(f"the tunnel of {name}", partial(self.is_connected, cluster))

    def test_02_load(self) -> None:
        """Pods run at milan, and one at home holds a connection to one of them, through the tunnel."""
        self.rome.kubectl("create", "namespace", SHOP)
        self.rome.kubectl("create", "namespace", HERE)
        self.administrator(self.rome, "offload", "namespace", SHOP)
        virtual = {"liqo.io/type": "virtual-node"}
        echo = pod("echo", ECHO, namespace=SHOP, nodeSelector=virtual, restartPolicy="Never")
        eventually("pods are accepted", lambda: self.rome.apply(echo, deployment(APP, COUNT)))
        eventually("all run", lambda: offloaded(self.rome, self.milan, APP, COUNT))
        eventually("echo runs", lambda: is_running(self.rome.get("pod", "echo", "-n", SHOP)))
        address = self.rome.get("pod", "echo", "-n", SHOP)["status"]["podIP"]
        # On the node that is not the gateway, so that the way leads over both.
        node = {"kubernetes.io/hostname": self.rome.workers[0].node_name}
        script = ASK.format(address=address, port=PORT, seen=SEEN)
        asking = pod("asking", ["sh", "-c", script], namespace=HERE, nodeSelector=node, restartPolicy="Never")
        self.rome.apply(asking)
        eventually("the client runs", lambda: is_running(self.rome.get("pod", "asking", "-n", HERE)))
        self.goes_on()
        self._ledgers.update(self.ledgers())

    def test_03_upgrade(self) -> None:
        """Both clusters go to the next release: every pod of liqod is replaced, but for wireguard-go's."""
        self.goes_on()
        for name, cluster in self.clusters.items():
            seconds = stopwatch()
            chart = str(images.chart(images.NEXT, cluster.directory))
            words = ("--reuse-values", "--set", f"image.tag={images.NEXT}", "--wait", "--timeout=10m")
            self.helm(cluster, "upgrade", "liqod", chart, *words)
            eventually(f"the next release at {name}", partial(self.all_run, cluster, images.NEXT))
            said = cluster.kubectl("-n", NAMESPACE, "exec", "deploy/liqod", "--", "liqodctl", "--version")
            self.assertIn(images.NEXT, said)
            self.assert_untouched(f"helm upgrade of {name}, {seconds():.0f} s")

    def test_04_rollback(self) -> None:
        """Both go back to the release before."""
        self.goes_on()
        for name, cluster in self.clusters.items():
            seconds = stopwatch()
            self.helm(cluster, "rollback", "liqod", "1", "--wait", "--timeout=10m")
            eventually(f"the release before at {name}", partial(self.all_run, cluster, images.VERSION))
            self.assert_untouched(f"helm rollback of {name}, {seconds():.0f} s")
        eventually("a new pod", partial(self.rome.kubectl, "-n", SHOP, "scale", f"deployment/{APP}", "--replicas=7"))
        eventually("it runs at milan", lambda: offloaded(self.rome, self.milan, APP, COUNT + 1))

    def test_05_removal(self) -> None:
        """After the end of the peering Helm removes all of it: objects, and what the agents had made on the hosts."""
        self.addCleanup(self.close)
        self.administrator(self.rome, "unoffload", "namespace", SHOP)
        self.rome.kubectl("delete", "namespace", SHOP, HERE, timeout=PATIENCE)
        self.administrator(self.rome, "unpeer", MILAN, "--yes")
        for name, cluster in self.clusters.items():
            self.helm(cluster, "uninstall", "liqod", "--wait", "--timeout=6m")
            # Helm did not make the namespace.
            cluster.kubectl("delete", "namespace", NAMESPACE, timeout=PATIENCE)
            cluster.kubectl("label", "node", cluster.node_name, "liqod.io/gateway-")
            self.assert_as_before(name, "helm-with-tunnels")
