"""Which port each virtual node gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.api.ports import PORTS, own_ports


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

    @given(st.integers(1, 65535), st.integers(0, 65535), st.sets(st.integers(0, 65535), max_size=300))
    def test_no_port_of_another(self, configured: int, recorded: int, taken: set[int]) -> None:
        """No port is tried that is another node's, outside the range, or tried already."""
        ports = own_ports(configured, recorded, taken)
        self.assertEqual(len(ports), len(set(ports)))
        self.assertFalse(taken & set(ports))
        self.assertTrue(all(configured < port < min(configured + PORTS, 65536) for port in ports))
