"""Clusters in the wide world: two LANs with a router between them, an API server and a daemon for each cluster.

Every host is a network namespace, every API server and every daemon a process in one. LAN ``n`` is 10.98.n.0/24 and
fd98:n::/64; its bridge belongs to the router, which has host number 254 in each. Multicast does not leave a LAN.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from tests.netns import lan
from tests.netns.world_cluster import PLAIN_PORT
from tests.testbed import process
from tests.testbed.process import CommandFailed, Process

T = TypeVar("T")
Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent
ROUTER: Final = 254
FOREIGN: Final = "/apis/discovery.liqo.io/v1alpha1/foreignclusters"
OFFERS: Final = "/apis/sharing.liqo.io/v1alpha1/advertisements"
CONFIGURATION: Final = """\
[cluster]
name = "{name}"
id = "{id}"

[kubernetes]
kubeconfig = "{kubeconfig}"
api-server-url = "https://{address}:6443"

[discovery]
interfaces = ["eth0"]
{discovery}

[leader]
identity = "{name}"

[webhook]
enabled = false

{extra}
"""


def missing(*tools: str) -> str:
    """Return why a world cannot be made here, or an empty text."""
    if why := lan.missing():
        return why
    for tool in ("nft", *tools):
        if find(tool) == "":
            return f"the program {tool} is not installed"
    return ""


def find(tool: str) -> str:
    """Return the path of a program, looked for where Debian puts servers as well; empty when there is none."""
    return shutil.which(tool, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))) or ""


class World:
    """Hosts by name, each on a LAN with a number; those in ``clusters`` get an API server and may get a daemon.

    Use it in a ``with`` statement; what the daemons said last is printed when the block fails.
    """

    def __init__(self, clusters: dict[str, int], others: dict[str, int] | None = None) -> None:
        self.clusters = tuple(clusters)
        self._lans = {**clusters, **(others or {})}
        self._prefix = f"liqodw{os.getpid()}"
        self._stack = contextlib.ExitStack()
        self._eyes: dict[str, ThreadPoolExecutor] = {}
        self.directory = Path()
        self.daemons: dict[str, Process] = {}
        self.servers: dict[str, Process] = {}

    def __enter__(self) -> World:
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="liqod-world-")))
            self._make_lans()
            for name in self.clusters:
                self.start_api(name)
            for name in self.clusters:
                self._await_api(name)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None:
            self.tell()
        for eyes in self._eyes.values():
            eyes.shutdown()
        for started in (*self.daemons.values(), *self.servers.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(started.pid, signal.SIGCONT)
            started.stop(2.0)
        self._stack.close()

    def tell(self) -> None:
        """Print what the daemons said last."""
        for name in self.clusters:
            print(f"--- {name}", process.tail(self.directory / f"{name}.log", 60), sep="\n")

    # The network.

    def address(self, name: str) -> str:
        """Return a host's IPv4 address."""
        same = [other for other, number in self._lans.items() if number == self._lans[name]]
        return f"10.98.{self._lans[name]}.{same.index(name) + 1}"

    def address6(self, name: str) -> str:
        """Return a host's IPv6 address."""
        _, _, number, host = self.address(name).split(".")
        return f"fd98:{number}::{host}"

    def namespace(self, name: str) -> str:
        """Return the kernel's name of a host's network namespace."""
        return f"{self._prefix}-{name}"

    def _make_lans(self) -> None:
        router = self._namespace("router")
        lan.run(*process.entry(router), "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for number in sorted(set(self._lans.values())):
            bridge = f"br{number}"
            lan.run("ip", "-n", router, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
            lan.run("ip", "-n", router, "address", "add", f"10.98.{number}.{ROUTER}/24", "dev", bridge)
            lan.run("ip", "-n", router, "address", "add", f"fd98:{number}::{ROUTER}/64", "dev", bridge, "nodad")
            lan.run("ip", "-n", router, "link", "set", bridge, "up")
        for name, number in self._lans.items():
            self._add_host(router, name, number)

    def _add_host(self, router: str, name: str, number: int) -> None:
        host, port = self._namespace(name), f"port-{name}"
        for words in (
            ("-n", router, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host),
            ("-n", router, "link", "set", port, "master", f"br{number}", "up"),
            ("-n", host, "link", "set", "lo", "up"),
            ("-n", host, "address", "add", f"{self.address(name)}/24", "dev", "eth0"),
            ("-n", host, "address", "add", f"{self.address6(name)}/64", "dev", "eth0", "nodad"),
            ("-n", host, "link", "set", "eth0", "up"),
            ("-n", host, "route", "add", "default", "via", f"10.98.{number}.{ROUTER}"),
            ("-n", host, "route", "add", "default", "via", f"fd98:{number}::{ROUTER}"),
        ):
            lan.run("ip", *words)

    def _namespace(self, name: str) -> str:
        namespace = self.namespace(name)
        lan.run("ip", "netns", "add", namespace)
        self._stack.callback(subprocess.run, ("ip", "netns", "delete", namespace), check=False)
        return namespace

    def nft(self, name: str, script: str) -> None:
        """Have a host's nftables changed."""
        process.run_in(self.namespace(name), ["nft", "-f", "-"], input=script + "\n")

    def cut(self, name: str, *, ports: str = "5872, 6443", received: bool = True, said: bool = True) -> None:
        """Drop what a host hears from others, or says to them, on some TCP ports of either end; mDNS goes on."""
        chains = []
        for hook, end, wanted in (("input", "saddr", received), ("output", "daddr", said)):
            if wanted:
                rules = f"ip {end} {{ 127.0.0.0/8, {self.address(name)} }} accept; ip6 {end} ::1 accept; "
                rules += f"tcp sport {{ {ports} }} drop; tcp dport {{ {ports} }} drop;"
                chains.append(f"chain {hook}_ {{ type filter hook {hook} priority -300; {rules} }}")
        self.heal(name)
        self.nft(name, "table inet cut {\n" + "\n".join(chains) + "\n}")

    def heal(self, name: str) -> None:
        """Let everything pass again."""
        self.nft(name, "table inet cut { }\ndelete table inet cut")

    # API servers.

    def start_api(self, name: str) -> None:
        """Start a cluster's API server; it knows nothing of an earlier one."""
        command = [sys.executable, "-m", "tests.netns.world_cluster", name, self.address(name), str(self.directory)]
        (self.directory / f"{name}.kubeconfig").unlink(missing_ok=True)
        self.servers[name] = process.spawn_in(
            self.namespace(name), command, log=self.directory / f"{name}-api.log", env={"PYTHONPATH": str(ROOT)}
        )

    def _await_api(self, name: str) -> None:
        self.eventually(f"the API server of {name}", (self.directory / f"{name}.kubeconfig").exists)
        if name not in self._eyes:
            self._eyes[name] = ThreadPoolExecutor(1, initializer=process.enter, initargs=(self.namespace(name),))

    def ask(self, name: str, method: str, path: str, body: Json | None = None) -> Json:
        """Speak with a cluster's API server as its administrator; LookupError where there is no such object."""
        return self._eyes[name].submit(_ask, method, path, body).result(30)

    def get(self, name: str, path: str) -> Json:
        """Return an object of a cluster's API."""
        return self.ask(name, "GET", path)

    def record(self, name: str, peer: str) -> Json:
        """Return the ForeignCluster of a peer."""
        return self.get(name, f"{FOREIGN}/{self.id(peer)}")

    def status(self, name: str, peer: str) -> Json:
        """Return what a ForeignCluster says."""
        return dict(self.record(name, peer).get("status", {}))

    def condition(self, name: str, peer: str, kind: str) -> Json:
        """Return a condition of a ForeignCluster, or an empty one."""
        conditions = self.status(name, peer).get("conditions", [])
        return next((dict(one) for one in conditions if one["type"] == kind), {"status": "", "reason": ""})

    def node(self, name: str, peer: str) -> Json:
        """Return the virtual node for a peer."""
        return self.get(name, f"/api/v1/nodes/liqo-{peer}")

    def node_ready(self, name: str, peer: str) -> bool:
        """Tell whether the virtual node for a peer is Ready and has resources."""
        status = self.node(name, peer)["status"]
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        return ready and bool(status.get("allocatable", {}).get("cpu"))

    # Daemons.

    def id(self, name: str) -> str:
        """Return a cluster's ID."""
        return f"id-{name}"

    def configure(self, name: str, extra: str = "", discovery: str = "") -> None:
        """Write a daemon's configuration: sections besides the usual ones, and keys for ``[discovery]``."""
        values = {
            "name": name,
            "id": self.id(name),
            "kubeconfig": self.directory / f"{name}.kubeconfig",
            "address": self.address(name),
        }
        text = CONFIGURATION.format(**values, discovery=discovery, extra=extra)
        (self.directory / f"{name}.toml").write_text(text)

    def start(self, *names: str) -> None:
        """Start the daemons of some clusters, all at once."""
        for name in names:
            home = self.directory / f"{name}-run"
            home.mkdir(exist_ok=True)
            words = ["--nodaemon", "--pidfile=", "--reactor=asyncio", f"--rundir={home}"]
            command = [str(PROGRAMS / "twistd"), *words, "liqod", f"--config={self.directory / f'{name}.toml'}"]
            self.daemons[name] = process.spawn_in(self.namespace(name), command, log=self.directory / f"{name}.log")

    def kill(self, name: str) -> None:
        """End a daemon as a crash would."""
        started = self.daemons.pop(name)
        os.kill(started.pid, signal.SIGKILL)
        started.stop(0.1)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a daemon."""
        os.kill(self.daemons[name].pid, number)

    def ctl(self, name: str, *words: str, timeout: float = 120.0) -> str:
        """Run liqodctl on a cluster's own host with the cluster's own kubeconfig; returns what it prints."""
        files = [f"--kubeconfig={self.directory / f'{name}.kubeconfig'}", f"--config={self.directory / f'{name}.toml'}"]
        command = [str(PROGRAMS / "liqodctl"), *words, *files]
        return process.run_in(self.namespace(name), command, timeout=timeout, env={"KUBECONFIG": ""})

    def callers(self, name: str) -> set[str]:
        """Return the addresses from which liqodctl was used on a cluster."""
        book = self.directory / f"{name}.callers"
        return set(book.read_text().split()) if book.exists() else set()

    def sessions(self, name: str) -> list[tuple[str, str]]:
        """Return the open connections of a daemon with others (own address and port, other's address and port)."""
        text = process.run_in(
            self.namespace(name), ["ss", "-Htn", "state", "established", "( sport = 5872 or dport = 5872 )"]
        )
        return [(words[2], words[3]) for words in map(str.split, text.splitlines())]

    # Waiting.

    def eventually(self, what: str, check: Callable[[], T], timeout: float = 120.0) -> T:
        """Call until the answer is true, and return it."""
        deadline, last = time.monotonic() + timeout, ""
        while time.monotonic() < deadline:
            try:
                if answer := check():
                    return answer
                last = repr(answer)
            except (AssertionError, LookupError, CommandFailed, OSError) as error:
                last = str(error)[-2000:]
            time.sleep(0.1)
        self.tell()
        raise AssertionError(f"not within {timeout:.0f} s: {what}; last seen: {last}")

    def phase(self, name: str, peer: str, *phases: str) -> None:
        """Wait until a ForeignCluster is in one of some phases."""

        def check() -> bool:
            status = self.status(name, peer)
            assert status.get("phase") in phases, f"{name}: {peer} is {status}"
            return True

        self.eventually(f"{peer} is {' or '.join(phases)} at {name}", check)

    def peered(self, *pairs: tuple[str, str]) -> None:
        """Wait until the first of each pair borrows from the second, which lends, over a node that is Ready."""
        for name, peer in pairs:
            self.phase(name, peer, "Ready")
            self.eventually(f"the node for {peer} is Ready at {name}", lambda n=name, p=peer: self.node_ready(n, p))  # type: ignore[misc]


def _ask(method: str, path: str, body: Json | None) -> Json:
    connection = http.client.HTTPConnection("127.0.0.1", PLAIN_PORT, timeout=20)
    try:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": "Bearer admin", "Content-Type": kind}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status == 404:
        raise LookupError(f"{method} {path}: {text[:300]}")
    if answer.status >= 400:
        raise AssertionError(f"{method} {path}: {answer.status} {text[:300]}")
    return dict(json.loads(text))
