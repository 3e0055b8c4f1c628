"""A connection that is held open while other things change, with data flowing in both directions all the time.

``steady.py serve PORT`` gives back what it gets, by TCP and by UDP. ``steady.py call ADDRESS PORT FILE`` sends a number
on one connection, and the same in a datagram, every 20 ms, and writes to the file once a second what came back: it ends
with an error when the connection does.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

PAUSE: Final = 0.02
PATIENCE: Final = 600.0
"""Seconds without an answer after which a connection counts as lost; the kernel gives up later than that."""


def serve(port: int) -> None:
    """Give back what comes, for ever."""
    listener = socket.create_server(("", port))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("", port))
    connections: list[socket.socket] = []
    while True:
        for ready in select.select([listener, datagrams, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
            elif ready is datagrams:
                content, sender = datagrams.recvfrom(100)
                with contextlib.suppress(OSError):
                    datagrams.sendto(content, sender)
            elif content := ready.recv(4096):
                ready.sendall(content)
            else:
                connections.remove(ready)
                ready.close()


class Caller:
    """The calling end, with what it has seen."""

    def __init__(self, address: str, port: int, file: Path) -> None:
        self._file = file
        self._connection = socket.create_connection((address, port), 60)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.setblocking(False)
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.connect((address, port))
        self._datagrams.setblocking(False)
        self._rest = b""
        self._came = time.monotonic()
        self.seen: dict[str, Any] = {
            "sent": 0, "back": 0, "datagrams": 0, "answered": 0, "longest_pause": 0.0, "lost": ""
        }  # fmt: skip

    def run(self) -> int:
        """Call until the signal to end, or until the connection ends; return the exit status."""
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
        written = 0.0
        while not ended and not self.seen["lost"]:
            self._send()
            until = time.monotonic() + PAUSE
            while (left := until - time.monotonic()) > 0 and not self.seen["lost"]:
                for ready in select.select([self._connection, self._datagrams], [], [], left)[0]:
                    self._receive(ready)
            if time.monotonic() - self._came > PATIENCE:
                self.seen["lost"] = f"no answer for {PATIENCE:.0f} s"
            if time.monotonic() - written > 1:
                written = time.monotonic()
                self._write()
        self._write()
        return 1 if self.seen["lost"] else 0

    def _send(self) -> None:
        line = b"%08d\n" % self.seen["sent"]
        try:
            # While the way is cut the buffer fills; what does not fit as a whole is not sent.
            if select.select([], [self._connection], [], 0)[1]:
                assert self._connection.send(line) == len(line)
                self.seen["sent"] += 1
        except OSError as error:
            self.seen["lost"] = f"sending: {error}"
        self.seen["datagrams"] += 1
        # A way that is cut may be said by ICMP, which is an error of a datagram's socket.
        with contextlib.suppress(OSError):
            self._datagrams.send(line)

    def _receive(self, ready: socket.socket) -> None:
        try:
            content = ready.recv(65536)
        except OSError as error:
            if ready is self._connection:
                self.seen["lost"] = f"receiving: {error}"
            return
        if ready is self._datagrams:
            self.seen["answered"] += 1
            return
        if not content:
            self.seen["lost"] = "the other end closed the connection"
            return
        now = time.monotonic()
        self.seen["longest_pause"] = round(max(self.seen["longest_pause"], now - self._came), 3)
        self._came = now
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            if int(line) != self.seen["back"]:
                self.seen["lost"] = f"{line!r} came back after {self.seen['back']} lines"
            self.seen["back"] += 1

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.seen))
        fresh.replace(self._file)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    sys.exit(Caller(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])).run())
