"""Where the time of one offloaded pod goes, in both clusters: by process, by request, by what code does.

    python -m benchmarks profile [--pods 1000] [--qps 500] [--seconds 60] [--where offloaded] [--out DIRECTORY]

One Deployment, as in ``offload``, while every daemon is sampled by py-spy (``pip install py-spy``) and both API
servers profile themselves (``/debug/pprof/profile``; Go is needed to read that). Printed are CPU by process, the
requests of each kind with the time from their arrival to their answer, and what the API servers' CPU is spent on; all
per pod. DIRECTORY gets ``flame.svg``, a flame graph over both clusters, and the folded stacks. Sampling costs a tenth
itself, so that the figures are for comparing parts with each other. Needs root.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.figures.measure import table
from benchmarks.offloading import flame
from benchmarks.offloading.latency import Caller
from benchmarks.offloading.offload import (
    LOCAL_NAMESPACE,
    NAMESPACE,
    NAMESPACES,
    SELECTORS,
    deployment,
    peer,
    processes,
    settle,
)
from tests.testbed import build, process, system
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

RATE: Final = 100
"""Samples a second of the daemons; Go's own is the same (runtime.SetCPUProfileRate)."""
_SERIES: Final = re.compile(r"^apiserver_request_duration_seconds_(sum|count)\{([^}]*)\} ([0-9.e+-]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Durations = dict[tuple[str, str], tuple[float, float]]
"""Requests and their seconds, by verb and resource."""


def durations(metrics: str) -> Durations:
    """Return how many requests there were of each kind and how long they took; watches are left out."""
    found: Durations = {}
    for series in _SERIES.finditer(metrics):
        labels = dict(_LABEL.findall(series[2]))
        resource = labels.get("resource", "") + (f"/{labels['subresource']}" if labels.get("subresource") else "")
        kind = labels.get("verb", ""), resource
        if kind[0] in {"WATCH", "CONNECT"} or not resource or resource == "leases":
            continue
        count, seconds = found.get(kind, (0.0, 0.0))
        value = float(series[3])
        found[kind] = (count + value, seconds) if series[1] == "count" else (count, seconds + value)
    return found


def request_rows(before: Durations, after: Durations, pods: int) -> list[list[object]]:
    """Return a row for each kind of request of which there was one for a hundred pods, the most time first."""
    rows: list[tuple[float, list[object]]] = []
    for (verb, resource), (count, seconds) in after.items():
        earlier = before.get((verb, resource), (0.0, 0.0))
        count, seconds = count - earlier[0], seconds - earlier[1]
        if count / pods >= 0.01:
            per_pod = 1000 * seconds / pods
            rows.append((per_pod, [verb, resource, count / pods, 1000 * seconds / count, per_pod]))
    return [row for _, row in sorted(rows, key=lambda one: -one[0])]


class Profiles:
    """Samples of all daemons and API servers of a test bed, taken for so many seconds from ``start`` on."""

    def __init__(self, testbed: Testbed, seconds: int, directory: Path) -> None:
        self._testbed = testbed
        self._seconds = seconds
        self._directory = directory
        self._errors: list[str] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin sampling."""
        clusters = self._testbed.clusters
        takes = {f"the API server of {cluster.name}": partial(self._take_server, cluster) for cluster in clusters}
        for cluster in clusters:
            for pid in _daemons(cluster):
                takes[f"the daemon {pid} of {cluster.name}"] = partial(self._take_daemon, cluster, pid)
        self._threads = [
            threading.Thread(target=self._noting, args=(what, take), name=what, daemon=True)
            for what, take in takes.items()
        ]
        for thread in self._threads:
            thread.start()

    def stacks(self) -> dict[str, flame.Stacks]:
        """Wait for the samples and return them by cluster and program; raises AssertionError where one failed."""
        deadline = time.monotonic() + self._seconds + 120
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._errors.append(f"{thread.name}: no samples within {self._seconds + 120} s")
        assert not self._errors, "; ".join(self._errors)
        found = {}
        for file in sorted(self._directory.glob("*.folded")):
            found[file.stem.replace("-", "/", 1)] = flame.of_python(file.read_text("utf-8"), 1000 / RATE)
        for file in sorted(self._directory.glob("*.traces")):
            found[file.stem.replace("-", "/", 1)] = flame.of_go(file.read_text("utf-8"))
        return found

    def _noting(self, what: str, take: Callable[[], None]) -> None:
        """Take one profile; an exception in a thread would be lost, and the profile left out without a word."""
        try:
            take()
        except Exception as error:
            self._errors.append(f"{what}: {error!r}")

    def _take_daemon(self, cluster: Cluster, pid: int) -> None:
        file = self._directory / f"{cluster.name}-liqod.folded"
        words = ["--pid", str(pid), "--duration", str(self._seconds), "--rate", str(RATE)]
        self._run(["py-spy", "record", *words, "--format", "raw", "--nonblocking", "--output", str(file)])

    def _take_server(self, cluster: Cluster) -> None:
        raw = self._directory / f"{cluster.name}-kube-apiserver.pprof"
        raw.write_bytes(Caller(cluster.kubeconfig).get(f"/debug/pprof/profile?seconds={self._seconds}"))
        if traces := self._run(["go", "tool", "pprof", "-traces", str(raw)]):
            raw.with_suffix(".traces").write_text(traces, "utf-8")

    def _run(self, words: list[str]) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            self._errors.append(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def _daemons(cluster: Cluster) -> list[int]:
    return [
        pid for pid in process.inhabitants(cluster.namespace) if b"twistd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def measure(testbed: Testbed, args: argparse.Namespace, directory: Path) -> str:
    """Create the Deployment under samplers; return the tables, and write the flame graph."""
    home, pods = testbed[1], args.pods
    settle(testbed)
    profiles = Profiles(testbed, args.seconds, directory)
    cpu = processes(testbed)[0]
    before = {c.name: durations(c.kubectl("get", "--raw=/metrics")) for c in testbed.clusters}
    profiles.start()
    time.sleep(1)
    space = NAMESPACES[args.where]
    home.apply(deployment("profiled", pods, SELECTORS[args.where], space))
    ready = f"--for=jsonpath={{.status.readyReplicas}}={pods}"
    home.kubectl("wait", "-n", space, "deployment/profiled", ready, "--timeout=900s", timeout=920)
    spent = {name: value - cpu.get(name, 0.0) for name, value in processes(testbed)[0].items()}
    after = {c.name: durations(c.kubectl("get", "--raw=/metrics")) for c in testbed.clusters}
    stacks = profiles.stacks()
    both = flame.merged(flame.under(name, one) for name, one in stacks.items())
    (directory / "flame.svg").write_text(flame.svg(f"one {args.where} pod", both, unit=pods), "utf-8")
    return "\n\n".join(_texts(spent, before, after, stacks, pods))


def _texts(
    spent: Mapping[str, float],
    before: Mapping[str, Durations],
    after: Mapping[str, Durations],
    stacks: Mapping[str, flame.Stacks],
    pods: int,
) -> list[str]:
    by_process = [[name, 1000 * value / pods] for name, value in sorted(spent.items(), key=lambda one: -one[1])]
    texts = [
        table(["process", "CPU ms/pod"], [row for row in by_process if isinstance(row[1], float) and row[1] > 0.01])
    ]
    for name, one in after.items():
        head = ["verb", f"resource at {name}", "per pod", "ms each", "ms/pod"]
        texts.append(table(head, request_rows(before[name], one, pods)))
    servers = {name: flame.parts(one) for name, one in stacks.items() if name.endswith("kube-apiserver")}
    names = sorted(
        {part for one in servers.values() for part in one},
        key=lambda part: -sum(one.get(part, 0.0) for one in servers.values()),
    )
    rows: list[list[Any]] = [[part, *(one.get(part, 0.0) / pods for one in servers.values())] for part in names]
    texts.append(table(["what an API server does", *(f"{name}, ms/pod" for name in servers)], rows))
    return texts


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--qps", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=60, help="how long to sample: about as long as the pods take")
    parser.add_argument("--where", choices=["local", "offloaded"], default="offloaded")
    parser.add_argument("--out", type=Path, default=Path("profile"))
    args = parser.parse_args()
    system.require()
    for program, hint in (("py-spy", "pip install py-spy"), ("go", "install Go, as for the test clusters")):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing: {hint}")
    build.ensure()
    args.out.mkdir(parents=True, exist_ok=True)
    with Testbed(2, nodes=False, kwok=1, qps=args.qps) as testbed:
        daemons, _ = peer(testbed)
        testbed.enter()
        try:
            testbed[1].apply(NAMESPACE, LOCAL_NAMESPACE)
            text = measure(testbed, args, args.out)
        finally:
            for daemon in daemons:
                daemon.stop()
    (args.out / "profile.md").write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
