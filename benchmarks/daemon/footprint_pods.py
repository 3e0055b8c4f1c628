"""The processes of an installation as pods: how soon each is ready, and what it takes at rest."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from benchmarks.figures.measure import memory
from tests.real.path import condition, eventually
from tests.runner.steps import CHECKOUT
from tests.testbed import build, versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images
from tests.testbed.testbed import Testbed

IMAGE: Final = "localhost/liqod:footprint"
NAMESPACE: Final = "liqo-system"
COMPONENT: Final = "app.kubernetes.io/component"
PROCESSES: Final[Mapping[str, str]] = {
    "daemon": "pod: daemon (control)",
    "gateway": "pod: network agent",
    "tunnel": "pod: tunnel, without a peer",
    "names": "pod: names",
}
"""The components that are measured, as the table names them."""
VALUES: Final[Mapping[str, str]] = {
    "image.repository": IMAGE.partition(":")[0],
    "image.tag": IMAGE.partition(":")[2],
    "image.pullPolicy": "Never",
    "clusterName": "rome",
    "replicas": "1",
    "network.enabled": "true",
    "network.userspace": "true",
    "names.enabled": "true",
}
CONFIGURATION: Final = '[names]\nupstream = ["192.0.2.53"]'
"""The cluster has no name servers, and names are not ready without any to ask."""
TICK: Final = os.sysconf("SC_CLK_TCK")


@frozen
class Pod:
    """A pod that runs: its process as the node's host numbers it, how soon it was ready, and its CPU until then."""

    name: str
    uid: str
    process: int
    ready: float
    cpu: float


def measure_pods(archive: Path, repeat: int, rest: float) -> dict[str, dict[str, list[float]]]:
    """Install the chart on a cluster with one node, replace each pod several times, and return what each takes."""
    build.ensure(("helm",))
    found: dict[str, dict[str, list[float]]] = {name: {} for name in PROCESSES.values()}
    with Testbed(1, nodes=True) as testbed:
        cluster = testbed[1]
        import_images(cluster.host, archive, "native")
        cluster.kubectl("label", "node", cluster.node_name, "liqod.io/gateway=true")
        sets = [
            word
            for key, value in VALUES.items()
            for word in ("--set-string" if key == "image.tag" else "--set", f"{key}={value}")
        ]
        helm = [str(versions.program("helm")), "--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE, "install"]
        chart = str(CHECKOUT / "packaging/chart")
        sets += ["--set-literal", f"configuration={CONFIGURATION}"]
        cluster.run([*helm, "liqod", chart, "--create-namespace", "--wait", "--timeout=5m", *sets], timeout=400)
        before = {name: eventually(name, partial(running, cluster, name, "")) for name in PROCESSES}
        for number in range(repeat):
            for name, pod in before.items():
                cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod.name, "--wait", timeout=120)
                before[name] = eventually(f"another {name}", partial(running, cluster, name, pod.uid))
            for name, figures in _at_rest(cluster, before, rest).items():
                for what, value in figures.items():
                    found[PROCESSES[name]].setdefault(what, []).append(value)
            print(
                f"pods {number + 1}: " + ", ".join(f"{name} {pod.ready:.0f} s" for name, pod in before.items()),
                flush=True,
            )
    return found


def running(cluster: Cluster, component: str, but: str) -> Pod | None:
    """Return the first pod of a component that is ready, and is not the one with an ID."""
    pods = cluster.get("pods", "-n", NAMESPACE, "-l", f"{COMPONENT}={component}")["items"]
    for one in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        meta = one["metadata"]
        if component == "names" and not meta["name"].endswith("-1"):
            continue
        if meta["uid"] != but and "deletionTimestamp" not in meta and condition(one, "Ready") == "True":
            ready = next(c for c in one["status"]["conditions"] if c["type"] == "Ready")
            seconds = _seconds(ready["lastTransitionTime"]) - _seconds(meta["creationTimestamp"])
            process = _process(cluster, one)
            return Pod(meta["name"], meta["uid"], process, seconds, _cpu(_proc(cluster, process, "stat")))
    return None


def _process(cluster: Cluster, pod: Mapping[str, Any]) -> int:
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    tasks = cluster.host.run(["ctr", "--namespace", "k8s.io", "tasks", "list"])
    return next(int(line.split()[1]) for line in tasks.splitlines() if line.startswith(container))


def _at_rest(cluster: Cluster, pods: Mapping[str, Pod], rest: float) -> dict[str, dict[str, float]]:
    time.sleep(rest / 2)
    before = {name: _cpu(_proc(cluster, pod.process, "stat")) for name, pod in pods.items()}
    time.sleep(rest / 2)
    found = {}
    for name, pod in pods.items():
        busy = 200 * (_cpu(_proc(cluster, pod.process, "stat")) - before[name]) / rest
        resident, own = memory(_proc(cluster, pod.process, "status"), _proc(cluster, pod.process, "smaps_rollup"))
        taken = {"ready, s": pod.ready, "CPU till then, s": pod.cpu}
        found[name] = {**taken, "memory, MiB": resident, "own memory, MiB": own, "CPU, %": busy}
    return found


def _proc(cluster: Cluster, process: int, name: str) -> str:
    return cluster.host.run(["cat", f"/proc/{process}/{name}"])


def _cpu(stat: str) -> float:
    """Return the seconds of a processor that a process and its children had, of its stat. Pure."""
    return sum(int(field) for field in stat.rpartition(")")[2].split()[11:15]) / TICK


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
