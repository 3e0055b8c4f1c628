"""What runs in pods: ``serve PORT``, or ``ask HOST PORT BYTES`` (whom did the server see, did all bytes come back?).

``keep HOST PORT SECONDS [FILE]`` holds one connection, a line every 20 ms, until there is such a file or so long, and
says how long the longest silence was;
``stream HOST PORT SECONDS`` makes one connection after the other, and says how many failed; ``pump HOST PORT SECONDS``
sends and receives as much as goes in steps.
``questions HOST PORT`` and ``answers PORT`` are the two ends of a flow of datagrams; ``trips HOST PORT COUNT`` says how
long so many round trips took, ``first HOST PORT`` when the first one of many short flows came back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import select
import socket
import socketserver
import sys
import time
from collections.abc import Callable

PATIENCE = 60
"""Seconds after which a connection counts as lost. wireguard-go sends from an address that is gone until it has
received nothing for 15 seconds, and TCP waits longer with every attempt."""


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(json.dumps({"client": self.client_address[0].removeprefix("::ffff:")}).encode() + b"\n")
        while data := self.request.recv(65536):
            self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    address_family = socket.AF_INET6  # which takes IPv4 as well


def serve(port: str) -> None:
    """Echo to everyone."""
    with _Server(("", int(port)), _Echo) as server:
        print("ready", flush=True)
        server.serve_forever()


def ask(host: str, port: str, count: str) -> None:
    """Send so many bytes, have them back, and say whom the server saw."""
    payload = random.Random(1).randbytes(int(count))
    started = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        stream = sock.makefile("rb")
        seen = json.loads(stream.readline())["client"]
        back = hashlib.sha256()
        sent = received = 0
        while received < len(payload):
            if sent < len(payload):
                chunk = payload[sent : sent + 32768]
                sock.sendall(chunk)
                sent += len(chunk)
            data = stream.read1(65536)
            back.update(data)
            received += len(data)
    whole = back.digest() == hashlib.sha256(payload).digest()
    print(json.dumps({"seen": seen, "whole": whole, "seconds": time.monotonic() - started}))


def keep(host: str, port: str, seconds: str, until: str = "") -> None:
    """Hold one connection and measure the longest silence."""
    longest, count = 0.0, 0
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        stream = sock.makefile("rb")
        stream.readline()
        print("ready", flush=True)
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end and not (until and os.path.exists(until)):
            at = time.monotonic()
            sock.sendall(b"%d\n" % count)
            assert stream.readline() == b"%d\n" % count
            longest, count = max(longest, time.monotonic() - at), count + 1
            time.sleep(0.02)
    print(json.dumps({"longest": longest, "count": count}))


def stream(host: str, port: str, seconds: str) -> None:
    """Make one connection after the other, each with a line there and back; say how many failed, and the slowest."""
    made = failed = 0
    slowest = 0.0
    print("ready", flush=True)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        at = time.monotonic()
        try:
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
                stream = sock.makefile("rb")
                stream.readline()
                sock.sendall(b"once\n")
                failed += stream.readline() != b"once\n"
        except OSError:
            failed += 1
        made, slowest = made + 1, max(slowest, time.monotonic() - at)
        time.sleep(0.02)
    print(json.dumps({"made": made, "failed": failed, "slowest": slowest}))


def pump(host: str, port: str, seconds: str) -> None:
    """Send 32 KB, have them back unharmed, and so on without a pause of more than 20 ms; say how many bytes it were."""
    count, chunk = 0, random.Random(2).randbytes(32768)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        stream = sock.makefile("rb")
        stream.readline()
        print("ready", flush=True)
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            sock.sendall(chunk)
            assert stream.read(len(chunk)) == chunk
            count += len(chunk)
            time.sleep(0.02)
    print(json.dumps({"bytes": count}))


def datagrams(host: str, port: str, *sizes: str) -> None:
    """Send datagrams that may not be fragmented, as IP packets of these sizes; say which could be sent in the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        sock.connect((host, int(port)))
        for size in sizes:
            for _ in range(3):
                try:
                    sock.send(bytes(int(size) - 28))
                except OSError:
                    continue
                time.sleep(0.05)
        passed = [int(size) for size in sizes if _sendable(sock, int(size))]
    print(json.dumps(passed))


def questions(host: str, port: str) -> None:
    """Ask by datagrams between two fixed ports, one for each line of the input; say whether it was answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", int(port)))
        sock.connect((host, int(port)))
        sock.settimeout(1)
        print("ready", flush=True)
        for line in sys.stdin:
            answer = b""
            with contextlib.suppress(OSError):
                sock.send(line.encode())
                while answer != line.encode():  # an earlier one may have come late
                    answer = sock.recv(100)
            print("yes" if answer else "no", flush=True)


def answers(port: str) -> None:
    """Send every datagram back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", int(port)))
        print("ready", flush=True)
        while True:
            sock.sendto(*sock.recvfrom(65535))


def trips(host: str, port: str, count: str) -> None:
    """Measure round trips of small datagrams, one after the other; say the microseconds of each that came back."""
    times = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((host, int(port)))
        sock.settimeout(1)
        for number in range(int(count)):
            question = number.to_bytes(56)
            at = time.perf_counter()
            sock.send(question)
            with contextlib.suppress(TimeoutError):
                while sock.recv(100) != question:  # an earlier one may have come late
                    pass
                times.append((time.perf_counter() - at) * 1e6)
    print(json.dumps(times))


def first(host: str, port: str) -> None:
    """Ask every 10 ms from another port, until one is answered; say when that was, in seconds since 1970."""
    asked: list[socket.socket] = []
    print("ready", flush=True)
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked.append(sock)
        with contextlib.suppress(OSError):
            sock.connect((host, int(port)))
            sock.send(b"first")
        # One that was sent before the path stood is never answered: the last two seconds are enough.
        while len(asked) > 200:
            asked.pop(0).close()
        got, _, _ = select.select(asked, [], [], 0.01)
        for one in got:
            with contextlib.suppress(OSError):
                if one.recv(100) == b"first":
                    print(json.dumps(time.time()))
                    return


def _sendable(sock: socket.socket, size: int) -> bool:
    """Tell whether a packet of a size can be sent; errors about earlier packets come first and do not matter."""
    for _ in range(5):
        with contextlib.suppress(OSError):
            sock.send(bytes(size - 28))
            return True
    return False


COMMANDS: dict[str, Callable[..., None]] = {
    "serve": serve,
    "ask": ask,
    "keep": keep,
    "stream": stream,
    "pump": pump,
    "datagrams": datagrams,
    "questions": questions,
    "answers": answers,
    "trips": trips,
    "first": first,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
