"""The table of sightings."""

from __future__ import annotations

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.discovery.candidate import Candidate
from liqod.discovery.merge import (
    GRACE,
    MAX_CANDIDATES,
    MAX_PER_HOST,
    Entry,
    Lost,
    Resolved,
    Table,
    candidates,
    fold,
    next_expiry,
)


def seen(name: str, *hosts: str, source: str = "mDNS") -> Resolved:
    """Return a sighting of an announcement at some addresses."""
    return Resolved(name, tuple(Candidate(host, 5872, source, name) for host in hosts))


def hosts(table: Table) -> list[str]:
    """Return the hosts in order, stale ones in brackets."""
    return [f"({found.host})" if found.stale else found.host for found in candidates(table)]


class FoldTests(SynchronousTestCase):
    """Sightings come and go."""

    def test_newest_sighting_replaces_the_former(self) -> None:
        """A cluster that moved is at its new address only."""
        table = fold({}, [seen("a", "10.0.0.1"), seen("b", "10.0.0.2")], 0)
        table = fold(table, [seen("a", "10.0.0.3", "10.0.0.4")], 1)
        self.assertEqual(hosts(table), ["10.0.0.3", "10.0.0.4", "10.0.0.2"])

    def test_lost_is_stale_then_gone(self) -> None:
        """A lost announcement stays for the grace period, behind the others, and comes back at once."""
        table = fold({}, [seen("a", "10.0.0.1"), seen("b", "10.0.0.2")], 0)
        table = fold(table, [Lost("a"), Lost("never seen")], 10)
        self.assertEqual(hosts(table), ["10.0.0.2", "(10.0.0.1)"])
        self.assertEqual(next_expiry(table), 10 + GRACE)
        table = fold(table, [Lost("a")], 20)
        self.assertEqual(next_expiry(table), 10 + GRACE)
        self.assertEqual(hosts(fold(table, [], 9 + GRACE)), ["10.0.0.2", "(10.0.0.1)"])
        self.assertEqual(hosts(fold(table, [], 10 + GRACE)), ["10.0.0.2"])
        table = fold(table, [seen("a", "10.0.0.1")], 30)
        self.assertEqual(hosts(table), ["10.0.0.1", "10.0.0.2"])
        self.assertIsNone(next_expiry(table))

    def test_equal_sightings_make_an_equal_table(self) -> None:
        """Repeating an announcement changes nothing."""
        table = fold({}, [seen("a", "10.0.0.1")], 0)
        self.assertEqual(fold(table, [seen("a", "10.0.0.1")], 5), table)

    def test_folding_leaves_the_old_table_alone(self) -> None:
        """The fold is a function of values."""
        table = {"a": Entry((Candidate("10.0.0.1", 1, "mDNS"),))}
        fold(table, [Lost("a"), seen("b", "10.0.0.2")], 0)
        self.assertEqual(table, {"a": Entry((Candidate("10.0.0.1", 1, "mDNS"),))})


class BoundTests(SynchronousTestCase):
    """Floods."""

    def test_flood_cannot_push_out_who_is_shown(self) -> None:
        """Ten thousand invented clusters fill the free places and no more; a real one keeps its addresses."""
        table = fold({}, [seen("real", "10.0.0.1", "10.0.0.2")], 0)
        for i in range(10000):
            table = fold(table, [seen(f"fake{i}", f"10.1.{i >> 8}.{i & 255}")], 1)
        self.assertEqual(len(candidates(table)), MAX_CANDIDATES)
        table = fold(table, [seen("real", "10.0.0.3", "10.0.0.4")], 2)
        self.assertIn("10.0.0.3", hosts(table))
        self.assertIn("10.0.0.4", hosts(table))
        table = fold(table, [seen("real", "10.0.0.3", "10.0.0.4", "10.0.0.5")], 2)
        self.assertIn("10.0.0.3", hosts(table))
        self.assertEqual(len(candidates(table)), MAX_CANDIDATES)

    def test_flood_from_one_address_takes_few_places(self) -> None:
        """Announcements that all name one address get its share only."""
        table = fold({}, [seen(f"fake{i}", "10.0.0.66") for i in range(1000)], 0)
        self.assertEqual(len(candidates(table)), MAX_PER_HOST)
        self.assertIn("10.0.0.1", hosts(fold(table, [seen("real", "10.0.0.1")], 1)))

    def test_a_flood_of_one_source_takes_no_place_of_another(self) -> None:
        """Neither all places nor those of an address are taken from a domain by the LAN, and none is evicted for it."""
        flood = [seen(f"n{i}", f"10.1.{i >> 8}.{i & 255}") for i in range(MAX_CANDIDATES - MAX_PER_HOST)]
        flood += [seen(f"h{i}", "192.0.2.1") for i in range(MAX_PER_HOST)]
        table = fold(fold({}, flood, 0), [Lost("n5")], 1)
        table = fold(table, [seen("domain", "192.0.2.1", source="DNS-SD")], 2)
        self.assertEqual(len(candidates(table)), MAX_CANDIDATES + 1)
        self.assertIn(Candidate("192.0.2.1", 5872, "DNS-SD", "domain"), candidates(table))
        more = [seen(f"d{i}", f"10.1.{i >> 8}.{i & 255}", source="DNS-SD") for i in range(2 * MAX_CANDIDATES)]
        self.assertEqual(len(candidates(fold(table, more, 3))), 2 * MAX_CANDIDATES)

    def test_lost_ones_make_room_the_longest_lost_first(self) -> None:
        """A full table forgets what it only remembers before it refuses what it sees."""
        table = fold({}, [seen(f"n{i}", f"10.1.{i >> 8}.{i & 255}") for i in range(MAX_CANDIDATES)], 0)
        table = fold(table, [Lost("n5")], 1)
        table = fold(table, [Lost("n3")], 2)
        table = fold(table, [seen("new", "10.9.0.1")], 3)
        self.assertIn("10.9.0.1", hosts(table))
        self.assertNotIn("n5", table)
        self.assertIn("n3", table)

    def test_full_table_is_cheap(self) -> None:
        """A thousand folds into a full table cost less than a second of the processor."""
        table = fold({}, [seen(f"n{i}", f"10.1.{i >> 8}.{i & 255}") for i in range(MAX_CANDIDATES)], 0)
        started = time.process_time()
        for i in range(1000):
            table = fold(table, [seen(f"x{i}", "10.9.0.1")], 1)
        self.assertLess(time.process_time() - started, 2.0)

    @given(
        st.lists(
            st.tuples(
                st.booleans(),
                st.integers(0, 40),
                st.lists(st.integers(0, 400), max_size=8, unique=True),
                st.floats(0, 200),
            ),
            max_size=60,
        )
    )
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_bounds_always_hold(self, steps: list[tuple[bool, int, list[int], float]]) -> None:
        """Whatever is seen and lost, in whatever order: the table and each address keep to their bounds."""
        table: Table = {}
        now = 0.0
        for lost, name, addresses, later in steps:
            now += later
            sighting = Lost(f"n{name}") if lost else seen(f"n{name}", *(f"h{address}" for address in addresses))
            table = fold(table, [sighting], now)
            everything = [found.host for found in candidates(table)]
            self.assertLessEqual(len(everything), MAX_CANDIDATES)
            for host in set(everything):
                self.assertLessEqual(everything.count(host), MAX_PER_HOST)
            for entry in table.values():
                self.assertTrue(entry.candidates)
                self.assertTrue(entry.lost_at is None or now < entry.lost_at + GRACE)
