"""Which numbers a daemon shows, and where each is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.metrics.registry import Samples
from liqod.model.records import Advertisement, ForeignCluster

if TYPE_CHECKING:
    from liqod.agent.service import Agent


def register(agent: Agent) -> None:
    """Have an agent's registry serve the agent's numbers; what does not exist at the time is left out."""
    registry = agent.registry

    def leading() -> Samples:
        yield (), float(agent.features is not None)

    def requests() -> Samples:
        if agent.client is not None:
            yield from _requests("home", agent.client.requests)

    def peers() -> Samples:
        if agent.features is not None:
            clusters = agent.features.informers.of(FOREIGNCLUSTERS, ForeignCluster).items()
            yield from _counted((cluster.status.phase or "Unknown",) for cluster in clusters)

    def offers() -> Samples:
        if agent.features is not None:
            offers = agent.features.informers.of(ADVERTISEMENTS, Advertisement).items()
            yield from _counted((offer.status.phase or "Pending", offer.status.reason) for offer in offers)

    def refusals() -> Samples:
        if agent.features is not None:
            clusters = agent.features.informers.of(FOREIGNCLUSTERS, ForeignCluster).items()
            yield from _counted(
                (condition.type, condition.reason)
                for cluster in clusters
                for condition in cluster.status.conditions
                if condition.status == "False" and condition.reason
            )

    registry.gauge("liqod_leading", "Whether this daemon acts for its cluster (1) or stands by (0).", (), leading)
    registry.counter("liqod_api_requests", "Requests to API servers.", ("cluster", "verb", "resource"), requests)
    registry.gauge("liqod_peers", "Known peers by phase.", ("phase",), peers)
    registry.gauge("liqod_offers", "Offers received, by what became of them.", ("phase", "reason"), offers)
    registry.gauge("liqod_refusals", "Steps of peerings that do not hold, by reason.", ("step", "reason"), refusals)


def _requests(cluster: str, counts: Counter[tuple[str, str]]) -> Samples:
    for (verb, resource), count in sorted(counts.items()):
        yield (cluster, verb, resource), float(count)


def _counted(labels: Iterable[tuple[str, ...]]) -> Samples:
    for label, count in sorted(Counter(labels).items()):
        yield label, float(count)
