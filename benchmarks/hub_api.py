"""The hub's API server as a process: the argument is where to write its kubeconfig. Runs until SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet import reactor

REACTOR: Any = reactor


def main(kubeconfig: str) -> None:
    """Serve over HTTPS on loopback, as API servers do."""
    cluster = SandboxCluster(REACTOR, "hub", (SandboxNode("node", cpu="64", memory="256Gi"),))
    cluster.listen(REACTOR)
    cluster.startService()
    whole = Path(f"{kubeconfig}.new")
    whole.write_text(cluster.kubeconfig())
    whole.rename(kubeconfig)
    REACTOR.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
