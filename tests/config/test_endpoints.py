"""The port in the description of an endpoint, which all who read it find."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.peering.token import PORT, listening_port
from liqod.config.checks import endpoint_problem
from liqod.config.endpoints import port_of, with_port
from liqod.config.schema import PeeringSettings, Settings
from liqod.flow.clocks import installed_reactor
from liqod.kubelet.api.node_ports import NodePorts

PORTS: list[tuple[str, int, str]] = [
    ("tcp:5900", 5900, "tcp:7"),
    ("tcp:5900:interface=10.0.0.1", 5900, "tcp:7:interface=10.0.0.1"),
    ("tcp:interface=10.0.0.1:port=5900", 5900, "tcp:7:interface=10.0.0.1"),
    ("tcp:interface=10.0.0.1:5900", 5900, "tcp:7:interface=10.0.0.1"),
    ("tcp:backlog=5:port=5900:interface=10.0.0.1", 5900, "tcp:7:backlog=5:interface=10.0.0.1"),
    ("tcp:port=5900:backlog=5", 5900, "tcp:7:backlog=5"),
    (r"tcp6:interface=\:\:1:port=5900", 5900, r"tcp6:7:interface=\:\:1"),
    (r"tcp6:5900:interface=\:\:", 5900, r"tcp6:7:interface=\:\:"),
    ("tcp6:0", 0, "tcp6:7"),
]
NONE = ("unix:/run/x", "systemd:domain=INET:index=0", "tcp:", "tcp", "tcp:http", "tcp:interface=10.0.0.1", "")


class EndpointTests(SynchronousTestCase):
    def test_the_port(self) -> None:
        """The port is found and replaced wherever it is written, as Twisted reads the text."""
        reactor: Any = None
        for text, port, other in PORTS:
            self.assertEqual((port_of(text), with_port(text, 7)), (port, other), text)
            self.assertEqual(serverFromString(reactor, text)._port, port, text)
            self.assertEqual(serverFromString(reactor, other)._port, 7, other)
        for text in NONE:
            self.assertIsNone(port_of(text), text)

    def test_who_reads_it(self) -> None:
        """The check of the settings, tokens and DNS records, and the ports of virtual nodes read the same port."""
        for text, port, _ in PORTS:
            self.assertEqual(endpoint_problem(text), "", text)
            self.assertEqual(listening_port(Settings(peering=PeeringSettings(listen=text))), port or PORT, text)
            self.assertEqual(NodePorts(installed_reactor(), text, None)._configured, port, text)  # type: ignore[arg-type]
        self.assertEqual(listening_port(Settings(peering=PeeringSettings(listen=NONE[1]))), PORT)
