"""Sets of ports and of addresses, compared with the sets of their members."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.networkpolicies.blocks import Block, Blocks, block_of, moved
from liqod.hosting.networkpolicies.ports import Range, RulePorts, common, merged
from liqod.model.records.network import Network
from tests import properties

properties.load()

WHOLE = ip_network("192.0.2.0/28")
RANGES = st.lists(
    st.builds(
        lambda protocol, first, more: (protocol, first, first + more),
        st.sampled_from(["TCP", "UDP"]),
        st.integers(1, 12),
        st.integers(0, 6),
    ),
    max_size=4,
)
NETWORKS = st.builds(
    lambda offset, length: ip_network(f"192.0.2.{offset}/{length}", strict=False),
    st.integers(0, 15),
    st.integers(28, 32),
)
GIVEN_BLOCKS = st.lists(st.builds(block_of, NETWORKS, st.lists(NETWORKS, max_size=3)), max_size=4)


def ports(ranges: Iterable[Range]) -> set[tuple[str, int]]:
    """Return the ports in ranges."""
    return {(protocol, port) for protocol, first, last in ranges for port in range(first, last + 1)}


def addresses(blocks: Iterable[Block]) -> set[str]:
    """Return the addresses in blocks."""
    return {
        str(one) for block in blocks for one in block.network if not any(one in excepted for excepted in block.excepts)
    }


class PortsTests(SynchronousTestCase):
    """Ranges of ports."""

    @given(RANGES)
    def test_merged(self, ranges: list[Range]) -> None:
        """The same ports in ranges of which no two touch."""
        found = merged(ranges)
        self.assertEqual(ports(found), ports(ranges))
        for protocol, _, last in found:
            self.assertNotIn((protocol, last + 1), ports(found))
        every = ports([("TCP", 1, 20), ("UDP", 1, 20)])
        self.assertEqual({one for one in every if RulePorts(found).has(*one)}, ports(found))

    @given(RANGES, RANGES)
    def test_common(self, one: list[Range], other: list[Range]) -> None:
        """The ports that are in both; without ranges a set has all."""
        first, second = merged(one), merged(other)
        both = common(first, second)
        self.assertEqual(ports(both or ()), ports(one) & ports(other))
        self.assertEqual([each for each in both or () if each[1] > each[2]], [])
        self.assertEqual((common(first, None), common(None, second), common(None, None)), (first, second, None))


class BlocksTests(SynchronousTestCase):
    """Networks with exceptions."""

    @given(NETWORKS, st.lists(NETWORKS, max_size=4))
    def test_block(self, network: Network, excepts: list[Network]) -> None:
        """Exceptions that an API server accepts: strictly inside, each once; nothing is left of a network: no block."""
        found = block_of(network, excepts)
        wanted = {str(one) for one in network if not any(one in excepted for excepted in excepts)}
        self.assertEqual(addresses([found] if found else []), wanted)
        if found is not None:
            self.assertNotIn(network, found.excepts)
            self.assertTrue(all(one.subnet_of(network) for one in found.excepts))  # type: ignore[arg-type]

    @given(GIVEN_BLOCKS, NETWORKS, st.lists(NETWORKS, max_size=3))
    def test_meet(self, given_blocks: list[Block | None], network: Network, excepts: list[Network]) -> None:
        """The addresses that are in any of the blocks and in another one."""
        blocks, other = [one for one in given_blocks if one], block_of(network, excepts)
        if other is not None:
            found = addresses(Blocks(blocks).meet(other))
            self.assertEqual(found, addresses(blocks) & addresses([other]))

    def test_versions(self) -> None:
        """Networks of the two IP versions have nothing in common."""
        six = Block(ip_network("::/0"))
        self.assertEqual(list(Blocks([six]).meet(Block(WHOLE))), [])
        self.assertEqual(block_of(WHOLE, [ip_network("::/0")]), Block(WHOLE))

    def test_moved(self) -> None:
        """A part of a network keeps its place in another one."""
        after = ip_network("198.51.100.16/28")
        self.assertEqual(moved(ip_network("192.0.2.4/30"), WHOLE, after), ip_network("198.51.100.20/30"))
