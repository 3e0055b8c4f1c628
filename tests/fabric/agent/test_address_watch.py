"""A host that loses an address: netlink tells of it, and wireguard-go is rebound."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel.address_watch import AddressWatch, reports_removed_address
from liqod.fabric.agent.kernel.host_facts import host_addresses
from liqod.fabric.agent.kernel.model import NetworkInterface, TunnelPeer, WireGuardDevice
from liqod.fabric.agent.kernel.wireguard import rebind_steps
from tests.environment import require
from tests.fabric.agent.test_plan import DESIRED, KEY

NEWADDR, DELADDR = 20, 21
TUN = NetworkInterface(1420, True, kind="tun")
SHOWN = """[
    {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}]},
    {"ifname": "eth0", "addr_info": [{"local": "192.0.2.1", "scope": "global"}, {"local": "fe80::1", "scope": "link"}]},
    {"ifname": "liqod", "addr_info": [{"local": "10.70.0.1", "scope": "global"}]}
]"""


def message(kind: int, scope: int, rest: bytes = bytes(8)) -> bytes:
    """Return one message of rtnetlink about an address."""
    body = struct.pack("=BBBBI", socket.AF_INET, 24, 0, scope, 2) + rest
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


class NetlinkMessageTests(SynchronousTestCase):
    """Datagrams of rtnetlink."""

    def test_a_removed_global_address_is_reported(self) -> None:
        """A global address that went is a loss, wherever in the datagram it is; others are none."""
        table = {
            message(DELADDR, 0): True,
            message(NEWADDR, 0): False,
            message(DELADDR, 253): False,
            message(NEWADDR, 0, bytes(5)) + bytes(3) + message(DELADDR, 0): True,
            message(DELADDR, 253) + message(NEWADDR, 0): False,
            b"": False,
        }
        for datagram, loss in table.items():
            with self.subTest(datagram=datagram):
                self.assertEqual(reports_removed_address(datagram), loss)

    @given(st.binary(max_size=200))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_anything(self, datagram: bytes) -> None:
        """No content makes reading fail or go on for ever."""
        self.assertIn(reports_removed_address(datagram), (True, False))

    def test_cut_short(self) -> None:
        """A message that ends early says nothing."""
        whole = message(DELADDR, 0)
        for end in range(24):
            self.assertFalse(reports_removed_address(whole[:end]))


class AddressWatchTests(SynchronousTestCase):
    """The kernel's socket."""

    def test_a_removal_is_counted(self) -> None:
        """In a network namespace of its own, an address that is taken away is reported; one that is added is not."""
        linux = sys.platform.startswith("linux") and shutil.which("unshare")
        require("" if linux else "there are no network namespaces here")
        script = (
            "import subprocess\n"
            "from tests.fabric.agent.test_address_watch import watched\n"
            "ip = lambda *words: subprocess.run(['ip', *words], check=True)\n"
            "read = watched()\n"
            "ip('address', 'add', '192.0.2.1/24', 'dev', 'lo')\n"
            "print(read(), end=' ')\n"
            "ip('address', 'del', '192.0.2.1/24', 'dev', 'lo')\n"
            "print(read())\n"
        )
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *own, "--net", sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if "unshare" in done.stderr:
            require(f"no network namespace may be made here: {done.stderr.strip()}")
        self.assertEqual((done.stdout.split(), done.stderr), (["0", "1"], ""))

    def test_a_stopped_watch_is_not_read(self) -> None:
        """A watch that was stopped is read no more."""
        reactor: Any = MemoryReactorClock()
        watch = AddressWatch(reactor)
        watch.startService()
        self.assertEqual(reactor.getReaders(), [watch])
        watch.stopService()
        self.assertEqual((reactor.getReaders(), watch.fileno()), ([], -1))


def watched() -> Any:
    """Return what reads a new watch's socket as the reactor would, and says how often it reported a loss so far."""
    reactor: Any = MemoryReactorClock()
    watch = AddressWatch(reactor)
    watch.startService()

    def read() -> int:
        watch.doRead()
        return watch.removals.value

    return read


class RebindTests(SynchronousTestCase):
    """What is done about it."""

    tunnel = WireGuardDevice(
        "own", 5871, {KEY: TunnelPeer("198.51.100.7:40000", frozenset()), "silent": TunnelPeer("", frozenset())}
    )

    def test_the_known_endpoint_is_set_again(self) -> None:
        """The endpoint that wireguard-go has, also one that it learned, is named again, and nothing else changes."""
        (step,) = rebind_steps(attrs.evolve(DESIRED, moved=True), TUN, self.tunnel)
        self.assertEqual(step.argv, ("wg", "set", "liqod", "peer", KEY, "endpoint", "198.51.100.7:40000"))

    def test_nothing_to_do(self) -> None:
        """Neither without a loss, nor with the kernel's WireGuard, nor where no peer has an endpoint."""
        moved = attrs.evolve(DESIRED, moved=True)
        kernel = attrs.evolve(TUN, kind="wireguard")
        alone = WireGuardDevice("own", 5871, {})
        for desired, device, tunnel in (
            (DESIRED, TUN, self.tunnel),
            (moved, kernel, self.tunnel),
            (moved, TUN, alone),
            (moved, TUN, None),
            (moved, None, self.tunnel),
        ):
            self.assertEqual(list(rebind_steps(desired, device, tunnel)), [])

    def test_addresses(self) -> None:
        """The host's addresses are the global ones of devices that are not ours."""
        self.assertEqual(host_addresses(SHOWN, ("liqod", "liqodx")), {"192.0.2.1"})
        self.assertEqual(host_addresses("", ()), frozenset())
