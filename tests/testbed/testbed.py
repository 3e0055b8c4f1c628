"""Several real clusters on one test network, made for a test run and certainly removed after it.

    with Testbed(clusters=2) as testbed:
        one, two = testbed.clusters
        one.kubectl("get", "nodes")

Removal does not depend on this process: each cluster ends with the process that made it, and a guard in a session of
its own removes the rest when that process is gone. Should the guard be ended too, the next run sweeps.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.testbed import controlplane, lan, process, registry, versions
from tests.testbed.cluster import Cluster, Shape
from tests.testbed.cni import BRIDGE
from tests.testbed.host import Host
from tests.testbed.image import make_image
from tests.testbed.versions import release

_CHECKOUT = Path(__file__).resolve().parents[2]


class Testbed:
    """Real clusters ``c1``, ``c2``... on a test network.

    ``name`` is made up when not given. A testbed that ``stays`` outlives this process and is ended by ``down``.
    ``versions`` are the releases of Kubernetes of one cluster after the other ("1.36.1", or "1.30" for the patch of it
    that can be built), ``cni`` what joins the nodes: bridge, flannel or kube-router. Their programs have to be built.
    """

    def __init__(
        self,
        clusters: int = 2,
        *,
        nodes: bool = True,
        kwok: int = 0,
        qps: int = 0,
        same_pod_cidr: bool = False,
        workers: int = 0,
        dns: bool = False,
        proxies: Sequence[str] = ("nftables",),
        audit: bool = False,
        audit_pods: bool = False,
        families: Sequence[str] = ("4",),
        nodeless: Sequence[int] = (),
        snapshotter: str = "native",
        versions: Sequence[str] = (versions.KUBERNETES,),
        cni: str = BRIDGE,
        aggregated: bool = False,
        tunnelled: Sequence[int] = (),
        authorization: Sequence[str] = (controlplane.AUTHORIZED,),
        name: str = "",
        stays: bool = False,
    ) -> None:
        self.name = name or f"{registry.PREFIX}{os.getpid():x}{secrets.token_hex(2)}"
        self.lan = f"{self.name}-lan"
        self.shape = Shape(
            nodes=nodes,
            kwok=kwok,
            qps=qps,
            same_pod_cidr=same_pod_cidr,
            workers=workers,
            dns=dns,
            proxies=proxies,
            audit=audit,
            audit_pods=audit_pods,
            families=families,
            nodeless=nodeless,
            snapshotter=snapshotter,
            kubernetes=tuple(map(release, versions)),
            plugin=cni,
            aggregated=aggregated,
            tunnelled=tunnelled,
            authorization=authorization,
        )
        self.directory = Path(tempfile.gettempdir()).resolve() / "liqod-testbed" / self.name
        self.stays = stays
        self.clusters = self._make(clusters)
        self._note: registry.Note | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Testbed:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, index: int) -> Cluster:
        """Return a cluster by its number, from 1."""
        return self.clusters[index - 1]

    def start(self) -> None:
        """Make the network and all clusters, at the same time, and wait until they stand; all or nothing."""
        registry.sweep()
        self._note = registry.create(self.name)
        try:
            self._write_note()
            if not self.stays:
                self._guard = _start_guard(self.name)
            self.directory.mkdir(parents=True)
            archive = self.directory / "image.tar"
            if self.shape.nodes:
                make_image(archive)
            both = any("6" in one for one in self.shape.families)
            lan.make_lan(self.lan, both=both)
            for cluster in self.clusters:
                lan.add_host(self.lan, cluster.namespace, cluster.address, both=both)
                for worker in cluster.workers:
                    lan.add_host(self.lan, worker.namespace, worker.address)
            with ThreadPoolExecutor(len(self.clusters)) as pool:
                for started in [pool.submit(cluster.start, archive) for cluster in self.clusters]:
                    started.result()
            self._write_note()
            if self.stays:
                self._note.release()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End and remove everything."""
        for host in self._hosts():
            host.stop()
        if self._note is not None:
            registry.remove(self._note)
            self._note = None
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(30)
            self._guard = None
        if self.directory.parent.exists() and not any(self.directory.parent.iterdir()):
            self.directory.parent.rmdir()

    def run(self, argv: list[str], *, input: str | None = None, timeout: float = 60.0) -> str:
        """Run a program to its end at the test process's own place in the test network."""
        return process.run_in(self.lan, argv, input=input, timeout=timeout)

    def enter(self) -> None:
        """Move this thread, and those it starts from now on, to the test process's place in the test network."""
        process.enter(self.lan)

    def _make(self, count: int) -> list[Cluster]:
        leased = not self.stays
        return [
            Cluster(self.name, index, self.shape, self.directory / f"c{index}", leased=leased)
            for index in range(1, count + 1)
        ]

    def _hosts(self) -> list[Host]:
        """Return the hosts of all clusters, and then those of their further nodes."""
        workers = [worker.host for cluster in self.clusters for worker in cluster.workers]
        return [*(cluster.host for cluster in self.clusters), *workers]

    def _write_note(self) -> None:
        assert self._note is not None
        inits = [host.init for host in self._hosts() if host.init]
        workers = [worker.namespace for cluster in self.clusters for worker in cluster.workers]
        self._note.write(
            {
                "directory": str(self.directory),
                "namespaces": [*(cluster.namespace for cluster in self.clusters), *workers, self.lan],
                "cgroups": [cluster.cgroup for cluster in self.clusters],
                "inits": [[pid, process.birth(pid)] for pid in inits],
                "stays": self.stays,
                "shape": {
                    "nodes": self.shape.nodes,
                    "kwok": self.shape.kwok,
                    "qps": self.shape.qps,
                    "same_pod_cidr": self.shape.same_pod_cidr,
                    "workers": self.shape.workers,
                    "dns": self.shape.dns,
                    "proxies": list(self.shape.proxies),
                    "audit": self.shape.audit,
                    "audit_pods": self.shape.audit_pods,
                    "families": list(self.shape.families),
                    "nodeless": list(self.shape.nodeless),
                    "snapshotter": self.shape.snapshotter,
                    "versions": list(self.shape.kubernetes),
                    "cni": self.shape.plugin,
                    "aggregated": self.shape.aggregated,
                    "tunnelled": list(self.shape.tunnelled),
                    "authorization": list(self.shape.authorization),
                },
            }
        )


def attach(name: str) -> Testbed:
    """Return a testbed that stands already, to use it; LookupError when there is none of that name."""
    note: dict[str, Any] = registry.read(name)
    if not note:
        raise LookupError(f"there is no testbed {name}; there are: {', '.join(registry.names()) or 'none'}")
    testbed = Testbed(len(note["cgroups"]), name=name, stays=True, **note["shape"])
    testbed.directory = Path(note["directory"])
    testbed.clusters = testbed._make(len(note["cgroups"]))
    for host, (init, _) in zip(testbed._hosts(), note["inits"], strict=False):
        host.init = init
    return testbed


def down(name: str) -> None:
    """End and remove a testbed, also one whose owner lives elsewhere only by its noted processes."""
    if (note := registry.hold(name)) is None:
        raise LookupError(f"the testbed {name} is not there, or the process that made it still uses it")
    registry.remove(note)


def guard(name: str) -> None:
    """Wait until standard input ends, which is when the owner is gone, and remove what it has left."""
    while os.read(0, 64):
        pass
    if (note := registry.hold(name, wait=True)) is not None:
        registry.remove(note)


def _start_guard(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.testbed", "guard", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=_CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(_CHECKOUT), "XDG_CACHE_HOME": str(versions.cache().parent)},
    )
