"""The whole path on two real clusters with real containers: from two configuration files to offloaded pods."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Any

from liqod.model.names import remote_namespace
from liqod.model.objects import quantity
from tests.real.daemons import BareDaemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    advertisement,
    deployment,
    enabled_namespace,
    eventually,
    in_phase,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
    virtual_node,
)
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

APP = "web"


class OffloadPathTests(PairTests):
    """One walk along the path; the tests are its steps, in the order of their numbers."""

    daemon_class = BareDaemon

    def test_01_discovery(self) -> None:
        """The daemons find each other by mDNS and wait for their administrators: nothing is shared before that."""
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            seen = partial(peer_of, daemon.cluster, other.name)
            eventually(f"{daemon.name} sees {other.name}", seen)
            eventually("the record waits for trust", partial(in_phase, seen, "TrustPending"))
            self.assertNotIn("fingerprint", seen().get("spec", {}))
            eventually("its words are shown", lambda seen=seen: seen()["status"]["words"])  # type: ignore[misc]
            self.assertEqual(daemon.cluster.get("adv")["items"], [])
            self.assertIn(other.name, daemon.liqodctl("discover"))
        mine, theirs = (peer_of(d.cluster, o.name) for d, o in ((self.rome, self.milan), (self.milan, self.rome)))
        self.assertNotEqual(mine["status"]["words"], theirs["status"]["words"])

    def test_02_trust(self) -> None:
        """After each side trusts the other, both offers are accepted by policy."""
        trust_each_other(self.rome, self.milan)
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            peer_id = peer_of(daemon.cluster, other.name)["metadata"]["name"]
            offer = partial(advertisement, daemon.cluster, peer_id)
            eventually(f"{daemon.name} accepts {other.name}", partial(in_phase, offer, "Accepted"))

    def test_03_virtual_node(self) -> None:
        """The virtual node is Ready and has exactly what was offered."""
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            node = eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
            self.assertEqual(node["metadata"]["name"], f"liqo-{other.name}")
            peer_id = peer_of(daemon.cluster, other.name)["metadata"]["name"]
            eventually("the node has what is offered", partial(self.has_offered, daemon.cluster, peer_id))
            self.assertIn(
                {"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"},
                node["spec"]["taints"],
            )
            self.assertIn(f"liqo-{other.name}", daemon.cluster.kubectl("get", "nodes"))

    def has_offered(self, cluster: Cluster, peer_id: str) -> bool:
        """Have the virtual node be as large as the offer."""
        offer = advertisement(cluster, peer_id)["spec"]["offer"]["resources"]
        allocatable = virtual_node(cluster)["status"]["allocatable"]
        for name in ("cpu", "memory", "pods"):
            self.assertEqual(allocatable[name], offer[name])
        return True

    def test_04_deployment(self) -> None:
        """A Deployment of three in a labelled namespace runs three real containers in the other cluster."""
        self.rome.cluster.apply(enabled_namespace(), deployment(APP, 3))
        home = eventually("three pods run at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 3))
        remote = live_pods(self.milan.cluster, APP)
        home_id = peer_of(self.milan.cluster, "rome")["metadata"]["name"]
        for name, pod in remote.items():
            self.assertEqual(pod["metadata"]["namespace"], remote_namespace(NAMESPACE, home_id))
            self.assertEqual(pod["spec"]["nodeName"], self.milan.cluster.node_name)
            container = pod["status"]["containerStatuses"][0]
            self.assertTrue(container["containerID"].startswith("containerd://"))
            said = partial(self.milan.cluster.kubectl, "logs", "-n", pod["metadata"]["namespace"], name)
            eventually(f"{name} speaks", lambda said=said: "hello from" in said())  # type: ignore[misc]
            self.assertEqual(home[name]["spec"]["nodeName"], "liqo-milan")
        wide = self.rome.cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide")
        self.assertEqual(wide.count("1/1"), 3, wide)
        self.assertEqual(wide.count("Running"), 3, wide)

    def test_05_scale(self) -> None:
        """Scaling up and down reaches the other side, and the pods that stay are left alone."""
        before = {name: pod["metadata"]["uid"] for name, pod in live_pods(self.milan.cluster, APP).items()}
        self.rome.cluster.kubectl("scale", "-n", NAMESPACE, f"deployment/{APP}", "--replicas=5")
        eventually("five pods run", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 5))
        after = live_pods(self.milan.cluster, APP)
        self.assertEqual({name: after[name]["metadata"]["uid"] for name in before}, before)
        self.rome.cluster.kubectl("scale", "-n", NAMESPACE, f"deployment/{APP}", "--replicas=2")
        eventually("two pods run", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 2))
        eventually(
            "the others are gone on both sides",
            lambda: all(
                len(c.get("pods", "-A", "-l", f"app={APP}")["items"]) == 2
                for c in (self.rome.cluster, self.milan.cluster)
            ),
        )

    def test_06_delete_a_pod(self) -> None:
        """A pod deleted at home goes at the other side too, and its owner's new one runs there."""
        name = sorted(live_pods(self.rome.cluster, APP))[0]
        self.rome.cluster.kubectl("delete", "pod", "-n", NAMESPACE, name)
        eventually("a new pod runs", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 2))
        self.assertNotIn(name, live_pods(self.rome.cluster, APP))
        self.assertNotIn(name, live_pods(self.milan.cluster, APP))

    def test_07_pod_lost_at_the_lender(self) -> None:
        """A pod deleted at the lender is run again there; at home it stays the same pod, with one more restart."""
        home = live_pods(self.rome.cluster, APP)
        name, pod = sorted(live_pods(self.milan.cluster, APP).items())[0]
        self.milan.cluster.kubectl("delete", "pod", "-n", pod["metadata"]["namespace"], name, "--wait=true")
        eventually(
            "it runs again",
            lambda: (
                offloaded(self.rome.cluster, self.milan.cluster, APP, 2)
                and live_pods(self.milan.cluster, APP)[name]["metadata"]["uid"] != pod["metadata"]["uid"]
                and live_pods(self.rome.cluster, APP)[name]["status"]["containerStatuses"][0]["restartCount"] == 1
            ),
        )
        self.assertEqual(live_pods(self.rome.cluster, APP)[name]["metadata"]["uid"], home[name]["metadata"]["uid"])

    def test_08_capacity(self) -> None:
        """A change of what the lender has reaches the virtual node."""
        milan = self.milan.cluster
        milan.kubectl(
            "patch", "node", milan.node_name, "--subresource=status", "--type=json",
            "-p", '[{"op":"add","path":"/status/capacity/example.com~1widget","value":"8"}]',
        )  # fmt: skip
        eventually(
            "the widgets are offered",
            lambda: virtual_node(self.rome.cluster)["status"]["allocatable"].get("example.com/widget"),
        )

        def memory() -> Fraction:
            return quantity.parse(virtual_node(self.rome.cluster)["status"]["allocatable"]["memory"])

        whole = memory()
        milan.kubectl("cordon", milan.node_name)
        eventually("a cordoned node is not lent", lambda: memory() < whole / 2)
        milan.kubectl("uncordon", milan.node_name)
        # Changes below the threshold of five percent are not worth an offer of their own.
        eventually("it is lent again", lambda: memory() > whole * Fraction(9, 10))

    def test_09_columns(self) -> None:
        """``kubectl get fc,adv,vn,nnt`` says what is going on."""
        text = self.rome.cluster.kubectl("get", "fc,adv,vn,nnt", "-A")
        for word in ("milan", "Ready", "Accepted", "liqo-milan", NAMESPACE):
            self.assertIn(word, text)
        status = self.rome.liqodctl("status")
        self.assertIn("milan", status)

    def test_10_not_offloadable(self) -> None:
        """A pod that cannot be offloaded says why, in a condition and an event, with the lender's words."""
        bad = deployment("forbidden", 1)
        bad["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        self.rome.cluster.apply(bad)

        def reported() -> bool:
            (pod,) = live_pods(self.rome.cluster, "forbidden").values()
            said = [c for c in pod["status"].get("conditions", []) if c["type"] == "liqo.io/Offloaded"]
            events = self.rome.cluster.kubectl(
                "get", "events", "-n", NAMESPACE, f"--field-selector=involvedObject.name={pod['metadata']['name']}"
            )
            return bool(said) and "privileged" in said[0]["message"] and "privileged" in events

        eventually("the pod says why", reported)
        self.rome.cluster.kubectl("delete", "deployment", "-n", NAMESPACE, "forbidden")
        forced = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "forced", "namespace": "default"},
            "spec": {
                "nodeName": "liqo-milan",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "localhost/busybox:1", "command": ["sleep", "1000"]}],
            },
        }
        self.rome.cluster.apply(forced)
        eventually(
            "a pod of a namespace that is not enabled has an event that says so",
            lambda: (
                self.rome.cluster.get("pod", "forced", "-n", "default")["status"].get("reason") == "OffloadingBackOff"
            ),
        )
        self.rome.cluster.kubectl("delete", "pod", "forced", "-n", "default", "--timeout=120s", timeout=130)

    def test_11_standby(self) -> None:
        """When the first daemon of a cluster dies, the second has its ports before it leads, leads when the lease ends
        and no sooner, and runs what was asked for meanwhile; no pod notices. Started again the first stands by, and
        leads when the second lets go. How soon all this is, `python -m benchmarks takeover` measures.
        """
        before = {name: pod["metadata"]["uid"] for name, pod in live_pods(self.milan.cluster, APP).items()}
        second = BareDaemon(self.rome.cluster, "rome", identity="two")
        second.start()
        try:
            eventually("the second daemon stands by", lambda: "standby" in second.log.read_text().lower())
            time.sleep(3.0)
            self.rome.kill()
            last = self._lease()
            ended = datetime.fromisoformat(last["renewTime"]).timestamp() + last["leaseDurationSeconds"]
            for port in (5873, 5875):
                eventually(f"the second daemon has port {port}", partial(self._listens, port))
            self.assertEqual(self._leader(), "c1-one")
            self.rome.cluster.kubectl("scale", "-n", NAMESPACE, f"deployment/{APP}", "--replicas=3")
            eventually("the second daemon leads", lambda: self._leader() == "c1-two")
            # When it took over is what the lease says, not when that was noticed here.
            acquired = datetime.fromisoformat(self._lease()["acquireTime"]).timestamp()
            self.assertGreaterEqual(acquired, ended)
            eventually("a third pod runs", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 3))
            after = live_pods(self.milan.cluster, APP)
            self.assertEqual({name: after[name]["metadata"]["uid"] for name in before}, before)
            self.assertTrue(all(map(is_running, live_pods(self.rome.cluster, APP).values())))
            said = len(self.rome.log.read_text())
            self.rome.start()
            eventually("the first stands by now", lambda: "standby" in self.rome.log.read_text()[said:].lower())
            self.assertEqual(self._leader(), "c1-two")
        finally:
            if not self.rome.running:
                self.rome.start()
            second.stop()
        eventually("the first leads again, because the second let go", lambda: self._leader() == "c1-one")

    def _listens(self, port: int) -> bool:
        """Tell whether somebody listens on a port of rome's host; CommandFailed where nobody does."""
        connect = f"import socket; socket.create_connection(({self.rome.cluster.address!r}, {port}), 3)"
        self.rome.cluster.run([sys.executable, "-c", connect])
        return True

    def _lease(self) -> dict[str, Any]:
        return dict(self.rome.cluster.get("lease", "liqod", "-n", "liqo-system")["spec"])

    def _leader(self) -> str:
        return str(self._lease()["holderIdentity"])

    def test_12_namespace(self) -> None:
        """Deleting the namespace removes everything of it at the other side."""
        home_id = peer_of(self.milan.cluster, "rome")["metadata"]["name"]
        remote = remote_namespace(NAMESPACE, home_id)
        self.rome.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s", timeout=130)

        def gone() -> bool:
            try:
                self.milan.cluster.kubectl("get", "namespace", remote)
            except CommandFailed as error:
                return "NotFound" in error.output
            return False

        eventually("the remote namespace is gone", gone)

        def forgotten() -> bool:
            (table,) = self.rome.cluster.get("nnt")["items"]
            return NAMESPACE not in table["spec"].get("nattingTable", {})

        eventually("it is translated no more", forgotten)
