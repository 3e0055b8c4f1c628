"""The default of `[network] mode`, which is auto: a tunnel where both hosts can hold one, and else the routes there."""

from __future__ import annotations

import shutil
from functools import partial
from itertools import permutations
from typing import Any, Final

from tests.real.daemons import Daemon, HostDaemon
from tests.real.pair import PairTests
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    is_running,
    live_pods,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.real.test_network import CLIENT, SERVER, WEB, fetch
from tests.testbed.process import CommandFailed, Process

DEFAULT: Final = "\n[network]\n"
"""Nothing is said about the mode; without this section the daemons of the tests have none."""
WG: Final = shutil.which("wg") or "/usr/bin/wg"
HIDE: Final = ("unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {WG} && exec "$@"', "sh")


class AutoTests(PairTests):
    """Peers whose administrators said nothing about the network; without steps of its own."""

    configuration = DEFAULT
    daemon_class = HostDaemon

    def network(self, daemon: Daemon, other: Daemon) -> dict[str, Any]:
        """Return the NetworkConfig of a peer."""
        return dict(daemon.cluster.get("networkconfig", peer_of(daemon.cluster, other.name)["metadata"]["name"]))

    def decided(self, rome: tuple[str, str], milan: tuple[str, str]) -> bool:
        """Have mode and reason of the decision be so at both."""
        for (daemon, other), wanted in zip(permutations((self.rome, self.milan)), (rome, milan), strict=True):
            decision = self.network(daemon, other)["spec"]["decision"]
            self.assertEqual((decision["mode"], decision["reason"]), wanted, daemon.name)
        return True

    def serve(self) -> dict[str, Any]:
        """Have a server of rome run at milan, and a client at home; return the server as home sees it."""
        server, client = deployment(SERVER, 1), deployment(CLIENT, 1)
        for one in (server, client):
            one["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", WEB]
        client["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.rome.cluster.node_name}
        self.rome.cluster.apply(enabled_namespace(), server, client)
        pods: dict[str, dict[str, Any]] = eventually(
            "the server runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, SERVER, 1)
        )
        clients = partial(live_pods, self.rome.cluster, CLIENT)
        eventually("the client runs at home", lambda: any(map(is_running, clients().values())))
        (pod,) = pods.values()
        return pod

    def answers(self, address: str) -> bool:
        """Tell whether the server answers the client at an address."""
        (name,) = live_pods(self.rome.cluster, CLIENT)
        try:
            return "hello" in fetch(self.rome.cluster, name, NAMESPACE, address)
        except CommandFailed:
            return False

    def devices(self, daemon: Daemon) -> list[str]:
        """Return the network devices of a cluster's host that are liqod's."""
        names = [line.split()[0].partition("@")[0] for line in daemon.cluster.run(["ip", "-br", "link"]).splitlines()]
        return [name for name in names if name.startswith("liqod")]

    def is_without_devices(self, daemon: Daemon) -> bool:
        """Tell whether a cluster's host has no device of liqod's."""
        return not self.devices(daemon)


class TunnelTests(AutoTests):
    """Both hosts can hold a tunnel; both clusters have the same network of pods, so that nothing else would do."""

    same_pod_cidr = True

    def test_01_both_can(self) -> None:
        """Trust is all that is said: both decide for a tunnel, and packets cross it."""
        trust_each_other(self.rome, self.milan)
        eventually("both decisions", partial(self.decided, ("wireguard", "BothCan"), ("wireguard", "BothCan")))
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster), 180)
            (tunnel,) = daemon.cluster.get("tunnelendpoints")["items"]
            self.assertEqual(tunnel["status"]["phase"], "Connected")
        pod = self.serve()
        eventually("an answer through the tunnel", lambda: self.answers(pod["status"]["podIP"]))

    def test_02_it_stays_decided(self) -> None:
        """A restart of both daemons decides nothing again, and the tunnel carries on."""
        before = [self.network(*pair)["spec"]["decision"] for pair in permutations((self.rome, self.milan))]
        for daemon in (self.rome, self.milan):
            daemon.kill()
            daemon.start()
        (pod,) = live_pods(self.rome.cluster, SERVER).values()
        eventually("an answer through the tunnel", lambda: self.answers(pod["status"]["podIP"]))
        after = [self.network(*pair)["spec"]["decision"] for pair in permutations((self.rome, self.milan))]
        self.assertEqual(after, before)


class WithoutWg(HostDaemon):
    """A daemon that does not find `wg` where its cluster is called milan."""

    def start(self) -> None:
        """Start the daemon on the host, with the program hidden from it."""
        host = self.cluster.host
        spawn = host.spawn

        def hidden(name: str, argv: Any) -> Process:
            return spawn(name, [*HIDE, *argv] if self.name == "milan" else argv)

        host.spawn = hidden  # type: ignore[method-assign]
        try:
            super().start()
        finally:
            host.spawn = spawn  # type: ignore[method-assign]


class RoutesTests(AutoTests):
    """One host lacks a program; the hosts route the networks of both clusters' pods, which differ."""

    daemon_class = WithoutWg

    def test_01_one_cannot(self) -> None:
        """Neither has a tunnel, nor a device for one; both records say why, and what to install."""
        trust_each_other(self.rome, self.milan)
        eventually("both decisions", partial(self.decided, ("none", "PeerHasNone"), ("none", "HostLacks")))
        for pair in permutations((self.rome, self.milan)):
            self.assertIn("wg is missing", self.network(*pair)["spec"]["decision"]["message"])
            eventually("no device is left", partial(self.is_without_devices, pair[0]))

    def test_02_by_the_routes_that_are_there(self) -> None:
        """The virtual node is Ready all the same, and pods reach each other by the hosts' own routes."""
        for one, two in permutations((self.rome.cluster, self.milan.cluster)):
            one.run(["ip", "route", "add", two.addresses.pod_cidr, "via", two.address])
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        pod = self.serve()
        (there,) = live_pods(self.milan.cluster, SERVER).values()
        self.assertEqual(pod["status"]["podIP"], there["status"]["podIP"])
        eventually("an answer", lambda: self.answers(pod["status"]["podIP"]))
