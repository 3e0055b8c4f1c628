"""Values counted by upper bound."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.distribution import Distribution

BOUNDS = (0.1, 1.0, 30.0)
VALUES = st.sampled_from((0.0, 0.1, 0.5, 1.0, 29.9, 30.0, 1e9)) | st.floats(0, 1e6)


class DistributionTests(SynchronousTestCase):
    """What a histogram says."""

    @given(st.lists(VALUES, max_size=50))
    def test_counts(self, values: list[float]) -> None:
        """Each bound counts the values that are not larger, the last one all; and they are summed up."""
        found = Distribution(BOUNDS)
        for value in values:
            found.observe(value)
        expected = [(bound, sum(value <= bound for value in values)) for bound in (*BOUNDS, math.inf)]
        self.assertEqual(list(found.cumulative()), expected)
        self.assertAlmostEqual(found.total, sum(values))
