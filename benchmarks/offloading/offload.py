"""Time and cost of running a Deployment through a virtual node, against the same Deployment on a local node.

    python -m benchmarks offload [--counts 10,100,1000] [--qps 0,500] [--repeat 1] [--out FILE] [--json FILE]

Two real control planes with one made-up (kwok) node each, both on this machine; for every request rate of the control
planes and every number of pods, first the local Deployment, then the offloaded one, then the least that can run it in
the other cluster (``floor``), in the same run. Local pods and those of the floor are in namespaces that liqod has
nothing to do with. Figures are saved after each repetition. Needs root.
"""

from __future__ import annotations

import argparse
import compileall
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import frozen

import liqod.kube
from benchmarks.figures.measure import Spent, api_requests, spent
from benchmarks.figures.report import Run, save, text
from benchmarks.offloading import floor
from benchmarks.scale.exposition import total
from liqod.kube.resources import SHADOWPODS
from tests.real.daemons import Daemon
from tests.real.path import eventually, node_ready, peer_of
from tests.testbed import build, process, system, versions
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

FAST = """
[peering]
autojoin-untrusted = true

[sharing]
percentage = 90
"""

NAMESPACE: Final = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "bench", "labels": {"liqo.io/enabled": "true"}},
}
LOCAL_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench-local"}}
"""Where local pods run: neither the webhook nor the admission policies of liqod look at what is here."""
DISCOVERY: Final = 35.0
"""Seconds after which the garbage collector of kube-controller-manager watches kinds that were defined just now.

It reads every 30 which kinds there are (``Sync`` in pkg/controller/garbagecollector of Kubernetes). Until then it asks
the API server for the owner of each object whose owner is of such a kind: for each pod of a lender.
"""
WATCHES: Final = "apiserver_longrunning_requests"
"""The requests that an API server answers at present and that do not end by themselves."""


@frozen
class Reading:
    """What every process has spent, and every request each API server has served, at one moment."""

    cpu: dict[str, float]
    peak: dict[str, float]
    requests: dict[str, Counter[tuple[str, str]]]


def read(testbed: Testbed) -> Reading:
    """Read all clusters now."""
    cpu, peak = processes(testbed)
    requests = {c.name: api_requests(c.kubectl("get", "--raw=/metrics")) for c in testbed.clusters}
    return Reading(cpu, peak, requests)


def processes(testbed: Testbed) -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPU seconds and the peak memory in MiB of every program, by cluster and name."""
    cpu: dict[str, float] = {}
    peak: dict[str, float] = {}
    for cluster in testbed.clusters:
        for pid in process.inhabitants(cluster.namespace):
            name = f"{cluster.name}/{_program(pid)}"
            one: Spent = spent(pid)
            cpu[name] = cpu.get(name, 0.0) + one.cpu
            peak[name] = max(peak.get(name, 0.0), one.peak_mib)
    return cpu, peak


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "gone"
    return "liqod" if any("twistd" in word for word in words) else Path(words[0]).name


SELECTORS: Final = {"local": {"type": "kwok"}, "offloaded": {"liqo.io/type": "virtual-node"}, "floor": floor.SELECTOR}
NAMESPACES: Final = {"local": "bench-local", "offloaded": "bench", "floor": floor.NAMESPACE}
"""By where pods run: their nodes, and where they are made at home."""


def _spent_between(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items() if name[3:] != "kubectl"}


def _requests_between(after: Reading, before: Reading) -> dict[str, Counter[tuple[str, str]]]:
    return {name: counted - before.requests[name] for name, counted in after.requests.items()}


def deployment(name: str, pods: int, selector: Mapping[str, str], namespace: str = "bench") -> dict[str, Any]:
    """Return a Deployment of pods with two containers, as small as pods are in practice."""
    container = {"image": "localhost/busybox:1", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": dict(selector),
                    "containers": [{"name": "main", **container}, {"name": "side", **container}],
                },
            },
        },
    }


def run(testbed: Testbed, qps: int, where: str, pods: int) -> Run:
    """Create one Deployment, wait until every pod is Ready, delete it, wait until every pod is gone."""
    home = testbed[1]
    name = f"{where}-{pods}"
    namespace = NAMESPACES[where]
    settle(testbed)
    before = read(testbed)
    begin = time.monotonic()
    home.apply(deployment(name, pods, SELECTORS[where], namespace))
    # One watch in one process: polling would cost the API server as much as the work itself.
    ready = f"--for=jsonpath={{.status.readyReplicas}}={pods}"
    home.kubectl("wait", "-n", namespace, f"deployment/{name}", ready, "--timeout=900s", timeout=920)
    took = time.monotonic() - begin
    busy = _spent_between(processes(testbed)[0], before.cpu)
    settle(testbed)
    up = read(testbed)
    home.kubectl("delete", "-n", namespace, f"deployment/{name}", "--wait=false")
    eventually("the pods are gone", lambda: gone(testbed, name), 900, 2.0)
    settle(testbed)
    down = read(testbed)
    return Run(
        qps=qps,
        where=where,
        pods=pods,
        ready=took,
        busy=busy,
        cpu=_spent_between(up.cpu, before.cpu),
        peak={name: value for name, value in up.peak.items() if name.endswith("/liqod")},
        created=_requests_between(up, before),
        deleted=_requests_between(down, up),
        delete_cpu=_spent_between(down.cpu, up.cpu),
    )


def gone(testbed: Testbed, app: str) -> bool:
    """Return whether no cluster has a pod of an application any more."""
    wanted = ("get", "pods", "-A", "-l", f"app={app}", "--no-headers", "--ignore-not-found", "-o=name")
    return not any(cluster.kubectl(*wanted).strip() for cluster in testbed.clusters)


def settle(testbed: Testbed) -> None:
    """Wait until the control planes have gone quiet: less than 0.15 of a core in two seconds, all together."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        one = sum(_cpu_now(testbed).values())
        time.sleep(2)
        if sum(_cpu_now(testbed).values()) - one < 0.3:
            return


def _cpu_now(testbed: Testbed) -> dict[int, float]:
    return {pid: spent(pid).cpu for c in testbed.clusters for pid in process.inhabitants(c.namespace)}


def peer(testbed: Testbed, *, leader: str = "", hosting: str = "") -> tuple[list[Daemon], dict[str, float]]:
    """Start both daemons; return them with the seconds to ready and from ready to the virtual node Ready.

    ``leader`` and ``hosting`` are what their configuration says in these sections.
    """
    clusters = ((testbed[1], "rome"), (testbed[2], "milan"))
    daemons = [Daemon(cluster, name, extra=hosting + FAST, leader=leader) for cluster, name in clusters]
    install(daemons)
    begin = time.monotonic()
    for daemon in daemons:
        daemon.start()
    for daemon in daemons:
        eventually(f"{daemon.name} is ready", partial(_is_ready, daemon), 60, 0.02)
    ready = time.monotonic()
    home = testbed[1]
    eventually("the other daemon is seen", lambda: peer_of(home, "milan"), 60, 0.02)
    home.kubectl("wait", "node/liqo-milan", "--for=create", "--timeout=60s")
    home.kubectl("wait", "node/liqo-milan", "--for=condition=Ready", "--timeout=60s")
    done = time.monotonic()
    eventually("the node has resources", lambda: node_ready(home), 60, 0.05)
    return daemons, {"start to ready": ready - begin, "ready to virtual node Ready": done - ready}


def install(daemons: Sequence[Daemon]) -> None:
    """Prepare clusters for daemons that do not run yet, and wait until what that defines is watched where it is new."""
    definition = ("get", "crd", str(SHADOWPODS), "--ignore-not-found", "-o=name")
    fresh = [one.cluster for one in daemons if not one.cluster.kubectl(*definition).strip()]
    for daemon in daemons:
        daemon.install()
    if fresh:
        time.sleep(DISCOVERY)
    for cluster in fresh:
        eventually(f"the ShadowPods of {cluster.name} are watched", partial(_is_watched, cluster), 120, 2.0)


def _is_watched(cluster: Cluster) -> bool:
    """Return whether anybody watches ShadowPods: before any daemon runs, that is kube-controller-manager."""
    text = cluster.kubectl("get", "--raw=/metrics")
    return total(text, WATCHES, verb="WATCH", group=SHADOWPODS.group, resource=SHADOWPODS.plural) > 0


def _is_ready(daemon: Daemon) -> bool:
    return "liqod is ready" in daemon.log.read_text()


def idle(testbed: Testbed, seconds: float = 30.0) -> dict[str, Any]:
    """Let everything rest and return the daemons' CPU in percent of a core, and the writes at each API server."""
    settle(testbed)
    before = read(testbed)
    time.sleep(seconds)
    after = read(testbed)
    cpu = {n: 100 * v / seconds for n, v in _spent_between(after.cpu, before.cpu).items() if n.endswith("/liqod")}
    writes = {
        name: {f"{v} {r}": n for (v, r), n in counted.items() if v in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}}
        for name, counted in _requests_between(after, before).items()
    }
    return {"cpu_percent": cpu, "writes": writes, "memory_mib": after.peak}


def precompile() -> None:
    """Compile the daemon as installing it does: it would otherwise spend a quarter of its start on that."""
    compileall.compile_dir(str(Path(liqod.kube.__path__[0]).parent), quiet=1)


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="10,100,1000")
    parser.add_argument("--qps", default="0,500")
    parser.add_argument("--repeat", type=int, default=1, help="how often; medians and spreads are shown")
    parser.add_argument("--out", type=Path, help="write the tables to this file")
    parser.add_argument("--json", type=Path, help="where every figure goes (benchmarks/results/)")
    args = parser.parse_args()
    system.require()
    build.ensure((*versions.PROGRAMS, "floor"))
    precompile()
    counts = [int(count) for count in args.counts.split(",")]
    runs: list[Run] = []
    kept: Path | None = args.json
    peering: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for qps in map(int, args.qps.split(",")):
        rate = str(qps or "stock")
        with Testbed(2, nodes=False, kwok=1, qps=qps) as testbed:
            for _ in range(args.repeat):
                daemons, times = peer(testbed)
                try:
                    peering.setdefault(rate, times)
                    testbed[1].apply(NAMESPACE, LOCAL_NAMESPACE)
                    if rate not in rest:
                        rest[rate] = idle(testbed)
                    runs += _runs(testbed, qps, counts, ("local", "offloaded"))
                finally:
                    for daemon in daemons:
                        daemon.stop()
                with floor.running(testbed) as program:
                    runs += floor.during(program, partial(_runs, testbed, qps, counts, ("floor",)))
                kept = save(kept, runs)
    tables = text(runs, peering, rest)
    print(tables)
    if args.out:
        args.out.write_text(tables)
    print("figures, for `python -m benchmarks compare`:", kept)


def _runs(testbed: Testbed, qps: int, counts: Sequence[int], places: Sequence[str]) -> list[Run]:
    found = []
    for pods in counts:
        for where in places:
            one = run(testbed, qps, where, pods)
            print(f"QPS {qps or 'stock'}, {pods} {where}: {one.ready:.2f} s", flush=True)
            found.append(one)
    return found


if __name__ == "__main__":
    main()
