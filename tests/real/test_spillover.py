"""Home first, with the real scheduler: own nodes fill, then pods leave, and they come home when there is room."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, ClassVar

from liqod.model.objects import quantity
from tests.real import pair
from tests.real.daemons import Daemon
from tests.real.path import (
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    trust_each_other,
)

SETTINGS = """
[sharing]
percentage = 90

[offloading]
return-interval = 2
return-after = 3
"""
PARTS = 8
"""Pods of the tests' size that fit on the own node."""
FILLERS = 3


def sized(name: str, replicas: int, namespace: str, millicores: int) -> dict[str, Any]:
    """Return a Deployment whose pods run wherever the scheduler puts them, with a request that fills nodes."""
    body = deployment(name, replicas, namespace=namespace)
    spec = body["spec"]["template"]["spec"]
    del spec["nodeSelector"]
    spec["containers"][0]["resources"]["requests"] = {"cpu": f"{millicores}m", "memory": "4Mi"}
    return body


def returns(daemon: Daemon, outcome: str) -> int:
    """Return how many evictions had an outcome."""
    page = daemon.cluster.run(["curl", "-s", "http://127.0.0.1:5874/metrics"])
    found = re.search(rf'^liqod_spillover_returns_total\{{outcome="{outcome}"\}} ([0-9.]+)$', page, re.MULTILINE)
    return int(float(found[1])) if found else 0


class SpilloverTests(pair.PairTests):
    """Fill home, burst, free home, drain back; the tests are steps."""

    configuration = SETTINGS
    size: ClassVar[int] = 0

    def on_home(self, app: str) -> int:
        """Return how many pods of an application are on the own node."""
        own = self.rome.cluster.node_name
        return sum(pod["spec"].get("nodeName") == own for pod in live_pods(self.rome.cluster, app).values())

    def runs(self, app: str, home: int, away: int) -> dict[str, dict[str, Any]]:
        """Wait until so many pods run here and elsewhere, and return them."""

        def placed() -> dict[str, dict[str, Any]] | None:
            pods = live_pods(self.rome.cluster, app)
            right = len(pods) == home + away and self.on_home(app) == home
            return pods if right and all(map(is_running, pods.values())) else None

        found: dict[str, dict[str, Any]] = eventually(f"{app}: {home} here, {away} elsewhere", placed)
        return found

    def free(self) -> int:
        """Return the millicores that are free on the own node."""
        node = self.rome.cluster.get("node", self.rome.cluster.node_name)
        pods = self.rome.cluster.get("pods", "-A")["items"]
        requests = [
            container.get("resources", {}).get("requests", {}).get("cpu", "0")
            for pod in pods
            if pod["spec"].get("nodeName") == self.rome.cluster.node_name
            for container in pod["spec"]["containers"]
        ]
        total = quantity.parse(node["status"]["allocatable"]["cpu"]) - sum(map(quantity.parse, requests))
        return int(total * 1000)

    def offloading(self) -> dict[str, Any]:
        return dict(self.rome.cluster.get("nsof", "offloading", "-n", "shop"))

    def test_01_home_fills_first(self) -> None:
        """Of eleven parts for a node of eight, three of another namespace and eight of one Deployment, three leave."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        type(self).size = self.free() // PARTS
        filler = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
        self.rome.cluster.apply(filler, sized("filler", FILLERS, "own", self.size))
        self.runs("filler", FILLERS, 0)
        offloading = {
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": "shop"},
            "spec": {"spillover": {"peers": [{"cluster": "nobody", "weight": 99}]}},
        }
        self.rome.cluster.apply(enabled_namespace("shop"), offloading)
        eventually("the condition is there", lambda: self.offloading()["status"]["conditions"])
        self.rome.cluster.apply(sized("web", PARTS - FILLERS, "shop", self.size))
        self.runs("web", PARTS - FILLERS, 0)
        self.rome.cluster.kubectl("scale", "-n", "shop", "deployment/web", f"--replicas={PARTS}")
        pods = self.runs("web", PARTS - FILLERS, FILLERS)
        for pod in pods.values():
            self.assertNotIn("requiredDuring", str(pod["spec"]["affinity"]))
        (condition,) = self.offloading()["status"]["conditions"]
        self.assertEqual((condition["status"], condition["reason"]), ("True", "PeerUnknown"))
        self.assertIn("nobody", condition["message"])

    def test_02_it_stays_full(self) -> None:
        """With Return nothing moves while there is no room, and a disruption budget holds what there is."""
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "all", "namespace": "shop"},
            "spec": {"minAvailable": PARTS, "selector": {"matchLabels": {"app": "web"}}},
        }
        self.rome.cluster.apply(budget)
        eventually(
            "the budget counts",
            lambda: self.rome.cluster.get("pdb", "all", "-n", "shop")["status"]["currentHealthy"] == PARTS,
        )
        before = self.runs("web", PARTS - FILLERS, FILLERS)
        change = '{"spec": {"spillover": {"mode": "Return", "peers": null}}}'
        self.rome.cluster.kubectl("patch", "nsof", "offloading", "-n", "shop", "--type=merge", "-p", change)
        eventually("it is Return", lambda: self.offloading()["status"]["conditions"][0]["reason"] == "Return")
        self.rome.cluster.kubectl("delete", "deployment", "filler", "-n", "own", "--wait")
        eventually("the budget refuses", lambda: returns(self.rome, "refused"))
        self.assertEqual(live_pods(self.rome.cluster, "web").keys(), before.keys())

    def test_03_they_come_home(self) -> None:
        """Without the budget in the way all pods are at home soon, those that were there before untouched."""
        before = self.runs("web", PARTS - FILLERS, FILLERS)
        own = self.rome.cluster.node_name
        stayed = {name for name, pod in before.items() if pod["spec"]["nodeName"] == own}
        self.rome.cluster.kubectl("delete", "pdb", "all", "-n", "shop")
        after = self.runs("web", PARTS, 0)
        self.assertLessEqual(stayed, after.keys())
        events = self.rome.cluster.kubectl("get", "events", "-n", "shop", "--field-selector=reason=ReturningHome")
        for name in before.keys() - stayed:
            self.assertIn(name, events)
        self.assertEqual(returns(self.rome, "evicted"), FILLERS)
