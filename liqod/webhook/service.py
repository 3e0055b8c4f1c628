"""The admission webhook as a service: certificate, listener, configuration, and the backfill of pods it missed."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.connections.refused import RefusedConnections
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.flow.observe import Latest
from liqod.identity.serving import Bundle, from_data, generate, is_due, to_data
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.events import EventRecorder, Recorder
from liqod.kube.resources import MUTATINGWEBHOOKS, SECRETS
from liqod.model.host_port import join_address
from liqod.model.ids import Key
from liqod.model.records.offloading import REMOTE, NamespaceOffloading, OffloadingPolicy
from liqod.webhook.answering import COMMON_NAME, Answering, KnownNamespaces, ListenFailed
from liqod.webhook.backfill import Backfill, until_search
from liqod.webhook.bodies import Reviews
from liqod.webhook.configuration import NAME, TIMEOUT, Configuration, forge, matches, service_of
from liqod.webhook.server import PATH

SECRET_NAME: Final = "liqod-webhook"  # noqa: S105 (a name, not a secret)
SERVE: Final = "serving"
SEARCH: Final = "backfill"
CHECK: Final = 3600.0
"""Seconds between checks of the certificate's age."""
STORED_WITHIN: Final = TIMEOUT + 1.0
"""Seconds within which the API server stores a pod for which it asked us in vain: it waits for the answer first."""


class AdmissionWebhook(Controller[str]):
    """Serves the webhook and keeps it configured.

    ``url_host`` is the address that the API server reaches this daemon by, unless the settings name a URL.
    ``configured``: whether the configuration at the API server was the wanted one when it was last read or written.
    ``offloadings`` has the offloading policies of namespaces (None: only the label counts), ``enabled`` the labelled
    namespaces, whose pending pods are searched when the label is added. ``wall`` is the clock of certificates.
    ``answering`` is what listens and goes on when this ends; None: it begins and ends with this.
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
        answering: Answering | None = None,
        recorder: Recorder | None = None,
        wall: WallClock = utc_now,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(reactor, metrics=metrics)
        self.configured: Latest[bool] = Latest(False)
        self._search_at: float | None = None
        self._is_own = answering is None
        self._answering = answering or Answering(reactor, settings, wall)
        self._known = KnownNamespaces(settings, offloadings, enabled)
        self._client = client
        self._settings = settings
        self._url_host = url_host
        self._wall = wall
        self._own_recorder: EventRecorder | None = None
        if recorder is None:
            recorder = self._own_recorder = EventRecorder(client, reactor, "liqod", socket.gethostname())
        self._backfill = Backfill(client, recorder, self.policy)
        self._found: Informer[Configuration] = Informer(
            client, MUTATINGWEBHOOKS, Configuration, reactor, fields=f"metadata.name={NAME}"
        )
        self._found.setServiceParent(self)

    def sources(self) -> Iterable[Source[str]]:
        """The configuration at the API server, the offloading policies of namespaces, and the labelled namespaces."""
        yield always(SERVE)
        yield watch(self._found, lambda key, old, new: [SERVE])
        for informer in (self._known.offloadings, self._known.enabled):
            if informer is not None:
                yield watch(informer, self._namespace_changed)

    @property
    def port(self) -> int:
        """The bound port; 0 before the webhook listens."""
        return self._answering.port

    @property
    def refused(self) -> RefusedConnections:
        """The refused connections of callers."""
        return self._answering.refused

    @property
    def reviews(self) -> Reviews:
        """The reviews that were answered, and how many more are."""
        return self._answering.reviews

    @property
    def certificate_end(self) -> datetime | None:
        """When the certificate that is served ends; None before the webhook listens."""
        bundle = self._answering.bundle
        return bundle.not_after if bundle is not None else None

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
        return self._known.prepared

    def is_enabled(self, namespace: str) -> bool:
        """Return whether a namespace is known to be enabled; True also while that cannot be known."""
        return self._known.is_enabled(namespace)

    def policy(self, namespace: str) -> OffloadingPolicy:
        """Return the offloading policy of an enabled namespace."""
        return self._known.policy(namespace)

    def _namespace_changed(self, key: Key, old: Any, new: Any) -> Iterable[str]:
        """Search for pending pods when the offloading policy of a namespace changes."""
        is_new = new is not None and (old is None or getattr(old, "spec", 0) != getattr(new, "spec", 0))
        if self.configured.value and is_new:
            # Its pods may have been made before this reached us, while we could not be asked.
            self._search_at = self.clock.seconds() + STORED_WITHIN
            yield SEARCH

    async def cleanup(self) -> None:
        """Stop listening: no step is in progress that would write the port's number."""
        if self._is_own:
            await self._answering.close()
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
        self._answering.known = self._known
        await self._answering.listen()
        bundle = await self._current()
        await self._configure(bundle)
        # Only now: the configuration with the new CA bundle is written, so API servers trust the certificate.
        self._answering.show(bundle)
        return After(CHECK)

    def _remote_only(self) -> list[str]:
        """Return the namespaces whose pods must not run in this cluster."""
        offloadings = self._known.offloadings
        known = offloadings.items() if offloadings is not None else []
        names = {one.metadata.namespace for one in known}
        return sorted(name for name in names if self.is_enabled(name) and self.policy(name).placement == REMOTE)

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
