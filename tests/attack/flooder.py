"""Floods a daemon from one place: ``python -m tests.attack.flooder FILE``; prints how many items were sent, as JSON.

FILE is JSON: ``kind`` and ``shape``, ``host``, ``port``, ``seconds``; for what a peer sends ``certificate`` (a PEM file
with its key) and ``cluster_id``; for the relay ``path``. An item is a handshake, a first frame, an offer, a review, a
request or a question. It runs at the lowest priority, so that the machine is not what is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import select
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from liqod.wire.errors import ProtocolError
from liqod.wire.events import Hello, Ping, Pong
from liqod.wire.session import NEED_DATA, SessionProtocol, SessionState
from tests.attack import shapes

THREADS: Final = 8
PATIENCE: Final = 10.0
"""Seconds that a caller waits for an answer."""
SILENT: Final = 600
"""Connections that say nothing and are held."""

Task = Mapping[str, Any]


def context(certificate: str, *protocols: str) -> ssl.SSLContext:
    """Return a client's TLS that takes any server."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_ciphers("DEFAULT:@SECLEVEL=0")
    if protocols:
        made.set_alpn_protocols(list(protocols))
    if certificate:
        made.load_cert_chain(certificate)
    return made


@contextlib.contextmanager
def _called(task: Task, tls: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection((task["host"], task["port"]), timeout=PATIENCE) as plain,
        tls.wrap_socket(plain) as stream,
    ):
        yield stream


def handshakes(task: Task) -> Iterator[int]:
    """Make handshakes and hang up."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(shapes.identity(task["shape"], datetime.now(UTC)))
        file.flush()
        tls = context(file.name, "liqod/1")
    while True:
        with contextlib.suppress(OSError), _called(task, tls) as stream:
            stream.settimeout(0.2)
            # With TLS 1.3 the client's certificate is judged after its own side is done.
            stream.recv(1)
        yield 1


def frames(task: Task) -> Iterator[int]:
    """Say a first frame and wait for what comes of it."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(shapes.identity("ordinary", datetime.now(UTC)))
        file.flush()
        tls = context(file.name, "liqod/1")
    said = shapes.first_frame(task["shape"])
    while True:
        with contextlib.suppress(OSError), _called(task, tls) as stream:
            stream.sendall(said)
            stream.settimeout(1.0)
            while stream.recv(1 << 16):
                pass
        yield 1


def offers(task: Task) -> Iterator[int]:
    """Be the peer, and say offers and withdrawals for as long as a session lasts; begin again when it ends."""
    tls = context(task["certificate"], "liqod/1")
    while True:
        with contextlib.suppress(OSError, ProtocolError), _called(task, tls) as stream:
            epoch = int(time.time())
            session = SessionProtocol("dialer")
            hello = Hello(task["cluster_id"], "milan", epoch=epoch, min_minor=0, max_minor=0)
            stream.sendall(session.send(hello))
            while session.state is not SessionState.ESTABLISHED:
                _answered(session, stream)
            for event in shapes.offers(epoch):
                stream.sendall(session.send(event))
                yield 1
                while stream.pending() or select.select([stream], [], [], 0)[0]:
                    _answered(session, stream)
        yield 0
        time.sleep(0.5)


def _answered(session: SessionProtocol, stream: ssl.SSLSocket) -> None:
    """Read what there is, and answer what has to be answered; raises OSError at the end of the session."""
    data = stream.recv(1 << 16)
    if not data:
        raise ConnectionResetError
    session.receive_data(data)
    while (event := session.next_event()) is not NEED_DATA:
        if isinstance(event, Hello):
            stream.sendall(session.send(session.welcome()))
        elif isinstance(event, Ping):
            stream.sendall(session.send(Pong(event.payload)))
    if session.state is SessionState.CLOSED:
        raise ConnectionResetError


def reviews(task: Task) -> Iterator[int]:
    """Have pods reviewed."""
    body = shapes.review(task["shape"])
    yield from _requests(task, context(""), "POST", lambda: {"Content-Type": "application/json"}, body)


def kubelet(task: Task) -> Iterator[int]:
    """Ask a virtual node's API with tokens that nobody knows, or hold connections and say nothing."""
    if task["shape"] == "silent":
        yield from _silent(task)
        return
    yield from _requests(task, context(""), "GET", lambda: {"Authorization": f"Bearer {secrets.token_urlsafe(24)}"})


def relay(task: Task) -> Iterator[int]:
    """Ask for the peer's own pods, or for what is not its own, by the relay."""
    yield from _requests(task, context(task["certificate"], "http/1.1"), "GET", dict)


def _requests(
    task: Task, tls: ssl.SSLContext, method: str, headers: Callable[[], dict[str, str]], body: bytes = b""
) -> Iterator[int]:
    asking: http.client.HTTPSConnection | None = None
    while True:
        try:
            if asking is None:
                asking = http.client.HTTPSConnection(task["host"], task["port"], context=tls, timeout=PATIENCE)
            asking.request(method, task["path"], body or None, headers())
            asking.getresponse().read()
        except (OSError, http.client.HTTPException):
            if asking is not None:
                asking.close()
            asking = None
        yield 1


def _silent(task: Task) -> Iterator[int]:
    held: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((task["host"], task["port"]), timeout=PATIENCE))
        if len(held) > SILENT // THREADS:
            held.pop(0).close()
        yield 1
        time.sleep(0.002)


def dns(task: Task) -> Iterator[int]:
    """Ask questions, and let their answers be."""
    begin = secrets.randbelow(1 << 30)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((task["host"], task["port"]))
        sock.setblocking(False)
        number = begin
        while True:
            number += 1
            with contextlib.suppress(OSError):
                sock.send(shapes.question(number, task["shape"]))
            with contextlib.suppress(OSError):
                sock.recv(4096)
            yield 1


KINDS: Final[Mapping[str, Callable[[Task], Iterator[int]]]] = MappingProxyType(
    {
        "handshakes": handshakes,
        "frames": frames,
        "offers": offers,
        "reviews": reviews,
        "kubelet": kubelet,
        "relay": relay,
        "dns": dns,
    }
)
ALONE: Final = ("offers",)
"""Kinds of which there is one at a time: a peer has one session."""


def flood(task: Task) -> int:
    """Flood until the time is over; return how many items were sent."""
    end = time.monotonic() + task["seconds"]
    counts: list[int] = []

    def work() -> None:
        count = 0
        for sent in KINDS[task["kind"]](task):
            count += sent
            if time.monotonic() >= end:
                break
        counts.append(count)

    threads = [threading.Thread(target=work) for _ in range(1 if task["kind"] in ALONE else THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


if __name__ == "__main__":
    os.nice(19)
    # Linux shares time among sessions first, each with a priority of its own: sched(7), "The autogroup feature".
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    print(json.dumps({"items": flood(json.loads(Path(sys.argv[1]).read_text()))}))
