"""What one TLS handshake costs the daemon that is shown a chain of certificates: CPU milliseconds of its thread.

    python -m benchmarks handshake [rounds]

Prints the median of the listening and of the dialling side. Nothing leaves the process.
"""

from __future__ import annotations

import contextlib
import datetime
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.test.iosim import connectedServerAndClient

from liqod.identity.certs import generate
from liqod.identity.tls import PeerTLS
from liqod.model.ids import ClusterID
from liqod.model.records.offer import Refusal
from tests.identity.hostile_chains import Shows, chain, slow_rsa
from tests.identity.tls_pair import Authority, Recorder

try:
    from liqod.flow.connections.handshake import BoundedTLS

    OURS: Any = BoundedTLS
except ImportError:
    OURS = TLSMemoryBIOFactory


class Meter:
    """Adds up the CPU time of what a side does with bytes."""

    def __init__(self) -> None:
        self.spent = 0.0

    def around(self, protocol: Any) -> Any:
        """Have a protocol's work on received bytes counted."""
        received = protocol.dataReceived

        def counted(data: bytes) -> None:
            began = time.thread_time()
            try:
                received(data)
            finally:
                self.spent += time.thread_time() - began

        protocol.dataReceived = counted
        return protocol


def cost(ours: PeerTLS, theirs: Any, *, dialling: bool) -> float:
    """Return the CPU seconds that one handshake costs us, reading the certificate included."""
    meter, clock = Meter(), Clock()
    mine, other = Recorder(), Recorder()
    creator: Any = ours.client_creator() if dialling else ours.server_creator()

    def build(protocol: Recorder, made: Any, is_client: bool, maker: Any) -> Any:
        return maker(made, is_client, Factory.forProtocol(lambda: protocol), clock).buildProtocol(None)

    def server() -> Any:
        if dialling:
            return build(other, theirs, False, TLSMemoryBIOFactory)
        return meter.around(build(mine, creator, False, OURS))

    def client() -> Any:
        if dialling:
            return meter.around(build(mine, creator, True, OURS))
        return build(other, theirs, True, TLSMemoryBIOFactory)

    _, _, pump = connectedServerAndClient(server, client, clock=clock)
    for _ in range(10):
        pump.flush()
        clock.advance(0)
    began = time.thread_time()
    if "handshake" in mine.seen and "lost" not in mine.seen:
        with contextlib.suppress(Refusal):
            ours.peer_certificate(mine.transport)
    return meter.spent + time.thread_time() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    now = datetime.datetime.now(datetime.UTC)
    own = generate(ClusterID("alpha"), now)
    authority = Authority(now=now)
    member = authority.issue("beta", start=now - datetime.timedelta(days=1), end=now + datetime.timedelta(days=1))
    ordinary = ed25519.Ed25519PrivateKey.generate()
    slow, plain = slow_rsa(), rsa.generate_private_key(65537, 3072)
    large = slow_rsa(2048)
    curve = ec.generate_private_key(ec.SECP521R1())
    kinds: dict[str, Callable[[], Any]] = {
        "Ed25519, self-signed": lambda: Shows(ordinary, chain(ordinary, 1, now=now)),
        "of the CA": lambda: Shows(member.key, list(member.chain)),
        "RSA-3072, long exponent, alone": lambda: Shows(slow, chain(slow, 1, now=now)),
        "the same, 10 of them": lambda: Shows(slow, chain(slow, 10, now=now)),
        "the same, 24 of them": lambda: Shows(slow, chain(slow, 24, now=now)),
        "RSA-2048, long exponent, 30": lambda: Shows(large, chain(large, 30, now=now)),
        "RSA-3072, 65537, 6": lambda: Shows(plain, chain(plain, 6, now=now)),
        "P-521, 6": lambda: Shows(curve, chain(curve, 6, now=now)),
        "P-521, 60": lambda: Shows(curve, chain(curve, 60, now=now)),
        "Ed25519, 70": lambda: Shows(ordinary, chain(ordinary, 70, now=now)),
    }
    print(f"{'shown':32} {'listening':>10} {'dialling':>10} {'with a CA':>10}   ms of CPU, median of {rounds}")
    for name, make in kinds.items():
        shown = make()
        without, having = PeerTLS(own), PeerTLS(own, authority.pem)
        row = [
            statistics.median(cost(ours, shown, dialling=dialling) * 1000 for _ in range(rounds))
            for ours, dialling in ((without, False), (without, True), (having, False))
        ]
        print(f"{name:32} {row[0]:10.2f} {row[1]:10.2f} {row[2]:10.2f}")


if __name__ == "__main__":
    main()
