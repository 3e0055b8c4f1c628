"""One cluster of a world as a process: its API server with controllers and one node.

Arguments: the cluster's name, the address to listen on, a directory. It writes ``NAME.kubeconfig`` there, notes in
``NAME.callers`` who used ``liqodctl`` on it and from where, and prints ``ready``. The API is served over HTTPS on port
6443 of the address, and without TLS on port 8080 of the loopback interface for the test's own eyes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kubesandbox.auth.tokens import ADMIN
from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet import reactor
from twisted.python import log
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

REACTOR: Any = reactor
API_PORT = 6443
PLAIN_PORT = 8080


class Porter(Resource):
    """Stands before the API server and writes down, once each, from where ``liqodctl`` came."""

    isLeaf = True

    def __init__(self, behind: Resource, book: Path) -> None:
        super().__init__()
        self._behind = behind
        self._book = book
        self._known: set[str] = set()

    def render(self, request: Request) -> Any:
        caller = f"{request.getClientAddress().host}"
        if (request.getHeader("user-agent") or "").startswith("liqodctl") and caller not in self._known:
            self._known.add(caller)
            with self._book.open("a") as book:
                book.write(f"{caller}\n")
        return self._behind.render(request)


class Quiet(Site):
    """A site without an access log."""

    def log(self, request: object) -> None:
        """Say nothing."""


def main(name: str, address: str, directory: str) -> None:
    """Run until SIGTERM."""
    log.startLogging(sys.stderr, setStdout=False)
    cluster = SandboxCluster(REACTOR, name, (SandboxNode("node", cpu="16", memory="64Gi"),))
    cluster.add_user("admin", ADMIN)
    porter: Any = Porter(cluster.server, Path(directory) / f"{name}.callers")
    vars(cluster)["_site"] = lambda: Quiet(porter)
    cluster.listen_plain(REACTOR, PLAIN_PORT)
    cluster.listen(REACTOR, API_PORT, address)
    cluster.startService()
    (Path(directory) / f"{name}.kubeconfig").write_text(cluster.kubeconfig())
    print("ready", flush=True)
    REACTOR.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
