"""Addresses that are looked up in networks."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.foreign_address import NetworkLookup

FOUR, SIX = st.ip_addresses(v=4), st.ip_addresses(v=6)
NEAR = st.integers(0, 2047).map(lambda number: ipaddress.ip_address((10 << 24) + number))
NETWORKS = st.one_of(
    st.tuples(st.one_of(FOUR, NEAR), st.integers(0, 32)), st.tuples(SIX, st.one_of(st.just(0), st.integers(100, 128)))
).map(lambda parts: ipaddress.ip_network(parts, strict=False))


class NetworkLookupTests(SynchronousTestCase):
    """The same answers as networks give one by one."""

    @given(st.lists(NETWORKS, max_size=6), st.one_of(FOUR, SIX, NEAR))
    def test_as_one_by_one(self, networks: list[ipaddress.IPv4Network], address: ipaddress.IPv4Address) -> None:
        """Of both versions, also where a network is all addresses or one."""
        self.assertEqual(NetworkLookup(networks).holds(address), any(address in one for one in networks))
        for one in networks:
            self.assertTrue(NetworkLookup(networks).holds(one[-1]))

    def test_none(self) -> None:
        """Without networks no address is in one."""
        self.assertFalse(NetworkLookup().holds(ipaddress.ip_address("10.0.0.1")))
