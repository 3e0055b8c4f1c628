"""The page says what a page without memory says, and writes again only what changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.registry import Collector
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import Outcome
from liqod.metrics import registry as module
from liqod.metrics.registry import Registry, Samples

NAMES: Final = ("liqod_up_and_down", "liqod_grown")
LABELS: Final = st.tuples(st.sampled_from(("a", 'b"\\\n', "\u00e9", "")), st.sampled_from(("x", "y")))
VALUES: Final = st.sampled_from((0.0, -0.0, 1.0, 2.5, 1e9, float("nan"), float("inf"))) | st.floats()
OUTCOMES: Final[tuple[Outcome, ...]] = ("settled", "failed")
STEPS: Final = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NAMES), LABELS, VALUES),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), LABELS),
    st.tuples(st.just("fail"), st.sampled_from(NAMES)),
    st.tuples(st.just("recover"), st.sampled_from(NAMES)),
    st.tuples(st.just("step"), st.sampled_from(("pods", "peers")), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("lag")),
    st.tuples(st.just("page")),
)


class Daemon:
    """Numbers that change, and a registry that reads them."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.numbers: dict[str, dict[tuple[str, str], float]] = {name: {} for name in NAMES}
        self.broken: set[str] = set()
        self.register(self.registry)

    def register(self, registry: Registry) -> None:
        registry.gauge(NAMES[0], "Up and down.", ("one", "two"), lambda: self.read(NAMES[0]))
        registry.counter(NAMES[1], "Grown.", ("one", "two"), lambda: self.read(NAMES[1]))

    def read(self, name: str) -> Iterator[tuple[tuple[str, str], float]]:
        yield from self.numbers[name].items()
        if name in self.broken:
            raise RuntimeError("no")

    def apply(self, step: tuple[object, ...]) -> None:
        match step:
            case ("set", str(name), (str(one), str(two)), float(value)):
                self.numbers[name][one, two] = value
            case ("remove", str(name), (str(one), str(two))):
                self.numbers[name].pop((one, two), None)
            case ("fail", str(name)):
                self.broken.add(name)
            case ("recover", str(name)):
                self.broken.discard(name)
            case ("step", str(controller), "settled" | "failed" as outcome):
                self.registry.reconciled(controller, outcome, 0.02)
            case ("lag",):
                self.registry.observe_lag(0.003)
            case _:
                self.registry.text()

    def fresh(self) -> bytes:
        """Return the page of one that was never asked before; its counts of steps and lags are those of this one."""
        other = Registry()
        self.register(other)
        other._lag, other._reconciles = self.registry._lag, self.registry._reconciles
        other._reconcile_seconds = self.registry._reconcile_seconds
        return other.text()


class KeptTextTests(SynchronousTestCase):
    """The text of each metric is kept until its numbers change."""

    def count(self) -> list[Collector]:
        """Return a list that grows by each metric that is written."""
        written = list[Collector]()

        def write(collector: Collector) -> bytes:
            written.append(collector)
            return generate_latest(collector)

        self.patch(module, "generate_latest", write)
        return written

    @settings(deadline=None)
    @given(st.lists(STEPS, max_size=20))
    def test_as_if_never_asked(self, steps: list[tuple[object, ...]]) -> None:
        """Whatever changed, came, went, failed or recovered, and whenever the page was asked for in between."""
        daemon = Daemon()
        for step in steps:
            daemon.apply(step)
        self.assertEqual(daemon.registry.text(), daemon.fresh())
        self.assertEqual(daemon.registry.text(), generate_latest(daemon.registry._registry))
        self.flushLoggedErrors(RuntimeError)

    def test_unchanged(self) -> None:
        """What did not change is not written again; what did is, alone."""
        daemon, written = Daemon(), self.count()
        daemon.apply(("set", NAMES[0], ("a", "x"), 1.0))
        daemon.apply(("step", "pods", "settled"))
        first = daemon.registry.text()
        self.assertEqual(len(written), 5)
        written.clear()
        self.assertEqual(daemon.registry.text(), first)
        self.assertEqual(written, [])
        for step, expected in (
            (("set", NAMES[0], ("a", "x"), 2.0), 1),
            (("remove", NAMES[0], ("a", "x")), 1),
            (("lag",), 1),
            (("step", "pods", "settled"), 2),
        ):
            daemon.apply(step)
            daemon.registry.text()
            self.assertEqual(len(written), expected, step)
            written.clear()

    def test_sign_of_zero(self) -> None:
        """Numbers that are equal, but not written the same, are a change."""
        daemon = Daemon()
        for value, text in ((0.0, b" 0.0\n"), (-0.0, b" -0.0\n")):
            daemon.apply(("set", NAMES[0], ("a", "x"), value))
            self.assertIn(b'liqod_up_and_down{one="a",two="x"}' + text, daemon.registry.text())

    def test_last_text_only(self) -> None:
        """What is kept is what the last page said, however many labels there were before."""
        values = [0]
        registry, read = Registry(), lambda: [((f"peer-{values[0]}",), 1.0)]
        registry.gauge("liqod_test", "A test.", ("peer",), read)
        for values[0] in range(50):
            registry.text()
        [numbers] = registry._numbers
        self.assertEqual(numbers._written[1].count(b"peer-"), 1)
        self.assertEqual(numbers._written[0].count("peer-"), 1)

    def test_refused_name(self) -> None:
        """A metric whose name is taken is not served twice."""
        registry = Registry()
        read: Samples = [((), 1)]
        registry.gauge("liqod_x", "X.", (), lambda: read)
        self.assertRaises(ValueError, registry.gauge, "liqod_x", "X.", (), lambda: read)
        self.assertEqual(registry.text().count(b"liqod_x 1.0\n"), 1)
