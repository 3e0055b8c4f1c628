"""The network fabric alone, as a process: arguments kubeconfig, this host's address, further settings as JSON.

SIGTERM stops it as the daemon would; with the further argument ``remove`` it removes all there is of it and ends.
"""

from __future__ import annotations

import json
import sys

from twisted.internet import asyncioreactor

asyncioreactor.install()

from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.python import log  # noqa: E402

from liqod.config.schema import Network, Settings  # noqa: E402
from liqod.fabric.node import NodeFabric  # noqa: E402
from liqod.fabric.service import Fabric  # noqa: E402
from liqod.kube.client import Client  # noqa: E402
from liqod.kube.config import load  # noqa: E402
from liqod.kube.informers import Informers  # noqa: E402


def main(kubeconfig: str, address: str, options: str, *words: str) -> None:
    """Run until SIGTERM."""
    log.startLogging(sys.stderr, setStdout=False)
    client = Client(load(kubeconfig), reactor)
    informers = Informers(client, reactor)
    settings = Settings(network=Network(mode="wireguard", **json.loads(options)))
    made = NodeFabric if settings.network.role == "node" else Fabric
    fabric = made(reactor, client, informers, settings, address)
    if words == ("remove",):
        ending = Deferred.fromCoroutine(fabric.remove_all())
        ending.addErrback(lambda failure: log.err(failure, "not removed"))
        ending.addBoth(lambda _: reactor.stop())
    else:
        informers.startService()
        fabric.startService()
        reactor.addSystemEventTrigger("before", "shutdown", fabric.stopService)
        reactor.addSystemEventTrigger("before", "shutdown", informers.stopService)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
