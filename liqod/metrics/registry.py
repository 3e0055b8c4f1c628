"""Registry of one daemon's metrics; values are read when they are scraped.

Other packages do not import this one: they keep plain counters and lengths, and the composition root registers
functions that read them. A function that raises is logged and its metric omitted; the others are still served.

Reading the numbers is cheap, writing them as text is not: the text of each metric is kept until its numbers change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from twisted.logger import Logger

from liqod.flow.controller import Outcome
from liqod.flow.distribution import Distribution

Samples = Iterable[tuple[Sequence[str], float]]
"""Values with their labels, in the order in which the label names were registered."""
Distributions = Iterable[tuple[Sequence[str], Distribution]]
"""The same of values that are counted by upper bound."""
Kind = Literal["gauge", "counter", "histogram"]
Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_RECONCILE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
_FAMILIES: Final[Mapping[Kind, type[Family]]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Registry:
    """Gauges and counters that are functions; the reactor's lag; the steps of controllers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lag = Histogram(
            "liqod_reactor_lag_seconds",
            "How much later than asked the event loop ran a timer.",
            buckets=_LAG_BUCKETS,
            registry=self._registry,
        )

        self._reconciles = Counter(
            "liqod_reconciles",
            "Steps of controllers, by how they ended.",
            ("controller", "outcome"),
            registry=self._registry,
        )
        self._reconcile_seconds = Histogram(
            "liqod_reconcile_duration_seconds",
            "How long the steps of controllers took.",
            ("controller",),
            buckets=_RECONCILE_BUCKETS,
            registry=self._registry,
        )

        self._of_controllers: dict[tuple[str, Outcome], tuple[Counter, Histogram]] = {}
        self._numbers: list[_Numbers] = []
        # What was written, empty once it no longer holds.
        self._lag_text = self._reconciles_text = b""

    def reconciled(self, controller: str, outcome: Outcome, seconds: float) -> None:
        """Count and time one step of a controller (``flow.controller.ReconcileMetrics``)."""
        # ``labels`` takes a lock and validates its arguments each time: a tenth of what a small step costs.
        known = self._of_controllers.get((controller, outcome))
        if known is None:
            known = self._reconciles.labels(controller, outcome), self._reconcile_seconds.labels(controller)
            self._of_controllers[controller, outcome] = known
        count, duration = known
        count.inc()
        duration.observe(seconds)
        self._reconciles_text = b""

    def observe_lag(self, seconds: float) -> None:
        """Count one measurement of the reactor's lag."""
        self._lag.observe(seconds)
        self._lag_text = b""

    def gauge(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Samples]) -> None:
        """Serve what ``read`` returns as values that go up and down."""
        self._serve(_Numbers("gauge", name, text, labels, read))

    def counter(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Samples]) -> None:
        """Serve what ``read`` returns as counts that only grow; the name is served with ``_total``."""
        self._serve(_Numbers("counter", name, text, labels, read))

    def histogram(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Distributions]) -> None:
        """Serve what ``read`` returns as counts of values by upper bound."""
        self._serve(_Numbers("histogram", name, text, labels, read))

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format; only what changed since the last time is written again."""
        self._lag_text = self._lag_text or generate_latest(self._lag)
        self._reconciles_text = self._reconciles_text or b"".join(
            map(generate_latest, (self._reconciles, self._reconcile_seconds))
        )
        return b"".join((self._lag_text, self._reconciles_text, *(numbers.written() for numbers in self._numbers)))

    def _serve(self, numbers: _Numbers) -> None:
        self._registry.register(numbers)  # refuses a name that is taken
        self._numbers.append(numbers)


class _Numbers(Collector):
    _log = Logger(namespace="liqod.metrics")

    def __init__(
        self,
        kind: Kind,
        name: str,
        text: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], Any]]],
    ) -> None:
        self._kind = kind
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._read = read
        self._values: list[tuple[tuple[str, ...], Any]] | None = None
        self._written = "", b""

    def describe(self) -> Iterable[Family]:
        return [self._family()]

    def written(self) -> bytes:
        """Read the numbers and return their text: the last one if it still holds, none if they cannot be read."""
        try:
            self._values = [(tuple(labels), value) for labels, value in self._read()]
        except Exception:
            self._log.failure("the numbers of {name} cannot be read", name=self._name)
            self._values = None
        # Compared as text, since equal numbers are not always written the same: 0.0 and -0.0.
        state = repr(self._values)
        if state != self._written[0]:
            self._written = state, generate_latest(self)
        return self._written[1]

    def collect(self) -> Iterable[Family]:
        """Return what was read last."""
        if self._values is None:
            return []
        family = self._family()
        for labels, value in self._values:
            if isinstance(family, HistogramMetricFamily):
                buckets = [(floatToGoString(bound), count) for bound, count in value.cumulative()]
                family.add_metric(labels, buckets, value.total)
            else:
                family.add_metric(labels, value)
        return [family]

    def _family(self) -> Family:
        return _FAMILIES[self._kind](self._name, self._text, labels=self._labels)
