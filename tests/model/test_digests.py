"""Digests of values, which annotations hold."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.digests import long_digest, short_digest

keyed = st.dictionaries(st.text(max_size=3), st.integers() | st.none(), max_size=5)


class Resources(msgspec.Struct):
    """A value with fields in an order that is not the alphabet's."""

    b: int = 1
    a: str = "ä"


VALUE = [{"b": [1, 2.5, None], "a": {"y": True, "x": "ä"}}, ("t", "q"), Resources()]


class DigestTests(SynchronousTestCase):
    """What earlier releases wrote is what this one computes."""

    def test_values_of_earlier_releases(self) -> None:
        """Another digest would be another pod, role or service: all of them would be written again after an upgrade."""
        for value, size, expected in (
            (VALUE, None, "5f0fa097a4e2d18a"),
            ({"spec": {"b": 1, "a": 2}}, None, "4cdbf4fc31de80ba"),
            (VALUE, 12, "21d2072032ee3a5b02e7f65c"),
            (VALUE, 16, "f96d355b2b1ff3376d636ace26087a9c"),
        ):
            self.assertEqual(short_digest(value) if size is None else long_digest(value, size), expected)

    @given(keyed, keyed)
    def test_equal_values(self, one: dict[str, int | None], two: dict[str, int | None]) -> None:
        """The order of keys makes no difference, and everything else does."""
        turned = dict(reversed(one.items()))
        for digest in (short_digest, long_digest):
            self.assertEqual(digest(one), digest(turned))
            self.assertEqual(digest(one) == digest(two), one == two)
