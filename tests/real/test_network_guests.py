"""Two pods of rome at milan talk by the addresses that rome shows for them; milan's own pods are not led there."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from tests.real.daemons import HostDaemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    live_pods,
    offloaded,
    trust_each_other,
)
from tests.real.test_network import CONFIGURATION, WEB, fetch
from tests.testbed.process import CommandFailed

SERVER, CALLER, OWN = "server", "caller", "own"


class GuestTests(PairTests):
    """Two clusters with the same pod network; kube-proxy in nftables mode at the lender."""

    configuration = CONFIGURATION
    same_pod_cidr = True
    shape: ClassVar[dict[str, Any]] = {"proxies": ("iptables", "nftables")}
    daemon_class = HostDaemon

    def test_1_pods(self) -> None:
        """Two pods of rome run at milan, and one of milan's own."""
        trust_each_other(self.rome, self.milan)
        wanted = [deployment(name, 1) for name in (SERVER, CALLER)]
        for one in wanted:
            one["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
        self.rome.cluster.apply(enabled_namespace(), *wanted)
        own = deployment(OWN, 1, namespace="default")
        own["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.milan.cluster.node_name}
        self.milan.cluster.apply(own)
        for name in (SERVER, CALLER):
            eventually(f"{name} at milan", partial(offloaded, self.rome.cluster, self.milan.cluster, name, 1))
        eventually("milan's own pod", lambda: condition(self.one(self.milan, OWN), "Ready") == "True")

    def one(self, daemon: Any, name: str) -> dict[str, Any]:
        """Return the one pod of an application."""
        (pod,) = live_pods(daemon.cluster, name).values()
        return pod

    def fetched(self, caller: dict[str, Any], address: str) -> str:
        """Have a pod at milan fetch a page from an address; empty where there is no answer."""
        meta = caller["metadata"]
        try:
            return fetch(self.milan.cluster, meta["name"], meta["namespace"], address)
        except CommandFailed:
            return ""

    def test_2_each_other(self) -> None:
        """What rome shows as a pod's address leads to it from the other pod there, which is seen by its own, and from
        itself.
        """
        shown = self.one(self.rome, SERVER)["status"]["podIP"]
        server, caller = (self.one(self.milan, name) for name in (SERVER, CALLER))
        self.assertNotEqual(shown, server["status"]["podIP"])
        eventually("an answer", lambda: "hello" in self.fetched(caller, shown))
        words = ("logs", "-n", server["metadata"]["namespace"], server["metadata"]["name"])
        eventually("the caller", lambda: caller["status"]["podIP"] in self.milan.cluster.kubectl(*words))
        eventually("an answer of itself", lambda: "hello" in self.fetched(server, shown))

    def test_3_nobody_else(self) -> None:
        """A pod of milan's own that calls the same address is not led to the guest, and calls its real one freely."""
        shown = self.one(self.rome, SERVER)["status"]["podIP"]
        own = self.one(self.milan, OWN)
        self.assertNotIn("hello", self.fetched(own, shown))
        self.assertIn("hello", self.fetched(own, self.one(self.milan, SERVER)["status"]["podIP"]))

    def test_4_a_new_pod(self) -> None:
        """The server's next pod is reached by what rome shows for it; the address of the one before leads nowhere."""
        before = self.one(self.rome, SERVER)
        self.rome.cluster.kubectl("delete", "pod", "-n", NAMESPACE, before["metadata"]["name"], "--wait=false")

        def replaced() -> str:
            pod = self.one(self.rome, SERVER)
            ready = pod["metadata"]["uid"] != before["metadata"]["uid"] and condition(pod, "Ready") == "True"
            return str(pod["status"].get("podIP", "")) if ready else ""

        shown = eventually("the next pod", replaced)
        caller = self.one(self.milan, CALLER)
        eventually("an answer", lambda: "hello" in self.fetched(caller, shown))
        self.assertNotEqual(shown, before["status"]["podIP"])
        gone = before["status"]["podIP"]  # which still answers while the pod is given its time to end
        eventually("no answer of the pod before", lambda: "hello" not in self.fetched(caller, gone))
