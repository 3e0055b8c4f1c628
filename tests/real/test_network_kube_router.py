"""The network tests with kube-router as the plugin of all nodes."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.real import network_plugins
from tests.real.path import eventually, virtual_node
from tests.testbed.cni import KUBE_ROUTER


class KubeRouterTests(network_plugins.PluginTests):
    """kube-router joins nodes by BGP, has a policy rule of its own for pods, and filters by NetworkPolicies."""

    plugin = KUBE_ROUTER
    shape: ClassVar[dict[str, Any]] = {"dns": True, "proxies": ("nftables", "iptables"), "cni": KUBE_ROUTER}

    def test_0101_rules_of_kube_router(self) -> None:
        """kube-router's rules are there: what these steps show is shown beside them."""
        for cluster in (self.rome.cluster, self.milan.cluster):
            run = cluster.host.run
            eventually("its rules", lambda run=run: "KUBE-ROUTER" in run(["iptables-save"]))  # type: ignore[misc]

    def test_0102_the_virtual_node(self) -> None:
        """Between the nodes there is still the route that leads to each one's pods; the virtual node has taken none."""
        rome = self.rome.cluster
        (worker,) = rome.workers
        route = rome.host.run(["ip", "route", "show", rome.pod_cidr(worker.node_name)])
        self.assertIn(f"via {worker.address}", route)
        given = virtual_node(rome)["spec"].get("podCIDR", "")
        self.assertFalse(given and rome.host.run(["ip", "route", "show", given]).strip())
