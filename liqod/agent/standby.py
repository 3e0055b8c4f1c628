"""What a daemon does while another one of its cluster leads: it watches what features read, and answers by that.

It writes nothing and has no sessions. When it leads, its features begin with what these caches hold instead of lists of
everything; when it leads no more, these begin with what the features' caches held. Nothing depends on that: a cache
that cannot begin so lists, as those of a daemon do that was just started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from liqod.agent.account.names import LEASE
from liqod.agent.home import Home
from liqod.agent.making import DaemonContext
from liqod.agent.wiring import Features
from liqod.flow.clocks import Reactor
from liqod.flow.observe import Gate
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.leader import LeaderLease, Lease
from liqod.kube.resources import LEASES, NAMESPACEOFFLOADINGS
from liqod.kubelet.standby import StandbyKubelets
from liqod.model.records.offloading import NamespaceOffloading
from liqod.webhook.standby import StandbyWebhook

KEPT_FOR: Final = 15.0
"""Seconds for which contents are kept for caches that begin later than the others, as those of virtual nodes do."""
STOP_DEADLINE: Final = 1.0
"""Seconds that the end of the watches may take before the lead begins regardless."""


class Standby:
    """The caches of one daemon between its leads; ``make_context`` gives new informers of ``client`` each time."""

    _log = Logger()

    def __init__(self, client: Client, reactor: Reactor, make_context: Callable[[], DaemonContext]) -> None:
        self._client = client
        self._reactor = reactor
        self._make_context = make_context
        self._informers: Informers | None = None
        self._services: MultiService | None = None
        self._forgetting = Timer(reactor)
        self._ended = Gate()
        """Open when the latest services that were stopped have ended."""
        self._ended.open()

    @property
    def informers(self) -> list[Informer[Any]]:
        """The caches of this cluster's objects; none while this daemon does not stand by."""
        return [] if self._informers is None else list(self._informers)

    def start(self, home: Home, lease: LeaderLease) -> None:
        """Begin to watch, unless that is done already; where it fails, this daemon stands by without."""
        if self._services is not None:
            return
        try:
            context = self._make_context()
            services = self._services_of(context, home, lease)
            self._informers, self._services = context.informers, services
            services.startService()
        except Exception:
            self._log.failure("not all is watched while this daemon stands by")

    def _services_of(self, context: DaemonContext, home: Home, lease: LeaderLease) -> MultiService:
        services, informers = MultiService(), context.informers
        # Features that are never started say what features watch.
        drafts = Informers(context.client, context.reactor)
        Features(attrs.evolve(context, informers=drafts), home)
        informers.watch_same(drafts)
        own = context.settings.kubernetes.namespace
        leases = informers.of(LEASES, Lease, namespace=own, fields=f"metadata.name={LEASE}")
        leases.subscribe(lambda key, old, new: None if new is None else lease.note(new))
        informers.setServiceParent(services)
        kubelets = StandbyKubelets(
            reactor=context.reactor,
            home=context.client,
            informers=informers,
            settings=context.settings,
            cluster_id=home.cluster_id,
            address=context.address,
        )
        kubelets.setServiceParent(services)
        if context.answering is not None:
            StandbyWebhook(
                context.reactor,
                context.client,
                context.settings,
                context.answering,
                offloadings=informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
                enabled=kubelets.enabled,
                metrics=context.metrics,
            ).setServiceParent(services)
        return services

    async def hand_over(self) -> None:
        """Stop, and keep what the caches hold for the features that are started next."""
        services = self._taken()
        if services is not None:
            await self._keep(lambda: self._stopped(services))

    async def take_over(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop features, and keep what their caches hold for the next ones that are started, here or there."""
        await self._keep(stop)

    async def close(self) -> None:
        """Stop, and keep nothing."""
        services = self._taken()
        if services is not None:
            await self._stopped(services)
        else:
            await self._wait_for_end()
        self._forgetting.cancel()
        self._client.kept.clear()

    def _taken(self) -> MultiService | None:
        services, self._services, self._informers = self._services, None, None
        return services

    async def _keep(self, stop: Callable[[], Awaitable[None]]) -> None:
        kept = self._client.kept
        self._forgetting.cancel()
        kept.open()
        try:
            await stop()
        finally:
            kept.close()
            self._forgetting.start(KEPT_FOR, kept.clear)

    async def _stopped(self, services: MultiService) -> None:
        # What waits may be cancelled, and this may not: a port that is to be closed would stay open.
        ended = self._ended = Gate()
        stopping: Deferred[Any] = maybeDeferred(services.stopService)
        stopping.addErrback(lambda failure: self._log.failure("the watches of a standby did not end", failure))
        stopping.addCallback(lambda _: ended.open())
        await self._wait_for_end()

    async def _wait_for_end(self) -> None:
        try:
            await self._ended.wait().addTimeout(STOP_DEADLINE, self._reactor)
        except DeferredTimeout:
            self._log.warn("the watches of a standby did not end within {seconds} s", seconds=STOP_DEADLINE)
