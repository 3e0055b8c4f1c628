"""Offloaded pods and their home API server, through the tunnel of two real clusters with the same pod network."""

from __future__ import annotations

import base64
import json
import time
from functools import partial
from typing import Any, ClassVar

from liqod.kubelet.tokens.api_service import NAME
from liqod.model.names import HOME_API
from tests.real.daemons import HostDaemon
from tests.real.manifests import pod
from tests.real.pair import PairTests
from tests.real.path import NAMESPACE, enabled_namespace, eventually, live_pods, node_ready, peer_of, trust_each_other
from tests.real.test_network import CONFIGURATION
from tests.testbed import versions
from tests.testbed.cluster import Cluster

CALLER = "caller"
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
BUILT_IN = (
    "/tmp/kubectl --server=https://{name}:443 --certificate-authority={account}/ca.crt --token=$(cat {account}/token)"
    " get configmap settings -o jsonpath={{.data.colour}}"
)
"""What a program does that has the API server's name and port built in."""


def rights(resource: str = "configmaps") -> list[dict[str, Any]]:
    """Return what lets the pods read objects of a kind at home."""
    meta = {"name": "reader", "namespace": NAMESPACE}
    group = "rbac.authorization.k8s.io"
    verbs = ["get", "list", "watch"]
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
        },
    ]


def settings(colour: str) -> dict[str, Any]:
    """Return a config map that stays at home."""
    meta = {"name": "settings", "namespace": NAMESPACE, "annotations": {"liqo.io/skip-reflection": "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"colour": colour}}


def put_kubectl(cluster: Cluster, running: dict[str, Any]) -> None:
    """Put kubectl into a pod's container."""
    container = running["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    tasks = cluster.host.run(["ctr", "--namespace", "k8s.io", "tasks", "list"])
    (process,) = [line.split()[1] for line in tasks.splitlines() if line.startswith(container)]
    inside = f"/proc/{process}/root"
    cluster.host.run(["install", "-m", "755", str(versions.program("kubectl")), f"{inside}/tmp/kubectl"])


class HomeApiTests(PairTests):
    """rome borrows from milan; its pod at milan is a client of rome's API server."""

    configuration = CONFIGURATION
    same_pod_cidr = True
    shape: ClassVar[dict[str, Any]] = {"proxies": ("nftables", "iptables")}
    daemon_class = HostDaemon

    def remote(self) -> dict[str, Any]:
        """Return the pod at milan."""
        (found,) = live_pods(self.milan.cluster, CALLER).values()
        return found

    def inside(self, script: str) -> str:
        """Run a line of shell in the pod at milan."""
        meta = self.remote()["metadata"]
        return self.milan.cluster.kubectl("exec", "-n", meta["namespace"], meta["name"], "--", "sh", "-c", script)

    def condition(self) -> dict[str, Any]:
        """Return the condition at rome's record of the virtual node."""
        milan = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        record = self.rome.cluster.get("virtualnode", milan, "-n", f"liqo-tenant-{milan}")
        return next((dict(one) for one in record["status"]["conditions"] if one["type"] == HOME_API), {})

    def test_01_in_cluster_configuration(self) -> None:
        """kubectl in an offloaded pod, which knows nothing but the in-cluster configuration, reads from home."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        body = pod(CALLER, ["sh", "-c", "sleep 100000"], namespace=NAMESPACE, labels={"app": CALLER})
        body["spec"]["nodeSelector"] = {"liqo.io/type": "virtual-node"}
        self.rome.cluster.apply(enabled_namespace(), *rights(), settings("blue"))
        eventually("the account", partial(self.rome.cluster.get, "serviceaccount", "default", "-n", NAMESPACE))
        self.rome.cluster.apply(body)
        eventually("the pod runs", lambda: self.remote()["status"].get("phase") == "Running")
        put_kubectl(self.milan.cluster, self.remote())
        ask = "/tmp/kubectl get configmap settings -o jsonpath={.data.colour}"
        eventually("home's answer", lambda: self.inside(ask) == "blue")
        eventually("the condition", lambda: self.condition().get("status") == "True", 30)

    def test_02_by_name_and_port(self) -> None:
        """A program with the name and port built in reads from home, by each of the four names."""
        for name in NAMES:
            self.assertEqual(self.inside(BUILT_IN.format(name=name, account=ACCOUNT)), "blue", name)

    def test_021_issuer(self) -> None:
        """A pod finds its own token's issuer, and the keys by which anybody verifies such tokens."""
        found = json.loads(self.inside("/tmp/kubectl get --raw /.well-known/openid-configuration"))
        token = self.inside(f"cat {ACCOUNT}/token").split(".")[1]
        said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        self.assertEqual(found["issuer"], said["iss"])
        self.assertTrue(json.loads(self.inside("/tmp/kubectl get --raw /openid/v1/jwks"))["keys"])

    def test_03_watch(self) -> None:
        """A watch shows a change at home; home's daemon is killed meanwhile, and started again."""
        self.inside("/tmp/kubectl get configmap settings --watch -o json >/tmp/seen 2>&1 & sleep 1")
        self.rome.kill()
        self.rome.cluster.apply(settings("red"))
        eventually("the change is seen", lambda: '"colour": "red"' in self.inside("cat /tmp/seen"))
        self.rome.start()
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        self.rome.cluster.apply(settings("green"))
        eventually("the next change is seen", lambda: '"colour": "green"' in self.inside("cat /tmp/seen"))

    def test_04_made_again(self) -> None:
        """Somebody at milan deletes the service: it is made again with its address, which the pod goes on calling."""
        space = self.remote()["metadata"]["namespace"]
        # A daemon that has just started must have seen the service, to know its address.
        slices = ("shadowendpointslice", NAME, "-n", space)
        self.milan.cluster.kubectl("delete", *slices)
        eventually("the slice", partial(self.milan.cluster.get, *slices))
        before = self.milan.cluster.get("service", NAME, "-n", space)
        self.milan.cluster.kubectl("delete", "service", NAME, "-n", space)

        def again() -> bool:
            found = self.milan.cluster.get("service", NAME, "-n", space)
            self.assertNotEqual(found["metadata"]["uid"], before["metadata"]["uid"])
            self.assertEqual(found["spec"]["clusterIP"], before["spec"]["clusterIP"])
            return True

        eventually("the service", again)
        ask = BUILT_IN.format(name=NAMES[2], account=ACCOUNT)
        eventually("home's answer", lambda: self.inside(ask) == "green")

    def readiness(self) -> list[Any]:
        """Return whether the endpoints are ready that lead from milan to rome's API server."""
        found = self.milan.cluster.get("endpointslice", NAME, "-n", self.remote()["metadata"]["namespace"])
        return [one["conditions"].get("ready") for one in found["endpoints"]]

    def tunnel(self) -> str:
        """Return the phase of the tunnel to rome, as milan sees it."""
        rome = peer_of(self.milan.cluster, "rome")["metadata"]["name"]
        return str(self.milan.cluster.get("tunnelendpoint", rome)["status"]["phase"])

    def test_041_a_daemon_that_is_down(self) -> None:
        """While rome has no daemon, to answer the probes of the tunnel, its endpoints at milan stay ready."""
        self.rome.kill()
        eventually("milan is in doubt", lambda: self.tunnel() == "Error")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.assertNotIn(False, self.readiness())
            time.sleep(0.5)
        self.rome.start()
        eventually("the tunnel", lambda: self.tunnel() == "Connected")

    def test_042_a_cut(self) -> None:
        """While nothing passes between the clusters rome's endpoints at milan are not ready, also across a restart."""
        there = self.rome.cluster.address
        lines = ["table ip cut {"]
        for name, word in (("input", "saddr"), ("output", "daddr")):
            lines += [f"chain {name} {{", f"type filter hook {name} priority 0", f"ip {word} {there} drop", "}"]
        self.milan.cluster.run(["nft", "-f", "-"], input="\n".join([*lines, "}", ""]))
        try:
            eventually("they are not ready", lambda: self.readiness() == [False])
            self.milan.kill()
            self.milan.start()
            eventually("milan is in doubt", lambda: self.tunnel() == "Error")
            self.assertEqual(self.readiness(), [False])
        finally:
            self.milan.cluster.run(["nft", "delete table ip cut"])
        eventually("they are ready", lambda: False not in self.readiness())
        ask = BUILT_IN.format(name=NAMES[2], account=ACCOUNT)
        eventually("home's answer", lambda: self.inside(ask) == "green")

    def test_05_the_end(self) -> None:
        """With the peering the service and its slices go, and rome exports its API server no more."""
        space = self.remote()["metadata"]["namespace"]
        milan = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        exports = self.rome.cluster.get("networkconfig", milan)["spec"]["exports"]
        self.assertIn(["TCP/6443"], [one["ports"] for one in exports], json.dumps(exports))
        self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        left = partial(self.milan.cluster.kubectl, "get", "services,endpointslices", "-n", space, "-o", "name")
        eventually("the service is gone", lambda: NAME not in left())
        record = partial(self.rome.cluster.kubectl, "get", "networkconfigs", "-o", "json")
        eventually("the export is gone", lambda: "6443" not in record())
