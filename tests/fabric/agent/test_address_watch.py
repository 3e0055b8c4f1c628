"""A host that loses an address or a rule: netlink tells of it, and wireguard-go is rebound."""

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

from liqod.fabric.agent.kernel.address_watch import AddressWatch, reports_removal
from liqod.fabric.agent.kernel.host_facts import host_addresses
from liqod.fabric.agent.kernel.model import TABLE, NetworkInterface, TunnelPeer, WireGuardDevice
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


def rule(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    """Return one message of rtnetlink about a policy rule."""
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 252, 0, 0, 1, 0)
    for name, value in attributes:
        body += struct.pack("=HH", 4 + len(value), name) + value + bytes(-len(value) % 4)
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
                self.assertEqual(reports_removal(datagram), loss)

    def test_a_removed_rule_of_ours_is_reported(self) -> None:
        """A rule that led to our table is missed; those of others, and rules that are added, are not."""
        ours, others = struct.pack("=I", TABLE), struct.pack("=I", 254)
        table = {
            rule(33, (6, bytes(4)), (15, ours)): True,
            rule(33, (3, b"eth0\0"), (15, ours)): True,
            rule(33, (15, others)): False,
            rule(33): False,
            rule(33, (15, ours[:2])): False,
            rule(32, (15, ours)): False,
            rule(33, (15, others)) + rule(33, (15, ours)): True,
        }
        for datagram, loss in table.items():
            with self.subTest(datagram=datagram):
                self.assertEqual(reports_removal(datagram), loss)

    @given(st.binary(max_size=200))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_anything(self, datagram: bytes) -> None:
        """No content makes reading fail or go on for ever."""
        self.assertIn(reports_removal(datagram), (True, False))

    def test_cut_short(self) -> None:
        """A message that ends early says nothing."""
        whole = message(DELADDR, 0)
        for end in range(24):
            self.assertFalse(reports_removal(whole[:end]))


class AddressWatchTests(SynchronousTestCase):
    """The kernel's socket."""

    def test_a_removal_is_counted(self) -> None:
        """In a network namespace of its own, an address or a rule of ours that is taken away is reported; one that is
        added is not, and neither is a rule of others.
        """
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
            "print(read(), end=' ')\n"
            "for version in ('-4', '-6'):\n"
            f"    for table in ('254', '{TABLE}'):\n"
            "        ip(version, 'rule', 'add', 'pref', '18952', 'lookup', table)\n"
            "        ip(version, 'rule', 'del', 'pref', '18952')\n"
            "        print(read(), end=' ')\n"
        )
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *own, "--net", sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if "unshare" in done.stderr:
            require(f"no network namespace may be made here: {done.stderr.strip()}")
        self.assertEqual((done.stdout.split(), done.stderr), (["0", "1", "1", "2", "2", "3"], ""))

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
