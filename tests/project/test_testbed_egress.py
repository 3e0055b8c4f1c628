"""The proxy that stands for k3s' tunnels to kubelets: its table, as k3s' source has it, and its answers."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.testbed import egress


def node(name: str, port: int, *addresses: tuple[str, str]) -> dict[str, Any]:
    """Return a Node with addresses and the port of its kubelet."""
    shown = [{"type": kind, "address": address} for kind, address in addresses]
    endpoints = {"kubeletEndpoint": {"Port": port}}
    return {"metadata": {"name": name}, "status": {"addresses": shown, "daemonEndpoints": endpoints}}


class TunnelsTests(SynchronousTestCase):
    """Whose tunnel leads where."""

    def setUp(self) -> None:
        """Have two nodes, one of them without an InternalIP."""
        self.tunnels = egress.Tunnels()
        self.tunnels.enter(node("one", 10250, ("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1")))
        self.tunnels.enter(node("away", 5875, ("Hostname", "10.0.0.9")))

    def test_ways(self) -> None:
        """The kubelet's port of a known address, the streams' port, and every name lead through a tunnel."""
        for host, port, agent in (
            ("10.0.0.1", "10250", "one"),
            ("192.0.2.1", "10250", "one"),
            ("10.0.0.1", "10010", "one"),
            ("10.0.0.1", "5873", ""),
            ("10.0.0.9", "5875", ""),
            ("10.43.0.1", "443", ""),
            ("whatever", "10250", "whatever"),
        ):
            self.assertEqual(self.tunnels.agent(host, port), agent, (host, port))

    def test_last_counts(self) -> None:
        """Of two nodes with an address the one that was seen last has it, with its port."""
        self.tunnels.enter(node("virtual", 5875, ("InternalIP", "10.0.0.1")))
        self.assertEqual(self.tunnels.agent("10.0.0.1", "5875"), "virtual")
        self.assertEqual(self.tunnels.agent("10.0.0.1", "10250"), "")
        self.tunnels.enter(node("one", 10250, ("InternalIP", "10.0.0.1")))
        self.assertEqual(self.tunnels.agent("10.0.0.1", "5875"), "")

    def test_nothing_is_forgotten(self) -> None:
        """An address that a node has no longer stays its own."""
        self.tunnels.enter(node("one", 10250, ("Hostname", "10.0.0.1")))
        self.assertEqual(self.tunnels.agent("10.0.0.1", "10250"), "one")


class ProxyTests(SynchronousTestCase):
    """The proxy itself, at a socket."""

    def setUp(self) -> None:
        """Serve, with one agent, and have something to dial."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        tunnels = egress.Tunnels()
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        self.port = listening.getsockname()[1]
        tunnels.enter(node("one", self.port, ("InternalIP", "192.0.2.7")))
        tunnels.enter(node("virtual", self.port, ("InternalIP", "127.0.0.1")))
        self.listening = listening
        self.said = io.StringIO()
        self.patch(sys, "stdout", self.said)
        # Paths of sockets are short.
        self.path = f"/proc/self/fd/{self._directory_handle()}/s"
        server = egress.Proxy(self.path, tunnels, ["one"])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

    def _directory_handle(self) -> int:
        handle = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, handle)
        return handle

    def connect(self, target: str) -> tuple[socket.socket, str]:
        """Ask for a connection; returns it with the first line of the answer."""
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(20)
        client.connect(self.path)
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += client.recv(1)
        return client, answer.decode().splitlines()[0]

    def test_through_an_agent(self) -> None:
        """Bytes pass both ways through the tunnel of an agent, which ends at this host."""
        client, answer = self.connect(f"192.0.2.7:{self.port}")
        self.assertEqual(answer, "HTTP/1.1 200 OK")
        there, _ = self.listening.accept()
        with there:
            client.sendall(b"to")
            self.assertEqual(there.recv(8), b"to")
            there.sendall(b"fro")
            self.assertEqual(client.recv(8), b"fro")

    def test_no_agent(self) -> None:
        """Where no agent has a tunnel the answer is 502, although the port could be dialled; each dial is printed."""
        _, answer = self.connect(f"127.0.0.1:{self.port}")
        self.assertEqual(answer, "HTTP/1.1 502 Bad Gateway")
        _, answer = self.connect(f"virtual:{self.port}")
        self.assertEqual(answer, "HTTP/1.1 502 Bad Gateway")
        said = [json.loads(line) for line in self.said.getvalue().splitlines()]
        self.assertEqual([(one["agent"], one["status"]) for one in said], [("virtual", 502), ("virtual", 502)])
