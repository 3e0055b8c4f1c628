"""Puts the features of a leading daemon together, starts and stops them; the composition root.

Features know each other only by what is passed here: hosting is peering's lender, peering is what kubelets ask for
namespaces, discovery feeds peering with candidates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import attrs
from twisted.application.service import IService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from liqod.agent.errors import StartupError
from liqod.agent.fabric_networks import LenderWays
from liqod.agent.home import Home
from liqod.agent.making import (
    DaemonContext,
    make_fabric,
    make_facts,
    make_home_names,
    make_home_port,
    make_hosting,
    make_journals,
    make_kubelets,
    make_leader_services,
    make_name_services,
    make_names,
    make_peering,
    make_spillover,
    make_webhook,
)
from liqod.agent.processes import runs
from liqod.discovery.domains import DomainSearch, make_resolver
from liqod.discovery.service import Announcement, Discovery
from liqod.fabric.agent.converge import ConvergeLoop
from liqod.kube.resources import SEARCHDOMAINS
from liqod.model.diagnosis.installation import Unmet
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.search_domain import SearchDomain

# A lease is no fence: client-go's package comment says that it "does not guarantee that only one client is acting as a
# leader". What a feature still writes while the next leader starts is conditional or repeatable.
STOP_DEADLINE: Final = 10.0
"""Seconds that one feature may take to stop before the next is stopped regardless."""


def _plain(error: object) -> str:
    """Return the sentence of a socket's error, without its number."""
    return str(getattr(error, "strerror", "") or error).lower()


def plain_failure(text: str) -> str:
    """Return the sentence of a controller's failure, without the name of the exception."""
    name, _, sentence = text.partition(": ")
    return sentence if sentence and name.isidentifier() else text


def network_failures(loop: ConvergeLoop) -> list[Unmet]:
    """Return why the network of a host is not as it should be, or does not stay so."""
    found = [Unmet("NetworkFailing", plain_failure(text)) for text in loop.failing.values()]
    if loop.undone:
        found.append(Unmet("NetworkUndone", loop.undone))
    if not loop.is_forwarding:
        found.append(Unmet("ForwardingOff", "this host forwards no packets: none passes between pods and peers"))
    return found


@attrs.frozen
class ReadinessCondition:
    """One condition of readiness, the problem to show while it does not hold, and how to wait until it may."""

    holds: bool
    otherwise: Unmet
    when: Callable[[], Awaitable[object]]


class Features:
    """Everything that acts on the cluster while this daemon leads."""

    _log = Logger()

    def __init__(self, context: DaemonContext, home: Home) -> None:
        self._context = context
        self._home = home
        self.has_been_ready = False
        """Whether every condition of readiness held at one time; the daemon sets it."""
        self.discovery: Discovery | None = None
        self.informers = context.informers
        journals = make_journals(context)
        self.recorder, self.audit = journals.recorder, journals.audit
        self.facts_controller = make_facts(context)
        self.hosting = make_hosting(context, home, self.facts_controller, journals)
        self._home_names = make_home_names(context)
        self.peering = make_peering(
            context, home, self.hosting, journals, facts=self.facts_controller, names=self._home_names
        )
        self.hosting.writes.subscribe(self._note_writes)
        self.peering.streams.lender.port.subscribe(self._take_streams)
        self.peering.own_key.subscribe(self._announce_key)
        self.fabric = make_fabric(context)
        self.kubelets = make_kubelets(
            context,
            home,
            facts=self.facts_controller,
            own=self.hosting.networks,
            peering=self.peering,
            fabric=self.fabric,
            recorder=self.recorder,
        )
        if self._home_names is not None:
            self._home_names.attach(LenderWays(self.kubelets, self.fabric))
        self.name_services = make_name_services(context, self.recorder)
        self.home_port = make_home_port(context, self.name_services, self.peering)
        serves_names = context.settings.names.enabled and self._runs("names")
        self.names = make_names(context, context.hostname) if serves_names else None
        self.webhook = make_webhook(context, self.kubelets, self.recorder)
        self.spillover = make_spillover(context, self.kubelets, self.recorder)
        self.leader_services = make_leader_services(context)
        self._search_domains = self.informers.of(SEARCHDOMAINS, SearchDomain)
        self._started: list[tuple[str, IService]] = []

    async def start(self) -> None:
        """Start every feature; discovery after peering, because it announces the port that peering listens on."""
        self._start("informers", self.informers)
        self._start("facts", self.facts_controller)
        self._start("hosting", self.hosting)
        if self.name_services is not None:
            self._start("name services", self.name_services)
        if self.names is not None:
            self._start("names", self.names)
        self._start("peering", self.peering)
        if self.home_port is not None:
            self._start("home names", self.home_port)
        if self.fabric is not None:
            self._start("network", self.fabric)
            # Kubelets translate pod addresses from their first reconcile on.
            await self.fabric.when_synced()
        # Without a tunnel the addresses of pods are judged by this cluster's own networks.
        await self.hosting.networks.prepare()
        self._start("kubelets", self.kubelets)
        if self.webhook is not None:
            self._start("webhook", self.webhook)
        if self.spillover is not None:
            self._start("spillover", self.spillover)
        await self.peering.bound.wait()
        if self.leader_services is not None:
            # Only now: peers that come by a Service are answered.
            self._start("leader services", self.leader_services)
        context, settings = self._context, self._context.settings
        peering = settings.peering
        addresses: tuple[str, ...] = tuple(peering.advertise_addresses)
        me = Announcement(
            cluster_id=self._home.cluster_id,
            cluster_name=self._home.cluster_name,
            fingerprint=self.peering.fingerprint,
            port=peering.advertise_port or self.peering.port,
            addresses=addresses,
        )
        self.discovery = Discovery(settings.discovery, me, context.reactor, self.peering.update_candidates)
        self._start("discovery", self.discovery)
        self._start(
            "domain search",
            DomainSearch(
                context.reactor,
                context.client,
                self._search_domains,
                resolver=partial(make_resolver, context.reactor, settings.discovery.dns_servers),
                on_sightings=self.discovery.merge_sightings,
                metrics=context.metrics,
            ),
        )

    def _announce_key(self, fingerprint: Fingerprint) -> None:
        """The cluster has another key; before discovery has begun, it will announce that one by itself."""
        if self.discovery is not None:
            self.discovery.announce_key(fingerprint)

    def _note_writes(self, tenant: ClusterID) -> None:
        """Show at the peer that its writes are held."""
        self.peering.usages.of(tenant).held_writes(self._context.reactor.seconds())

    def _take_streams(self, port: int) -> None:
        """Lead pods of tenants to this daemon; where it stops, what was written stays until another one leads."""
        if port and self._context.address:
            self.hosting.streams.set((self._context.address, port))

    def _runs(self, name: str) -> bool:
        return runs(self._context.settings.daemon.role, name)

    def _start(self, name: str, service: IService) -> None:
        if not self._runs(name):
            return
        self._started.append((name, service))
        try:
            service.startService()
        except CannotListenError as error:
            raise StartupError(
                "PortTaken",
                f"cannot listen on port {error.port} for {name}: {_plain(error.socketError)}; end what has it "
                f"(`ss -ltnp` says what), or choose another one in [{name}] listen; it is tried again",
            ) from error

    async def stop(self) -> None:
        """Stop what was started, in reverse order; each has stopped, or timed out, before the next."""
        while self._started:
            name, service = self._started.pop()
            await self._quiet(name, service.stopService)
        await self._quiet("events", self.recorder.stop)
        await self._quiet("audit", self.audit.close)

    async def _quiet(self, name: str, stop: Callable[[], object]) -> None:
        stopping: Deferred[object] = maybeDeferred(stop)
        stopping.addTimeout(STOP_DEADLINE, self._context.reactor)
        try:
            await stopping
        except Exception:
            self._log.failure("stopping {feature} failed", feature=name)

    @property
    def services(self) -> list[IService]:
        """Return the features that run."""
        return [service for _, service in self._started]

    @property
    def webhook_place(self) -> str:
        """Where the API server is to call the webhook; empty while there is none to be called."""
        if self.webhook is None or not self.webhook.configured.value:
            return ""
        return self._context.settings.webhook.service or self.webhook.url

    def failures(self) -> list[Unmet]:
        """Return what fails without keeping this daemon from being ready."""
        return network_failures(self.fabric) if self.fabric is not None else []

    def requirements(self) -> Iterator[ReadinessCondition]:
        """Yield the conditions of readiness."""
        yield ReadinessCondition(
            bool(self.peering.port),
            Unmet("NotListening", f"peering.listen = {self._context.settings.peering.listen} is not bound"),
            self.peering.bound.wait,
        )
        # Later ones, as of a namespace that is offloaded only now, keep nothing waiting but what needs them.
        lacking = [one for one in self.informers if not one.synced and (one.error or not self.has_been_ready)]
        incomplete = next(
            (f"the first list of {one.resource} is not complete: {one.error}" for one in lacking if one.error),
            "the first lists of the records are not complete",
        )
        yield ReadinessCondition(
            not lacking,
            Unmet("CachesIncomplete", incomplete),
            self.informers.when_synced,
        )
        if self.webhook is not None:
            why = f": {self.webhook.trouble}" if self.webhook.trouble else ""
            sentence = f"the admission webhook is not configured{why}"
            missing = Unmet("WebhookNotConfigured", sentence)
            configured = self.webhook.configured
            yield ReadinessCondition(configured.value, missing, lambda: configured.when(bool))
