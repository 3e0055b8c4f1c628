"""The network tests with flannel as the plugin of all nodes."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.real import network_plugins
from tests.real.path import eventually
from tests.testbed.cni import FLANNEL


class FlannelTests(network_plugins.PluginTests):
    """flannel rewrites the addresses of all that leaves the pods' network, and of all that comes to another node."""

    plugin = FLANNEL
    shape: ClassVar[dict[str, Any]] = {"dns": True, "proxies": ("nftables", "iptables"), "cni": FLANNEL}

    def test_0101_known(self) -> None:
        """The daemon finds out which plugin it is, and by which mark."""
        known = ["flannel"]
        eventually("the plugin is known", lambda: self.facts()["NetworkPlugin"].get("values") == known)
        self.assertIn("flannel", self.facts()["NetworkPlugin"]["source"])

    def test_0102_rules_of_flannel(self) -> None:
        """flannel's rules are there: what these steps show is shown beside them."""
        for cluster in (self.rome.cluster, self.milan.cluster):
            self.assertIn("FLANNEL-POSTRTG", cluster.host.run(["iptables-save", "-t", "nat"]))
