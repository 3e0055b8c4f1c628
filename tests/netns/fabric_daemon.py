"""The network fabric alone, as a process: arguments kubeconfig, this host's address, further settings as JSON.

What reflection would ask for stands in a file beside the kubeconfig, which is read again and again: lists of pairs
(address, port) by peer. While there is none, nothing is known.

SIGTERM stops it as the daemon would; with the further argument ``remove`` it removes all there is of it and ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from twisted.internet import asyncioreactor

asyncioreactor.install()

from twisted.application.service import Service  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.internet.task import LoopingCall  # noqa: E402
from twisted.python import log  # noqa: E402

from liqod.config.schema import DaemonSettings, NetworkSettings, Settings  # noqa: E402
from liqod.fabric.agent.converge import FabricHost  # noqa: E402
from liqod.fabric.agent.node import NodeFabric  # noqa: E402
from liqod.fabric.agent.recorded import RecordedFabric  # noqa: E402
from liqod.fabric.service import Fabric  # noqa: E402
from liqod.facts.controller import FactsController  # noqa: E402
from liqod.flow.clocks import installed_reactor  # noqa: E402
from liqod.flow.controller import NO_METRICS  # noqa: E402
from liqod.kube.cache.shared_informers import Informers  # noqa: E402
from liqod.kube.client import Client  # noqa: E402
from liqod.kube.connection.config import load  # noqa: E402
from liqod.model.ids import ClusterID  # noqa: E402
from liqod.model.records.network import ExportRequests  # noqa: E402


class FileExportRequests:
    """Requests as a file has them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: str | None = None

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        """Return the requests for a peer."""
        if self._said is None:
            return ExportRequests()
        return ExportRequests(frozenset((one, two) for one, two in json.loads(self._said).get(peer, [])), complete=True)

    def network_changed(self) -> None:
        """Ignore it: a file depends on no network."""

    def read(self, changed: Callable[[], None]) -> None:
        """Read the file, and tell when it says something else."""
        said = self._path.read_text() if self._path.exists() else None
        if said != self._said:
            self._said = said
            changed()


def main(kubeconfig: str, address: str, options: str, *words: str) -> None:
    """Run until SIGTERM."""
    log.startLogging(sys.stderr, setStdout=False)
    client = Client(load(kubeconfig), reactor)
    informers = Informers(client, reactor)
    said = json.loads(options)
    daemon = DaemonSettings(role=said.pop("process", "all"))
    settings = Settings(daemon=daemon, network=NetworkSettings(**{"mode": "wireguard", **said}))
    fabric: NodeFabric | RecordedFabric | Fabric
    services: list[Service] = [informers]
    host = FabricHost(
        reactor=installed_reactor(),
        client=client,
        informers=informers,
        settings=settings,
        address=address,
        metrics=NO_METRICS,
    )
    if settings.network.role == "node":
        fabric = NodeFabric(host)
    elif settings.daemon.role == "network":
        fabric = RecordedFabric(host)
    else:
        requests = FileExportRequests(Path(kubeconfig).with_suffix(".exports"))
        # The networks of this cluster are a fact, which another part finds out.
        services.append(FactsController(host.reactor, client, informers, settings, host=address))
        fabric = Fabric(host)
        fabric.attach(requests)
        LoopingCall(requests.read, fabric.refresh).start(0.2)
    if words == ("remove",):
        ending = Deferred.fromCoroutine(fabric.remove_all())
        ending.addErrback(lambda failure: log.err(failure, "not removed"))
        ending.addBoth(lambda _: reactor.stop())
    else:
        for service in (*services, fabric):
            service.startService()
        for service in (fabric, *reversed(services)):
            reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
