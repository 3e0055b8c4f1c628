"""Two real clusters that borrow from each other through a tunnel, with pods of rome's that run at milan all the time.

For campaigns that break things again and again: ``is_well`` says whether all is as it was, ``renew`` makes it new.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final

from liqod.model.names import remote_namespace
from tests.real.daemons import Daemon, HostDaemon
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    node_ready,
    offloaded,
    peer_of,
    trust_each_other,
)
from tests.testbed import build, process, system
from tests.testbed.testbed import Testbed

ROME: Final = "rome"
MILAN: Final = "milan"
APP: Final = "steady"
PODS: Final = 2
CONFIGURATION: Final = '\n[network]\nmode = "wireguard"\n'
BESIDE: Final = f'{CONFIGURATION}\n[metrics]\nlisten = "tcp:5884:interface=127.0.0.1"\n'
"""Of a second daemon on the same host: the pages are what a standby listens for."""
UP_WITHIN: Final = 300.0


class NamedDaemon(HostDaemon):
    """A daemon whose host has a name of its own, as two hosts of one cluster have: ``rome-one``."""

    def start(self) -> None:
        """Start the daemon on the host, under its name."""
        host = self.cluster.host
        spawn = host.spawn
        words = ["unshare", "--uts", "--", "sh", "-c", 'hostname "$0" && exec "$@"', f"{self.name}-{self.identity}"]

        def named(name: str, argv: Sequence[str]) -> process.Process:
            return spawn(name, [*words, *argv])

        host.spawn = named  # type: ignore[method-assign]
        try:
            super().start()
        finally:
            host.spawn = spawn  # type: ignore[method-assign]


def prepare() -> None:
    """Install and build what is missing; Missing or CommandFailed where that cannot be."""
    system.require()
    build.ensure()


class Borrowing:
    """rome and milan; with ``standbys`` a second daemon on each host, which begins when all is well.

    Further ``clusters`` have no daemon; ``more`` is appended to the configuration of the first daemons.
    """

    def __init__(self, *, standbys: bool = False, clusters: int = 2, more: str = "") -> None:
        self._with_standbys = standbys
        self._count = clusters
        self._extra = CONFIGURATION + more
        self._testbed: Testbed | None = None
        self._known: set[tuple[str, str]] = set()
        self.daemons: dict[str, NamedDaemon] = {}
        self.standbys: dict[str, NamedDaemon] = {}

    def __enter__(self) -> Borrowing:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> NamedDaemon:
        """Return the first daemon of a side."""
        return self.daemons[name]

    @property
    def testbed(self) -> Testbed:
        """The clusters; LookupError while there are none."""
        if self._testbed is None:
            raise LookupError("the clusters are not made")
        return self._testbed

    def open(self) -> None:
        """Make clusters and daemons, have them trust each other, and wait until the pods run."""
        testbed = self._testbed = Testbed(self._count, nodes=True, same_pod_cidr=True, proxies=("iptables",))
        try:
            testbed.start()
            self.daemons = {
                name: NamedDaemon(testbed[number], name, extra=self._extra)
                for number, name in enumerate((ROME, MILAN), 1)
            }
            for daemon in self.daemons.values():
                daemon.start()
            trust_each_other(self[ROME], self[MILAN])
            for daemon in self.daemons.values():
                eventually(f"{daemon.name} has a virtual node", partial(node_ready, daemon.cluster), UP_WITHIN)
            self[ROME].cluster.apply(enabled_namespace(), deployment(APP, PODS))
            eventually("the pods run at milan", self.pods, UP_WITHIN)
            self._known = eventually("no error is left", self._harmless, UP_WITHIN, 2.0)[0]
            if self._with_standbys:
                for name in self.daemons:
                    self.standbys[name] = self.second(name)
                    self.standbys[name].start()
            eventually("all is well", self.is_well, UP_WITHIN, 2.0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove everything; daemons on hosts end with them."""
        testbed, self._testbed = self._testbed, None
        self.daemons, self.standbys = {}, {}
        if testbed is not None:
            testbed.stop()

    def renew(self) -> None:
        """Make everything new."""
        self.close()
        self.open()

    def second(self, name: str) -> NamedDaemon:
        """Return another daemon for the host of a side, which was not started."""
        return NamedDaemon(self[name].cluster, name, identity="two", extra=BESIDE)

    def other(self, name: str) -> NamedDaemon:
        """Return the first daemon of the other side."""
        return self[MILAN if name == ROME else ROME]

    def remote(self) -> str:
        """Return the namespace of rome's pods at milan."""
        return remote_namespace(NAMESPACE, peer_of(self[MILAN].cluster, ROME)["metadata"]["name"])

    def leader(self, name: str) -> str:
        """Return who leads a side."""
        lease = self[name].cluster.get("lease", "liqod", "-n", "liqo-system")
        return str(lease["spec"].get("holderIdentity", ""))

    def pods(self) -> dict[str, str] | None:
        """Return the UIDs of the steady pods at milan by name, if exactly these run on both sides."""
        if offloaded(self[ROME].cluster, self[MILAN].cluster, APP, PODS) is None:
            return None
        found = self[MILAN].cluster.get("pods", "-n", self.remote(), "-l", f"app={APP}")["items"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}

    def is_well(self) -> bool:
        """Have both sides lead, know no problem but those of the beginning, and have tunnel, nodes and pods."""
        for name, daemon in self.daemons.items():
            assert daemon.running, f"the daemon of {name} has ended"
            new = {(one["code"], one["name"]) for one in problems(daemon)} - self._known
            assert not new, f"{name}: {sorted(new)}"
            assert node_ready(daemon.cluster), f"the virtual node of {name} is not Ready"
            peer = peer_of(daemon.cluster, self.other(name).name)
            assert peer["status"]["phase"] == "Ready", f"{name}: {peer['status']}"
            tunnel = daemon.cluster.get("tunnelendpoint", peer["metadata"]["name"]).get("status", {})
            assert tunnel.get("phase") == "Connected", f"{name}: {tunnel}"
        return bool(self.pods())

    def _harmless(self) -> list[set[tuple[str, str]]]:
        """Return what the sides warn of, as the one entry of a list, once there is no error."""
        found = [one for daemon in self.daemons.values() for one in problems(daemon)]
        errors = [one for one in found if one["severity"] == "error"]
        assert not errors, errors
        return [{(one["code"], one["name"]) for one in found}]


def problems(daemon: Daemon) -> list[dict[str, Any]]:
    """Return what ``liqodctl status`` calls an error, or warns of, on a daemon's cluster."""
    found = json.loads(daemon.liqodctl("status", "-o", "json", f"--config={daemon.config}"))["problems"]
    return [dict(one) for one in found if one["severity"] != "info"]


def pid_of(daemon: Daemon) -> int:
    """Return the ID of a daemon's own process: on a host it is the child of the program that entered the host."""
    return process.children(daemon.pid)[0] if isinstance(daemon, HostDaemon) else daemon.pid


def crash(daemon: Daemon) -> None:
    """End a daemon with SIGKILL, before anything else notices."""
    assert daemon.process is not None
    os.kill(pid_of(daemon), signal.SIGKILL)
    daemon.process.stop(1.0)


def freeze(daemon: Daemon) -> None:
    """Let a daemon do nothing any more, as on a host that sleeps; a program that entered the host sleeps with it."""
    os.killpg(daemon.pid, signal.SIGSTOP)


def thaw(daemon: Daemon) -> None:
    """Let it go on."""
    os.killpg(daemon.pid, signal.SIGCONT)
