"""Many whole lenders in one process: for each an API server in memory with one large node, and the daemon.

Arguments: how many, the borrower's address (host:port), a directory for their kubeconfigs, a file that the API servers
note their requests in, if any. It prints ``ready`` when all daemons lead, and goes when its standard input is closed.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any, Final

from twisted.internet import asyncioreactor

asyncioreactor.install()

from kubesandbox.cluster import SandboxCluster  # noqa: E402
from kubesandbox.nodes.node import SandboxNode  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.internet.protocol import Protocol  # noqa: E402
from twisted.internet.stdio import StandardIO  # noqa: E402
from twisted.python import log  # noqa: E402

from benchmarks.peering.outcome import Outcome  # noqa: E402
from benchmarks.scale.lender_names import name_of  # noqa: E402
from benchmarks.scale.noted import cluster_of  # noqa: E402
from liqod.agent.service import Agent  # noqa: E402
from liqod.config import schema  # noqa: E402
from liqod.config.schema import Settings  # noqa: E402
from liqod.demo.access import client_config  # noqa: E402

REACTOR: Any = reactor
HERE: Final = "127.0.0.1"
ROOM: Final = SandboxNode(
    "node", cpu="100000", memory="1000Ti", pods="100000", extended={"ephemeral-storage": "1000Ti"}
)
UNBOUND: Final = "1000000"
RUNNING: Final[list[tuple[SandboxCluster, Agent]]] = []
"""What this process has: nothing of it may be collected."""


def settings(name: str, borrower: str) -> Settings:
    """Return the settings of a lender that lets its borrower have as many objects as it likes."""
    objects = {"count/secrets": UNBOUND, "count/configmaps": UNBOUND, "services": UNBOUND}
    return Settings(
        cluster=schema.ClusterSettings(id=name, name=name),
        discovery=schema.DiscoverySettings(mdns=False, peers=[schema.PeerSettings(borrower)]),
        peering=schema.PeeringSettings(
            listen=f"tcp:0:interface={HERE}", advertise_addresses=[HERE], autojoin_untrusted=True
        ),
        sharing=schema.SharingSettings(percentage=90),
        # What the borrower offers in turn is left unanswered.
        acceptance=schema.AcceptanceSettings(policy="Manual"),
        hosting=schema.HostingSettings(
            objects=objects,
            tenant_objects=objects,
            tenant_records={"shadowendpointslices": UNBOUND, "bytes": "4Gi"},
            tenant_contents="4Gi",
            tenant_writes="",
        ),
        kubelet=schema.KubeletSettings(listen=f"tcp:0:interface={HERE}", node_address=HERE),
        webhook=schema.WebhookSettings(listen=f"tcp:0:interface={HERE}"),
        # All daemons and API servers of this process share one core: in a burst each has its turn after many seconds.
        leader=schema.LeaderSettings(identity=name, lease_duration=300),
        metrics=schema.MetricsSettings(listen=""),
        network=schema.NetworkSettings(mode="none", service_cidrs=["10.96.0.0/16"]),
    )


class Input(Protocol):
    """Ends the process with its standard input."""

    def connectionLost(self, reason: Any = None) -> None:
        if REACTOR.running:
            REACTOR.stop()


async def prepare(count: int, borrower: str, directory: Path, noted: str) -> None:
    """Make the lenders one after the other, and say when the last one leads."""
    for number in range(1, count + 1):
        name = name_of(number)
        cluster = cluster_of(REACTOR, name, (ROOM,), noted)
        cluster.listen(REACTOR)
        cluster.startService()
        (directory / name).write_text(cluster.kubeconfig())
        agent = Agent(REACTOR, settings(name, borrower), client_config=client_config(cluster), hostname=name)
        agent.startService()
        RUNNING.append((cluster, agent))
        await agent.ready.wait()
    gc.freeze()
    StandardIO(Input())
    print("ready", flush=True)


def main(count: str, borrower: str, directory: str, noted: str = "") -> int:
    """Run until standard input is closed, and return 0; 1 where the lenders were not made."""
    log.startLogging(sys.stderr, setStdout=False)
    outcome = Outcome()
    preparing = Deferred.fromCoroutine(prepare(int(count), borrower, Path(directory), noted))
    preparing.addErrback(outcome.failed)
    REACTOR.run()
    return outcome.status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
