"""What a request costs over a lender's relay, against the same request sent directly.

    python -m benchmarks relay [--requests 500] [--rounds 6]

Three processes over loopback with real TLS: an API server that answers every request alike, a lender's port with its
relay, and this one, which is the borrower with the daemon's own client. Both ways are measured in turns in one run, one
request after another (what one waits for) and 16 at a time (what they cost). Needs no root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from benchmarks.figures.measure import cpu_of, difference, table
from benchmarks.network.relay_far import HOST, SPACE, api_url, keypair
from liqod.flow.clocks import Reactor
from liqod.identity.tls import PeerTLS
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant, over_relay
from liqod.kube.resources import CONFIGMAPS
from liqod.peering.relay.dial import RelayEndpoint
from tests.testbed import process

ROOT: Final = Path(__file__).parents[2]
AT_ONCE: Final = 16


@attrs.define
class Reading:
    """What the requests of one way took: seconds of each, one at a time; CPU seconds and their number, many at once."""

    waits: list[float] = attrs.Factory(list)
    cpu: dict[str, float] = attrs.Factory(dict)
    count: int = 0
    seconds: float = 0.0

    def row(self, name: str) -> list[object]:
        """Return the cells of a table."""
        per = {who: f"{1000 * spent / self.count:.3f} ms" for who, spent in self.cpu.items()}
        ordered = sorted(self.waits)
        return [
            name,
            f"{1000 * statistics.median(ordered):.2f} ms",
            f"{1000 * ordered[int(len(ordered) * 0.99)]:.2f} ms",
            f"{self.count / self.seconds:.0f}",
            per["borrower"],
            per["lender"],
            per["api"],
        ]


async def measure(client: Client, reading: Reading, requests: int, pids: dict[str, int]) -> None:
    """Send one round of requests, first one at a time, then many at once."""
    for _ in range(requests):
        begin = time.perf_counter()
        await client.get(CONFIGMAPS, "a", SPACE)
        reading.waits.append(time.perf_counter() - begin)

    async def share() -> None:
        for _ in range(requests // AT_ONCE):
            await client.get(CONFIGMAPS, "a", SPACE)

    before, begin = cpu_of(pids), time.perf_counter()
    await gatherResults([Deferred.fromCoroutine(share()) for _ in range(AT_ONCE)])
    reading.seconds += time.perf_counter() - begin
    for who, spent in difference(cpu_of(pids), before).items():
        reading.cpu[who] = reading.cpu.get(who, 0.0) + spent
    reading.count += requests // AT_ONCE * AT_ONCE


@contextlib.contextmanager
def listening(directory: Path, role: str) -> Iterator[process.Process]:
    """Run one of the far processes until the block ends; yields it when it listens."""
    command = [sys.executable, "-m", "benchmarks.network.relay_far", role, str(directory)]
    far = process.spawn(command, log=directory / f"{role}.log", env={"PYTHONPATH": str(ROOT)})
    try:
        deadline = time.monotonic() + 60
        while not (directory / role).exists():
            if time.monotonic() > deadline or not far.running:
                raise SystemExit(f"{role} does not listen:\n{far.tail()}")
            time.sleep(0.05)
        yield far
    finally:
        far.stop(2.0)


async def compare(reactor: Reactor, requests: int, rounds: int) -> None:
    """Measure both ways in turns, and print the table."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        borrower, lender = keypair(directory, "borrower"), keypair(directory, "lender")
        with listening(directory, "api") as api, listening(directory, "lender") as relay:
            pids = {"borrower": os.getpid(), "lender": relay.pid, "api": api.pid}
            address = f"{HOST}:{(directory / 'lender').read_text()}"
            keys = [lender.fingerprint]
            dial = RelayEndpoint(reactor, PeerTLS(borrower), lambda: [address], lambda: keys)
            ca = (directory / "ca.crt").read_bytes()
            ways = {
                "direct": Client(from_grant(api_url(directory), ca, lambda: "token"), reactor),
                "relay": Client(over_relay("lender", dial), reactor),
            }
            readings = {way: Reading() for way in ways}
            for client in ways.values():
                await measure(client, Reading(), 200, pids)  # connections, caches
            for _ in range(rounds):
                for way, client in ways.items():
                    await measure(client, readings[way], requests, pids)
            header = [
                "way",
                "median",
                "99 %",
                "requests/s, 16 at once",
                "CPU borrower",
                "CPU lender's daemon",
                "CPU API",
            ]
            print(table(header, [reading.row(way) for way, reading in readings.items()]))
            for client in ways.values():
                await client.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500, help="requests of each kind in a round")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    react(lambda reactor: Deferred.fromCoroutine(compare(reactor, options.requests, options.rounds)))


if __name__ == "__main__":
    main()
