"""The API servers of several clusters that are peers of each other, and the exchange between them, in one process.

Arguments: address to listen on, directory for kubeconfigs, then ``ID=ADDRESS+POD_CIDR=...`` for each cluster
with its nodes. What peering
does with a session is done here by copying: what one cluster tells becomes what the other received.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from twisted.internet import asyncioreactor

asyncioreactor.install()

from kubesandbox.cluster import SandboxCluster  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import Deferred  # noqa: E402
from twisted.internet.task import deferLater  # noqa: E402
from twisted.python import log  # noqa: E402

from liqod.kube import manifests  # noqa: E402
from liqod.kube.client import Client  # noqa: E402
from liqod.kube.connection.config import load  # noqa: E402
from liqod.kube.errors import AlreadyExists, NotFound  # noqa: E402
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES, NETWORKCONFIGS, NODES  # noqa: E402
from liqod.model.records.network import NO_TUNNEL_HERE  # noqa: E402


async def furnish(client: Client, own: str, nodes: list[str], everyone: list[str]) -> None:
    """Give a cluster its nodes and its peers."""
    await manifests.ensure(client)
    await client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
    for number, text in enumerate(nodes, 1):
        address, *cidrs = text.split("+")
        name = "node" if number == 1 else f"node{number}"
        await client.create(NODES, {"metadata": {"name": name}, "spec": {"podCIDRs": cidrs, "podCIDR": cidrs[0]}})
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        await client.patch(NODES, name, {"status": status}, subresource="status")
    for peer in everyone:
        if peer != own:
            await add_peer(client, peer)


async def add_peer(client: Client, peer: str) -> None:
    """Make a peer whose offer is accepted."""
    body = {"apiVersion": FOREIGNCLUSTERS.api_version, "kind": FOREIGNCLUSTERS.kind, "metadata": {"name": peer}}
    try:
        await client.create(FOREIGNCLUSTERS, {**body, "spec": {"clusterID": peer}})
    except AlreadyExists:
        return
    yes = [{"type": kind, "status": "True", "reason": "Accepted"} for kind in ("Accepted", "Lending")]
    await client.patch(FOREIGNCLUSTERS, peer, {"status": {"conditions": yes}}, subresource="status")


async def carry(clients: dict[str, Client], held: Path) -> None:
    """Tell each cluster what the others say, for ever, but not while there is a file; one that lost a record gets it
    again. Beside that file stands what it says, once nothing is under way any more.
    """
    while True:
        asked = held.read_text() if held.exists() else ""
        held.with_suffix(".seen").write_text(asked)
        for own, client in () if asked else clients.items():
            for config in (await client.list(NETWORKCONFIGS)).items:
                peer = clients.get(config["metadata"]["name"])
                spec: dict[str, Any] = config.get("spec", {})
                remap = spec.get("remap") or {}
                if peer is not None and (spec.get("local") or remap.get("reason") == NO_TUNNEL_HERE):
                    await deliver(peer, own, spec.get("local") or {}, remap)
        await deferLater(reactor, 0.1)


async def deliver(client: Client, sender: str, remote: dict[str, Any], ack: dict[str, Any]) -> None:
    """Write what a cluster said into the other's record."""
    try:
        before = (await client.get(NETWORKCONFIGS, sender)).get("status", {})
        wanted = {**({"remote": remote} if remote else {}), **({"ack": ack} if ack else {})}
        if all(before.get(key) == value for key, value in wanted.items()):
            return
        patch = [{"op": "add", "path": "/status", "value": {**before, **wanted}}]
        await client.patch(NETWORKCONFIGS, sender, patch, kind="json", subresource="status")
    except NotFound:
        return


async def run(host: str, directory: Path, clusters: list[list[str]]) -> None:
    """Start everything and say so."""
    clients = {}
    everyone = [one[0] for one in clusters]
    for own, *nodes in clusters:
        sandbox = SandboxCluster(reactor, own)
        sandbox.listen_plain(reactor, 0, host)
        sandbox.startService()
        path = directory / f"{own}.json"
        path.write_text(sandbox.kubeconfig())
        clients[own] = Client(load(str(path)), reactor)
        await furnish(clients[own], own, nodes, everyone)
    print("ready", flush=True)
    await carry(clients, directory / "held")


def main(host: str, directory: str, *clusters: str) -> None:
    """Run until SIGTERM."""
    log.startLogging(sys.stderr, setStdout=False)
    running = Deferred.fromCoroutine(run(host, Path(directory), [one.split("=") for one in clusters]))
    running.addErrback(lambda failure: log.err(failure, "the clusters ended"))
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
