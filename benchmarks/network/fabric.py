"""What the network fabric costs: ``python -m benchmarks fabric``.

Two hosts in network namespaces, a pod on each, both clusters with the same pod network. Pod to pod through the fabric
is measured against a plain wireguard-go between the same hosts (from host to host, and from pod to pod with routes by
hand), and against the same ways without any tunnel: in turns, each round beginning with another way, so that what else
the machine does meets all of them. Figures are medians of the rounds, ratios are medians of the ratios in each round.
Then: how many rules and routes a peer takes, and how long it is from the acceptance of an offer to the first packet
that comes back. Needs root and iperf3; takes two to three minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from liqod.fabric.agent.key import generate
from tests.netns.hosts import Hosts, eventually, missing

TALK = str(Path(__file__).parents[2] / "tests" / "netns" / "talk.py")
RAW, RAW_PORT, RAW_NETWORK = "raw", 5899, "10.250.0."
PORT = "7100"
OURS, ALONE, BARE = "pod to pod, liqod", "hosts, wireguard-go alone", "hosts, no tunnel"
ALONE_PODS, BARE_PODS = "pod to pod, wireguard-go alone", "pod to pod, no tunnel"


@dataclass(frozen=True)
class Way:
    """One way from a client to a server: what to put before their commands, and the server's address there."""

    client: Sequence[str]
    server: Sequence[str]
    address: str


def run(command: Sequence[str]) -> str:
    """Run a program to its end and return what it said; SystemExit with its words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}{done.stdout}")
    return done.stdout


def make_raw(hosts: Hosts, mtu: int) -> None:
    """Connect the two hosts by a wireguard-go of their own, as one would by hand."""
    keys = {name: generate() for name in hosts.names}
    for number, name in enumerate(hosts.names, 1):
        (other,) = [one for one in hosts.names if one != name]
        run(hosts.inside(name, "setsid", "--fork", "wireguard-go", RAW))
        file = hosts.directory / f"{name}-raw.conf"
        file.write_text(
            f"[Interface]\nPrivateKey = {keys[name].private}\nListenPort = {RAW_PORT}\n[Peer]\n"
            f"PublicKey = {keys[other].public}\nEndpoint = {hosts.lan.addresses[other]}:{RAW_PORT}\n"
            "AllowedIPs = 0.0.0.0/0\n"
        )
        script = f"for i in $(seq 100); do wg setconf {RAW} {file} && exit 0; sleep 0.1; done; exit 1"
        run(hosts.inside(name, "sh", "-c", script))
        run(hosts.inside(name, "ip", "address", "add", f"{RAW_NETWORK}{number}/24", "dev", RAW))
        run(hosts.inside(name, "ip", "link", "set", "dev", RAW, "mtu", str(mtu), "up"))


def lead_pods(hosts: Hosts, second: int, device: str) -> str:
    """Give the pods further addresses that the hosts route to each other as they are; returns the one of b's pod."""
    for number, name in enumerate(hosts.names, 1):
        (other,) = [one for one in hosts.names if one != name]
        theirs, gateway, pod = f"10.{second}.{3 - number}.0/24", f"10.{second}.{number}.1", f"10.{second}.{number}.2"
        via = [] if device == RAW else ["via", hosts.lan.addresses[other]]
        run(hosts.inside(name, "ip", "address", "add", f"{gateway}/24", "dev", "cni0"))
        run(hosts.inside(name, "ip", "route", "add", theirs, *via, "dev", device))
        run(hosts.in_pod(name, "ip", "address", "add", f"{pod}/24", "dev", "eth0"))
        run(hosts.in_pod(name, "ip", "route", "add", theirs, "via", gateway, "src", pod))
    return f"10.{second}.2.2"


def make_ways(hosts: Hosts) -> dict[str, Way]:
    """Return all ways, ours first."""
    make_raw(hosts, 1420)
    hosts_alone, pods_alone = (hosts.inside("a"), hosts.inside("b")), (hosts.in_pod("a"), hosts.in_pod("b"))
    return {
        OURS: Way(*pods_alone, hosts.seen("a", "b")),
        ALONE: Way(*hosts_alone, f"{RAW_NETWORK}2"),
        ALONE_PODS: Way(*pods_alone, lead_pods(hosts, 251, RAW)),
        BARE: Way(*hosts_alone, hosts.lan.addresses["b"]),
        BARE_PODS: Way(*pods_alone, lead_pods(hosts, 252, "eth0")),
    }


@contextmanager
def beside(command: Sequence[str], word: str) -> Iterator[IO[str]]:
    """Run a program meanwhile; it has begun when it said a line that starts with a word."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        while not (line := process.stdout.readline()).startswith(word):
            if not line:
                sys.exit(f"{' '.join(command)} ended")
        yield process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def throughput(way: Way, seconds: float) -> float:
    """Return megabits per second that one TCP connection carried."""
    with beside([*way.server, "iperf3", "-s", "-1", "--forceflush"], "Server listening"):
        said = json.loads(run([*way.client, "iperf3", "-c", way.address, "-t", str(seconds), "-O", "0.5", "-J"]))
    return float(said["end"]["sum_received"]["bits_per_second"]) / 1e6


def latency(way: Way, count: int) -> float:
    """Return the median round trip of small datagrams, in milliseconds."""
    with beside([*way.server, sys.executable, "-S", TALK, "answers", PORT], "ready"):
        times: list[float] = json.loads(
            run([*way.client, sys.executable, "-S", TALK, "trips", way.address, PORT, str(count)])
        )
    if len(times) < count * 0.9:
        sys.exit(f"{count - len(times)} of {count} datagrams to {way.address} were lost")
    return statistics.median(times) / 1000


def no_tunnel(hosts: Hosts, name: str) -> bool:
    """Tell whether nothing of the fabric is left on a host."""
    return "liqod" not in hosts.output(hosts.inside(name, "ip", "-br", "link"))


def first_packet(hosts: Hosts, address: str) -> float:
    """Return the seconds from the acceptance on both sides to the first answer of the peer's pod."""
    for one, two in (("a", "b"), ("b", "a")):
        hosts.unpeer(one, two)
    for name in hosts.names:
        eventually("no tunnel", partial(no_tunnel, hosts, name), 60)
    with (
        beside(hosts.in_pod("b", sys.executable, "-S", TALK, "answers", PORT), "ready"),
        beside(hosts.in_pod("a", sys.executable, "-S", TALK, "first", address, PORT), "ready") as said,
    ):
        hosts.peer("b", "a")
        hosts.peer("a", "b")
        accepted = time.time()
        answered = float(said.readline())
    return answered - accepted


def costs(hosts: Hosts, name: str) -> dict[str, int]:
    """Return how many things a host's kernel holds for the fabric."""
    table = json.loads(run(hosts.inside(name, "nft", "-j", "list", "table", "inet", "liqod")))["nftables"]
    return {
        "nftables rules": sum("rule" in one for one in table),
        "routes": len(run(hosts.inside(name, "ip", "route", "show", "table", "18952")).splitlines()),
        "policy rules": run(hosts.inside(name, "ip", "rule")).count("18952:"),
        "devices": run(hosts.inside(name, "ip", "-br", "link")).count("liqod"),
    }


def ratio(measured: Mapping[str, Sequence[float]], other: str) -> float:
    """Return the median over the rounds of what ours is to another way's."""
    return statistics.median([ours / theirs for ours, theirs in zip(measured[OURS], measured[other], strict=True)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fabric", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of all ways in turn")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of each transfer")
    parser.add_argument("--trips", type=int, default=1000, help="round trips of each way in each round")
    parser.add_argument("--times", type=int, default=5, help="how often the first packet is measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    lacking = "" if shutil.which("iperf3") else "the program iperf3 is not installed"
    if why := missing() or lacking:
        sys.exit(why)
    with Hosts("a", "b") as hosts:
        hosts.start()
        eventually("the tunnel", lambda: hosts.connected(("a", "b"), ("b", "a")), 60)
        ways = make_ways(hosts)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        trips: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.rounds):
            order = list(ways)[turn % len(ways) :] + list(ways)[: turn % len(ways)]
            for name in order:
                rates[name].append(throughput(ways[name], options.seconds))
            for name in order:
                trips[name].append(latency(ways[name], options.trips))
            shown = ", ".join(f"{rates[name][-1]:.0f} Mbit/s {trips[name][-1]:.3f} ms" for name in ways)
            print(f"round {turn + 1}: {shown}", flush=True)
        counted = costs(hosts, "a")
        took = [first_packet(hosts, ways[OURS].address) for _ in range(options.times)]
    figures = {
        name: {"megabits": statistics.median(rates[name]), "milliseconds": statistics.median(trips[name])}
        for name in ways
    }
    ratios = {name: {"megabits": ratio(rates, name), "milliseconds": ratio(trips, name)} for name in ways}
    for name, one in figures.items():
        print(f"{name:31} {one['megabits']:8.0f} Mbit/s {one['milliseconds']:8.3f} ms", end="")
        both = ratios[name]
        print("" if name == OURS else f"   liqod: {both['megabits']:7.1%} at {both['milliseconds']:.2f} times its trip")
    print("one peer takes: " + ", ".join(f"{count} {what}" for what, count in counted.items()))
    print("from acceptance to the first packet: " + ", ".join(f"{one:.2f} s" for one in took))
    if options.json:
        everything = {"ways": figures, "liqodTo": ratios, "costs": counted, "firstPacket": took}
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
