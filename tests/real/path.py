"""The path that users walk, as steps on two real clusters: find, trust, accept, offload."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.real.daemons import Daemon
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

NAMESPACE = "shop"
CEILING = 120.0
"""Seconds that anything may take on a slow or busy machine: only a failure takes as long."""


def eventually(what: str, done: Callable[[], Any], timeout: float = CEILING, pause: float = 0.25) -> Any:
    """Call until something true comes back, and return it; what fails meanwhile is part of the complaint at the end."""
    deadline = time.monotonic() + timeout
    seen: object = None
    while time.monotonic() < deadline:
        try:
            seen = done()
        except (CommandFailed, LookupError, ValueError, AssertionError) as error:
            seen = error
        else:
            if seen:
                return seen
        time.sleep(pause)
    raise AssertionError(f"not within {timeout:.0f} s: {what}; last seen: {seen}")


def peer_of(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the ForeignCluster record of the peer with a name; LookupError while there is none."""
    for record in cluster.get("fc")["items"]:
        if record.get("status", {}).get("clusterName") == name:
            return dict(record)
    raise LookupError(f"{cluster.name} knows no peer {name}")


def advertisement(cluster: Cluster, peer_id: str) -> dict[str, Any]:
    """Return the Advertisement that a peer sent."""
    return dict(cluster.get("adv", f"advertisement-{peer_id}"))


def in_phase(record: Callable[[], dict[str, Any]], phase: str) -> bool:
    """Tell whether a record, read again, is in a phase."""
    return bool(record().get("status", {}).get("phase") == phase)


def virtual_node(cluster: Cluster) -> dict[str, Any]:
    """Return the virtual node; LookupError while there is none."""
    nodes = cluster.get("nodes", "-l", "liqo.io/type=virtual-node")["items"]
    if not nodes:
        raise LookupError(f"{cluster.name} has no virtual node")
    return dict(nodes[0])


def condition(body: dict[str, Any], kind: str) -> str:
    """Return the status of a condition of an object, or ""."""
    return next((c["status"] for c in body.get("status", {}).get("conditions", []) if c["type"] == kind), "")


def node_ready(cluster: Cluster) -> dict[str, Any] | None:
    """Return the virtual node once it is Ready and has resources."""
    node = virtual_node(cluster)
    return node if condition(node, "Ready") == "True" and node["status"].get("allocatable", {}).get("cpu") else None


def trust_each_other(one: Daemon, two: Daemon) -> None:
    """Each administrator trusts the other's key on their own cluster."""
    for daemon, other in ((one, two), (two, one)):
        eventually(f"{daemon.name} sees {other.name}", partial(peer_of, daemon.cluster, other.name))
        daemon.liqodctl("trust", other.name, "--yes")


def deployment(name: str, replicas: int, *, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return a Deployment whose pods may only run on a virtual node; they log a line and serve until they are
    stopped.
    """
    script = "trap 'exit 0' TERM; echo hello from $HOSTNAME; while :; do sleep 1; done"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 2,
                    "nodeSelector": {"liqo.io/type": "virtual-node"},
                    "containers": [
                        {
                            "name": "main",
                            "image": "localhost/busybox:1",
                            "imagePullPolicy": "Never",
                            "command": ["sh", "-c", script],
                            "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
                        }
                    ],
                },
            },
        },
    }


def enabled_namespace(name: str = NAMESPACE) -> dict[str, Any]:
    """Return a namespace whose pods may be offloaded."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"liqo.io/enabled": "true"}}}


def live_pods(cluster: Cluster, app: str) -> dict[str, dict[str, Any]]:
    """Return the pods of an application that are not being deleted, by name, in all namespaces of a cluster."""
    pods = cluster.get("pods", "-A", "-l", f"app={app}")["items"]
    return {pod["metadata"]["name"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def is_running(pod: dict[str, Any]) -> bool:
    """Tell whether a pod is Running and Ready."""
    return bool(pod["status"].get("phase") == "Running" and condition(pod, "Ready") == "True")


def offloaded(home: Cluster, lender: Cluster, app: str, count: int) -> dict[str, dict[str, Any]] | None:
    """Return the home pods once exactly ``count`` run, each with exactly one running pod of its name at the lender."""
    here, there = live_pods(home, app), live_pods(lender, app)
    if len(here) != count or here.keys() != there.keys():
        return None
    return here if all(map(is_running, [*here.values(), *there.values()])) else None


def gone(home: Cluster, lender: Cluster, app: str) -> bool:
    """Tell whether no pod of an application is left on either side."""
    return not any(cluster.get("pods", "-A", "-l", f"app={app}")["items"] for cluster in (home, lender))
