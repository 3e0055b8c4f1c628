"""Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects import quantity

LISTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.fractions(min_value=0, max_value=10**9)
)


class ParseTests(SynchronousTestCase):
    """Text to value."""

    def test_known_forms(self) -> None:
        """Every suffix that Kubernetes knows has its value."""
        for text, value in [
            ("0", Fraction(0)),
            ("500m", Fraction(1, 2)),
            ("1.5Gi", Fraction(3 * 2**29)),
            ("2e3", Fraction(2000)),
            ("1E", Fraction(10**18)),
            ("12E2", Fraction(1200)),
            (".5", Fraction(1, 2)),
            ("100n", Fraction(1, 10**7)),
            ("-1Ki", Fraction(-1024)),
        ]:
            self.assertEqual(quantity.parse(text), value, text)

    def test_hostile_forms(self) -> None:
        """What is no quantity is refused with the text and what is allowed."""
        for text in ["", "x", "1 Gi", "1gi", "NaN", "inf", "1e400", "9" * 50, "0x10", "1__0", "٣", "1e99"]:
            error = self.assertRaises(ValueError, quantity.parse, text)
            self.assertIn(text[:20], str(error))

    def test_names_the_resource(self) -> None:
        """A bad entry of a list is reported with its resource."""
        error = self.assertRaises(ValueError, quantity.parse_all, {"cpu": "1", "memory": "lots"})
        self.assertTrue(str(error).startswith("memory: "))


class RenderTests(SynchronousTestCase):
    """Value to text."""

    def test_canonical(self) -> None:
        """Bytes prefer binary suffixes, cores milli-units, pieces plain numbers."""
        self.assertEqual(quantity.render(Fraction(3 * 2**29), resource="memory"), "1536Mi")
        self.assertEqual(quantity.render(Fraction(3, 2), resource="cpu"), "1500m")
        self.assertEqual(quantity.render(Fraction(110), resource="pods"), "110")
        self.assertEqual(quantity.render(Fraction(0), resource="memory"), "0")

    @given(st.fractions(min_value=0, max_value=10**15, max_denominator=10**9), st.sampled_from(["cpu", "memory"]))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_round_trip(self, value: Fraction, resource: str) -> None:
        """What is rendered parses back to the value, up to a nano-unit rounded up."""
        back = quantity.parse(quantity.render(value, resource=resource))
        self.assertTrue(0 <= back - value < Fraction(1, 10**9), (value, back))


class ArithmeticTests(SynchronousTestCase):
    """Sums and differences of resource lists."""

    @given(LISTS, LISTS)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_add_then_subtract(self, left: dict[str, Fraction], right: dict[str, Fraction]) -> None:
        """Subtracting what was added gives back what was there."""
        total = quantity.add([left, right])
        rest = quantity.subtract(total, right)
        self.assertEqual({k: v for k, v in rest.items() if v}, {k: v for k, v in left.items() if v})

    @given(LISTS, LISTS)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_exceeding(self, wanted: dict[str, Fraction], available: dict[str, Fraction]) -> None:
        """Nothing exceeds exactly when every wanted resource is available."""
        fits = all(value <= available.get(name, 0) for name, value in wanted.items())
        self.assertEqual(not quantity.exceeding(wanted, available), fits)


class ExtendedTests(SynchronousTestCase):
    """Which resources Kubernetes itself does not know."""

    def test_names(self) -> None:
        """Those with a domain that is not Kubernetes' own; a quota's ``requests.`` of one is none."""
        for name, wanted in (
            ("cpu", False),
            ("hugepages-2Mi", False),
            ("ephemeral-storage", False),
            ("kubernetes.io/batch-cpu", False),
            ("node.kubernetes.io/x", False),
            ("requests.nvidia.com/gpu", False),
            ("nvidia.com/gpu", True),
            ("scheduling.k8s.io/foo", True),
        ):
            self.assertEqual(quantity.is_extended(name), wanted, name)
