"""One service with pods in three real clusters, one of them gone and back, and a second virtual node of another.

The pod networks of the three differ, and their hosts route them to each other, as those of one site may do.
"""

from __future__ import annotations

import atexit
from functools import partial
from itertools import permutations
from typing import Any, ClassVar

from twisted.trial.unittest import SynchronousTestCase

from liqod.model.names import remote_namespace
from tests.real.base import require_clusters
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, condition, enabled_namespace, eventually, is_running, live_pods, peer_of
from tests.testbed.cluster import Cluster
from tests.testbed.process import tail
from tests.testbed.testbed import Testbed

NAMES = ("rome", "milan", "paris")
REFLECTED = "endpointslice.reflection.liqo.io"
SERVICE, PORT = "db", 8080
SMALL = "milan-small"
"""A second virtual node of milan."""


class ThreeClustersTests(SynchronousTestCase):
    """Steps in the order of their numbers: rome has the service, a pod of it runs in each of the three."""

    _testbed: ClassVar[Testbed | None] = None
    daemons: ClassVar[dict[str, Daemon]] = {}

    def setUp(self) -> None:
        """Make the clusters before the first step."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(3, nodes=True)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            for one, two in permutations(cls._testbed.clusters, 2):
                one.run(["ip", "route", "add", two.addresses.pod_cidr, "via", two.address])
            for number, name in enumerate(NAMES, 1):
                cls.daemons[name] = Daemon(cls._testbed[number], name)
                cls.daemons[name].start()
        self.addCleanup(self._tell)

    def _tell(self) -> None:
        if not self._passed:
            for daemon in self.daemons.values():
                print(f"--- {daemon.name}", tail(daemon.log, 40), sep="\n")

    _passed = False

    def cluster(self, name: str) -> Cluster:
        """Return a cluster by the name that its daemon gives it."""
        return self.daemons[name].cluster

    def space(self, name: str) -> str:
        """Return what the namespace of the service is called in a cluster."""
        if name == "rome":
            return NAMESPACE
        return remote_namespace(NAMESPACE, peer_of(self.cluster(name), "rome")["metadata"]["name"])

    def node_is(self, at: str, of: str, status: str) -> bool:
        """Tell whether a virtual node's Ready condition has a status."""
        return condition(self.cluster(at).get("node", f"liqo-{of}"), "Ready") == status

    def endpoints(self, name: str) -> dict[str, tuple[str, bool]]:
        """Return the endpoints of the service in a cluster: address -> name of the pod, and whether by reflection.

        Each address may be there only once.
        """
        found: dict[str, tuple[str, bool]] = {}
        label = f"kubernetes.io/service-name={SERVICE}"
        for each in self.cluster(name).get("endpointslices", "-n", self.space(name), "-l", label)["items"]:
            reflected = each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == REFLECTED
            for endpoint in each.get("endpoints") or ():
                if endpoint["conditions"].get("ready"):
                    (address,) = endpoint["addresses"]
                    self.assertNotIn(address, found)
                    found[address] = (endpoint["targetRef"]["name"], reflected)
        return found

    def expected(self, name: str, *, without: str = "") -> dict[str, tuple[str, bool]]:
        """Return what the endpoints ought to be: the pods that home sees, by their addresses as home sees them."""
        own = {"rome": {f"at-{other}" for other in NAMES}}.get(name, {f"at-{name}"})
        pods = live_pods(self.cluster("rome"), SERVICE)
        wanted = {f"at-{other}" for other in NAMES if other != without}
        addresses = {pods[each]["status"]["podIP"]: each for each in wanted}
        self.assertEqual(len(addresses), len(wanted))
        return {address: (each, each not in own) for address, each in addresses.items()}

    def agree(self, *names: str, without: str = "") -> bool:
        """Have the slices of some clusters be as they ought to."""
        for name in names:
            self.assertEqual(self.endpoints(name), self.expected(name, without=without), name)
        return True

    def uids(self) -> dict[str, str]:
        """Return the UIDs of the pods that home sees."""
        return {name: each["metadata"]["uid"] for name, each in live_pods(self.cluster("rome"), SERVICE).items()}

    def test_01_peers(self) -> None:
        """Each cluster trusts the two others, and has a virtual node for each of them."""
        for one, two in permutations(NAMES, 2):
            eventually(f"{one} sees {two}", partial(peer_of, self.cluster(one), two))
            self.daemons[one].liqodctl("trust", two, "--yes")
        for one, two in permutations(NAMES, 2):
            eventually(f"{one} has a node for {two}", partial(self.node_is, one, two, "True"), 120)
        for name in NAMES:
            nodes = self.cluster(name).get("nodes", "-l", "liqo.io/type=virtual-node")["items"]
            peers = {f"liqo-{other}" for other in NAMES if other != name}
            self.assertEqual({node["metadata"]["name"] for node in nodes}, peers)
            tables = self.cluster(name).get("nnt")["items"]
            known = {peer_of(self.cluster(name), other)["metadata"]["name"] for other in NAMES if other != name}
            self.assertLessEqual({table["metadata"]["name"] for table in tables}, known)
        self._passed = True

    def test_02_one_service(self) -> None:
        """A pod in each cluster: everywhere, each of the three is an endpoint once, those elsewhere by reflection."""
        rome = self.cluster("rome")
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"selector": {"app": SERVICE}, "ports": [{"port": PORT}]},
        }
        rome.apply(enabled_namespace(), service, *(self._pod(name) for name in NAMES))
        eventually("all three run", lambda: self.all_run(NAMES), 120)
        for name in ("milan", "paris"):
            (there,) = live_pods(self.cluster(name), SERVICE).values()
            self.assertEqual(there["spec"]["nodeName"], self.cluster(name).node_name)
        eventually("the slices are right in all three", lambda: self.agree(*NAMES))
        self._passed = True

    def _pod(self, name: str) -> dict[str, Any]:
        node = self.cluster("rome").node_name if name == "rome" else f"liqo-{name}"
        script = f"echo at-{name} > /tmp/index.html; exec busybox httpd -f -p {PORT} -h /tmp"
        body = pod(f"at-{name}", ["sh", "-c", script], namespace=NAMESPACE, labels={"app": SERVICE})
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        return body

    def all_run(self, names: tuple[str, ...]) -> bool:
        pods = live_pods(self.cluster("rome"), SERVICE)
        return all(is_running(pods[f"at-{name}"]) for name in names)

    def test_03_called(self) -> None:
        """The pod in each cluster, calling the service by its address there, is answered by the pods of all three."""
        for name in NAMES:
            found: set[str] = set()
            eventually(f"all answer to {name}", lambda name=name, found=found: self._hear(name, found))  # type: ignore[misc]
        self._passed = True

    def _hear(self, name: str, found: set[str]) -> bool:
        """Have the pod in a cluster call the service, and add who answered."""
        cluster, space = self.cluster(name), self.space(name)
        address = cluster.get("service", SERVICE, "-n", space)["spec"]["clusterIP"]
        script = (
            f"for i in 1 2 3 4 5 6; do printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {PORT}; done"
        )
        said = cluster.kubectl("exec", "-n", space, f"at-{name}", "--", "sh", "-c", script)
        found.update(word for word in said.split() if word.startswith("at-"))
        return found == {f"at-{other}" for other in NAMES}

    def test_04_one_is_gone(self) -> None:
        """With one lender gone, control plane and daemon, the others' slices leave its pod out, and nothing is lost."""
        before = self.uids()
        paris = self.daemons["paris"]
        paris.kill()
        paris.cluster.lose_control_plane()
        eventually("rome's node for it is not Ready", lambda: not self.node_is("rome", "paris", "True"), 120)
        eventually("the two others leave its pod out", lambda: self.agree("rome", "milan", without="paris"), 120)
        self.assertEqual(self.uids(), before)
        eventually("the two others run", lambda: self.all_run(("rome", "milan")))
        self._passed = True

    def test_05_changes_meanwhile(self) -> None:
        """Meanwhile a pod that is made again at the other lender is an endpoint in the clusters that are left."""
        rome = self.cluster("rome")
        rome.kubectl("delete", "pod", "-n", NAMESPACE, "at-milan", "--timeout=120s", timeout=130)
        rome.apply(self._pod("milan"))
        eventually("it runs", lambda: self.all_run(("milan",)))
        eventually("the slices follow", lambda: self.agree("rome", "milan", without="paris"))
        self._passed = True

    def test_06_it_is_back(self) -> None:
        """When it is back, its pod is the same as before, and the slices are right in all three."""
        before = self.uids()
        paris = self.daemons["paris"]
        paris.cluster.restore_control_plane(kubelet=True)
        paris.start()
        eventually("rome's node for it is Ready", partial(self.node_is, "rome", "paris", "True"), 120)
        eventually("all three run", lambda: self.all_run(NAMES), 120)
        eventually("the slices are right in all three", lambda: self.agree(*NAMES), 120)
        self.assertEqual(self.uids(), before)
        self.assertEqual(self._restarts("at-paris"), 0)
        eventually("all answer to milan again", lambda found=set(): self._hear("milan", found))  # type: ignore[misc]
        self._passed = True

    def _restarts(self, name: str) -> int:
        status = live_pods(self.cluster("rome"), SERVICE)[name]["status"]
        return sum(each["restartCount"] for each in status["containerStatuses"])

    def test_07_a_pod_that_goes(self) -> None:
        """A pod that is deleted is asked to end where it runs, goes on both sides, and is no endpoint any more."""
        rome, paris = self.cluster("rome"), self.cluster("paris")
        rome.kubectl("delete", "pod", "-n", NAMESPACE, "at-paris", "--wait=false")

        def gone(cluster: Cluster) -> bool:
            pods = cluster.get("pods", "-A", "-l", f"app={SERVICE}")["items"]
            return "at-paris" not in {pod["metadata"]["name"] for pod in pods}

        try:
            eventually("it is deleted where it runs", lambda: not live_pods(paris, SERVICE))
            eventually("it is gone where it ran", partial(gone, paris))
            eventually("it is gone at home", partial(gone, rome))
        except AssertionError:
            for cluster in (rome, paris):
                said = cluster.kubectl("get", "pods,shadowpods.offloading.liqo.io,events", "-A", "-o", "wide")
                print(f"--- {cluster.name}\n{said}")
            raise
        eventually("the others remain", lambda: self.agree(*NAMES, without="paris"))
        self._passed = True

    def test_08_a_further_node(self) -> None:
        """A second virtual node of a lender has limits and taints of its own; its removal moves nothing of the first.

        Meanwhile another pod starts on the first one.
        """
        rome, milan, daemon = self.cluster("rome"), self.cluster("milan"), self.daemons["rome"]
        daemon.liqodctl(
            "node", "create", "milan", "--name", SMALL, "--limit", "cpu=100m", "--taint", "example.com/x:NoSchedule"
        )
        eventually("it is Ready", lambda: condition(rome.get("node", SMALL), "Ready") == "True")
        self.assertEqual(rome.get("node", SMALL)["status"]["allocatable"]["cpu"], "100m")
        rome.apply(*(self._small(f"small-{number}") for number in range(2)))
        eventually("its pods run", lambda: self._running("small") == 2, 120)
        before = self._kept()
        daemon.liqodctl("node", "delete", SMALL)
        more = self._pod("milan")
        more["metadata"] |= {"name": "more", "labels": {"app": "more"}}
        rome.apply(more)
        eventually("it is gone", lambda: not rome.get("nodes", "-l", f"kubernetes.io/hostname={SMALL}")["items"], 120)
        for cluster in (rome, milan):
            eventually("so are its pods", lambda cluster=cluster: not live_pods(cluster, "small"), 120)  # type: ignore[misc]
        eventually("the other one runs", lambda: self._running("more") == 1, 120)
        self.assertEqual(self._kept(), before)
        self.assertTrue(self.node_is("rome", "milan", "True"))
        self.agree("rome", "milan", without="paris")
        self._passed = True

    def _small(self, name: str) -> dict[str, Any]:
        body = pod(name, ["sleep", "3600"], namespace=NAMESPACE, labels={"app": "small"})
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": SMALL}
        body["spec"]["tolerations"] = [{"key": "example.com/x", "operator": "Exists"}]
        return body

    def _running(self, app: str) -> int:
        return sum(map(is_running, live_pods(self.cluster("rome"), app).values()))

    def _kept(self) -> list[tuple[str, str, int]]:
        """Return names, UIDs and restarts of the service's pods in both clusters, and the namespace there."""
        found = []
        for name in ("rome", "milan"):
            for each, body in live_pods(self.cluster(name), SERVICE).items():
                restarts = sum(one["restartCount"] for one in body["status"]["containerStatuses"])
                found.append((f"{name} {each}", body["metadata"]["uid"], restarts))
        space = self.cluster("milan").get("namespace", self.space("milan"))["metadata"]
        return [*found, (space["name"], space["uid"], 0)]
