"""The daemon of one cluster, from its settings to running features, for as long as it lives.

    connect -> prepare the home cluster -> stand by for the lease -> lead: features run -> the lease is lost -> stand by

What stands in the way is said in the log, in the service's status and on ``/readyz``, and tried again after a back-off;
only a wrong configuration ends the process, before this service exists. When the lease is lost the features are stopped
and the same process stands by again: a restart would tell nothing new, and the records say where to go on.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.agent import home as homes
from liqod.agent.account.names import LEASE
from liqod.agent.errors import StartupError
from liqod.agent.home import Home
from liqod.agent.host.address import own_address
from liqod.agent.host.leader_identity import Candidate
from liqod.agent.host.sdnotify import Notifier
from liqod.agent.host.watchdog import Watchdog
from liqod.agent.metrics import register
from liqod.agent.wiring import Features
from liqod.config.schema import Settings
from liqod.fabric.agent.node import NodeFabric
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate, Latest
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection import config as kube_config
from liqod.kube.connection.config import ClientConfig
from liqod.kube.leader import LeaderLease
from liqod.metrics.lag import LagMeter
from liqod.metrics.registry import Registry
from liqod.metrics.service import MetricsServer

LOOK = 0.05
"""Seconds between two looks at what start-up still waits for."""
LOOK_LATER = 5.0
WEDGED = 60.0
"""Seconds without a measured turn of the reactor after which the watchdog is no longer fed."""


class Agent(Service):
    """One cluster's daemon; several may live in one process.

    ``client_config`` replaces the kubeconfig of the settings; ``wall`` gives the time of day. ``ready`` opens when this
    daemon leads for the first time and everything is up; ``status`` is what it does now, in one line; ``trouble`` is
    what keeps it from that, or empty.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        settings: Settings,
        *,
        client_config: ClientConfig | None = None,
        notifier: Notifier | None = None,
        hostname: str = "",
        wall: WallClock = utc_now,
    ) -> None:
        self.settings = settings
        self.ready = Gate()
        self.status: Latest[str] = Latest("starting")
        self.trouble = ""
        self._details: tuple[str, ...] = ()
        self.home: Home | None = None
        self.client: Client | None = None
        self.features: Features | None = None
        self.node: NodeFabric | None = None
        self.registry = Registry()
        self._reactor = reactor
        self._client_config = client_config
        self._wall = wall
        self._notifier = notifier or Notifier()
        self._hostname = hostname or socket.gethostname()
        self._identity = settings.leader.identity
        self._candidate: Candidate | None = None
        self._backoff = Backoff(initial=1.0, cap=30.0)
        self._failures = 0
        self._leaving = Gate()
        self._main: Deferred[None] | None = None
        self._has_ended = False
        self._lag = LagMeter(reactor, self.registry.observe_lag)
        self._watchdog = Watchdog(reactor, self._notifier, self._stuck)
        self._pages: MetricsServer | None = None
        if settings.metrics.listen:
            self._pages = MetricsServer(reactor, settings.metrics.listen, self.registry, self._unsound, self.missing)
        self.status.subscribe(self._notifier.status)
        register(self)

    @property
    def metrics_port(self) -> int:
        """The bound port of the pages for machines, or 0."""
        return self._pages.port if self._pages is not None else 0

    def missing(self) -> list[str]:
        """Return what is missing for this daemon to do its work, one sentence each; a standby misses nothing."""
        if self.trouble:
            return [self.trouble, *self._details]
        if self.node is not None:
            return [] if self.node.converged else [self.node.summary]
        if self.features is None:
            return [] if self.status.value.startswith("standby") else [self.status.value]
        return [fact.otherwise for fact in self.features.facts() if not fact.holds]

    def startService(self) -> None:
        super().startService()
        self._lag.startService()
        self._watchdog.startService()
        if self._pages is not None:
            self._pages.startService()
        self._leaving = Gate()
        if not self.settings.leader.identity:
            self._candidate = Candidate(self._hostname)
            self._identity = self._candidate.name
        self._main = Deferred.fromCoroutine(self._run())
        self._main.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._notifier.stopping()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        # In a turn of its own: whoever stops us may have been called from the very coroutine that is to end.
        await deferLater(self._reactor, 0)
        self._leaving.open()
        if self._main is not None:
            if self.features is None:
                # Nothing is to be ended in order; features are, and must not be cancelled while they are.
                self._main.cancel()
            await self._main
        await self._watchdog.stopService()
        await self._lag.stopService()
        if self._pages is not None:
            await self._pages.stopService()
        if self._candidate is not None:
            self._candidate.close()

    def _unsound(self) -> list[str]:
        stuck = self._stuck()
        return [stuck] if stuck else []

    def _stuck(self) -> str:
        """Tell what no longer moves, for the watchdog; trouble with the world outside is not it."""
        if self.running and self._has_ended:
            return "the daemon's main task has ended"
        age = self._reactor.seconds() - self._lag.measured_at
        return f"no turn of the reactor was measured for {age:.0f} s" if age > WEDGED else ""

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._has_ended = True
            self._log.failure("the daemon's main task has ended", failure)

    async def _run(self) -> None:
        while self.running:
            try:
                await self._connected()
            except CancelledError:
                raise
            except (ExpectedError, kube_config.ConfigError) as error:
                self._in_trouble(str(error), error.details if isinstance(error, StartupError) else ())
            except Exception as error:
                self._log.failure("the daemon failed and begins anew")
                self.trouble, self._details = f"{type(error).__name__}: {error}", ()
            if not self.running:
                return
            self.status.set(f"waiting: {self.trouble}")
            await deferLater(self._reactor, self._backoff.delay(self._failures))
            self._failures += 1

    def _in_trouble(self, sentence: str, details: tuple[str, ...]) -> None:
        if (sentence, details) != (self.trouble, self._details):
            for line in (sentence, *details):
                self._log.error("{trouble}", trouble=line)
        self.trouble, self._details = sentence, details

    async def _connected(self) -> None:
        kube = self.settings.kubernetes
        config = self._client_config or kube_config.load(kube.kubeconfig, kube.context)
        client = self.client = Client(config, self._reactor)
        try:
            if self.settings.network.role == "node":
                await self._as_node(client)
                return
            home = self.home = await homes.prepare(client, self.settings, config.server, self._hostname, self._wall)
            self.trouble = ""
            self._log.info(
                "cluster {name} ({cluster}) with key {fingerprint}",
                name=home.cluster_name,
                cluster=home.cluster_id,
                fingerprint=home.keypair.fingerprint,
            )
            while self.running:
                await self._term(client, home)
                # Whatever took the lease away: a connection from before may be dead, and would be waited for.
                client.path_is_new(self._reactor.seconds())
        finally:
            await client.close()

    async def _as_node(self, client: Client) -> None:
        """Lead this host's pods to the gateway and do nothing else, for as long as this daemon runs."""
        self.trouble = ""
        informers = Informers(client, self._reactor)
        address = self.settings.kubelet.node_address or own_address(client.config.server)
        self.node = node = NodeFabric(self._reactor, client, informers, self.settings, address)
        informers.startService()
        node.startService()
        try:
            while self.running:
                self.status.set(node.summary)
                if node.converged:
                    self.ready.open()
                    self._notifier.ready()
                await deferLater(self._reactor, LOOK_LATER if self.ready.is_open else LOOK)
        finally:
            self.status.set("stopping")
            self.node = None
            await node.stopService()
            await informers.stopService()

    async def _term(self, client: Client, home: Home) -> None:
        """Stand by, lead, and stop when the lease is lost."""
        lost = Gate()
        leader = self.settings.leader
        # A client of its own: a renewal must not queue behind the features' requests.
        renewals = Client(client.config, self._reactor)
        lease = LeaderLease(
            renewals,
            self._reactor,
            self.settings.kubernetes.namespace,
            LEASE,
            self._identity,
            leader.lease_duration,
            leader.renew_interval,
            leader.retry_interval,
            on_lost=lost.open,
            wall=self._wall,
        )
        lease.startService()
        standby = Deferred.fromCoroutine(self._stand_by(lease))
        standby.addErrback(lambda failure: failure.trap(CancelledError) and None)
        try:
            await lease.when_leading()
            standby.cancel()
            home = self.home = await homes.refreshed(client, self.settings, home, self._wall())
            await self._lead(client, home, lost)
        finally:
            standby.cancel()
            try:
                await lease.stopService()
            finally:
                await renewals.close()

    async def _stand_by(self, lease: LeaderLease) -> None:
        """Say that this daemon stands by, once it is known that another one leads: then it is as ready as it can be."""
        self.status.set("waiting for the lease")
        while lease.holder in ("", self._identity):
            await deferLater(self._reactor, LOOK)
        self.status.set(f"standby: {lease.holder} leads")
        self._log.info("standby: {holder} leads", holder=lease.holder)
        self._notifier.ready()

    async def _lead(self, client: Client, home: Home, lost: Gate) -> None:
        self.status.set("leading: starting")
        self._log.info("this daemon leads as {identity}", identity=self._identity)
        address = self.settings.kubelet.node_address or own_address(client.config.server)
        features = self.features = Features(
            self._reactor, client, home, self.settings, address, self._hostname, metrics=self.registry, wall=self._wall
        )
        ended: Deferred[None] = Deferred()
        watching = Deferred.fromCoroutine(self._keep_status(features))
        starting = Deferred.fromCoroutine(features.start())
        for work in (watching, starting):
            work.addErrback(_pass_on, ended)
        for reason in (lost, self._leaving):
            reason.wait().addCallback(_pass_on, ended)
        try:
            await ended
            if lost.is_open:
                self._log.warn("the lease was lost: features stop, this daemon stands by")
        finally:
            watching.cancel()
            starting.cancel()
            self.status.set("stopping")
            await features.stop()
            self.features = None

    async def _keep_status(self, features: Features) -> None:
        """Open ``ready`` once everything is up, and keep the status line true."""
        while True:
            absent = [fact.otherwise for fact in features.facts() if not fact.holds]
            if absent:
                self.status.set(f"leading, but {absent[0]}")
            else:
                self.status.set("leading")
                self._failures = 0
                if not self.ready.is_open:
                    self._log.info("liqod is ready")
                    self.ready.open()
                self._notifier.ready()
            await deferLater(self._reactor, LOOK_LATER if self.ready.is_open else LOOK)


def _pass_on(outcome: Any, ended: Deferred[None]) -> None:
    """End the term with an outcome, a Failure among them, unless it has ended already."""
    if not ended.called and not (isinstance(outcome, Failure) and outcome.check(CancelledError)):
        ended.callback(outcome)
