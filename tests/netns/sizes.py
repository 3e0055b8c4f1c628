"""What becomes of datagrams that may not be fragmented, of every size: ``echo PORT``, ``sweep HOST PORT HOW LOW HIGH``.

Sizes are those of whole IPv4 packets. Each datagram comes back as it was sent, so that both directions are tried. HOW
is ``do`` (what ordinary programs use: the kernel refuses what it knows to be too large for the path) or ``probe`` (it
remembers nothing, so that every size really meets the path). The last line says, as JSON, which sizes passed unharmed
and which were refused to the sender, as pairs of first and last; and which were neither, or came back as others.
"""

from __future__ import annotations

import contextlib
import errno
import json
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable

HEADERS = 28
"""Bytes of IPv4 and UDP."""
WAYS = {"do": 2, "probe": 3}
"""IP_PMTUDISC_DO and IP_PMTUDISC_PROBE of linux/in.h."""
BATCH = 16
"""How many are under way at once at first; those that did not come back are sent again one by one."""
ATTEMPTS = 6


def endpoint(how: str) -> socket.socket:
    """Return a socket whose packets may not be fragmented."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, 10, WAYS[how])  # IP_MTU_DISCOVER
    sock.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: what the path refuses is kept, with its first bytes
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    return sock


def content(size: int) -> bytes:
    """Return what a packet of a size carries: the size, and then other bytes for every size."""
    return size.to_bytes(2) + random.Random(size).randbytes(size - HEADERS - 2)


def echo(port: str) -> None:
    """Send everything back."""
    with endpoint("probe") as sock:
        sock.bind(("", int(port)))
        print("ready", flush=True)
        while True:
            with contextlib.suppress(OSError):  # one that is too large for the way back is its sender's to miss
                sock.sendto(*sock.recvfrom(65535))


class Sweep:
    """What became of each size so far."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.passed: set[int] = set()
        self.refused: set[int] = set()
        self.harmed: set[int] = set()

    def send(self, size: int) -> bool:
        """Send one; False where it did not leave: what the kernel refuses at once is noted."""
        self.complaints()
        try:
            self.sock.send(content(size))
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            if not self.complaints():  # else it was about an earlier one
                self.refused.add(size)
            return False
        return True

    def complaints(self) -> bool:
        """Note which sizes were refused on the way: such a packet comes back with its beginning."""
        found = False
        while True:
            try:
                beginning, _, _, _ = self.sock.recvmsg(65535, 256, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                return found
            if len(beginning) >= 2:
                found = True
                self.refused.add(int.from_bytes(beginning[:2]))

    def listen(self, waiting: set[int], seconds: float) -> None:
        """Note what comes back until nothing is waited for."""
        end = time.monotonic() + seconds
        while waiting and (left := end - time.monotonic()) > 0:
            if not select.select([self.sock], [], [], left)[0]:
                return
            self.complaints()
            with contextlib.suppress(OSError):  # what was complained about
                data = self.sock.recv(65535, socket.MSG_DONTWAIT)
                size = len(data) + HEADERS
                (self.passed if data == content(size) else self.harmed).add(size)
            waiting -= self.passed | self.refused

    def alone(self, size: int) -> None:
        """Try one until it came back or was refused: a packet may get lost, not all of them."""
        for attempt in range(ATTEMPTS):
            if self.send(size):
                self.listen({size}, 0.5 + attempt)
            if size in self.passed | self.refused:
                return


def ranges(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as pairs of first and last."""
    found: list[tuple[int, int]] = []
    for size in sorted(sizes):
        if found and found[-1][1] == size - 1:
            found[-1] = (found[-1][0], size)
        else:
            found.append((size, size))
    return found


def sweep(host: str, port: str, how: str, low: str, high: str) -> None:
    """Try every size from the one to the other, both included."""
    sizes = range(int(low), int(high) + 1)
    with endpoint(how) as sock:
        sock.connect((host, int(port)))
        one = Sweep(sock)
        for at in range(0, len(sizes), BATCH):
            batch = sizes[at : at + BATCH]
            one.listen({size for size in batch if one.send(size)}, 0.3)
            for size in set(batch) - one.passed - one.refused:
                one.alone(size)
        neither = set(sizes) - one.passed - one.refused
        both = one.passed & one.refused
    print(
        json.dumps(
            {
                "passed": ranges(one.passed),
                "refused": ranges(one.refused),
                "vanished": ranges(neither),
                "harmed": ranges(one.harmed | both),
            }
        )
    )


COMMANDS: dict[str, Callable[..., None]] = {"echo": echo, "sweep": sweep}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
