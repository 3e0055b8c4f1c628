"""The process that answers: opens a port for each tenant, and says by the Lease of its slot where it is.

What it does follows from the API alone: the namespaces that were granted, and the Services that control made for the
tenants. It writes nothing but its Lease. Without the API server it answers by what it knew last.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from twisted.internet.defer import CancelledError, DeferredList
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.flow.observe import Gate
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import CLUSTERFACTS, LEASES, NAMESPACES, SERVICES
from liqod.model.host_port import split_address
from liqod.model.ids import Key
from liqod.model.names import DNS_NAMESPACE, DNS_SERVICE, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.facts import FACTS_NAME, ClusterFacts, own_networks
from liqod.model.records.name_service import (
    ADDRESSES_ANNOTATION,
    LABEL,
    PORTS_ANNOTATION,
    NameService,
    object_name,
)
from liqod.model.timestamps import rfc3339_micro
from liqod.names.resolver import Counts, Resolver
from liqod.names.server import Server
from liqod.names.tables import Table, closed_networks, dns_servers, home_servers, tables
from liqod.names.upstream import Address, UpstreamServers

RENEW: Final = 4.0
"""Seconds between two renewals of the Lease."""
DURATION: Final = 15
"""Seconds after which a Lease that was not renewed says that nobody answers there."""
TAKEN: Final = 10.0
"""Seconds until a port that another program has is tried again."""
HOME_SILENCE: Final = 1.8
"""Seconds that control has to say what a tenant's home answers: pods ask their second name server after two."""
HOME_REST: Final = 5.0
"""Seconds for which it is not asked after it was silent: resolvers look for public names below home's domain first."""
_TABLES, _LEASE = "tables", "lease"


class Names(Controller[str]):
    """Answers the tenants of this cluster. ``address`` is this host's, as its pods reach it."""

    name = "names"
    workers = 2

    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        informers: Informers,
        settings: Settings,
        address: str,
        *,
        identity: str = "",
        wall: WallClock = utc_now,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(reactor, metrics=metrics)
        self._reactor = reactor
        self._client = client
        self._settings = settings
        self._addresses = (address,)
        self._identity = identity or address
        self._wall = wall
        self._namespaces = informers.of(NAMESPACES, Object, labels=REMOTE_CLUSTER_LABEL)
        self._services = informers.of(SERVICES, NameService, labels=LABEL)
        configured = [server_of(text) for text in settings.names.upstream]
        self._configured: tuple[Address, ...] = tuple(configured)
        self._dns = None if configured else informers.of(SERVICES, NameService, namespace=DNS_NAMESPACE)
        self._facts = informers.of(CLUSTERFACTS, ClusterFacts)
        self._upstream = UpstreamServers(reactor)
        self._home = UpstreamServers(reactor, silence=HOME_SILENCE, tries=1, rest=HOME_REST)
        self._servers: dict[str, Server[Resolver]] = {}
        self._has_lease = False
        self.ready = Gate()
        """Opens when the Lease was written for the first time."""
        self.summary = "the first lists of namespaces and services are not complete"
        """What is answered, in one line."""

    @property
    def converged(self) -> bool:
        """Whether tenants were answered at least once."""
        return self.ready.is_open

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What became of the questions of each tenant."""
        return {tenant: server.resolver.counts for tenant, server in self._servers.items()}

    def sources(self) -> Iterable[Source[str]]:
        """Granted namespaces, the tenants' Services, that of the cluster's DNS, and the facts of the cluster."""
        yield watch(self._namespaces, lambda *_: (_TABLES,))
        yield watch(self._services, lambda *_: (_TABLES,))
        yield watch(self._facts, lambda *_: (_TABLES,))
        if self._dns is not None:
            yield watch(self._dns, lambda *_: (_TABLES,))
        yield always(_TABLES)

    async def cleanup(self) -> None:
        """Take the Lease away, so that nobody is sent here any more, and close the ports."""
        if self._has_lease:
            self._has_lease = False
            try:
                await self._client.delete(LEASES, self._lease, self._settings.kubernetes.namespace)
            except (KubeError, CancelledError) as error:
                why = str(error) or "no answer in time"
                self._log.info("the lease {name} runs out by itself: {error}", name=self._lease, error=why)
        await DeferredList([one for server in self._servers.values() for one in server.close()])
        self._servers.clear()
        self._upstream.close()
        self._home.close()

    async def reconcile(self, key: str) -> After | None:
        """Open and close ports as the tables say, or renew the Lease."""
        if key == _LEASE:
            return await self._renew()
        self._upstream.use(self._configured or self._found())
        self._home.use(home_servers(self._services.items()))
        network = self._settings.network
        own = own_networks(self._facts.get(Key("", FACTS_NAME)), network.pod_cidrs, network.service_cidrs)
        wanted = tables(
            self._namespaces.items(),
            self._services.items(),
            slot=self._settings.names.slot,
            domain=self._settings.cluster.domain,
            closed=closed_networks(own),
        )
        taken = self._serve(wanted)
        if not self._upstream.servers:
            nobody = f"no Service in {DNS_NAMESPACE} is called {DNS_SERVICE} or has its label; set [names] upstream"
            if self.summary != nobody:
                self._log.warn("names are not answered: {error}", error=nobody)
            self.summary = nobody
        elif taken:
            self.summary = f"names are answered for {len(self._servers)} tenants; {taken[0]}"
        else:
            self.summary = f"names are answered for {len(self._servers)} tenants"
        self.enqueue(_LEASE)
        return After(TAKEN) if taken else None

    def _serve(self, wanted: Mapping[str, Table]) -> list[str]:
        """Open and close ports; return what is wrong with those that cannot be opened."""
        for tenant, server in list(self._servers.items()):
            if tenant not in wanted or wanted[tenant].port != server.port:
                del self._servers[tenant]
                server.close()
        taken = []
        for tenant, table in wanted.items():
            if tenant in self._servers:
                self._servers[tenant].resolver.see(table.view)
                continue
            rate = self._settings.names.queries_per_second
            resolver = Resolver(self._reactor, self._upstream, table.view, rate, home=self._home)
            server = Server(self._reactor, resolver, self._addresses, table.port)
            try:
                server.listen()
            except CannotListenError as error:
                taken.append(f"port {error.port} of {tenant} is taken; [names] first-port is where they begin")
                self._log.error("{error}", error=taken[-1])
            else:
                self._servers[tenant] = server
        return taken

    def _found(self) -> tuple[Address, ...]:
        return () if self._dns is None else dns_servers(self._dns.items())

    # The Lease

    @property
    def _lease(self) -> str:
        return object_name(self._settings.names.slot)

    async def _renew(self) -> After | None:
        """Say that tenants are answered here; without a DNS to ask, the Lease runs out."""
        if not self._upstream.servers:
            return After(RENEW)
        ports = ",".join(str(server.port) for server in self._servers.values())
        body: dict[str, Any] = {
            "metadata": {
                "name": self._lease,
                "namespace": self._settings.kubernetes.namespace,
                "labels": {LABEL: str(self._settings.names.slot)},
                "annotations": {ADDRESSES_ANNOTATION: ",".join(self._addresses), PORTS_ANNOTATION: ports},
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION,
                "renewTime": rfc3339_micro(self._wall()),
            },
        }
        namespace = self._settings.kubernetes.namespace
        try:
            await self._client.patch(LEASES, self._lease, body, namespace, view=None)
        except NotFound:
            await self._client.create(LEASES, body, namespace, view=None)
        self._has_lease = True
        self.ready.open()
        return After(RENEW)


def server_of(text: str) -> Address:
    """Return the address and port of a server, written "address" or "address:port" ("[address]:port" of IPv6)."""
    host, port = split_address(text, 53)
    return str(ipaddress.ip_address(host)), port
