"""Many lightweight clusters in one process: an API server in memory and the peering of the daemon for each.

Arguments: how many, the hub's address (host:port). It prints ``ready`` when all stand, lets all dial the hub at a line
on its standard input, and goes when that is closed.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from twisted.internet import asyncioreactor

asyncioreactor.install()

from kubesandbox.nodes.node import SandboxNode  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.internet.stdio import StandardIO  # noqa: E402
from twisted.protocols.basic import LineOnlyReceiver  # noqa: E402
from twisted.python import log  # noqa: E402

from benchmarks.peering.outcome import Outcome  # noqa: E402
from liqod.config.schema import (  # noqa: E402
    AcceptanceSettings,
    PeeringSettings,
    Settings,
)
from liqod.model.ids import ClusterID  # noqa: E402
from liqod.model.names import tenant_namespace  # noqa: E402
from liqod.model.records.offer import AccessGrant  # noqa: E402
from tests.peering.clusters import FakeLender, FakeSighting, PeerCluster  # noqa: E402

REACTOR: Any = reactor


class OpenRoom(FakeLender):
    """A lender that lets borrowers in as its administrator, at its real API server."""

    side: PeerCluster

    async def admit(self, peer: ClusterID, offered: Any) -> AccessGrant:
        self.tenants[peer] = dict(offered)
        cluster = self.side.cluster
        return AccessGrant(
            api_url=cluster.url,
            ca=cluster.authority.pem.decode(),
            token=cluster._admin_token,
            lifetime=86400,
            namespace=tenant_namespace(peer),
        )


def settings() -> Settings:
    """Return what every peer is configured with."""
    return Settings(
        peering=PeeringSettings(listen="tcp:0:interface=127.0.0.1", autojoin_untrusted=True),
        acceptance=AcceptanceSettings(policy="AutoAcceptAll"),
    )


class Orders(LineOnlyReceiver):
    """Takes the one order there is."""

    delimiter = b"\n"

    def __init__(self, sides: list[PeerCluster], hub: FakeSighting) -> None:
        self._sides = sides
        self._hub = hub

    def lineReceived(self, line: bytes) -> None:
        for side in self._sides:
            side.peering.update_candidates([self._hub])

    def connectionLost(self, reason: Any = None) -> None:
        if REACTOR.running:
            REACTOR.stop()


async def prepare(count: int, hub: FakeSighting) -> None:
    """Make the clusters and say so."""
    sides = []
    for number in range(count):
        side = PeerCluster(f"peer-{number}", settings())
        room = side.room = OpenRoom()
        room.side = side
        await side.make()
        await side.start()
        side.cluster.nodes.add(SandboxNode("one", cpu="10", memory="10Gi"))  # it lives: what is offered stays as it is
        side.cluster.listen(REACTOR)  # by TLS as well: nothing else is believed to be an API server
        sides.append(side)
    gc.freeze()
    StandardIO(Orders(sides, hub))
    print("ready", flush=True)


def main(count: str, hub: str) -> int:
    """Run until standard input is closed, and return 0; 1 where the peers were not made."""
    log.startLogging(sys.stderr, setStdout=False)
    host, _, port = hub.rpartition(":")
    outcome = Outcome()
    preparing = Deferred.fromCoroutine(prepare(int(count), FakeSighting(host, int(port))))
    preparing.addErrback(outcome.failed)
    REACTOR.run()
    return outcome.status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
