"""``liqodctl test`` on two real clusters with containers: all paths when all is well, a broken one by name."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from liqod.model.names import HOME_SERVICES
from tests.real.daemons import HostDaemon
from tests.real.pair import PairTests
from tests.real.path import condition, eventually, node_ready, peer_of, trust_each_other
from tests.real.test_network import CONFIGURATION
from tests.testbed.cluster import Cluster
from tests.testbed.image import BUSYBOX

CUT = 'table inet cut { chain on { type filter hook forward priority 0; iifname "liqod" meta length > 1000 drop; }; }'
"""Drops what is large and comes from a peer to pods here: the gateways and their probes are not forwarded."""
BOTH = ("pod", "service", "dns", "headless", "nodeport", "large", "policy: allowed")
FROM_PEER = ("api", "clusterip")


class ConnectivityTests(PairTests):
    """rome borrows from milan; both have the same pod network, a name server, and other ways of kube-proxy."""

    # No network plugin of these clusters enforces policies: what they isolate runs all the same, and is reached.
    configuration = f'unenforced-policies = "warn"\n{CONFIGURATION}'
    same_pod_cidr = True
    shape: ClassVar[dict[str, Any]] = {"dns": True, "proxies": ("nftables", "iptables")}
    daemon_class = HostDaemon

    def tested(self, *words: str) -> tuple[dict[str, Any], int, str]:
        """Run ``liqodctl test`` at rome; returns its document, its status, and what it said besides."""
        program = str(Path(sys.executable).with_name("liqodctl"))
        complaints = self.rome.cluster.directory / "complaints"
        options = [f"--image={BUSYBOX}", f"--kubeconfig={self.rome.cluster.kubeconfig}", f"--config={self.rome.config}"]
        script = f'"$@" 2> {complaints}; echo "status $?"'
        said = self.rome.cluster.host.run(
            ["sh", "-c", script, "sh", program, "test", "milan", "-o", "json", *words, *options], timeout=240
        )
        document, _, status = said.rpartition("status ")
        print(document, complaints.read_text())
        return json.loads(document), int(status), complaints.read_text()

    def is_offered(self, kind: str) -> bool:
        """Return whether pods at milan have a way, by the condition of the virtual node."""
        (record,) = self.rome.cluster.get("virtualnode", "-A")["items"]
        return condition(record, kind) == "True"

    def is_clean(self, cluster: Cluster) -> bool:
        """Return whether nothing of a run is in a cluster."""
        return "liqod-test-" not in cluster.kubectl("get", "namespaces", "-o", "name")

    def test_1_all_ways(self) -> None:
        """Every way is good in both directions; nothing failed, and what was skipped says why."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        peer = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        tunnel = partial(self.rome.cluster.get, "tunnelendpoint", peer)
        eventually("the tunnel", lambda: tunnel().get("status", {}).get("phase") == "Connected")
        eventually("the condition HomeServices", partial(self.is_offered, HOME_SERVICES))
        report = self.rome.cluster.directory / "report.xml"
        found, status, said = self.tested(f"--junit={report}")
        self.assertEqual((status, found["failed"]), (0, 0), said)
        good = {(one["way"], one["from"]) for one in found["results"] if one["result"] == "good"}
        wanted = {(way, source) for way in BOTH for source in ("home", "milan")} | {(way, "milan") for way in FROM_PEER}
        self.assertEqual(wanted - good, set(), found)
        self.assertTrue(all(one["why"] for one in found["results"] if one["result"] == "skipped"))
        self.assertIn('failures="0"', report.read_text())

    def test_2_broken(self) -> None:
        """Where large packets are lost on their way to pods here, that is the one way that fails, with what to do."""
        self.rome.cluster.run(["nft", CUT])
        try:
            found, status, said = self.tested("--only=pod", "--only=service", "--only=large")
        finally:
            self.rome.cluster.run(["nft", "delete table inet cut"])
        (failed,) = [one for one in found["results"] if one["result"] == "failed"]
        self.assertEqual((status, failed["way"], failed["from"], failed["to"]), (1, "large", "home", "milan"))
        self.assertEqual(failed["object"], "MTU of the tunnel to milan")
        self.assertEqual(failed["next"], "`liqodctl netcheck milan`")
        self.assertIn("LQ6003", said)

    def test_3_nothing_is_left(self) -> None:
        """Nothing of the runs is left in either cluster."""
        for daemon in (self.rome, self.milan):
            eventually(f"nothing at {daemon.name}", partial(self.is_clean, daemon.cluster))
