"""The walk of the network tests over another network plugin than the bridge."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.real import test_network
from tests.real.base import require_clusters, require_plugin


class PluginTests(test_network.NetworkTests):
    """All steps of the walk, with the same pod network in both clusters and two nodes in one of them."""

    plugin: ClassVar[str] = ""

    def setUp(self) -> None:
        """Make the clusters before the first step, with the plugin on all of their nodes."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            require_plugin(cls.plugin)
        super().setUp()

    def facts(self) -> dict[str, Any]:
        """Return what rome's daemon found out, by name."""
        found = self.rome.cluster.get("clusterfacts", "cluster")["status"]["facts"]
        return {one["name"]: one for one in found}
