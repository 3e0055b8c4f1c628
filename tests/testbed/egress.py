"""How the API server of k3s or RKE2 reaches its cluster: by CONNECT to a proxy that knows the tunnels of its agents.

The proxy does what k3s' source says (pkg/daemons/control/tunnel.go, egress-selector-mode "agent"). It runs as a script
on the cluster's host, ``egress.py SOCKET HOST DIRECTORY AGENT...``, and prints each dial as a line of JSON. Those who
are named as agents have a tunnel; it ends at this very host.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.testbed.host import Host
    from tests.testbed.process import Process

PROGRAM: Final = "egress-proxy"
SOCKET: Final = "egress.sock"
CONFIGURATION: Final = "egress.json"
STREAMS: Final = "10010"
"""The port of containerd's streams, which leads through a tunnel besides the kubelet's."""
LOOPBACK: Final = "127.0.0.1"
_KEPT: Final = ("InternalIP", "ExternalIP")
_AGAIN: Final = 0.5
_PIECE: Final = 1 << 16


class Tunnels:
    """The table: of each address the node that had it last, with the port of its kubelet.

    Nothing is taken out, neither for a node that is gone nor for an address that a node has no longer.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, str]] = {}

    def enter(self, node: Mapping[str, Any]) -> None:
        """Note the addresses of a node, in place of who had them before."""
        status = node.get("status") or {}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 0)
        for one in status.get("addresses") or ():
            if one["type"] in _KEPT:
                self._entries[one["address"]] = (node["metadata"]["name"], str(port))

    def agent(self, host: str, port: str) -> str:
        """Return whose tunnel leads to a port; empty for what is dialled directly."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            # What is no address is taken for a node's name.
            return host
        name, kubelet = self._entries.get(host, ("", ""))
        return name if port in (kubelet, STREAMS) else ""


def write_configuration(directory: Path) -> Path:
    """Write what leads the API server to the proxy, and return the file: kubelets and Services, as k3s has it.

    Source: k3s, pkg/daemons/control/server.go; it names no way for "controlplane", which is dialled directly.
    """
    transport = {"uds": {"udsName": str(directory / SOCKET)}}
    cluster = {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
    file = directory / CONFIGURATION
    head = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    file.write_text(json.dumps({**head, "egressSelections": [cluster]}))
    return file


def start(host: Host, address: str, agents: list[str]) -> Process:
    """Start the proxy on the host of the API server at an address, with an empty table."""
    argv = [sys.executable, "-I", "-S", __file__, str(host.directory / SOCKET), address, str(host.directory), *agents]
    return host.spawn(PROGRAM, argv)


def dials(directory: Path) -> list[dict[str, Any]]:
    """Return what was dialled so far: ``to``, ``agent`` (empty: directly), and the ``status`` of the answer."""
    lines = (directory / f"{PROGRAM}.log").read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


class Proxy(socketserver.ThreadingUnixStreamServer):
    """The proxy at a socket."""

    daemon_threads = True

    def __init__(self, path: str, tunnels: Tunnels, agents: list[str]) -> None:
        self.tunnels = tunnels
        self.agents = agents
        super().__init__(path, _Dial)


class _Dial(socketserver.StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        """Answer one CONNECT, and pass bytes on until both sides have ended."""
        method, target, _ = self.rfile.readline().decode("ascii").split()
        while self.rfile.readline().strip():
            pass
        there = self._dial(*target.rsplit(":", 1)) if method == "CONNECT" else None
        status = "502 Bad Gateway" if there is None else "200 OK"
        self.wfile.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if there is not None:
            with there:
                back = threading.Thread(target=_pass_on, args=(there, self.connection), daemon=True)
                back.start()
                _pass_on(self.connection, there)
                back.join()

    def _dial(self, host: str, port: str) -> socket.socket | None:
        agent = self.server.tunnels.agent(host.strip("[]"), port)
        there = None
        if not agent or agent in self.server.agents:
            with contextlib.suppress(OSError):
                there = socket.create_connection((LOOPBACK if agent else host.strip("[]"), int(port)), timeout=10)
                there.settimeout(None)
        said = {"to": f"{host}:{port}", "agent": agent, "status": 502 if there is None else 200}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        return there


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(_PIECE):
            other.sendall(piece)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _nodes(address: str, directory: Path) -> Iterator[Mapping[str, Any]]:
    """Yield each node as it is and as it becomes, until the API server ends the watch."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    connection = http.client.HTTPSConnection(address, 6443, context=context, timeout=600)
    try:
        connection.request("GET", "/api/v1/nodes?watch=true")
        for line in connection.getresponse():
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]
    finally:
        connection.close()


def _follow(tunnels: Tunnels, address: str, directory: Path) -> None:
    while True:
        with contextlib.suppress(OSError, ValueError, LookupError, http.client.HTTPException):
            for node in _nodes(address, directory):
                tunnels.enter(node)
        time.sleep(_AGAIN)


def main(words: list[str]) -> None:
    """Serve until ended."""
    path, address, directory, *agents = words
    Path(path).unlink(missing_ok=True)
    tunnels = Tunnels()
    threading.Thread(target=_follow, args=(tunnels, address, Path(directory)), daemon=True).start()
    Proxy(path, tunnels, agents).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
