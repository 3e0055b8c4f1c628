"""Which numbers a daemon shows, and where each is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs
from twisted.application.service import IService, MultiService

from liqod.agent import peer_metrics
from liqod.agent.peer_metrics import PeerNumbers
from liqod.agent.wiring import Features
from liqod.flow.controller import Controller
from liqod.kube.client import Client
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.metrics.registry import Registry, Samples
from liqod.model.ids import ClusterID
from liqod.model.records.views import Advertisement, ForeignCluster


class MetricsSource(Protocol):
    """What the metrics are read from; ``features`` None: the daemon stands by."""

    registry: Registry

    @property
    def client(self) -> Client | None:
        """The client of the home API server, once connected."""

    @property
    def features(self) -> Features | None:
        """The running features of a leading daemon."""


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
    counter("liqod_events_dropped", "Kubernetes Events above the rate limit, by origin.", ("cluster",), numbers.events)
    counter("liqod_spillover_returns", "Evictions of pods to come home, by outcome.", ("outcome",), numbers.returns)
    gauge("liqod_queue_length", "Keys that wait to be worked on.", ("queue",), numbers.queues)
    peer_metrics.register(agent.registry, PeerNumbers(lambda: numbers.features))
    gauge("liqod_stale_caches", "Caches that cannot follow the API server.", ("resource",), numbers.stale)


@attrs.frozen
class Numbers:
    """Reads the numbers of one daemon; without running features most of them are absent, not zero."""

    _agent: MetricsSource

    @property
    def features(self) -> list[Features]:
        """The features as a list of one or none, for loops."""
        features = self._agent.features
        return [] if features is None else [features]

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
        """Return how often peers were refused something, and callers of the admission webhook a connection."""
        for features in self.features:
            refused = Counter(features.peering.refusals)
            if features.webhook is not None:
                refused.update(features.webhook.refused.counts)
            for reason, count in sorted(refused.items()):
                yield (reason,), float(count)

    def relayed(self) -> Samples:
        """Return how many requests of which borrower the relay passed on."""
        for features in self.features:
            if features.peering.relay is not None:
                for peer, count in sorted(features.peering.relay.requests.items()):
                    yield (peer,), float(count)

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
        """Return the kinds whose caches are behind."""
        for features in self.features:
            yield from _counted((str(informer.resource),) for informer in features.informers if informer.error)


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
