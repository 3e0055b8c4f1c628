"""Which port each virtual node gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import (
    HostingSettings,
    MetricsSettings,
    NamesSettings,
    PeeringSettings,
    Settings,
    WebhookSettings,
)
from liqod.flow.connections.port_listener import RETRY_STANDBY
from liqod.kubelet.api.node_ports import METRICS_OF_OTHERS, PORTS, NodePorts, own_ports, used_ports
from liqod.model.ids import Key
from tests.kube.cases import warnings_of

ROOT = Path(__file__).resolve().parents[3]


class OwnPortsTests(SynchronousTestCase):
    def test_the_table(self) -> None:
        """A node keeps its port; one without gets the lowest that is free above the configured one."""
        for configured, recorded, taken, first in (
            (5875, 0, (), 5876),
            (5875, 0, (5875, 5876), 5877),
            (5875, 5880, (5875, 5876), 5880),
            (5875, 5880, (5875, 5880), 5876),
            (6000, 5876, (5875,), 6001),
            (5875, 5875 + PORTS, (), 5876),
            (0, 41234, (41235,), 0),
        ):
            self.assertEqual(own_ports(configured, recorded, taken)[0], first, (configured, recorded, taken))
        self.assertEqual(own_ports(65535, 0, ()), [])

    def test_what_liqod_uses_itself(self) -> None:
        """A further node gets no port of another listener, nor keeps one; it does not wait until that is refused."""
        settings = Settings(
            peering=PeeringSettings(listen="tcp:5876"),
            webhook=WebhookSettings(listen="unix:/run/x"),
            names=NamesSettings(enabled=False),
        )
        used = used_ports(settings)
        self.assertEqual(used, {5870, 5874, 5876, 5877, 5878})
        for recorded in (0, 5877):
            host = Host()
            ports = NodePorts(cast(Any, host), LISTEN, Factory(), used=used)
            ports.startService()
            ports.acquire(Key("a", "one"), "one", recorded=0, taken=())
            self.assertEqual(ports.acquire(Key("b", "two"), "two", recorded=recorded, taken={5875}).value, 5879)
            self.successResultOf(ports.stopService())

    def test_listeners_of_all_settings(self) -> None:
        """The ports for streams to homes, for questions to homes, and of tenants where names are answered."""
        quiet = Settings(
            peering=PeeringSettings(listen="tcp:0"),
            webhook=WebhookSettings(listen="unix:/run/x"),
            metrics=MetricsSettings(listen=""),
            hosting=HostingSettings(home_api="tcp:5880:interface=10.0.0.1"),
            names=NamesSettings(enabled=False, home_port=5881, first_port=6000),
        )
        self.assertEqual(used_ports(quiet), {*METRICS_OF_OTHERS, 5880, 5881})
        silent = msgspec.structs.replace(
            quiet, hosting=HostingSettings(), names=NamesSettings(enabled=False, home_port=0)
        )
        self.assertEqual(used_ports(silent), {*METRICS_OF_OTHERS})
        for names in (NamesSettings(first_port=6000), NamesSettings(enabled=True, first_port=6000)):
            answered = used_ports(msgspec.structs.replace(quiet, names=names))
            self.assertEqual(answered, {*METRICS_OF_OTHERS, 5870, 5880, *range(6000, 6512)})

    def test_more_nodes_than_ports(self) -> None:
        """What is left over is served at the first port, which is known as another node's."""
        ports = NodePorts(cast(Any, Host()), LISTEN, Factory())
        ports.startService()
        ports.acquire(Key("a", "one"), "one", recorded=0, taken=())
        last = ports.acquire(Key("b", "last"), "last", recorded=0, taken=range(5875, 5875 + PORTS))
        self.assertEqual((last.value, ports.node_at(last.value)), (5875, "one"))
        self.successResultOf(ports.stopService())

    def test_the_other_processes(self) -> None:
        """Their units name the ports at which they have their metrics."""
        units = [(ROOT / "systemd" / f"liqod-{name}.service").read_text() for name in ("network", "names")]
        named = [int(port) for unit in units for port in re.findall(r"METRICS__LISTEN=tcp:([0-9]+)", unit)]
        self.assertEqual(sorted(named), sorted(METRICS_OF_OTHERS))

    @given(st.integers(1, 65535), st.integers(0, 65535), st.sets(st.integers(0, 65535), max_size=300))
    def test_no_port_of_another(self, configured: int, recorded: int, taken: set[int]) -> None:
        """No port is tried that is another node's, outside the range, or tried already."""
        ports = own_ports(configured, recorded, taken)
        self.assertEqual(len(ports), len(set(ports)))
        self.assertFalse(taken & set(ports))
        self.assertTrue(all(configured < port < min(configured + PORTS, 65536) for port in ports))


LISTEN = "tcp:5875:interface=127.0.0.1"


class Host(MemoryReactorClock):
    """A host on which another program has some ports."""

    def __init__(self, *taken: int) -> None:
        super().__init__()
        self.taken = set(taken)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        if port in self.taken:
            raise CannotListenError(interface, port, OSError("address already in use"))
        return super().listenTCP(port, factory, backlog, interface)


class StandbyPortsTests(SynchronousTestCase):
    """The ports of a daemon that stands by on the host of the one that leads."""

    def test_those_of_the_leader(self) -> None:
        """Each node gets the one that is recorded for it, when the leader has it no longer; nobody is warned before."""
        warnings, host = warnings_of(self), Host(5875, 5880)
        ports = NodePorts(cast(Any, host), LISTEN, Factory(), stands_by=True)
        one = ports.acquire(Key("a", "one"), "one", recorded=5875, taken={5880})
        two = ports.acquire(Key("b", "two"), "two", recorded=5880, taken={5875})
        ports.startService()
        host.advance(10 * RETRY_STANDBY)
        self.assertEqual((one.value, two.value, host.tcpServers), (0, 0, []))
        host.taken.clear()
        host.advance(RETRY_STANDBY)
        self.assertEqual((one.value, two.value), (5875, 5880))
        self.assertEqual([ports.node_at(port) for port in (5875, 5880)], ["one", "two"])
        self.assertEqual(warnings, [])
        self.successResultOf(ports.stopService())

    def test_no_other(self) -> None:
        """A node whose port another one has gets none of its own: the leader chooses ports."""
        host = Host()
        ports = NodePorts(cast(Any, host), LISTEN, Factory(), stands_by=True)
        ports.acquire(Key("a", "one"), "one", recorded=5875, taken={5880})
        ports.acquire(Key("c", "three"), "three", recorded=5880, taken={5875, 5880})
        ports.startService()
        self.assertEqual([server[0] for server in host.tcpServers], [5875])
        self.assertEqual(ports.node_at(5875), "one")
        self.successResultOf(ports.stopService())
