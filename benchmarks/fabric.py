"""What the network fabric costs: ``python -m benchmarks fabric``.

Two hosts in network namespaces, a pod on each, both clusters with the same pod network. Pod to pod through the fabric
is measured against a plain wireguard-go between the same hosts, and against the hosts without any tunnel, in turns, so
that what else the machine does meets all of them. Then: how many rules and routes a peer takes, and how long it is from
the acceptance of an offer to the first packet. Needs root and iperf3.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from liqod.fabric.key import generate
from tests.netns.hosts import Hosts, eventually, missing

RAW = "raw"
RAW_PORT = 5899
RAW_NETWORK = "10.250.0."


def run(command: Sequence[str], stdin: str = "") -> str:
    """Run a program to its end and return what it said; SystemExit with its words when it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}{done.stdout}")
    return done.stdout


def make_raw(hosts: Hosts, mtu: int) -> None:
    """Connect the two hosts by a wireguard-go of their own, as one would by hand."""
    keys = {name: generate() for name in hosts.names}
    for number, name in enumerate(hosts.names, 1):
        (other,) = [one for one in hosts.names if one != name]
        run(hosts.inside(name, "setsid", "--fork", "wireguard-go", RAW))
        conf = (
            f"[Interface]\nPrivateKey = {keys[name].private}\nListenPort = {RAW_PORT}\n[Peer]\n"
            f"PublicKey = {keys[other].public}\nEndpoint = {hosts.lan.addresses[other]}:{RAW_PORT}\n"
            f"AllowedIPs = {RAW_NETWORK}0/24\n"
        )
        script = f"for i in $(seq 100); do wg setconf {RAW} /dev/stdin && exit 0; sleep 0.1; done; exit 1"
        file = hosts.directory / f"{name}-raw.conf"
        file.write_text(conf)
        run(hosts.inside(name, "sh", "-c", script.replace("/dev/stdin", str(file))))
        run(hosts.inside(name, "ip", "address", "add", f"{RAW_NETWORK}{number}/24", "dev", RAW))
        run(hosts.inside(name, "ip", "link", "set", "dev", RAW, "mtu", str(mtu), "up"))


def throughput(server: Sequence[str], client: Callable[..., list[str]], address: str, seconds: int) -> float:
    """Return bits per second that one TCP connection carried."""
    listening = subprocess.Popen([*server, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        said = json.loads(run(client("iperf3", "-c", address, "-t", str(seconds), "-J")))
        return float(said["end"]["sum_received"]["bits_per_second"])
    finally:
        listening.terminate()
        listening.wait()


def latency(client: Callable[..., list[str]], address: str, count: int) -> float:
    """Return the median round trip in milliseconds."""
    said = run(client("ping", "-n", "-c", str(count), "-i", "0.01", address))
    return statistics.median(float(one) for one in re.findall(r"time=([0-9.]+) ms", said))


def no_tunnel(hosts: Hosts, name: str) -> bool:
    """Tell whether nothing of the fabric is left on a host."""
    return "liqod" not in hosts.output(hosts.inside(name, "ip", "-br", "link"))


def first_packet(hosts: Hosts, address: str) -> float:
    """Return the seconds from the acceptance on both sides to the first answer of the peer's pod."""
    for one, two in (("a", "b"), ("b", "a")):
        hosts.unpeer(one, two)
    for name in hosts.names:
        eventually("no tunnel", partial(no_tunnel, hosts, name), 60)
    command = hosts.in_pod("a", "ping", "-n", "-D", "-i", "0.01", "-W", "1", address)
    pinging = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert pinging.stdout is not None
    try:
        hosts.peer("b", "a")
        hosts.peer("a", "b")
        accepted = time.time()
        for line in pinging.stdout:
            if stamp := re.match(r"\[([0-9.]+)\].*time=", line):
                return float(stamp[1]) - accepted
    finally:
        pinging.kill()
        pinging.wait()
    sys.exit("the ping ended")


def costs(hosts: Hosts, name: str) -> dict[str, int]:
    """Return how many things a host's kernel holds for the fabric."""
    table = json.loads(run(hosts.inside(name, "nft", "-j", "list", "table", "inet", "liqod")))["nftables"]
    return {
        "nftables rules": sum("rule" in one for one in table),
        "routes": len(run(hosts.inside(name, "ip", "route", "show", "table", "18952")).splitlines()),
        "policy rules": run(hosts.inside(name, "ip", "rule")).count("18952:"),
        "devices": run(hosts.inside(name, "ip", "-br", "link")).count("liqod"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fabric", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all ways in turn")
    parser.add_argument("--seconds", type=int, default=4, help="seconds of each transfer")
    parser.add_argument("--pings", type=int, default=300, help="pings of each round")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    lacking = [f"the program {name} is not installed" for name in ("iperf3", "ping") if shutil.which(name) is None]
    if why := missing() or "; ".join(lacking):
        sys.exit(why)
    with Hosts("a", "b") as hosts:
        hosts.start()
        eventually("the tunnel", lambda: hosts.connected(("a", "b"), ("b", "a")), 60)
        make_raw(hosts, 1420)
        there = hosts.seen("a", "b")
        ways = {
            "pod to pod, liqod": (hosts.in_pod("b"), lambda *words: hosts.in_pod("a", *words), there),
            "hosts, wireguard-go alone": (
                hosts.inside("b"),
                lambda *words: hosts.inside("a", *words),
                f"{RAW_NETWORK}2",
            ),
            "hosts, no tunnel": (hosts.inside("b"), lambda *words: hosts.inside("a", *words), hosts.lan.addresses["b"]),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        trips: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, (server, client, address) in ways.items():
                rates[name].append(throughput(server, client, address, options.seconds))
                trips[name].append(latency(client, address, options.pings))
        counted = costs(hosts, "a")
        took = [first_packet(hosts, there) for _ in range(3)]
    figures = {
        name: {"Mbit/s": statistics.median(rates[name]) / 1e6, "ms": statistics.median(trips[name])} for name in ways
    }
    ours, raw = figures["pod to pod, liqod"], figures["hosts, wireguard-go alone"]
    share, longer = ours["Mbit/s"] / raw["Mbit/s"], ours["ms"] / raw["ms"]
    for name, one in figures.items():
        print(f"{name:28} {one['Mbit/s']:9.0f} Mbit/s {one['ms']:8.3f} ms")
    print(f"liqod carries {share:.1%} of what wireguard-go alone does, at {longer:.2f} times its round trip")
    print("one peer takes: " + ", ".join(f"{count} {what}" for what, count in counted.items()))
    print("from acceptance to the first packet: " + ", ".join(f"{one:.2f} s" for one in took))
    if options.json:
        everything = {"ways": figures, "share": share, "longer": longer, "costs": counted, "firstPacket": took}
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
