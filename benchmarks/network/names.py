"""How long a pod waits for a name of its home, at a rate of questions.

    python -m benchmarks names [--rate 1000] [--seconds 20]

Three processes talk over the loopback interface: the one that answers tenants (liqod's, with the daemon's reactor), a
DNS server of the cluster that answers at once, and this one, which sends a question every so often whether or not the
ones before were answered. New names are each asked for the first time, a kept one over and over. CPU is that of the
process that answers, whatever else the machine does. Needs no root.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from benchmarks.figures.measure import spent, table

LOCAL = "127.0.0.1"
ANSWER = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x0a\x60\x00\x07"
"""A record with an address, whose name is that of the question (RFC 1035, 4.1.4)."""


def serve_dns() -> None:
    """Answer every question with an address; the first line of the output is the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOCAL, 0))
        print(sock.getsockname()[1], flush=True)
        while True:
            data, sender = sock.recvfrom(2048)
            sock.sendto(data[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + data[12:] + ANSWER, sender)


def serve_tenant(dns_port: int, rate: int) -> None:
    """Answer a tenant as the daemon does; the first line of the output is the port."""
    from twisted.internet import asyncioreactor

    asyncioreactor.install()  # before anything else imports the reactor
    from twisted.internet import reactor as installed

    from liqod.names.resolver import Resolver
    from liqod.names.server import Server
    from liqod.names.translation import TenantView
    from liqod.names.upstream import UpstreamServers

    reactor: Any = installed
    upstream = UpstreamServers(reactor)
    upstream.use([(LOCAL, dns_port)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOCAL, 0))
        port = sock.getsockname()[1]
    view = TenantView("home.example", "cluster.local", {"shop": "shop-rome"})
    Server(reactor, Resolver(reactor, upstream, view, rate), [LOCAL], port).listen()
    reactor.callWhenRunning(print, port, flush=True)
    reactor.run()


def waits(port: int, rate: int, seconds: float, name: str) -> list[float]:
    """Return how long each question waited, in seconds, in ascending order; one without an answer waited for ever.

    ``name`` may have the place of a number in it.
    """
    count = int(rate * seconds)
    sent, found = [0.0] * count, [float("inf")] * count
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, selectors.DefaultSelector() as selector:
        sock.connect((LOCAL, port))
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ)
        begin, number, end = time.perf_counter(), 0, 0.0
        while number < count or time.perf_counter() < end:
            now = time.perf_counter()
            if number < count and now >= begin + number / rate:
                labels = name.format(number).encode().split(b".")
                text = b"".join(bytes([len(one)]) + one for one in labels)
                sent[number] = now
                sock.send(struct.pack("!6H", number % 65536, 0x0100, 1, 0, 0, 0) + text + b"\0\0\x01\0\x01")
                number += 1
                end = now + 2.0
                continue
            left = (begin + number / rate if number < count else end) - now
            if selector.select(max(0.0, left)):
                data, now = sock.recv(2048), time.perf_counter()
                # Fewer than 65536 are open at a time: the newest with this number.
                index = number - 1 - (number - 1 - int.from_bytes(data[:2], "big")) % 65536
                if data[3] & 0xF == 0 and data[7]:
                    found[index] = now - sent[index]
                if number == count and all(one != float("inf") for one in found[-100:]):
                    break
    return sorted(found)


def measured(rate: int, seconds: float) -> str:
    """Return the table of docs/performance.md."""
    parts: list[Any] = []
    try:
        for words in (["--part", "dns"], ["--part", "tenant"]):
            port = [] if not parts else ["--port", parts[-1].stdout.readline().strip()]
            command = [sys.executable, "-m", "benchmarks.network.names", *words, *port, "--rate", str(rate)]
            parts.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        tenant: Any = parts[-1].stdout
        port_of_tenant = int(tenant.readline())
        waits(port_of_tenant, 200, 1.0, "warm-{}.shop.svc.home.example")
        rows = []
        for kind, name in (
            ("new names", "cache-{}.shop.svc.home.example"),
            ("a kept name", "cache.shop.svc.home.example"),
        ):
            before = spent(parts[-1].pid).cpu
            found = waits(port_of_tenant, rate, seconds, name)
            cpu = (spent(parts[-1].pid).cpu - before) / len(found)
            at = [f"{found[int(len(found) * part)] * 1000:.2f}" for part in (0.5, 0.99, 0.999)]
            rows.append((kind, len(found), f"{cpu * 1000:.2f}", *at, sum(one == float("inf") for one in found)))
        return table(("question", "asked", "CPU ms each", "P50 ms", "P99 ms", "P99.9 ms", "not answered"), rows)
    finally:
        for part in parts:
            part.kill()
            part.wait()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000, help="questions per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds for each kind of question")
    parser.add_argument("--part", choices=("dns", "tenant"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "dns":
        serve_dns()
    elif given.part == "tenant":
        serve_tenant(given.port, given.rate * 2)
    else:
        print(measured(given.rate, given.seconds))


if __name__ == "__main__":
    main()
