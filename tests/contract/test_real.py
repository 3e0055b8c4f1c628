"""The contract, kept by kube-apiserver with its controllers and scheduler, and kwok for the nodes."""

from __future__ import annotations

from typing import Any

from tests.contract.base import Body, Server
from tests.contract.realserver import RealServer, missing
from tests.contract.suite import SUITE, runs
from tests.environment import require

_started: list[RealServer] = []


def _server() -> RealServer:
    """Return the control plane of this run, started once; it is stopped when the process exits."""
    if not _started:
        server = RealServer()
        server.start()
        _started.append(server)
    return _started[0]


class OnReal:
    """Runs each case on the one real control plane, in a namespace of its own."""

    async def open_server(self) -> Server:
        require(missing())
        return _server()

    async def join_node(self, node: Body) -> None:
        case: Any = self
        status = node["status"] | {"daemonEndpoints": {"kubeletEndpoint": {"Port": _server().kubelet_port}}}
        node = node | {"status": status}
        await case.call("POST", "/api/v1/nodes", node)


globals().update(runs(SUITE, OnReal, __name__))
