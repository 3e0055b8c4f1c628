"""Metrics of reflection: how long until lenders have what changed at home, what waits for them, and what failed."""

from __future__ import annotations

from collections import Counter

import attrs

from liqod.agent.metrics.source import MetricsSource, leading
from liqod.metrics.registry import Distributions, Registry, Samples


def register(registry: Registry, read: ReflectionNumbers) -> None:
    """Have a registry serve the numbers of reflection."""
    registry.histogram(
        "liqod_reflection_lag_seconds",
        "Time from a change at home until a lender has it, by kind.",
        ("kind",),
        read.lags,
    )
    registry.gauge(
        "liqod_reflection_outstanding",
        "Objects of home with a change that a lender does not have.",
        ("peer", "kind"),
        read.outstanding,
    )
    registry.counter(
        "liqod_reflection_errors",
        "What could not be written at a lender, pods among them, by kind and reason.",
        ("kind", "reason"),
        read.failures,
    )


@attrs.frozen
class ReflectionNumbers:
    """Reads the numbers of all virtual kubelets of one daemon."""

    _agent: MetricsSource

    def lags(self) -> Distributions:
        """Return the times that changes took, by kind."""
        for features in leading(self._agent):
            for kind, lags in sorted(features.kubelets.counts.lags.items()):
                yield (kind,), lags

    def failures(self) -> Samples:
        """Return how often what kind of object was not written, and why."""
        for features in leading(self._agent):
            for labels, count in sorted(features.kubelets.counts.failures.items()):
                yield labels, float(count)

    def outstanding(self) -> Samples:
        """Return how many objects have a change that their lender does not have; kinds without any are 0."""
        for features in leading(self._agent):
            counts: Counter[tuple[str, str]] = Counter()
            for kubelet in features.kubelets.all():
                for kind, reflector in kubelet.reflection.reflectors.items():
                    counts[str(kubelet.context.lender), kind.home.kind] += reflector.outstanding
            for labels, count in sorted(counts.items()):
                yield labels, float(count)
