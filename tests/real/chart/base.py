"""Two clusters whose nodes pull from a registry on the test network, and what an administrator of them types."""

from __future__ import annotations

import atexit
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.real import path
from tests.real.base import made_once, require_built, require_clusters
from tests.real.chart import images
from tests.real.chart.listing import Listing
from tests.testbed import build, image_registry, versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import use_registry
from tests.testbed.testbed import Testbed

NAMESPACE: Final = "liqo-system"
REGISTRY: Final = "registry.example.com"
"""Nodes look for the images of every registry at the one of the tests."""
ROME: Final = "rome"
MILAN: Final = "milan"
PATIENCE: Final = 360.0
"""Seconds that anything may take on a slow or busy machine: only a failure takes as long."""
VIRTUAL: Final = "liqo.io/type=virtual-node"
eventually: Final = partial(path.eventually, timeout=PATIENCE)


class ChartCase(SynchronousTestCase):
    """The base of steps on rome and milan, where nothing of liqod is before the first of them.

    ``release`` is that of Kubernetes, ``workers`` the further nodes of rome, ``versions`` the releases of liqod whose
    images the registry has.
    """

    release: ClassVar[str] = versions.KUBERNETES
    workers: ClassVar[int] = 0
    versions: ClassVar[Sequence[str]] = (images.VERSION,)
    _testbed: ClassVar[Testbed | None] = None
    _before: ClassVar[dict[str, Listing]] = {}

    def setUp(self) -> None:
        """Make the clusters before the first step."""
        made_once(type(self), self._make)
        assert self._testbed is not None
        self.rome, self.milan = self._testbed.clusters
        self.clusters = {ROME: self.rome, MILAN: self.milan}

    def _make(self) -> None:
        require_clusters()
        require_built(versions.SERVERS, versions.release(self.release))
        build.ensure(("helm",))
        archives = {version: images.image(version) for version in self.versions}
        cls = type(self)
        cls._testbed = testbed = Testbed(2, nodes=True, workers=self.workers, versions=(self.release,))
        atexit.register(testbed.stop)
        testbed.start()
        folder = testbed.directory / "registry"
        folder.mkdir()
        for version, archive in archives.items():
            # The second name is that of the manifests, which name no registry.
            for name in ("liqod", "library/liqod"):
                image_registry.add(folder, archive, f"{name}:{version}")
        image_registry.add_usual(folder, testbed.directory / "image.tar")
        atexit.register(image_registry.start(testbed.lan, folder).stop)
        for cluster in testbed.clusters:
            for host in (cluster.host, *(worker.host for worker in cluster.workers)):
                use_registry(host, image_registry.URL)
        cls._before = {name: Listing.of(one) for name, one in zip((ROME, MILAN), testbed.clusters, strict=True)}

    def close(self) -> None:
        """Remove the clusters: those of the next class need the memory."""
        assert self._testbed is not None
        self._testbed.stop()

    # What an administrator types

    def types(self, cluster: Cluster, line: str) -> str:
        """Run a line of shell in the checkout with an administrator's kubeconfig; returns what it prints."""
        own = cluster.directory / "bin"
        own.mkdir(exist_ok=True)
        (own / "liqodctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m liqod.cli "$@"\n')
        (own / "liqodctl").chmod(0o755)
        places = [own, *(versions.program(name).parent for name in ("helm", "kubectl"))]
        script = "\n".join(
            (
                "set -e",
                f"cd {images.CHECKOUT}",
                f"export KUBECONFIG={cluster.kubeconfig} PATH={':'.join(map(str, places))}:$PATH",
                line,
            )
        )
        return cluster.run(["sh", "-c", script], timeout=PATIENCE)

    def helm(self, cluster: Cluster, *words: str) -> str:
        """Run helm in a cluster."""
        program = [str(versions.program("helm")), "--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE]
        return cluster.run([*program, *words], timeout=2 * PATIENCE)

    def install(self, name: str, *words: str) -> None:
        """Install the chart of this checkout in a cluster, and wait until each node that may have a daemon has one."""
        cluster = self.clusters[name]
        given = ("--set", f"clusterName={name}", "--set", f"image.repository={REGISTRY}/liqod")
        chart = str(images.chart(images.VERSION, cluster.directory))
        self.helm(cluster, "install", "liqod", chart, "--create-namespace", "--wait", "--timeout=6m", *given, *words)
        count = 1 + len(cluster.workers)
        eventually("a daemon on each node", lambda: len(self.daemons(cluster)) == count)

    def inside(self, cluster: Cluster, *words: str) -> Any:
        """Run liqodctl in the pod of a daemon, as the chart's notes say; returns what it publishes."""
        out = cluster.kubectl("-n", NAMESPACE, "exec", "deploy/liqod", "--", "liqodctl", *words, "-o", "json")
        return json.loads(out)

    def administrator(self, cluster: Cluster, *words: str) -> str:
        """Run the checkout's liqodctl with an administrator's kubeconfig."""
        argv = [sys.executable, "-m", "liqod.cli", *words, "--kubeconfig", str(cluster.kubeconfig)]
        return cluster.run(argv, timeout=PATIENCE)

    def peer(self) -> None:
        """Peer by a token of milan, and wait for rome's virtual node."""
        token = self.inside(self.milan, "token", "create")[0]["token"]
        self.inside(self.rome, "peer", token)
        eventually("the virtual node", lambda: path.node_ready(self.rome))

    # What is there

    def daemons(self, cluster: Cluster) -> dict[str, dict[str, Any]]:
        """Return the pods of daemons that are Ready and stay, by name."""
        found = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=daemon")["items"]
        return {
            one["metadata"]["name"]: one
            for one in found
            if "deletionTimestamp" not in one["metadata"] and path.condition(one, "Ready") == "True"
        }

    def leader(self, cluster: Cluster) -> str:
        """Return the name of the pod that leads, or nothing."""
        return str(cluster.get("lease", "liqod", "-n", NAMESPACE)["spec"].get("holderIdentity") or "")

    def all_run(self, cluster: Cluster, version: str) -> bool:
        """Tell whether every pod of liqod is Ready and, but for wireguard-go's, of a release."""
        pods = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=liqod")["items"]
        pods = [one for one in pods if one["metadata"]["labels"].get("app.kubernetes.io/component") != "setup"]
        return all(
            path.condition(one, "Ready") == "True"
            and "deletionTimestamp" not in one["metadata"]
            and (
                one["metadata"]["labels"]["app.kubernetes.io/component"] == "tunnel"
                or one["spec"]["containers"][0]["image"].endswith(f":{version}")
            )
            for one in pods
        )

    def assert_as_before(self, name: str, title: str) -> None:
        """Have a cluster and its hosts be as they were before the first step; both lists are kept."""
        before = self._before[name]
        now: list[Listing] = []

        def is_equal() -> bool:
            now[:] = [Listing.of(self.clusters[name])]
            return before == now[0]

        try:
            path.eventually(f"{name} is as before", is_equal, timeout=120, pause=2)
        finally:
            before.keep(f"{title}-{name}-before")
            now[0].keep(f"{title}-{name}-after")
            print(f"{title}, {name}: {len(now[0].lines)} lines, difference {before.difference(now[0])}", flush=True)


def keep_figure(title: str, text: str) -> None:
    """Print a figure, and keep it beside those of other runs."""
    print(f"{title}: {text}", flush=True)
    images.KEPT.mkdir(parents=True, exist_ok=True)
    with (images.KEPT / "figures.txt").open("a") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M')} {title}: {text}\n")


def stopwatch() -> Callable[[], float]:
    """Return what tells the seconds since now."""
    begin = time.monotonic()
    return lambda: time.monotonic() - begin
