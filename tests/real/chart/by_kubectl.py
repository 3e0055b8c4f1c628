"""The plain manifests on real API servers: `kubectl apply -k`, `kubectl delete -k`, what is there before and after."""

from __future__ import annotations

from functools import partial

from tests.real.chart.base import NAMESPACE, PATIENCE, ChartCase, eventually
from tests.real.chart.images import CHECKOUT
from tests.real.chart.listing import Listing, objects
from tests.real.path import condition
from tests.testbed.cluster import Cluster


class ManifestTests(ChartCase):
    """The two directories one after the other, each into clusters without anything of liqod."""

    def are_ready(self, cluster: Cluster, component: str) -> bool:
        """Tell whether a component has a pod that is Ready."""
        words = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}")
        return any(condition(one, "Ready") == "True" for one in cluster.get("pods", *words)["items"])

    def runs(self, cluster: Cluster, component: str) -> bool:
        """Tell whether a component has pods, whose containers run."""
        words = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/component={component}")
        phases = [one["status"].get("phase") for one in cluster.get("pods", *words)["items"]]
        return set(phases) == {"Running"}

    def removed(self, cluster: Cluster, folder: str) -> None:
        """Remove what a directory made, as docs/install-in-cluster.md says."""
        cluster.kubectl("delete", "-k", folder, timeout=PATIENCE)
        made = ("mutatingwebhookconfiguration/liqod", "storageclass/liqo")
        cluster.kubectl("delete", *made, "--ignore-not-found")

    def test_01_daemon(self) -> None:
        """One command makes a daemon that leads, which peers and lends; another one takes all of it back."""
        folder = str(CHECKOUT / "packaging/manifests")
        for cluster in self.clusters.values():
            eventually("all is applied", partial(cluster.kubectl, "apply", "-k", folder))
            eventually("a daemon", partial(self.are_ready, cluster, "daemon"))
        Listing(frozenset(objects(self.rome))).keep("apply-k-installed")
        self.peer()
        (milan,) = self.rome.get("fc")["items"]
        self.administrator(self.rome, "unpeer", milan["metadata"]["name"], "--yes")
        for name, cluster in self.clusters.items():
            self.removed(cluster, folder)
            self.assert_as_before(name, "apply-k")

    def test_02_network(self) -> None:
        """The directory with tunnels and names is taken by the API server, and given back as completely."""
        self.addCleanup(self.close)
        folder = str(CHECKOUT / "packaging/manifests/network")
        self.rome.kubectl("label", "node", self.rome.node_name, "liqod.io/gateway=true")
        eventually("all is applied", partial(self.rome.kubectl, "apply", "-k", folder))
        eventually("a daemon is ready", partial(self.are_ready, self.rome, "daemon"))
        # They may not be ready: the kernel of this machine may have no WireGuard, and these clusters have no DNS.
        for component in ("gateway", "names"):
            eventually(f"{component} runs", partial(self.runs, self.rome, component))
        Listing(frozenset(objects(self.rome))).keep("apply-k-network-installed")
        self.removed(self.rome, folder)
        self.rome.kubectl("label", "node", self.rome.node_name, "liqod.io/gateway-")
        self.assert_as_before("rome", "apply-k-network")
