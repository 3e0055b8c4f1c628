"""The virtual node as a node: what changes in running pods, cordon, drain, deletion, and a peer that is away."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import yaml

from liqod.model.names import remote_namespace
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
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

WEB, QUICK, TOOL, WORK = "web", "quick", "tool", "work"
CAUGHT_UP = "are up to date"
SHORT = 20
"""Seconds for which pods tolerate an unready node here, instead of five minutes."""


def tolerating(app: str, replicas: int, **annotations: str) -> dict[str, Any]:
    """Return a Deployment whose pods stay on an unready node for a short time only, as far as Kubernetes goes."""
    body = deployment(app, replicas)
    template = body["spec"]["template"]
    # Far more than an offer may move before it is reported again.
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40m"
    template["metadata"]["annotations"] = annotations
    template["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SHORT}
        for key in ("not-ready", "unreachable")
    ]
    return body


def single(name: str, script: str, policy: str) -> dict[str, Any]:
    """Return a pod of its own, for a virtual node."""
    spec = deployment(name, 1)["spec"]["template"]["spec"]
    spec["containers"][0]["command"] = ["sh", "-c", script]
    spec["restartPolicy"] = policy
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def uids(cluster: Cluster, app: str) -> dict[str, str]:
    """Return the UIDs of the pods of an application that are not being deleted."""
    return {name: pod["metadata"]["uid"] for name, pod in live_pods(cluster, app).items()}


class NodeTests(PairTests):
    """One walk; the tests are its steps, in the order of their numbers."""

    def test_01_peering(self) -> None:
        """Two clusters that trust each other, and pods of three kinds at the other one."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        tool = single(TOOL, "trap 'exit 0' TERM; while :; do sleep 1; done", "Always")
        work = single(WORK, "while :; do sleep 1; done", "Never")
        self.rome.cluster.apply(
            enabled_namespace(),
            tolerating(WEB, 2),
            tolerating(QUICK, 1, **{"liqo.io/evict-after": str(SHORT + 5)}),
            tool,
            work,
        )
        for app, count in ((WEB, 2), (QUICK, 1), (TOOL, 1), (WORK, 1)):
            runs = partial(offloaded, self.rome.cluster, self.milan.cluster, app, count)
            eventually(f"{app} runs at milan", runs)

    @property
    def space(self) -> str:
        """The namespace at milan."""
        return remote_namespace(NAMESPACE, peer_of(self.milan.cluster, "rome")["metadata"]["name"])

    def here(self, name: str) -> dict[str, Any]:
        return dict(self.rome.cluster.get("pod", name, "-n", NAMESPACE))

    def there(self, name: str) -> dict[str, Any]:
        return dict(self.milan.cluster.get("pod", name, "-n", self.space))

    def patch(self, name: str, change: dict[str, Any], *more: str) -> None:
        self.rome.cluster.kubectl("patch", "pod", name, "-n", NAMESPACE, *more, "-p", json.dumps(change))

    def test_02_in_place(self) -> None:
        """Labels, annotations, tolerations, the deadline and images that change at home change in the running pod."""
        before = self.there(TOOL)["metadata"]["uid"]
        tolerations = [*self.here(TOOL)["spec"]["tolerations"], {"key": "mine", "operator": "Exists"}]
        meta = {"labels": {"tier": "x"}, "annotations": {"note": "y"}}
        self.patch(TOOL, {"metadata": meta, "spec": {"activeDeadlineSeconds": 7200, "tolerations": tolerations}})

        def changed() -> bool:
            pod = self.there(TOOL)
            self.assertEqual(pod["metadata"]["labels"].get("tier"), "x")
            self.assertEqual(pod["metadata"]["annotations"].get("note"), "y")
            self.assertEqual(pod["spec"].get("activeDeadlineSeconds"), 7200)
            return {"key": "mine", "operator": "Exists"} in pod["spec"]["tolerations"]

        eventually("the changes are there", changed)
        self.patch(TOOL, {"spec": {"containers": [{"name": "main", "image": "localhost/busybox:2"}]}})
        image: Any = lambda: self.there(TOOL)["spec"]["containers"][0]["image"]  # noqa: E731
        eventually("the image is there", lambda: image() == "localhost/busybox:2")
        self.patch(TOOL, {"spec": {"containers": [{"name": "main", "image": "localhost/busybox:1"}]}})
        eventually("the former image is there again", lambda: image() == "localhost/busybox:1")
        eventually("it runs, as that", lambda: is_running(self.there(TOOL)) and is_running(self.here(TOOL)), 120)
        self.assertEqual(self.there(TOOL)["metadata"]["uid"], before)

    def test_03_resize(self) -> None:
        """A pod that is resized at home is resized at the other side, and says so at home."""
        before = self.there(WORK)["metadata"]["uid"]
        resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        self.patch(
            WORK, {"spec": {"containers": [{"name": "main", "resources": resources}]}}, "--subresource", "resize"
        )

        def resized() -> bool:
            requests = self.there(WORK)["spec"]["containers"][0]["resources"]["requests"]
            return bool({name: requests.get(name) for name in resources["requests"]} == resources["requests"])

        eventually("it is resized", resized)

        def asked(amounts: dict[str, str] | None) -> dict[str, str]:
            return {name: text for name, text in (amounts or {}).items() if name in resources["requests"]}

        def reported() -> bool:
            here, there = self.here(WORK)["status"], self.there(WORK)["status"]
            self.assertEqual(*(condition({"status": s}, "PodResizeInProgress") for s in (here, there)))
            self.assertEqual(*(condition({"status": s}, "PodResizePending") for s in (here, there)))
            one, two = (status["containerStatuses"][0] for status in (here, there))
            # What the lender's contract adds, limits and requests of ephemeral storage, is no business of home's.
            self.assertEqual(one.get("allocatedResources"), asked(two.get("allocatedResources")))
            self.assertEqual(one.get("resources"), {"requests": asked(two["resources"]["requests"])})
            return bool(two.get("allocatedResources"))

        eventually("home knows", reported)
        eventually("home says that all of it was looked at", lambda: self.unobserved(WORK) == 0)
        self.assertEqual(self.there(WORK)["metadata"]["uid"], before)
        # More than is left of what is lent, though not more than the node has: that much its own API server lets pass.
        much = {"requests": {"cpu": virtual_node(self.rome.cluster)["status"]["allocatable"]["cpu"]}}
        self.patch(WORK, {"spec": {"containers": [{"name": "main", "resources": much}]}}, "--subresource", "resize")

        eventually(
            "more than what is lent is refused, with the reason", lambda: "is not resized" in self.refusals(WORK)
        )
        self.assertEqual(self.there(WORK)["spec"]["containers"][0]["resources"]["requests"]["cpu"], "10m")
        self.assertEqual(self.unobserved(WORK), 1)
        self.patch(
            WORK, {"spec": {"containers": [{"name": "main", "resources": resources}]}}, "--subresource", "resize"
        )
        eventually("what it has is wanted again", lambda: self.unobserved(WORK) == 0)

    def unobserved(self, name: str) -> int:
        """Return how many generations of a pod its status is behind."""
        pod = self.here(name)
        return int(pod["metadata"]["generation"]) - int(pod["status"].get("observedGeneration", 0))

    def refusals(self, name: str) -> str:
        """Return what a pod's events say about changes that were not made."""
        selected = f"--field-selector=involvedObject.name={name},reason=UpdateRefused"
        return self.rome.cluster.kubectl("get", "events", "-n", NAMESPACE, selected)

    def test_04_debug(self) -> None:
        """``kubectl debug`` on an offloaded pod runs its container beside the others, and shows what it says; one with
        more power than the lender allows is refused, with the reason.
        """
        rome = self.rome.cluster
        rome.kubectl(
            "debug", f"pod/{TOOL}", "-n", NAMESPACE, "--image=localhost/busybox:1", "-c", "trace", "--profile=general",
            "--", "true",
        )  # fmt: skip
        eventually("tracing is refused", lambda: "SYS_PTRACE" in self.refusals(TOOL))
        script = "echo seen $HOSTNAME; ps | grep -c sleep"
        rome.kubectl(
            "debug", f"pod/{TOOL}", "-n", NAMESPACE, "--image=localhost/busybox:1", "-c", "look", "--profile=baseline",
            "--", "sh", "-c", script,
        )  # fmt: skip

        def looked() -> bool:
            (one,) = self.here(TOOL)["status"].get("ephemeralContainerStatuses") or [{}]
            return bool(one.get("name") == "look" and "terminated" in one.get("state", {}))

        eventually("it has looked", looked)
        self.assertIn(f"seen {TOOL}", rome.kubectl("logs", TOOL, "-n", NAMESPACE, "-c", "look"))
        self.assertEqual([c["name"] for c in self.there(TOOL)["spec"]["ephemeralContainers"]], ["look"])
        # The daemon's account adds containers to pods of its tenants, and to no others.
        loot = [{"op": "add", "path": "/spec/ephemeralContainers/-", "value": {"name": "loot", "image": "evil:1"}}]
        token = yaml.safe_load(self.rome.kubeconfig.read_text())["users"][0]["user"]["token"]
        said = rome.run(
            [
                "curl", "-sk", "-X", "PATCH", "-H", f"Authorization: Bearer {token}",
                "-H", "Content-Type: application/json-patch+json", "-d", json.dumps(loot),
                f"{rome.server}/api/v1/namespaces/{NAMESPACE}/pods/{TOOL}/ephemeralcontainers",
            ]
        )  # fmt: skip
        self.assertIn("for its tenants only", said)

    def test_05_cordon(self) -> None:
        """A cordoned node stays so, whatever the daemon writes to it, and takes no pods until it is uncordoned."""
        rome = self.rome.cluster
        before = uids(rome, WEB)
        rome.kubectl("cordon", "liqo-milan")
        # The daemon puts its own labels back: it has looked at the node since.
        rome.kubectl("label", "node", "liqo-milan", "liqo.io/type-", "--overwrite")
        eventually("the daemon wrote to the node", lambda: virtual_node(rome))
        self.assertTrue(virtual_node(rome)["spec"]["unschedulable"])
        rome.kubectl("scale", "-n", NAMESPACE, f"deployment/{WEB}", "--replicas=3")

        def waits() -> bool:
            pods = live_pods(rome, WEB)
            return len(pods) == 3 and any(condition(pod, "PodScheduled") == "False" for pod in pods.values())

        eventually("the third pod waits", waits)
        self.assertEqual(before.items() & uids(rome, WEB).items(), before.items())
        self.assertIn("uncordoned", self.rome.liqodctl("uncordon", "milan"))
        eventually("it runs", partial(offloaded, rome, self.milan.cluster, WEB, 3))
        rome.kubectl("scale", "-n", NAMESPACE, f"deployment/{WEB}", "--replicas=2")
        eventually("two run", partial(offloaded, rome, self.milan.cluster, WEB, 2))

    def test_06_drain(self) -> None:
        """``kubectl drain`` empties the node within disruption budgets, and the pods end at the other side."""
        rome, milan = self.rome.cluster, self.milan.cluster
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": WEB, "namespace": NAMESPACE},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": WEB}}},
        }
        rome.apply(budget)
        eventually(
            "the budget counts",
            lambda: rome.get("pdb", WEB, "-n", NAMESPACE)["status"].get("currentHealthy") == 2,
        )
        before = uids(rome, WEB)
        drain = ("drain", "liqo-milan", "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector=app={WEB}")
        with self.assertRaises(CommandFailed) as refused:
            rome.kubectl(*drain, "--timeout=8s", timeout=120)
        self.assertIn("disruption budget", refused.exception.output)
        self.assertEqual(uids(rome, WEB), before)
        rome.kubectl("delete", "pdb", WEB, "-n", NAMESPACE)
        rome.kubectl(*drain, "--timeout=120s", timeout=130)
        self.assertFalse(before.items() & uids(rome, WEB).items())
        eventually("none of them is left at milan", lambda: not uids(milan, WEB))
        rome.kubectl("uncordon", "liqo-milan")
        eventually("new ones run", partial(offloaded, rome, milan, WEB, 2))

    def test_07_deleted_node(self) -> None:
        """A node that is deleted registers again, and its pods run on."""
        rome, milan = self.rome.cluster, self.milan.cluster
        before, first = (uids(rome, WEB), uids(milan, WEB)), virtual_node(rome)["metadata"]["uid"]
        rome.kubectl("delete", "node", "liqo-milan", "--wait=false")
        eventually("it is there again", lambda: virtual_node(rome)["metadata"]["uid"] != first)
        eventually("it is Ready", partial(node_ready, rome))
        eventually("the pods run", partial(offloaded, rome, milan, WEB, 2))
        self.assertEqual((uids(rome, WEB), uids(milan, WEB)), before)

    def test_08_evicted_at_the_lender(self) -> None:
        """A pod that never restarts and is evicted at the other side runs there again; at home it has not failed."""
        before, first = self.here(WORK)["metadata"]["uid"], self.there(WORK)["metadata"]["uid"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": WORK, "namespace": self.space}}
        path = f"/api/v1/namespaces/{self.space}/pods/{WORK}/eviction"
        self.milan.cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
        seen: set[str] = set()

        def again() -> bool:
            seen.add(self.here(WORK)["status"]["phase"])
            return self.there(WORK)["metadata"]["uid"] != first and is_running(self.there(WORK))

        eventually("it runs there again", again)

        def known() -> bool:
            here = self.here(WORK)
            self.assertEqual(here["status"]["containerStatuses"][0]["restartCount"], 1)
            return is_running(here)

        eventually("it is Ready at home, with one restart", known)
        self.assertLessEqual(seen, {"Running", "Pending"})
        self.assertEqual(self.here(WORK)["metadata"]["uid"], before)

    def cut(self) -> None:
        """Drop every packet between rome and milan without a word, so that connections only go silent."""
        lines, there = ["table ip cut {"], self.milan.cluster.addresses.host
        for name, word in (("input", "saddr"), ("output", "daddr")):
            lines += [f"chain {name} {{", f"type filter hook {name} priority 0", f"ip {word} {there} drop", "}"]
        self.rome.cluster.run(["nft", "-f", "-"], input="\n".join([*lines, "}", ""]))

    def join(self) -> None:
        """Let all packets pass again."""
        self.rome.cluster.run(["nft", "delete table ip cut"])

    def test_09_away(self) -> None:
        """Pods stay while the peer is away for longer than Kubernetes has patience, but for one that wants to go; they
        are not Ready meanwhile, and are again when packets pass.
        """
        rome, milan = self.rome.cluster, self.milan.cluster
        before = uids(rome, WEB), uids(milan, WEB)
        quick = uids(rome, QUICK)
        self.cut()
        try:
            eventually("the node is not Ready", lambda: condition(virtual_node(rome), "Ready") != "True")

            def tainted() -> bool:
                return any(
                    taint["effect"] == "NoExecute" and taint.get("timeAdded")
                    for taint in virtual_node(rome)["spec"]["taints"]
                )

            eventually("Kubernetes has tainted it", tainted)
            since = time.monotonic()
            eventually("what wants to go is evicted", lambda: not quick.items() & uids(rome, QUICK).items(), 120)
            # Where Kubernetes evicted the one, it would have evicted the others as well.
            while time.monotonic() - since < 2 * SHORT + 10:
                self.assertEqual(uids(rome, WEB), before[0])
                time.sleep(1)
            self.assertFalse(any(map(is_running, live_pods(rome, WEB).values())))
            said = self.rome.log.read_text().count(CAUGHT_UP)
        finally:
            self.join()
        joined = time.monotonic()
        eventually("the pods run", partial(offloaded, rome, milan, WEB, 2), 120)
        took = time.monotonic() - joined
        eventually("the daemon says so", lambda: self.rome.log.read_text().count(CAUGHT_UP) > said)
        (*_, line) = [line for line in self.rome.log.read_text().splitlines() if CAUGHT_UP in line]
        print(f"\nReady {took:.1f} s after the packets pass again: {line}")
        eventually("the node is Ready", partial(node_ready, rome), 120)
        self.assertEqual((uids(rome, WEB), uids(milan, WEB)), before)
        eventually("the evicted one ended at milan", lambda: not set(quick) & set(uids(milan, QUICK)))
        eventually("its successor runs", partial(offloaded, rome, milan, QUICK, 1))

    def test_10_drain_of_the_dead(self) -> None:
        """The node of a peer that is away is drained in bounded time; back again, nothing of the pods is left there."""
        rome, milan = self.rome.cluster, self.milan.cluster
        before = uids(rome, WEB)
        self.cut()
        try:
            eventually("the node is not Ready", lambda: condition(virtual_node(rome), "Ready") != "True")
            said = self.rome.liqodctl("drain", "milan", "--force", "--timeout", "60", timeout=200)
            self.assertIn("drained", said)
            self.assertFalse(before.items() & uids(rome, WEB).items())
        finally:
            self.join()
        eventually("the node is Ready", partial(node_ready, rome), 120)
        eventually("nothing of them is left at milan", lambda: not uids(milan, WEB) and not uids(milan, TOOL))
        self.rome.liqodctl("uncordon", "liqo-milan")
        eventually("others run", partial(offloaded, rome, milan, WEB, 2))
