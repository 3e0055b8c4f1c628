"""One hub with many peers: how long peering takes, what a peer costs in memory and at rest, and how fast the codec is.

    python -m benchmarks hub [--peers 1,2,4,8,16,32,64] [--rest 60]

The hub is a real daemon with an API server of its own, in processes; the peers are lightweight (an API server in memory
and the daemon's own peering each), all in one process. All lend to the hub and borrow from it. Everything goes over
loopback with real TLS, on one machine; needs no root.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from benchmarks.daemon.codec import codec
from benchmarks.figures.measure import spent, table
from benchmarks.offloading.latency import Caller
from liqod.kube.resources import FOREIGNCLUSTERS
from tests.testbed import process
from tests.testbed.process import Process

ROOT: Final = Path(__file__).parents[2]
PATH: Final = os.pathsep.join((str(ROOT), str(ROOT / "sandbox")))
"""Where the programs beside the daemon find their modules."""
PORTS: Final[dict[str, int]] = {}
"""What the present hub listens on: ``peering`` and ``metrics``."""
CONFIGURATION: Final = """\
[cluster]
name = "hub"
id = "hub"

[kubernetes]
kubeconfig = "{kubeconfig}"

[discovery]
mdns = false

[peering]
listen = "tcp:{peering}:interface=127.0.0.1"
autojoin-untrusted = true
max-untrusted = 256

[acceptance]
policy = "AutoAcceptAll"

[kubelet]
listen = ""

[webhook]
enabled = false

[metrics]
listen = "tcp:{metrics}:interface=127.0.0.1"
"""
PATIENCE: Final = 300.0


@attrs.frozen(kw_only=True)
class Reading:
    """What a hub with so many peers took: seconds until all were Ready, CPU seconds of it, MiB resident before and
    after, CPU at rest in percent of a core."""

    peers: int
    seconds: float
    cpu: float
    before: float
    after: float
    idle: float | None


def free_ports() -> None:
    """Choose ports of loopback that nobody has."""
    with contextlib.ExitStack() as stack:
        for what in ("peering", "metrics"):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            PORTS[what] = probe.getsockname()[1]


def ready() -> bool:
    """Return whether the hub's daemon says that it does its work."""
    connection = http.client.HTTPConnection("127.0.0.1", PORTS["metrics"], timeout=10)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def ready_peers(api: Caller) -> int:
    """Return how many peers are Ready by the hub's records: asking its API server costs the hub's daemon nothing."""
    records = json.loads(api.get(f"/apis/{FOREIGNCLUSTERS.api_version}/{FOREIGNCLUSTERS.plural}"))["items"]
    return sum(one.get("status", {}).get("phase") == "Ready" for one in records)


def until(what: str, check: Callable[[], object], pause: float = 0.02, patience: float = PATIENCE) -> None:
    """Wait until a check holds; errors of the network count as not yet."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if check():
                return
        time.sleep(pause)
    raise SystemExit(f"not within {patience:.0f} s: {what}")


@contextlib.contextmanager
def api_server(directory: Path, *more: str) -> Iterator[Path]:
    """Run an API server in memory until the block ends; yields its kubeconfig. ``more`` are words for ``hub_api``."""
    kubeconfig = directory / "kubeconfig"
    command = [sys.executable, "-m", "benchmarks.peering.hub_api", str(kubeconfig), *more]
    api = process.spawn(command, log=directory / "api.log", env={"PYTHONPATH": PATH})
    try:
        until("the hub's API server", kubeconfig.exists)
        yield kubeconfig
    finally:
        api.stop(2.0)


def started(directory: Path, configuration: str, name: str = "hub") -> Process:
    """Start a daemon with a configuration; the caller stops it."""
    config = directory / f"{name}.toml"
    config.write_text(configuration)
    rundir = directory / name
    rundir.mkdir(exist_ok=True)
    words = ["--nodaemon", "--pidfile=", "--reactor=asyncio", f"--rundir={rundir}", "liqod", f"--config={config}"]
    return process.spawn([str(Path(sys.executable).with_name("twistd")), *words], log=directory / f"{name}.log")


@contextlib.contextmanager
def hub(directory: Path) -> Iterator[Process]:
    """Run an API server and the hub's daemon, until the block ends; yields the daemon when it is ready."""
    free_ports()
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        kubeconfig = stack.enter_context(api_server(directory))
        daemon = started(directory, CONFIGURATION.format(kubeconfig=kubeconfig, **PORTS))
        stack.callback(daemon.stop, 5.0)
        until("the hub's daemon is ready", lambda: not daemon.running or ready())
        if not daemon.running:
            raise SystemExit(f"the hub's daemon ended:\n{daemon.tail()}")
        yield daemon


@contextlib.contextmanager
def peers(count: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run so many peers that wait for the order to dial."""
    command = [sys.executable, "-m", "benchmarks.peering.hub_peers", str(count), f"127.0.0.1:{PORTS['peering']}"]
    with (directory / "peers.log").open("ab") as out:
        running = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True
        )
    try:
        assert running.stdout is not None
        if running.stdout.readline() != "ready\n":
            raise SystemExit(f"the peers were not made:\n{process.tail(directory / 'peers.log')}")
        yield running
    finally:
        running.kill()
        running.wait()


def measure(count: int, rest: float) -> Reading:
    """Peer one fresh hub with so many peers; ``rest`` is how long it is watched at rest afterwards, 0: not at all."""
    with tempfile.TemporaryDirectory(prefix="liqod-hub-") as place:
        directory = Path(place) / "hub"
        with hub(directory) as daemon, peers(count, directory) as crowd:
            api = Caller(directory / "kubeconfig")
            time.sleep(2.0)
            before = spent(daemon.pid)
            assert crowd.stdin is not None
            crowd.stdin.write("go\n")
            crowd.stdin.flush()
            begin = time.monotonic()
            until(f"{count} peers are Ready", lambda: crowd.poll() is not None or ready_peers(api) >= count, pause=0.1)
            if crowd.poll() is not None:
                raise SystemExit(f"the peers ended:\n{process.tail(directory / 'peers.log')}")
            seconds, cpu = time.monotonic() - begin, spent(daemon.pid).cpu - before.cpu
            idle = None
            if rest:
                time.sleep(20.0)
                begin, begun = time.monotonic(), spent(daemon.pid).cpu
                time.sleep(rest)
                idle = (spent(daemon.pid).cpu - begun) / (time.monotonic() - begin) * 100
            after = spent(daemon.pid).resident_mib
            return Reading(peers=count, seconds=seconds, cpu=cpu, before=before.resident_mib, after=after, idle=idle)


def main() -> None:
    """Run everything and print the tables of docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="1,2,4,8,16,32,64")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds at rest with the most peers")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    counts = sorted(int(word) for word in args.peers.split(","))
    readings = []
    for count in counts:
        one = measure(count, args.rest if count == counts[-1] else 0.0)
        readings.append(one)
        print(one, flush=True)
    rows = [
        (one.peers, one.seconds, one.cpu / one.peers * 1000, (one.after - one.before) / one.peers, one.idle or "")
        for one in readings
    ]
    print(table(("peers", "all Ready, s", "hub CPU per peer, ms", "MiB per peer", "idle CPU, %"), rows))
    print(codec())


if __name__ == "__main__":
    main()
