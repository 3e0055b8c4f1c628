"""The base of tests with real programs: rome's pods run at milan, through a tunnel, from one image of all programs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tests.environment import require
from tests.real.base import require_built, require_clusters
from tests.real.daemons import HostDaemon
from tests.real.manifests import service
from tests.real.path import NAMESPACE, enabled_namespace, eventually, is_running, live_pods, offloaded
from tests.real.programs import images
from tests.real.programs.workloads import make_disks
from tests.real.steps import SETTINGS, Steps
from tests.testbed import versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images

LONG = 300.0
"""Seconds within which a database has made its files on a busy machine."""


class ProgramTests(Steps):
    """Steps on rome and milan with the image of real programs on the nodes of both.

    ``built`` are programs that are built for it; ``disks`` is how many volumes each cluster has for claims.
    """

    configuration = f'\n[network]\nmode = "wireguard"\n{SETTINGS}'
    shape: ClassVar[dict[str, Any]] = {
        "dns": True,
        "proxies": ("nftables", "iptables"),
        "snapshotter": "overlayfs",
    }
    same_pod_cidr = True
    daemon_class = HostDaemon
    built: ClassVar[tuple[str, ...]] = ("home-client",)
    packages: ClassVar[tuple[str, ...]] = images.PACKAGES
    disks: ClassVar[int] = 0

    def setUp(self) -> None:
        """Make the clusters before the first step, and give their nodes the image."""
        cls = type(self)
        is_first = cls._testbed is None
        if is_first:
            require_clusters()
            require(images.lacking())
            require_built(self.built)
        super().setUp()
        if is_first:
            self._furnish()

    def programs(self) -> dict[str, Path]:
        """Return the programs of the image beside its packages, by name."""
        return {name: versions.program(name) for name in self.built}

    def _furnish(self) -> None:
        assert self._testbed is not None
        archive = self._testbed.directory / "programs.tar"
        images.make_image(archive, self.programs(), packages=self.packages)
        for cluster in (self.home, self.lender):
            import_images(cluster.host, archive, str(self.shape["snapshotter"]))
            if self.disks:
                make_disks(cluster, self.disks)
        archive.unlink()

    @property
    def at_home(self) -> dict[str, str]:
        """The selector of rome's own node."""
        return {"kubernetes.io/hostname": self.home.node_name}

    def begin(self) -> None:
        """Have both trust each other, the tunnel up, and the namespace of the tests."""
        self.peer_up()
        eventually("the tunnel", self.connected)
        self.home.apply(enabled_namespace())
        eventually("the account", partial(self.home.get, "serviceaccount", "default", "-n", NAMESPACE))
        if self.disks:
            eventually("milan offers its disks", self.offers_disks)

    def connected(self) -> bool:
        """Tell whether packets cross to milan."""
        tunnels = self.home.get("tunnelendpoints")["items"]
        return bool(tunnels) and all(one.get("status", {}).get("phase") == "Connected" for one in tunnels)

    def offers_disks(self) -> bool:
        """Tell whether rome knows a storage class of milan's."""
        offers = self.home.get("adv")["items"]
        return any(one["spec"].get("offer", {}).get("storageClasses") for one in offers)

    def serve(self, name: str, port: int, selector: dict[str, str] | None = None) -> str:
        """Make a service, and return its address at home, by which offloaded pods call it as well."""
        self.home.apply(service(name, selector or {"app": name}, port, namespace=NAMESPACE))
        return str(self.here("service", name)["spec"]["clusterIP"])

    def at_milan(self, name: str, count: int = 1, timeout: float = LONG) -> dict[str, dict[str, Any]]:
        """Wait until the pods of an application run at milan, and return those of home by name."""
        found: dict[str, dict[str, Any]] = eventually(
            f"{count} pods of {name} at milan", partial(offloaded, self.home, self.lender, name, count), timeout
        )
        return found

    def at_rome(self, name: str, count: int = 1, timeout: float = LONG) -> dict[str, dict[str, Any]]:
        """Wait until the pods of an application run at home, and none of them at milan."""

        def running() -> dict[str, dict[str, Any]] | None:
            pods = live_pods(self.home, name)
            return pods if len(pods) == count and all(map(is_running, pods.values())) else None

        found: dict[str, dict[str, Any]] = eventually(f"{count} pods of {name} at rome", running, timeout)
        self.assertEqual(live_pods(self.lender, name), {})
        return found

    def run_in(self, pod: str, *words: str, input: str | None = None, timeout: float = 120.0) -> str:
        """Run a program in a pod, wherever it runs, and return what it prints."""
        options = ("-i",) if input is not None else ()
        return self.home.kubectl("exec", "-n", NAMESPACE, *options, pod, "--", *words, input=input, timeout=timeout)

    def seen(self, pod: str, file: str, cluster: Cluster | None = None) -> dict[str, Any]:
        """Return what a client has written so far; asked of the cluster that runs it where milan is named."""
        if cluster is self.lender and cluster is not None:
            said = cluster.kubectl("exec", "-n", self.remote(), pod, "--", "cat", file)
        else:
            said = self.run_in(pod, "cat", file)
        return dict(json.loads(said))

    def uids(self, name: str) -> dict[str, str]:
        """Return the UIDs of the pods of an application at milan, by name."""
        return {pod: body["metadata"]["uid"] for pod, body in live_pods(self.lender, name).items()}
