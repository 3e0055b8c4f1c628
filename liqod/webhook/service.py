"""The admission webhook as a service: certificate, listener, configuration, and the backfill of pods it missed."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.connections.handshake import LimitedFactory
from liqod.flow.connections.listening import server_endpoint
from liqod.flow.connections.refused import RefusedConnections
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Latest
from liqod.identity.serving import Bundle, from_data, generate, is_due, to_data
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.events import EventRecorder, Recorder
from liqod.kube.resources import MUTATINGWEBHOOKS, SECRETS
from liqod.model.host_port import join_address
from liqod.model.ids import Key
from liqod.model.records.offloading import NAME as OFFLOADING
from liqod.model.records.offloading import REMOTE, NamespaceOffloading, OffloadingPolicy, policy_of
from liqod.webhook.backfill import Backfill, until_search
from liqod.webhook.configuration import NAME, TIMEOUT, Configuration, forge, matches, service_of
from liqod.webhook.server import PATH, ServingCertificate, factory

SECRET_NAME: Final = "liqod-webhook"  # noqa: S105 (a name, not a secret)
COMMON_NAME: Final = "liqod webhook"
SERVE: Final = "serving"
SEARCH: Final = "backfill"
CHECK: Final = 3600.0
"""Seconds between checks of the certificate's age."""
STORED_WITHIN: Final = TIMEOUT + 1.0
"""Seconds within which the API server stores a pod for which it asked us in vain: it waits for the answer first."""


class ListenFailed(ExpectedError):
    """The webhook cannot listen on its address; the message has the address and the cause."""


class AdmissionWebhook(Controller[str]):
    """Serves the webhook and keeps it configured.

    ``url_host`` is the address that the API server reaches this daemon by, unless the settings name a URL.
    ``configured``: whether the configuration at the API server was the wanted one when it was last read or written.
    ``offloadings`` has the offloading policies of namespaces (None: only the label counts), ``enabled`` the labelled
    namespaces, whose pending pods are searched when the label is added. ``wall`` is the clock of certificates.
    """

    name = "webhook"
    workers = 2
    _log = Logger()

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        settings: Settings,
        url_host: str,
        *,
        offloadings: Informer[NamespaceOffloading] | None = None,
        enabled: Informer[Any] | None = None,
        recorder: Recorder | None = None,
        wall: WallClock = utc_now,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(reactor, metrics=metrics)
        self.configured: Latest[bool] = Latest(False)
        self.refused = RefusedConnections(reactor, settings.webhook.listen)
        self._search_at: float | None = None
        self._reactor = reactor
        self._client = client
        self._settings = settings
        self._url_host = url_host
        self._wall = wall
        self._bundle: Bundle | None = None
        self._serving: ServingCertificate | None = None
        self._port: IListeningPort | None = None
        self._listener: LimitedFactory | None = None
        self._own_recorder: EventRecorder | None = None
        if recorder is None:
            recorder = self._own_recorder = EventRecorder(client, reactor, "liqod", socket.gethostname())
        self._offloadings = offloadings
        self._backfill = Backfill(client, recorder, self.policy)
        self._found: Informer[Configuration] = Informer(
            client, MUTATINGWEBHOOKS, Configuration, reactor, fields=f"metadata.name={NAME}"
        )
        self._found.setServiceParent(self)
        self._enabled = enabled

    def sources(self) -> Iterable[Source[str]]:
        """The configuration at the API server, the offloading policies of namespaces, and the labelled namespaces."""
        yield always(SERVE)
        yield watch(self._found, lambda key, old, new: [SERVE])
        for informer in (self._offloadings, self._enabled):
            if informer is not None:
                yield watch(informer, self._namespace_changed)

    @property
    def port(self) -> int:
        """The bound port; 0 before the webhook listens."""
        return int(getattr(self._port.getHost(), "port", 0)) if self._port is not None else 0

    @property
    def certificate_end(self) -> datetime | None:
        """When the certificate that is served ends; None before the webhook listens."""
        return self._bundle.not_after if self._bundle is not None else None

    @property
    def trouble(self) -> str:
        """Why the last attempt to configure it failed, or an empty text."""
        return self.failing.get(SERVE, "").removeprefix(f"{ListenFailed.__name__}: ")

    @property
    def url(self) -> str:
        """The URL that the API server calls."""
        given = self._settings.webhook.url.rstrip("/")
        if given:
            return given if urlsplit(given).path else given + PATH
        return f"https://{join_address(self._url_host, self.port)}{PATH}"

    @property
    def prepared(self) -> bool:
        """Whether the offloading policies of namespaces are known."""
        return self._offloadings is None or self._offloadings.synced

    def is_enabled(self, namespace: str) -> bool:
        """Return whether a namespace is known to be enabled; True also while that cannot be known."""
        known = self._enabled
        return known is None or not known.synced or known.get(Key("", namespace)) is not None

    def policy(self, namespace: str) -> OffloadingPolicy:
        """Return the offloading policy of an enabled namespace."""
        known = self._offloadings.get(Key(namespace, OFFLOADING)) if self._offloadings is not None else None
        return policy_of(namespace, known, self._settings.offloading.spillover)

    def _namespace_changed(self, key: Key, old: Any, new: Any) -> Iterable[str]:
        """Search for pending pods when the offloading policy of a namespace changes."""
        is_new = new is not None and (old is None or getattr(old, "spec", 0) != getattr(new, "spec", 0))
        if self.configured.value and is_new:
            # Its pods may have been made before this reached us, while we could not be asked.
            self._search_at = self.clock.seconds() + STORED_WITHIN
            yield SEARCH

    async def cleanup(self) -> None:
        """Stop listening: no step is in progress that would write the port's number."""
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
        if self._listener is not None:
            # API servers keep their connections alive: an open one would still be answered by a stopped service.
            self._listener.hang_up()
        if self._own_recorder is not None:
            await self._own_recorder.stop()

    async def reconcile(self, key: str) -> After | None:
        """Serve and be configured, or search for pods that were created without the webhook."""
        if key == SEARCH:
            if self._search_at is None:
                self._search_at = self.clock.seconds() + STORED_WITHIN
            await self._backfill.search()
            await self._backfill.search_local(self._remote_only())
            return After(until_search(self._search_at - self.clock.seconds()))
        await self._listen()
        bundle = await self._current()
        await self._configure(bundle)
        if self._serving is not None:
            # Only now: the configuration with the new CA bundle is written, so API servers trust the certificate.
            self._serving.replace(bundle)
            self._bundle = bundle
        return After(CHECK)

    def _remote_only(self) -> list[str]:
        """Return the namespaces whose pods must not run in this cluster."""
        known = self._offloadings.items() if self._offloadings is not None else []
        names = {one.metadata.namespace for one in known}
        return sorted(name for name in names if self.is_enabled(name) and self.policy(name).placement == REMOTE)

    async def _listen(self) -> None:
        if self._port is not None:
            return
        # The names in the certificate depend on the URL, and that on the port: until both are known, any one is used.
        self._serving = ServingCertificate(generate(COMMON_NAME, ["localhost"], self._wall()))
        listen = self._settings.webhook.listen
        try:
            endpoint = server_endpoint(self._reactor, listen)
            evict_after = self._settings.kubelet.evict_after
            self._listener = factory(
                self._serving,
                self.clock,
                self.policy,
                lambda: self.prepared,
                evict_after,
                is_enabled=self.is_enabled,
                refused=self.refused.record,
            )
            port = await endpoint.listen(self._listener)
        except Exception as error:
            why = str(getattr(error, "socketError", None) or error)
            raise ListenFailed(
                f"webhook.listen = {listen!r} cannot be listened on: {why}; end what has the port (`ss -ltnp` says "
                "what), or choose another one; it is tried again"
            ) from error
        self._port = port

    def _hosts(self) -> list[str]:
        service = service_of(self._settings.webhook.service)
        return [service.host] if service is not None else [urlsplit(self.url).hostname or self._url_host]

    async def _current(self) -> Bundle:
        """Return the certificate that all daemons of the cluster share, renewed when it is due."""
        namespace = self._settings.kubernetes.namespace
        now, hosts = self._wall(), self._hosts()
        try:
            secret = await self._client.get(SECRETS, SECRET_NAME, namespace)
        except NotFound:
            bundle = generate(COMMON_NAME, hosts, now)
            body = {"metadata": {"name": SECRET_NAME}, "type": "Opaque", "data": to_data(bundle)}
            try:
                await self._client.create(SECRETS, body, namespace, view=None)
            except AlreadyExists:  # 409: another daemon of the cluster created it first
                return await self._current()
            self._log.info("created a serving certificate for {addresses}", addresses=", ".join(hosts))
            return bundle
        former: Bundle | None = None
        try:
            former = from_data(secret.get("data") or {})
        except ValueError as error:
            self._log.warn(
                "the secret {name} is replaced: {error}", name=str(Key(namespace, SECRET_NAME)), error=str(error)
            )
        if former is not None and not is_due(former, hosts, now):
            return former
        bundle = generate(COMMON_NAME, hosts, now, former)
        # The resource version makes this conditional (409 for the second): of two daemons only one renews.
        await self._client.replace(SECRETS, {**secret, "data": to_data(bundle)}, SECRET_NAME, namespace, view=None)
        self._log.info("renewed the serving certificate, good until {until}", until=bundle.not_after.date().isoformat())
        return bundle

    async def _configure(self, bundle: Bundle) -> None:
        found = self._found.get(Key("", NAME))
        if not matches(found, self._wanted(bundle, found)):
            # The cache may not show yet what was just written.
            found = await self._read()
            wanted = self._wanted(bundle, found)
            if not matches(found, wanted):
                self.configured.set(False)
                await self._client.apply(MUTATINGWEBHOOKS, wanted, view=None)
                where = self._settings.webhook.service or self.url
                self._log.info("the API server calls {address} for pods in enabled namespaces", address=where)
        if not self.configured.value:
            self.configured.set(True)
            # Pods that were created meanwhile lack what it adds.
            self.enqueue(SEARCH)

    def _wanted(self, bundle: Bundle, found: Configuration | None) -> dict[str, Any]:
        return forge(self.url, bundle.trusted_pem, service_of(self._settings.webhook.service), found)

    async def _read(self) -> Configuration | None:
        try:
            return await self._client.get(MUTATINGWEBHOOKS, NAME, view=Configuration)
        except NotFound:
            return None
