"""Packets that may not be fragmented, of every size, between pods of two clusters over networks of several MTUs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from tests.netns.hosts import eventually
from tests.netns.lan import run
from tests.netns.test_fabric import FabricTests, end_process

SIZES = str(Path(__file__).with_name("sizes.py"))
PORT = "7010"
LEAST, MOST = 576, 9000
OVERHEAD = 80
"""Bytes that the tunnel keeps free: what WireGuard adds to a packet over IPv6."""


class SizesTests(FabricTests):
    """The network between the hosts carries packets of 1500 bytes, as most do."""

    def setUp(self) -> None:
        super().setUp()
        for name in self.names:
            command = self.hosts.in_pod(name, sys.executable, "-S", SIZES, "echo", PORT)
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            self._stack.callback(end_process, server)
            assert server.stdout is not None
            server.stdout.readline()

    def sweep(self, at: str, peer: str, how: str, low: int = LEAST, high: int = MOST) -> dict[str, Any]:
        """Have a pod send packets of all these sizes to one of a peer, and have them back."""
        # Of earlier tries it shall remember nothing.
        self.hosts.output(self.hosts.in_pod(at, "ip", "route", "flush", "cache"))
        words = (sys.executable, "-S", SIZES, "sweep", self.hosts.seen(at, peer), PORT, how, str(low), str(high))
        return dict(json.loads(self.hosts.output(self.hosts.in_pod(at, *words), 240)))

    def behaves(self, how: str, largest: int, low: int = LEAST, high: int = MOST) -> None:
        """Have all sizes up to the largest pass unharmed both ways, and all others be refused to their sender."""

        def swept() -> bool:
            for at, peer in (("a", "b"), ("b", "a")):
                self.assertEqual(
                    self.sweep(at, peer, how, low, high),
                    {"passed": [[low, largest]], "refused": [[largest + 1, high]], "vanished": [], "harmed": []},
                )
            return True

        # On a machine that stands still for seconds, the path may be taken for a narrower one for a while.
        eventually(f"every size with {how}", swept, 180)

    def test_every_size(self) -> None:
        """From 576 to 9000 every packet passes as it is or is refused with a word, none vanishes."""
        largest = self.mtu - OVERHEAD
        self.behaves("probe", largest, largest - 100, largest + 100)
        self.behaves("do", largest)


class JumboTests(SizesTests):
    """The network between the hosts carries packets of 9000 bytes, and so do the pods' cables."""

    mtu: ClassVar[int] = 9000


class NarrowTests(SizesTests):
    """The network between the hosts carries packets of 1400 bytes only, the pods' cables 1500."""

    mtu: ClassVar[int] = 1400


class HiddenTests(SizesTests):
    """A network that claims to carry more than it does, and says nothing about what it drops."""

    def test_every_size(self) -> None:
        """The narrow path is measured, what does not fit is refused from then on; a wider one is found again."""
        port = ("ip", "-n", self.hosts.lan.namespace("lan"), "link", "set", "port-b", "mtu")
        run(*port, "1300")
        # 60 bytes are the tunnel's over IPv4, which fills packets up to a multiple of 16; measured is to 8 bytes.
        largest = (1300 - 60) // 16 * 16
        fits = range(largest - 8, largest + 1)

        def narrow() -> bool:
            for at, peer in (("a", "b"), ("b", "a")):
                swept = self.sweep(at, peer, "probe", 1200, 1500)
                self.assertEqual((swept["vanished"], swept["harmed"]), ([], []))
                self.assertIn(swept["passed"][-1][-1], fits)
            return True

        eventually("the narrow path", narrow, 240)
        self.assertTrue(self.ask("a", "b", 2_000_000)["whole"])
        run(*port, "1500")
        self.behaves("probe", self.mtu - OVERHEAD, 1200, 1500)
