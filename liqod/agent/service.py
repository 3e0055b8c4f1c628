"""The daemon of one cluster, from its settings to running features, for as long as it lives.

    connect -> prepare the home cluster -> stand by for the lease -> lead: features run -> the lease is lost -> stand by

While it stands by it watches what the features will read (``agent.standby``).

A failure is shown in the log, in the service's status and on ``/readyz``, and retried after a back-off; only a wrong
configuration ends the process, before this service exists. When the lease is lost the features are stopped and the same
process stands by again; nothing is lost, because all state is in the records. In the state directory there is only what
tells an API server that was restored from a backup from one that was not (``agent.host.kept_versions``), the name of
this candidate for the lease (``agent.host.leader_identity``), and the account's token (``agent.host.token_renewal``).
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.agent import home as homes
from liqod.agent.account.names import LEASE
from liqod.agent.errors import StartupError, reason_of
from liqod.agent.home import Home
from liqod.agent.host.address import own_address
from liqod.agent.host.kept_versions import KeptVersions
from liqod.agent.host.leader_identity import LeaderIdentity
from liqod.agent.host.process_lease import ProcessLease
from liqod.agent.host.sdnotify import Notifier
from liqod.agent.host.token_renewal import TokenRenewal
from liqod.agent.host.watchdog import Watchdog
from liqod.agent.making import DaemonContext, make_names
from liqod.agent.metrics.daemon import register
from liqod.agent.standby import Standby
from liqod.agent.state import (
    Campaigning,
    DaemonState,
    Leading,
    Routing,
    StandingBy,
    Starting,
    Stopping,
    Waiting,
    activity,
    status_line,
    unmet,
    unready,
)
from liqod.agent.wiring import Features, ReadinessCondition, network_failures
from liqod.audit.events import AuditEvent
from liqod.audit.log import AuditLog
from liqod.config.schema import Settings
from liqod.fabric.agent.node import NodeFabric
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate, Latest
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection import config as kube_config
from liqod.kube.connection.config import ClientConfig
from liqod.kube.connection.seen_versions import SeenVersions
from liqod.kube.leader import LeaderLease
from liqod.metrics.lag import LagMeter
from liqod.metrics.registry import Registry
from liqod.metrics.service import MetricsServer, OwnCluster
from liqod.model.diagnosis.installation import Unmet
from liqod.model.diagnosis.processes import LONGEST_CAUSE, MOST_UNMET, Lack, ProcessState
from liqod.model.records.network import NETWORK_LEASE
from liqod.model.text import clean_text
from liqod.names.service import Names
from liqod.webhook.answering import Answering

OWN_REQUESTS = 10.0
"""Seconds that a request for the lease of this process may take."""
STATUS_REFRESH = 5.0
"""Seconds between two updates of the status line; changes of an informer's error are not observable."""
WEDGED = 60.0
"""Seconds without a measured iteration of the reactor after which the watchdog is no longer notified."""


class Agent(Service):
    """One cluster's daemon; several may live in one process.

    ``client_config`` replaces the kubeconfig of the settings; ``wall`` gives the time of day. ``ready`` opens when this
    daemon leads for the first time and everything is up; ``state`` can be observed, ``status`` is its one line.
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
        self.state: Latest[DaemonState] = Latest(Starting())
        self.home: Home | None = None
        self.client: Client | None = None
        self.features: Features | None = None
        self.standby: Standby | None = None
        self.node: NodeFabric | RecordedFabric | Names | None = None
        self.registry = Registry()
        self._reactor = reactor
        self._client_config = client_config
        self._wall = wall
        self._notifier = notifier or Notifier()
        self._hostname = hostname or socket.gethostname()
        self._identity = settings.leader.identity
        self._answering: Answering | None = None
        self._candidate: LeaderIdentity | None = None
        self._kept_versions: KeptVersions | None = None
        self._seen = SeenVersions()
        self._backoff = Backoff(initial=1.0, cap=30.0)
        self._failures = 0
        self._last_failure: Waiting | None = None
        self._leaving = Gate()
        self._main: Deferred[None] | None = None
        self._has_ended = False
        self._lag = LagMeter(reactor, self.registry.observe_lag)
        self._watchdog = Watchdog(reactor, self._notifier, self._stuck)
        self._audit = AuditLog(reactor, wall)
        self._failing: frozenset[str] = frozenset()
        self._lease: ProcessLease | None = None
        if settings.daemon.role != "names":
            self._lease = ProcessLease(
                reactor,
                self._own_client,
                namespace=settings.kubernetes.namespace,
                identity=lambda: self._identity or self._hostname,
                describe=self._described,
                wall=wall,
            )
            self.state.subscribe(self._state_changed)
        self.pages: MetricsServer | None = self._make_pages(reactor) if settings.metrics.listen else None
        self.state.subscribe(lambda state: self._notifier.status(status_line(state)))
        register(self)

    def _make_pages(self, reactor: Reactor) -> MetricsServer:
        cluster = OwnCluster(
            namespace=self.settings.kubernetes.namespace,
            client=lambda: self.client,
            is_prepared=lambda: self.home is not None,
            wall=self._wall,
        )
        metrics = self.settings.metrics
        if metrics.tls == "own" and not self.settings.is_control:
            # This process may not read that certificate; it is at loopback, which was checked.
            metrics = msgspec.structs.replace(metrics, tls="none")
        return MetricsServer(
            reactor,
            metrics,
            self.registry,
            health=self._unsound,
            readiness=self.missing,
            cluster=cluster,
        )

    @property
    def metrics_port(self) -> int:
        """The bound port of the pages for machines, or 0."""
        return self.pages.bound.value if self.pages is not None else 0

    @property
    def status(self) -> str:
        """The state in one line."""
        return status_line(self.state.value)

    @property
    def caches(self) -> list[Informer[Any]]:
        """The caches of this cluster's objects: those of the features, or of a daemon that stands by."""
        if self.features is not None:
            return list(self.features.informers)
        return self.standby.informers if self.standby is not None else []

    def missing(self) -> list[str]:
        """Return what is missing for this daemon to do its work, a line each; a standby misses nothing."""
        return unready(self.unmet())

    def unmet(self) -> list[Unmet]:
        """Return the same as the diagnosis takes it."""
        if self.features is not None and isinstance(self.state.value, Leading):
            return [fact.otherwise for fact in self.features.requirements() if not fact.holds]
        return unmet(self.state.value)

    def startService(self) -> None:
        super().startService()
        self._lag.startService()
        self._watchdog.startService()
        if self.pages is not None:
            self.pages.startService()
        self._leaving = Gate()
        if not self.settings.leader.identity:
            self._candidate = LeaderIdentity(self._hostname)
            self._identity = self._candidate.name
        if self._lease is not None:
            self._lease.startService()
        self._main = Deferred.fromCoroutine(self._run())
        self._main.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._notifier.stopping()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        # In a reactor iteration of its own: the caller may run inside the coroutine that is to be cancelled.
        await deferLater(self._reactor, 0)
        is_working = self.features is not None or self.node is not None
        self._leaving.open()
        if self._main is not None:
            if not is_working:
                # Only what runs needs an orderly stop, which must not be cancelled.
                self._main.cancel()
            await self._main
        if self._lease is not None:
            await self._lease.stopService()
        await self._watchdog.stopService()
        await self._lag.stopService()
        if self.pages is not None:
            await self.pages.stopService()
        if self._candidate is not None:
            self._candidate.close()
        self._audit.close()

    def _record(self, event: AuditEvent) -> None:
        """Record a security event of this process, which in a process that does not lead goes to the log."""
        (self._audit if self.features is None else self.features.audit).record(event)

    def _unsound(self) -> list[str]:
        stuck = self._stuck()
        return [stuck] if stuck else []

    def _stuck(self) -> str:
        """Return what is stuck inside this process, for the watchdog; failures outside do not count."""
        if self.running and self._has_ended:
            return "the daemon's main task has ended"
        age = self._reactor.seconds() - self._lag.measured_at
        return f"no iteration of the reactor was measured for {age:.0f} s" if age > WEDGED else ""

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
                details = error.details if isinstance(error, StartupError) else ()
                self._failed(Waiting(reason_of(error), str(error), details))
            except Exception as error:
                self._log.failure("the daemon failed and is restarted")
                self.state.set(Waiting(reason_of(error), f"{type(error).__name__}: {error}"))
            if not self.running:
                return
            await deferLater(self._reactor, self._backoff.delay(self._failures))
            self._failures += 1

    def _failed(self, failure: Waiting) -> None:
        if failure != self._last_failure:
            for line in unready(unmet(failure)):
                self._log.error("{detail}", detail=line)
        self._last_failure = failure
        self.state.set(failure)

    async def _config(self) -> ClientConfig:
        if self._client_config is not None:
            return self._client_config
        kube = self.settings.kubernetes
        config: ClientConfig = await deferToThread(kube_config.load, kube.kubeconfig, kube.context, apart=True)
        return config

    def _state_changed(self, _: DaemonState) -> None:
        if self._lease is not None:
            self._lease.changed()

    def _own_client(self) -> Client | None:
        # The same token as the other clients have: a copy would not see the newer ones of `TokenRenewal`.
        return None if self.client is None else Client(self.client.config, self._reactor, timeout=OWN_REQUESTS)

    def _described(self) -> ProcessState:
        """Return what the Lease of this process says."""
        is_node, is_waiting = self.settings.network.role == "node", isinstance(self.state.value, Waiting)
        # Of the state, whose next change is written at once; what a failed start says first sums up the rest.
        missing = unmet(self.state.value)[: 1 if is_waiting else MOST_UNMET]
        lacks = [*missing, *self._lasting_failures()][:MOST_UNMET]
        return ProcessState(
            role="node" if is_node else self.settings.daemon.role,
            host=self.settings.leader.identity or self._hostname,
            state=activity(self.state.value),
            webhook=self.features.webhook_place if self.features is not None else "",
            unmet=[Lack(code=one.code, cause=clean_text(one.cause, LONGEST_CAUSE, ellipsis=True)) for one in lacks],
        )

    def _lasting_failures(self) -> list[Unmet]:
        """Return what fails though this process is ready, and failed when this was asked the last time as well."""
        found: list[Unmet] = []
        if self.features is not None:
            found = self.features.failures()
        elif isinstance(self.node, NodeFabric | RecordedFabric):
            found = network_failures(self.node)
        before, self._failing = self._failing, frozenset(one.code for one in found)
        return [one for one in found if one.code in before]

    async def _connected(self) -> None:
        config = await self._config()
        client = self.client = Client(config, self._reactor)
        self._state_changed(self.state.value)
        renewal = TokenRenewal(client, self.settings, self._wall, self._record)
        renewal.start()
        try:
            if self.settings.daemon.role == "names":
                await homes.prepare_agent(client, self.settings, config.server, self._wall)
                await self._as_names(client)
                return
            if self.settings.network.role == "node":
                await self._as_node(client)
                return
            if self.settings.daemon.role == "network":
                await homes.prepare_agent(client, self.settings, config.server, self._wall)
                self._last_failure = None
                while self.running:
                    await self._term(client, NETWORK_LEASE, partial(self._as_gateway, client))
                    self._start_afresh(client)
                return
            home = self.home = await homes.prepare(client, self.settings, config.server, self._hostname, self._wall)
            self._last_failure = None
            client.seen = self._seen_of(home)
            self._log.info(
                "cluster {name} ({cluster}) with key {fingerprint}",
                name=home.cluster_name,
                cluster=home.cluster_id,
                fingerprint=home.keypair.fingerprint,
            )
            if self.settings.webhook.enabled:
                self._answering = Answering(self._reactor, self.settings, self._wall)
            if self.settings.leader.warm_standby:
                self.standby = Standby(client, self._reactor, partial(self._context, client))
            while self.running:
                await self._term(client, LEASE, partial(self._lead, client))
                self._start_afresh(client)
        finally:
            await renewal.stop()
            await self._close_standby()
            await client.close()

    def _start_afresh(self, client: Client) -> None:
        """Leave nothing of a term to the next one."""
        # The network may have failed: requests on a connection from before would wait for its timeout.
        client.path_is_new(self._reactor.seconds())
        # Features refer to each other, so that a term is some megabytes of cycles. By itself Python looks for old ones
        # once a quarter of all has been added (gc.set_threshold): the next terms took new memory until then.
        gc.collect()

    async def _close_standby(self) -> None:
        """End what goes on from one lead to the next."""
        standby, self.standby = self.standby, None
        answering, self._answering = self._answering, None
        if standby is not None:
            await standby.close()
        if answering is not None:
            await answering.close()

    async def _as_node(self, client: Client) -> None:
        """Lead this host's pods to the gateway and do nothing else, for as long as this daemon runs."""
        self._last_failure = None
        await self._follow_records(client, lambda context: NodeFabric(context.fabric_host()), self._leaving)

    async def _as_names(self, client: Client) -> None:
        """Answer tenants' questions for names and do nothing else, for as long as this daemon runs."""
        self._last_failure = None
        await self._follow_records(client, make_names, self._leaving)

    async def _as_gateway(self, client: Client, lost: Gate) -> None:
        """Make this host's network as the records say and do nothing else, until the lease is lost."""
        self._log.info("this daemon is the gateway's network agent, as {identity}", identity=self._identity)
        ended = Gate()
        waits = [reason.wait().addCallbacks(lambda _: ended.open(), _no_longer) for reason in (lost, self._leaving)]
        try:
            await self._follow_records(client, lambda context: RecordedFabric(context.fabric_host()), ended)
        finally:
            for wait in waits:
                wait.cancel()

    async def _follow_records(
        self, client: Client, make: Callable[[DaemonContext], NodeFabric | RecordedFabric | Names], ended: Gate
    ) -> None:
        context = self._context(client)
        self.node = node = make(context)
        context.informers.startService()
        node.startService()
        refresh = self._refreshing(lambda: self.state.set(Routing(node.summary, node.converged)))
        try:
            ready = Deferred.fromCoroutine(self._announce(node))
            ready.addErrback(lambda failure: failure.trap(CancelledError))
            try:
                await ended.wait()
            finally:
                ready.cancel()
        finally:
            refresh.stop()
            self.state.set(Stopping())
            self.node = None
            await node.stopService()
            await context.informers.stopService()

    def _context(self, client: Client) -> DaemonContext:
        return DaemonContext(
            reactor=self._reactor,
            client=client,
            informers=Informers(client, self._reactor),
            settings=self.settings,
            address=own_address(self.settings.kubelet.node_address, client.config.server),
            hostname=self._hostname,
            metrics=self.registry,
            wall=self._wall,
            answering=self._answering,
        )

    async def _announce(self, node: NodeFabric | RecordedFabric | Names) -> None:
        """Say that this process is ready once it does what the records say."""
        await node.ready.wait()
        self._failures = 0
        self.state.set(Routing(node.summary, converged=True))
        self.ready.open()
        self._notifier.ready()

    async def _term(self, client: Client, name: str, lead: Callable[[Gate], Awaitable[None]]) -> None:
        """Stand by, lead, and stop when the lease is lost."""
        lost = Gate()
        leader = self.settings.leader
        # A client of its own: a renewal that queues behind the features' requests could miss the lease's deadline.
        renewals = Client(client.config, self._reactor)
        lease = LeaderLease(
            renewals,
            self._reactor,
            namespace=self.settings.kubernetes.namespace,
            name=name,
            identity=self._identity,
            lease_duration=leader.lease_duration,
            renew_interval=leader.renew_interval,
            retry_interval=leader.retry_interval,
            on_lost=lost.open,
            wall=self._wall,
        )
        lease.startService()
        standby = Deferred.fromCoroutine(self._stand_by(lease))
        standby.addErrback(lambda failure: failure.trap(CancelledError))
        try:
            await lease.when_leading()
            standby.cancel()
            await lead(lost)
        finally:
            standby.cancel()
            try:
                await lease.stopService()
            finally:
                await renewals.close()

    async def _stand_by(self, lease: LeaderLease) -> None:
        """Enter the state StandingBy once another holder is known: then this daemon is as ready as it can be.

        Each later leader is shown as well, until this daemon leads and this is cancelled.
        """
        self.state.set(Campaigning())
        leader = ""
        while True:
            shown = ("", self._identity, leader)
            leader = await lease.holder.when(lambda holder, shown=shown: holder not in shown)  # type: ignore[misc]
            self.state.set(StandingBy(leader))
            self._log.info("standby: {identity} leads", identity=leader)
            if self.standby is not None and self.home is not None:
                self.standby.start(self.home, lease)
            self._notifier.ready()

    async def _lead(self, client: Client, lost: Gate) -> None:
        if self.home is None:
            raise RuntimeError("the home cluster was not prepared")
        home = self.home = await homes.refreshed(client, self.settings, self.home, self._wall())
        self.state.set(Leading((Unmet("Starting", "the features are starting"),)))
        self._log.info("this daemon leads as {identity}", identity=self._identity)
        if self.standby is not None:
            await self.standby.hand_over()
        features = self.features = Features(self._context(client), home)
        ended: Deferred[None] = Deferred()
        watching = Deferred.fromCoroutine(self._keep_status(features))
        starting = Deferred.fromCoroutine(features.start())
        for work in (watching, starting):
            work.addErrback(_end_term, ended)
        # What waits for the end of the daemon ends with the term: there may be many of these.
        waits = [
            reason.wait().addCallbacks(_end_term, _no_longer, callbackArgs=(ended,)) for reason in (lost, self._leaving)
        ]
        try:
            await ended
            if lost.is_open:
                self._log.warn("the lease was lost: features stop, this daemon stands by")
        finally:
            for work in (watching, starting, *waits):
                work.cancel()
            self.state.set(Stopping())
            if self.standby is not None and lost.is_open:
                await self.standby.take_over(features.stop)
            else:
                await features.stop()
            self.features = None
            self._keep_seen(client)

    def _seen_of(self, home: Home) -> SeenVersions:
        if self._kept_versions is None:
            self._kept_versions = KeptVersions(str(home.cluster_id))
            self._seen = self._kept_versions.read()
        return self._seen

    def _keep_seen(self, client: Client) -> None:
        if self._kept_versions is not None:
            try:
                self._kept_versions.write(client.seen)
            except OSError as error:
                self._log.warn("the resource versions that were seen are not kept: {error}", error=str(error))

    async def _keep_status(self, features: Features) -> None:
        """Open ``ready`` once every condition of readiness holds, and keep the state up to date."""
        refresh = self._refreshing(lambda: self._refresh(features))
        try:
            while (fact := self._refresh(features)) is not None:
                await fact.when()
                # In the next iteration: a condition that is lost again at once must not block the reactor.
                await deferLater(self._reactor, 0)
            await self._leaving.wait()
        finally:
            refresh.stop()

    def _refresh(self, features: Features) -> ReadinessCondition | None:
        """Update the state; returns the first condition of readiness that does not hold."""
        missing = [fact for fact in features.requirements() if not fact.holds]
        if missing:
            self.state.set(Leading(tuple(fact.otherwise for fact in missing)))
            return missing[0]
        features.has_been_ready = True
        self.state.set(Leading())
        self._failures = 0
        if not self.ready.is_open:
            self._log.info("liqod is ready")
            self.ready.open()
        self._notifier.ready()
        return None

    def _refreshing(self, refresh: Callable[[], object]) -> LoopingCall:
        """Start calling ``refresh`` every ``STATUS_REFRESH`` seconds; the caller stops it."""
        call = LoopingCall(refresh)
        call.clock = self._reactor
        call.start(STATUS_REFRESH, now=False).addErrback(lambda failure: self._log.failure("no status", failure))
        return call


def _no_longer(failure: Failure) -> None:
    """Ignore the cancellation of a wait."""
    failure.trap(CancelledError)


def _end_term(outcome: Any, ended: Deferred[None]) -> None:
    """End the term with an outcome, a Failure among them, unless it has ended already."""
    if not ended.called and not (isinstance(outcome, Failure) and outcome.check(CancelledError)):
        ended.callback(outcome)
