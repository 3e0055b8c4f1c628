"""Bad callers of a daemon's peering port: ``python -m tests.real.intruder HOST PORT KIND``; prints how it ended.

``garbage`` is no TLS at all, ``alpn`` TLS for another protocol, ``bare`` TLS without a certificate; ``oversized``,
``nonsense`` and ``unknown`` come with a key that nobody trusts and then say a frame of 4 GiB, a frame that is no
message, and a proper greeting; ``slow`` says the first half of a frame and waits.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import tempfile
import time
from datetime import UTC, datetime

from liqod.identity.certs import KeyPair, generate
from liqod.model.ids import ClusterID
from liqod.wire.events import Hello
from liqod.wire.session import SessionProtocol

WITH_KEY = ("oversized", "nonsense", "unknown", "slow")


def context(keypair: KeyPair | None, protocol: str) -> ssl.SSLContext:
    """Return a client's TLS, with or without a certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols([protocol])
    if keypair is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(keypair.key_pem + keypair.certificate_pem)
            file.flush()
            made.load_cert_chain(file.name)
    return made


def said(kind: str) -> bytes:
    """Return what a caller says first."""
    match kind:
        case "garbage":
            return os.urandom(4096)
        case "oversized":
            return b"\xff\xff\xff\xff" + b"x" * 100_000
        case "nonsense":
            return b"\x00\x00\x00\x05\xc1\xc1\xc1\xc1\xc1"
        case "slow":
            return b"\x00\x00\x00\x80half"
        case "unknown":
            hello = Hello("11111111-2222-3333-4444-555555555555", "stranger", epoch=1, min_minor=0, max_minor=0)
            return SessionProtocol("dialer").send(hello)
        case _:
            return b""


def call(host: str, port: int, kind: str) -> float:
    """Make the call and return after how many seconds the other side hung up."""
    begin = time.monotonic()
    with socket.create_connection((host, port), timeout=40) as plain:
        stream: socket.socket = plain
        with contextlib.suppress(OSError):
            if kind != "garbage":
                keypair = generate(ClusterID("stranger"), datetime.now(UTC)) if kind in WITH_KEY else None
                stream = context(keypair, "h2" if kind == "alpn" else "liqod/1").wrap_socket(plain)
            stream.sendall(said(kind))
            while stream.recv(1 << 16):
                pass
    return time.monotonic() - begin


if __name__ == "__main__":
    print(f"{call(sys.argv[1], int(sys.argv[2]), sys.argv[3]):.1f}")
