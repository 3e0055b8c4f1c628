"""The hub's API server as a process: the arguments are where to write its kubeconfig, and a file that it notes its
requests in, if any. Runs until SIGTERM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kubesandbox.nodes.node import SandboxNode
from twisted.internet import reactor

from benchmarks.scale.noted import cluster_of

REACTOR: Any = reactor


def main(kubeconfig: str, noted: str = "") -> None:
    """Serve over HTTPS on loopback, as API servers do."""
    cluster = cluster_of(REACTOR, "hub", (SandboxNode("node", cpu="64", memory="256Gi"),), noted)
    cluster.listen(REACTOR)
    cluster.startService()
    whole = Path(f"{kubeconfig}.new")
    whole.write_text(cluster.kubeconfig())
    whole.rename(kubeconfig)
    REACTOR.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
