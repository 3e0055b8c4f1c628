"""Where a sweep is done: a borrower and its lenders, on real control planes or on sandbox servers in processes.

Both have a real daemon of the borrower in a process of its own. On sandbox servers all lenders, daemons included, share
one process, so that what they take is of all of them with their API servers.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from benchmarks.figures.measure import spent
from benchmarks.offloading.hold import PER_NODE
from benchmarks.offloading.latency import Caller
from benchmarks.offloading.offload import install, precompile
from benchmarks.peering import hub
from benchmarks.scale.exposition import connections, total
from benchmarks.scale.lender_names import name_of
from benchmarks.scale.points import Place
from liqod.kube.connection.config import load
from tests.real.daemons import Daemon
from tests.real.path import eventually
from tests.testbed import build, process, system
from tests.testbed.testbed import Testbed

METRICS: Final = 5874
"""The port of a real daemon's pages, on loopback."""
LARGEST_REAL: Final[Mapping[str, int]] = {"pods": 10_000, "peers": 3, "services": 2_000, "secrets": 5_000}
"""Up to which size each kind is measured on real control planes: each takes a gigabyte, and two cores in a burst."""
OPEN: Final = """
[peering]
autojoin-untrusted = true
max-untrusted = 1024

[sharing]
percentage = 90

[acceptance]
policy = "AutoAcceptAll"
"""
LENDING: Final = """
objects = {"count/secrets" = "1000000", "services" = "1000000"}
tenant-objects = {"count/secrets" = "1000000", "services" = "1000000"}
tenant-records = {"shadowendpointslices" = "1000000", "bytes" = "4Gi"}
tenant-contents = "4Gi"
tenant-writes = ""
"""
"""More of ``[hosting]``, within which the configuration of tests ends."""
KNOWN: Final = """
[network]
mode = "none"
pod-cidrs = ["{pods}"]
"""
"""Where no node has a network for its pods, an address of the lender's pods could be one of this cluster's own."""
SANDBOX: Final = """\
[cluster]
name = "home"
id = "home"

[kubernetes]
kubeconfig = "{kubeconfig}"

[discovery]
mdns = false

[peering]
listen = "tcp:{peering}:interface=127.0.0.1"
advertise-addresses = ["127.0.0.1"]
autojoin-untrusted = true
max-untrusted = 1024

[acceptance]
policy = "AutoAcceptAll"

[kubelet]
listen = "tcp:0:interface=127.0.0.1"
node-address = "127.0.0.1"

[webhook]
listen = "tcp:0:interface=127.0.0.1"

[leader]
identity = "{identity}"
{leader}
[metrics]
listen = "tcp:{metrics}:interface=127.0.0.1"

[network]
mode = "none"
service-cidrs = ["10.96.0.0/16"]
"""


@frozen
class Spending:
    """What daemons spent so far: requests to API servers without watches, CPU seconds, MiB that are resident, watches
    that are open; of the borrower, and of all lenders.
    """

    requests: tuple[float, float]
    cpu: tuple[float, float]
    mib: tuple[float, float]
    watches: int

    def since(self, before: Spending) -> dict[str, float]:
        """Return what was added, by the names of ``points.FIGURES``."""
        found: dict[str, float] = {"watches, borrower": float(self.watches - before.watches)}
        for name, after, earlier in (
            ("requests", self.requests, before.requests),
            ("CPU s", self.cpu, before.cpu),
            ("MiB", self.mib, before.mib),
        ):
            found[f"{name}, borrower"], found[f"{name}, lenders"] = (
                one - other for one, other in zip(after, earlier, strict=True)
            )
        return found


@frozen(kw_only=True)
class Stage:
    """A borrower with lenders; ``pages`` reads the metrics of each daemon that has some, the borrower's first."""

    place: Place
    home: Path
    lenders: Sequence[tuple[str, Path]]
    borrower_pid: int
    lender_pids: Sequence[int]
    pages: Sequence[Callable[[], str]]

    def home_caller(self) -> Caller:
        """Return a new connection to the borrower's API server, as its administrator."""
        return Caller(self.home)

    def spending(self) -> Spending:
        """Return what was spent so far."""
        texts = [page() for page in self.pages]
        requests = [total(text, "liqod_api_requests_total", without=("watch",)) for text in texts]
        mine, theirs = spent(self.borrower_pid), [spent(pid) for pid in self.lender_pids]
        return Spending(
            requests=(requests[0], sum(requests[1:])),
            cpu=(mine.cpu, sum(one.cpu for one in theirs)),
            mib=(mine.resident_mib, sum(one.resident_mib for one in theirs)),
            watches=open_connections(self.borrower_pid, [self.home, *(path for _, path in self.lenders)]),
        )

    @property
    def nodes(self) -> list[str]:
        """The borrower's virtual nodes, one for each lender."""
        return [f"liqo-{name}" for name, _ in self.lenders]


def open_connections(pid: int, kubeconfigs: Sequence[Path]) -> int:
    """Return how many connections a process has to API servers: one for each watch, and the few that are kept."""
    ports = {urlsplit(load(str(path)).server).port or 443 for path in kubeconfigs}
    inodes = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.append(target.removeprefix("socket:[").removesuffix("]"))
    return connections(Path(f"/proc/{pid}/net/tcp").read_text(), inodes, ports)


def page_of(port: int, netns: str = "") -> str:
    """Return the metrics of a daemon on loopback, in a network namespace where one is named."""

    def ask() -> str:
        if netns:
            process.enter(netns)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as inside:  # the network of a thread is its own
        return inside.submit(ask).result()


@contextlib.contextmanager
def real(count: int, pods: int) -> Iterator[Stage]:
    """Have a borrower and so many lenders with real control planes, and made-up nodes for so many pods."""
    system.require()
    build.ensure()
    precompile()
    with Testbed(count + 1, nodes=False, kwok=max(1, pods // PER_NODE), qps=500) as testbed:
        names = ["rome", *map(name_of, range(1, count + 1))]
        configurations = [LENDING + OPEN, *[LENDING + OPEN.replace("AutoAcceptAll", "Manual")] * count]
        daemons = [
            Daemon(cluster, name, extra=extra + KNOWN.format(pods=cluster.addresses.pod_cidr))
            for cluster, name, extra in zip(testbed.clusters, names, configurations, strict=True)
        ]
        install(daemons)
        try:
            for daemon in daemons:
                daemon.start()
            home = testbed[1]
            for name in names[1:]:
                node = f"node/liqo-{name}"
                home.kubectl("wait", node, "--for=create", "--timeout=120s", timeout=140)
                home.kubectl("wait", node, "--for=condition=Ready", "--timeout=120s", timeout=140)
            for daemon in daemons:
                eventually("its pages are read", partial(page_of, METRICS, daemon.cluster.namespace))
            testbed.enter()
            yield Stage(
                place="real",
                home=home.kubeconfig,
                lenders=[(name, testbed[number].kubeconfig) for number, name in enumerate(names[1:], 2)],
                borrower_pid=daemons[0].pid,
                lender_pids=[daemon.pid for daemon in daemons[1:]],
                pages=[partial(page_of, METRICS, daemon.cluster.namespace) for daemon in daemons],
            )
        finally:
            for daemon in daemons:
                daemon.stop()


@contextlib.contextmanager
def lending(count: int, directory: Path, noted: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run so many lenders in one process; they dial the present hub. Yields it when all daemons lead."""
    words = [str(count), f"127.0.0.1:{hub.PORTS['peering']}", str(directory), *([str(noted)] if noted else [])]
    with (directory / "lenders.log").open("ab") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scale.lenders", *words],
            cwd=hub.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        )
    try:
        assert running.stdout is not None
        if running.stdout.readline() != "ready\n":
            raise SystemExit(f"the lenders were not made:\n{process.tail(directory / 'lenders.log')}")
        yield running
    finally:
        running.kill()
        running.wait()


@contextlib.contextmanager
def sandboxed(count: int, pods: int) -> Iterator[Stage]:
    """Have a borrower and so many lenders on sandbox servers; their nodes have room for any number of pods."""
    precompile()
    with tempfile.TemporaryDirectory(prefix="liqod-sweep-") as place, contextlib.ExitStack() as stack:
        directory = Path(place)
        hub.free_ports()
        home = stack.enter_context(hub.api_server(directory))
        text = SANDBOX.format(kubeconfig=home, identity="one", leader="", **hub.PORTS)
        borrower = hub.started(directory, text)
        stack.callback(borrower.stop, 5.0)
        hub.until("the borrower's daemon is ready", lambda: not borrower.running or hub.ready())
        if not borrower.running:
            raise SystemExit(f"the borrower's daemon ended:\n{borrower.tail()}")
        running = stack.enter_context(lending(count, directory))
        api = Caller(home)
        hub.until(f"{count} lenders are Ready", lambda: hub.ready_peers(api) >= count, pause=0.5)
        yield Stage(
            place="sandbox",
            home=home,
            lenders=[(name_of(number), directory / name_of(number)) for number in range(1, count + 1)],
            borrower_pid=borrower.pid,
            lender_pids=[running.pid],
            pages=[partial(page_of, hub.PORTS["metrics"])],
        )


OPENERS: Final = {"real": real, "sandbox": sandboxed}
"""How a stage is made at each place."""
