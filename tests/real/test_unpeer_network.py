"""The end of a peering with a network between two real clusters: neither records nor kernels keep anything of it."""

from __future__ import annotations

import re
from functools import partial
from typing import ClassVar, Final

from tests.real.daemons import Daemon, HostDaemon
from tests.real.endings import SYSTEM, TOMBSTONE, EndingTests, peer_id
from tests.real.path import eventually
from tests.real.test_network import CONFIGURATION
from tests.testbed.cluster import Cluster

KUBE_PROXY: Final = re.compile(r"^table \w+ kube-proxy \{$.*?^\}$", re.MULTILINE | re.DOTALL)
"""A table of kube-proxy as ``nft list ruleset`` shows it."""


def kernel(cluster: Cluster) -> list[str]:
    """Return what a cluster's host has in its kernel: links, addresses, routes, rules, nftables, settings.

    Without what belongs to single pods, which come and go with the user's deployments, and without kube-proxy's tables,
    which it writes in its own time.
    """
    commands = (
        ["ip", "-br", "link"],
        ["ip", "-br", "address"],
        *(["ip", family, "route", "show", "table", "all"] for family in ("-4", "-6")),
        *(["ip", family, "rule"] for family in ("-4", "-6")),
        ["nft", "--stateless", "list", "ruleset"],
        ["sysctl", "-a", "--ignore", "--pattern", "^net[.](core|ipv4|ipv6)[.]"],
    )
    found = [(command[1], KUBE_PROXY.sub("", cluster.run(command))) for command in commands]
    lines = [f"{name} {line}" for name, text in found for line in text.splitlines()]
    return sorted(line for line in lines if "veth" not in line)


class UnpeerNetworkTests(EndingTests):
    """With tunnels; one network for all steps."""

    configuration = CONFIGURATION
    daemon_class = HostDaemon
    start_daemons = False
    kernels: ClassVar[list[list[str]]]

    def test_01_a_peer_that_answers(self) -> None:
        """With tunnels between the pods: both API servers, and both hosts' kernels, are as before."""
        # Where pods ran already there is the bridge of pods, which is not ours.
        for daemon in (self.rome, self.milan):
            daemon.install()
            self.run_a_pod(daemon.cluster)
        type(self).kernels = [kernel(daemon.cluster) for daemon in (self.rome, self.milan)]
        for daemon in (self.rome, self.milan):
            daemon.start()
        for daemon in (self.rome, self.milan):
            eventually("the key of the tunnels", partial(daemon.cluster.get, "secret", "liqod-tunnel", *SYSTEM))
        self.peer()
        self.connected()
        receipt = self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        self.assertNotIn(" left", receipt)
        for kind in ("NetworkConfig", "TunnelEndpoint"):
            self.assertRegex(receipt, f"(?m)^ *{kind} +{peer_id(self.before[0])} +removed")
        self.tidy()
        for daemon, before in zip((self.rome, self.milan), self.before, strict=True):
            self.as_before(daemon, before)
        self.same_kernels()

    def test_02_a_peer_without_its_api_server(self) -> None:
        """Its daemon runs but can do nothing: it is not waited for, and cleans up when its API server is back.

        Both hosts' kernels are as before as well.
        """
        self.peer()
        self.connected()
        self.milan.cluster.lose_control_plane()
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--yes", "--timeout=5", timeout=200)
        finally:
            self.milan.cluster.restore_control_plane(kubelet=True)
        self.assertNotIn(" left", receipt)
        self.assertIn("notified when it reconnects", receipt)
        self.tidy()
        self.as_before(self.rome, self.before[0], (TOMBSTONE,))
        self.as_before(self.milan, self.before[1])
        self.same_kernels()

    def run_a_pod(self, cluster: Cluster) -> None:
        """Have a pod run in a cluster, and end."""
        words = ("once", "--image=localhost/busybox:1", "--image-pull-policy=Never", "--restart=Never")
        cluster.kubectl("run", *words, "--", "true")
        eventually("a pod ran", lambda: cluster.get("pod", "once")["status"]["phase"] == "Succeeded")
        cluster.kubectl("delete", "pod", "once", "--timeout=120s", timeout=130)
        # The kubelet removes what a pod that ended had in the kernel in its own time, and its bridge is shown as up
        # until the kernel's work on such events is done, of which it does a part each second (net/core/link_watch.c).
        eventually("its links are gone", lambda: "veth" not in self.links(cluster))
        eventually("the bridge is down", lambda: " UP " not in self.links(cluster, "type", "bridge"))

    def links(self, cluster: Cluster, *words: str) -> str:
        """Return the links of a cluster's host, with their states."""
        return cluster.run(["ip", "-br", "link", "show", *words])

    def connected(self) -> None:
        """Wait until packets cross in both directions."""
        for daemon in (self.rome, self.milan):
            eventually("the tunnel is Connected", partial(self.crosses, daemon))
        for daemon, before in zip((self.rome, self.milan), self.kernels, strict=True):
            self.assertNotEqual(kernel(daemon.cluster), before)

    def crosses(self, daemon: Daemon) -> bool:
        """Tell whether the tunnel of a cluster is Connected."""
        tunnels = daemon.cluster.get("tunnelendpoints")["items"]
        return [tunnel.get("status", {}).get("phase") for tunnel in tunnels] == ["Connected"]

    def same_kernels(self) -> None:
        """Have both hosts' kernels hold what they held before there was a network."""
        for daemon, before in zip((self.rome, self.milan), self.kernels, strict=True):
            eventually(f"{daemon.name}'s kernel is as before", partial(self.same_kernel, daemon, before))

    def same_kernel(self, daemon: Daemon, before: list[str]) -> bool:
        """Have a host's kernel hold what it held before."""
        now = kernel(daemon.cluster)
        more, less = ([line for line in one if line not in other] for one, other in ((now, before), (before, now)))
        self.assertEqual((more, less), ([], []))
        return True
