"""The end of a peering on two real clusters with pods running: with a peer that answers, a slow one, and a dead one."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import Any

from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    in_phase,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.real.test_network import CONFIGURATION as NETWORK
from tests.real.test_network import HostDaemon
from tests.testbed.cluster import Cluster

APP = "web"
SYSTEM = ("-n", "liqo-system")
TOMBSTONE = "ConfigMap liqo-system/liqod-unpeered"
# What comes and goes by itself, or is computed anew at each look.
FLEETING = ("events", "leases", "componentstatuses", "nodes.metrics", "pods.metrics")
CHANGING = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
"""What every object gets anew when it is made again, or when it is written."""


def dump(cluster: Cluster) -> dict[str, Any]:
    """Return everything that a cluster keeps, of every kind that it lists, without what every write changes."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = ",".join(kind for kind in kinds if not kind.startswith(FLEETING))
    found = {}
    for body in json.loads(cluster.kubectl("get", wanted, "-A", "-o", "json"))["items"]:
        meta = body["metadata"]
        if body["kind"] == "CertificateSigningRequest":
            continue
        kept = {key: value for key, value in body.items() if key not in ("metadata", "status")}
        kept["metadata"] = {key: value for key, value in meta.items() if key not in CHANGING}
        found[f"{body['kind']} {meta.get('namespace', '')}/{meta['name']}"] = kept
    return found


def kernel(cluster: Cluster) -> list[str]:
    """Return what a cluster's host has in its kernel: links, addresses, routes, rules, nftables, settings.

    Without what belongs to single pods, which come and go with the user's deployments.
    """
    commands = (
        ["ip", "-br", "link"],
        ["ip", "-br", "address"],
        *(["ip", family, "route", "show", "table", "all"] for family in ("-4", "-6")),
        *(["ip", family, "rule"] for family in ("-4", "-6")),
        ["nft", "--stateless", "list", "ruleset"],
        ["sysctl", "-a", "--ignore", "--pattern", "^net[.](core|ipv4|ipv6)[.]"],
    )
    lines = [f"{command[1]} {line}" for command in commands for line in cluster.run(command).splitlines()]
    return sorted(line for line in lines if "veth" not in line)


class UnpeerTests(PairTests):
    """Peer, offload, end it, compare; several times over on the same clusters, the last ones with a network."""

    def peer(self) -> None:
        """Trust each other, and run two pods of rome in milan."""
        for daemon, other in ((self.rome, self.milan), (self.milan, self.rome)):
            seen = partial(peer_of, daemon.cluster, other.name)
            eventually("the peer is a stranger", partial(in_phase, seen, "TrustPending"))
        type(self).before = [dump(daemon.cluster) for daemon in (self.rome, self.milan)]
        trust_each_other(self.rome, self.milan)
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
        self.rome.cluster.apply(enabled_namespace(), deployment(APP, 2))
        eventually("two pods run at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 2), 90)

    def as_before(self, daemon: Daemon, before: dict[str, Any], allowed: tuple[str, ...] = ()) -> None:
        """Have the peering's end show in the API server: nothing more, nothing less, nothing else than before."""

        def same() -> bool:
            now = {name: body for name, body in dump(daemon.cluster).items() if name not in allowed}
            self.assertEqual(sorted(now), sorted(before))
            for name, body in before.items():
                self.assertEqual(now[name], body, name)
            return True

        eventually(f"{daemon.name} is as it was before", same, 180, 1.0)

    def tidy(self) -> None:
        """Remove what belongs to the user."""
        self.rome.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s", timeout=70)

    def test_01_a_peer_that_answers(self) -> None:
        """Both sides drain and forget: both API servers are as before, and the command shows what it removed."""
        self.peer()
        receipt = self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        self.assertIn("liqo-milan", receipt)
        self.assertNotIn(" left", receipt)
        self.assertIn("milan knows", receipt)
        pods = self.rome.cluster.get("pods", "-n", NAMESPACE)["items"]
        self.assertEqual({pod["spec"].get("nodeName") for pod in pods}, {None}, "its pods wait at home")
        self.tidy()
        self.as_before(self.rome, self.before[0])
        self.as_before(self.milan, self.before[1])

    def test_02_a_peer_that_hangs(self) -> None:
        """A stopped daemon is not waited for beyond the deadline; it learns of it when it goes on."""
        self.peer()
        os.kill(self.milan.pid, signal.SIGSTOP)
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--yes", "--timeout=5", timeout=200)
        finally:
            os.kill(self.milan.pid, signal.SIGCONT)
        self.assertIn("told when it comes back", receipt)
        self.tidy()
        self.as_before(self.rome, self.before[0], (TOMBSTONE,))
        self.as_before(self.milan, self.before[1])

    def test_03_a_peer_that_is_dead(self) -> None:
        """Its API server is gone with it: rome is clean all the same, and milan too, once it lives again."""
        self.forget()
        self.peer()
        self.milan.kill()
        self.milan.cluster.lose_control_plane()
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--dead", "--yes", timeout=200)
        finally:
            self.milan.cluster.restore_control_plane(kubelet=True)
        self.assertNotIn(" left", receipt)
        self.tidy()
        peer = f"ForeignCluster /{peer_id(self.before[0])}"
        alone = {name: body for name, body in self.before[0].items() if name != peer}
        self.as_before(self.rome, alone, (TOMBSTONE, peer))
        self.milan.start()
        self.as_before(self.milan, self.before[1])

    def test_04_with_a_network(self) -> None:
        """With tunnels between the pods: both API servers, and both hosts' kernels, are as before."""
        self.forget()
        for daemon in (self.rome, self.milan):
            daemon.stop()
        # Pods ran in milan already: the bridge of its pods, which is not ours, stands.
        type(self).kernels = [kernel(daemon.cluster) for daemon in (self.rome, self.milan)]
        for name in ("rome", "milan"):
            made = HostDaemon(getattr(self, name).cluster, name, extra=NETWORK)
            made.install()
            setattr(type(self), name, made)
            made.start()
        for daemon in (self.rome, self.milan):
            eventually("the key of the tunnels", partial(daemon.cluster.get, "secret", "liqod-tunnel", *SYSTEM))
        self.peer()
        self.connected()
        receipt = self.rome.liqodctl("unpeer", "milan", "--yes", timeout=200)
        self.assertNotIn(" left", receipt)
        for kind in ("NetworkConfig", "TunnelEndpoint"):
            self.assertRegex(receipt, f" {kind} +{peer_id(self.before[0])} +removed")
        self.tidy()
        for daemon, before in zip((self.rome, self.milan), self.before, strict=True):
            self.as_before(daemon, before)
        self.same_kernels()

    def test_05_a_peer_without_its_api_server(self) -> None:
        """Its daemon runs but can do nothing: it is not waited for, and cleans up when its API server is back."""
        self.peer()
        self.connected()
        self.milan.cluster.lose_control_plane()
        try:
            receipt = self.rome.liqodctl("unpeer", "milan", "--yes", "--timeout=5", timeout=200)
        finally:
            self.milan.cluster.restore_control_plane(kubelet=True)
        self.assertNotIn(" left", receipt)
        self.assertIn("told when it comes back", receipt)
        self.tidy()
        self.as_before(self.rome, self.before[0], (TOMBSTONE,))
        self.as_before(self.milan, self.before[1])

    def forget(self) -> None:
        """Remove what rome remembers of peerings that it ended."""
        self.rome.cluster.kubectl("delete", "configmap", *SYSTEM, "liqod-unpeered", "--ignore-not-found")

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
        self.assertEqual([line for line in now if line not in before], [])
        self.assertEqual([line for line in before if line not in now], [])
        return True

    before: list[dict[str, Any]]
    kernels: list[list[str]]


def peer_id(before: dict[str, Any]) -> str:
    """Return the cluster ID of the peer in a dump."""
    names = [name for name in before if name.startswith("ForeignCluster ")]
    if not names:
        raise LookupError("no ForeignCluster in the dump")
    return names[0].partition("/")[2]
