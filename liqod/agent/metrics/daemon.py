"""Metrics of one daemon: its work, its requests, its queues. The other modules here have those of one subject each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import attrs
from twisted.application.service import IService, MultiService

from liqod.agent.metrics import expiry, peers, problems, reflection
from liqod.agent.metrics.expiry import Ends
from liqod.agent.metrics.peers import PeerNumbers
from liqod.agent.metrics.problems import Problems
from liqod.agent.metrics.reflection import ReflectionNumbers
from liqod.agent.metrics.source import MetricsSource, leading
from liqod.agent.wiring import Features
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.flow.controller import Controller
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.metrics.registry import Samples
from liqod.model.ids import ClusterID
from liqod.model.records.views import Advertisement, ForeignCluster


def register(agent: MetricsSource) -> None:
    """Have an agent's registry serve the agent's numbers; what does not exist at the time is left out."""
    numbers = Numbers(agent)
    gauge, counter = agent.registry.gauge, agent.registry.counter
    gauge("liqod_leading", "Whether this daemon acts for its cluster (1) or stands by (0).", (), numbers.leading)
    counter("liqod_api_requests", "Requests to API servers.", ("cluster", "verb", "resource"), numbers.requests)
    gauge("liqod_peers", "Known peers by phase.", ("phase",), numbers.peers)
    gauge("liqod_sessions", "Sessions with peers, by who dialled.", ("role",), numbers.sessions)
    gauge("liqod_offers", "Offers received, by what became of them.", ("phase", "reason"), numbers.offers)
    counter("liqod_refusals", "What was refused, by reason.", ("reason",), numbers.refusals)
    counter("liqod_relay_requests", "Requests passed on to the own API server, by peer.", ("peer",), numbers.relayed)
    counter("liqod_webhook_reviews", "Admission reviews that were answered.", (), numbers.reviews)
    counter("liqod_events_dropped", "Kubernetes Events above the rate limit, by origin.", ("cluster",), numbers.events)
    counter("liqod_spillover_returns", "Evictions of pods to come home, by outcome.", ("outcome",), numbers.returns)
    gauge("liqod_queue_length", "Keys that wait to be worked on.", ("queue",), numbers.queues)
    gauge("liqod_stale_caches", "Caches that cannot follow the API server.", ("resource",), numbers.stale)
    peers.register(agent.registry, PeerNumbers(lambda: leading(agent), lambda: _gateway_of(agent)))
    reflection.register(agent.registry, ReflectionNumbers(agent))
    expiry.register(agent.registry, Ends(agent))
    problems.register(agent.registry, Problems(agent))


def _gateway_of(agent: MetricsSource) -> RecordedFabric | None:
    """Return the network agent where that is all that a process does."""
    return agent.node if isinstance(agent.node, RecordedFabric) else None


@attrs.frozen
class Numbers:
    """Reads the numbers of one daemon; without running features most of them are absent, not zero."""

    _agent: MetricsSource

    @property
    def features(self) -> list[Features]:
        """The features as a list of one or none, for loops."""
        return leading(self._agent)

    def leading(self) -> Samples:
        """Return 1 or 0."""
        yield (), float(self._agent.features is not None)

    def requests(self) -> Samples:
        """Return the requests to the home API server and, by lender, to those of the others."""
        if self._agent.client is not None:
            yield from _requests("home", self._agent.client.requests)
        for features in self.features:
            for cluster in features.informers.of(FOREIGNCLUSTERS, ForeignCluster).items():
                kubelets = features.kubelets.of_lender(ClusterID(cluster.metadata.name))
                counts = sum((kubelet.access.requests for kubelet in kubelets), Counter[tuple[str, str]]())
                yield from _requests(cluster.metadata.name, counts)

    def peers(self) -> Samples:
        """Return how many peers are in which phase."""
        for features in self.features:
            clusters = features.informers.of(FOREIGNCLUSTERS, ForeignCluster).items()
            yield from _counted((cluster.status.phase or "Unknown",) for cluster in clusters)

    def sessions(self) -> Samples:
        """Return how many sessions there are, by our role."""
        for features in self.features:
            yield from _counted((session.role,) for session in features.peering.sessions())

    def offers(self) -> Samples:
        """Return how many offers of peers are in which phase, and why."""
        for features in self.features:
            offers = features.informers.of(ADVERTISEMENTS, Advertisement).items()
            yield from _counted((offer.status.phase or "Pending", offer.status.reason) for offer in offers)

    def refusals(self) -> Samples:
        """Return how often peers were refused something, and callers of other ports a connection or a page."""
        refused: Counter[str] = Counter()
        if self._agent.pages is not None:
            refused.update(self._agent.pages.refused.counts)
        for features in self.features:
            refused.update(features.peering.refusals)
            if features.webhook is not None:
                refused.update(features.webhook.refused.counts)
            if features.kubelets.api is not None:
                refused.update(features.kubelets.api.refused.counts)
        for reason, count in sorted(refused.items()):
            yield (reason,), float(count)

    def relayed(self) -> Samples:
        """Return how many requests of which borrower the relay passed on."""
        for features in self.features:
            if features.peering.relay is not None:
                for peer, count in sorted(features.peering.relay.requests.items()):
                    yield (peer,), float(count)

    def reviews(self) -> Samples:
        """Return how many reviews the admission webhook answered."""
        for features in self.features:
            if features.webhook is not None:
                yield (), float(features.webhook.reviews.answered)

    def events(self) -> Samples:
        """Return how many events were not recorded: the daemon's own, and those that are reflected from lenders."""
        for features in self.features:
            yield ("home",), float(features.recorder.dropped)
            dropped: Counter[str] = Counter()
            for kubelet in features.kubelets.all():
                reflected = kubelet.reflection.events
                dropped[kubelet.context.lender] += reflected.dropped if reflected is not None else 0
            for lender, count in sorted(dropped.items()):
                yield (lender,), float(count)

    def returns(self) -> Samples:
        """Return how many pods were evicted because own nodes have room for them, and how often that was refused."""
        for features in self.features:
            if features.spillover is not None:
                for outcome, count in sorted(features.spillover.returns.items()):
                    yield (outcome,), float(count)

    def queues(self) -> Samples:
        """Return the lengths of the queues; those of one name, such as of several virtual kubelets, are added up."""
        lengths: Counter[str] = Counter()
        for features in self.features:
            for name, length in _queues(features.services):
                lengths[name] += length
        for name, length in sorted(lengths.items()):
            yield (name,), float(length)

    def stale(self) -> Samples:
        """Return the kinds whose caches are behind, also of a daemon that stands by."""
        yield from _counted((str(informer.resource),) for informer in self._agent.caches if informer.error)


def _queues(services: Iterable[IService]) -> Iterator[tuple[str, int]]:
    """Yield the name and length of every queue in the tree of services."""
    for service in services:
        if isinstance(service, Controller):
            yield service.name, service.waiting
        if isinstance(service, MultiService):
            yield from _queues(service)


def _requests(cluster: str, counts: Counter[tuple[str, str]]) -> Samples:
    for (verb, resource), count in sorted(counts.items()):
        yield (cluster, verb, resource), float(count)


def _counted(labels: Iterable[tuple[str, ...]]) -> Samples:
    for label, count in sorted(Counter(labels).items()):
        yield label, float(count)
