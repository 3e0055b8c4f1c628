"""What it costs the lender's API server that ShadowPods are judged at admission.

    python -m benchmarks admission [--rounds 9] [--requests 60] [--json FILE]

One real control plane without nodes or daemons. A borrower creates ShadowPods as dry runs, so that everything is done
but what etcd does, one after the other: in rounds, in each with none of the policies of tenants, with all but the one
of pods, and with all of them. Three sizes of pods: one container, an ordinary one with probes, volumes and affinity,
and one nearly as large as one may be. The waits are lower quartiles, the CPU is the API server's. Needs root.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import Factory, define

from benchmarks.figures.measure import spent, table
from benchmarks.figures.report import save_figures
from benchmarks.offloading.latency import Caller
from liqod.config.schema import Settings
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import bindings, policies
from liqod.kube.manifests import definitions
from liqod.model.names import ORIGIN_LABEL, REMOTE_CLUSTER_LABEL
from liqod.model.objects.portable_metadata import POD_POLICY
from tests.real.path import eventually
from tests.testbed import build, process, system
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

USER: Final = "liqo:cluster:rome"
SPACE: Final = "shop-rome"
NONE, OTHERS, ALL = "no policy", "all but that of pods", "all policies"
WAYS: Final = (NONE, OTHERS, ALL)
REST: Final = 2.0
"""Seconds until other policies are in force, too: nothing says when."""
BINDINGS: Final = {one["metadata"]["name"]: one for one in bindings()}
_numbers = itertools.count()


def pod(containers: int) -> dict[str, Any]:
    """Return a pod with so many containers, each with variables, probes, limits and mounts."""
    one = {
        "image": "registry.example/application:1",
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(8)],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "token", "mountPath": "/var/token"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {
        "containers": [{"name": f"c{number}", **one} for number in range(containers)],
        "volumes": [
            {"name": "config", "configMap": {"name": "app"}},
            {"name": "token", "projected": {"sources": [{"secret": {"name": "token"}}]}},
            {"name": "scratch", "emptyDir": {}},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }


PODS: Final = {
    "one container": {"containers": [{"name": "main", "image": "registry.example/application:1"}]},
    "two containers, probes, volumes": pod(2),
    "200 containers": pod(200),
}


def shadow(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a ShadowPod."""
    metadata = {"name": f"web-{next(_numbers)}", "labels": {ORIGIN_LABEL: "milan", "app": "web"}}
    version = {"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod"}
    return {**version, "metadata": metadata, "spec": {"pod": spec}}


@define
class Figure:
    """One way with one size: the waits in seconds, and the API server's CPU seconds."""

    pod: str
    way: str
    waits: list[float] = Factory(list)
    cpu: list[float] = Factory(list)

    def row(self, before: Figure) -> list[str]:
        """Return the cells of a table; ``before`` is the way before, which the difference is to."""
        more = statistics.median(a - b for a, b in zip(self.cpu, before.cpu, strict=True))
        return [
            self.pod,
            self.way,
            f"{1000 * _quartile(self.waits):.2f} ms",
            f"{1000 * statistics.median(self.cpu):.2f} ms",
            "" if self is before else f"{1000 * more:+.2f} ms",
        ]


def _quartile(waits: Sequence[float]) -> float:
    return statistics.quantiles(waits, n=4)[0]


class Lender:
    """A control plane with a granted namespace, and a borrower that may do everything that no policy refuses."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.apply(*definitions(), *policies(Contract.of(Settings())))
        labels = {REMOTE_CLUSTER_LABEL: "rome"}
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "bench"},
                "roleRef": role,
                "subjects": [subject],
            },
        )
        self.bound: set[str] = set()
        self.caller = Caller(cluster.kubeconfig, USER)
        self.pid = next(
            pid
            for pid in process.inhabitants(cluster.namespace)
            if b"kube-apiserver" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        )

    def go(self, way: str) -> None:
        """Have the policies of a way in force, and wait until they are."""
        wanted = {name for name in BINDINGS if way != NONE and (way == ALL or name != POD_POLICY)}
        if gone := self.bound - wanted:
            self.cluster.kubectl("delete", "validatingadmissionpolicybinding", *sorted(gone))
        if missing := [BINDINGS[name] for name in wanted - self.bound]:
            self.cluster.apply(*missing)
        self.bound = wanted
        eventually(f"{way} in force", lambda: self.judges() == (way == ALL) and self.takes(), 60, 0.2)
        time.sleep(REST)

    def judges(self) -> bool:
        """Return whether a pod that no tenant may have is refused."""
        try:
            self.ask({"containers": [], "rootOfNode": True})
        except AssertionError as error:
            return POD_POLICY in str(error)
        return False

    def takes(self) -> bool:
        """Return True; raise AssertionError where an ordinary pod is refused, as while its kind is not yet served."""
        self.ask(PODS["one container"])
        return True

    def ask(self, spec: dict[str, Any]) -> None:
        """Create a ShadowPod as a dry run."""
        path = f"/apis/offloading.liqo.io/v1beta1/namespaces/{SPACE}/shadowpods?dryRun=All"
        self.caller.post(path, shadow(spec))

    def measure(self, figure: Figure, requests: int) -> None:
        """Add a round to a figure."""
        before = spent(self.pid).cpu
        for _ in range(requests):
            begin = time.perf_counter()
            self.ask(PODS[figure.pod])
            figure.waits.append(time.perf_counter() - begin)
        figure.cpu.append((spent(self.pid).cpu - before) / requests)


def rounds(lender: Lender, count: int, requests: int) -> Iterator[Figure]:
    """Yield the figures after so many rounds, the ways of a pod one after the other."""
    found = {(name, way): Figure(name, way) for name in PODS for way in WAYS}
    for _ in range(count):
        for way in WAYS:
            lender.go(way)
            for name in PODS:
                lender.measure(found[name, way], requests)
    yield from found.values()


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=60, help="of each size in each way in a round")
    parser.add_argument("--json", type=Path, help="where every figure goes")
    args = parser.parse_args()
    system.require()
    build.ensure()
    with Testbed(1, nodes=False) as testbed:
        testbed.enter()
        figures = list(rounds(Lender(testbed[1]), args.rounds, args.requests))
    rows = [one.row(figures[max(number - 1, number // len(WAYS) * len(WAYS))]) for number, one in enumerate(figures)]
    print(table(["pod", "in force", "wait", "CPU of the API server", "more than the row before"], rows))
    kept = {f"{one.pod}, {one.way}": one.cpu for one in figures}
    print("CPU seconds of each round:", save_figures("admission", kept, args.json, requests=args.requests))


if __name__ == "__main__":
    main()
