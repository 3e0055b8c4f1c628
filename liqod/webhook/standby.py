"""The webhook of a daemon that stands by: it answers as the one that leads would, and configures nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.flow.connections.port_listener import RETRY_STANDBY
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, always, watch
from liqod.identity.serving import Bundle, from_data
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import SECRETS
from liqod.model.records.offloading import NamespaceOffloading
from liqod.webhook.answering import Answering, KnownNamespaces, ListenFailed
from liqod.webhook.service import CHECK, SECRET_NAME, SERVE

NOT_MADE: Final = 30.0
"""Seconds until it is asked again for a certificate that the leader has not made yet."""


class StandbyWebhook(Controller[str]):
    """Has ``answering`` answer by this daemon's caches, with the certificate that all daemons of the cluster share.

    Callers reach it by an address that leads to several daemons: a Service, or a URL of the settings.
    """

    name = "standby webhook"

    def __init__(
        self,
        reactor: Reactor,
        client: Client,
        settings: Settings,
        answering: Answering,
        *,
        offloadings: Informer[NamespaceOffloading],
        enabled: Informer[Any],
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(reactor, metrics=metrics)
        self._client = client
        self._settings = settings
        self._answering = answering
        self._known = KnownNamespaces(settings, offloadings, enabled)
        self._caches = (offloadings, enabled)

    def sources(self) -> Iterable[Source[str]]:
        """The caches, which have to be complete before anything is answered by them."""
        yield always(SERVE)
        for informer in self._caches:
            yield watch(informer, lambda key, old, new: ())

    async def reconcile(self, key: str) -> After | None:
        """Answer by the caches of now, with the certificate of now."""
        self._answering.known = self._known
        try:
            await self._answering.listen()
        except ListenFailed:
            # The daemon that leads is on this host and has the port for as long as it runs.
            return After(RETRY_STANDBY)
        bundle = await self._certificate()
        if bundle is None:
            return After(NOT_MADE)
        self._answering.show(bundle)
        return After(CHECK)

    async def _certificate(self) -> Bundle | None:
        namespace = self._settings.kubernetes.namespace
        try:
            secret: dict[str, Any] = await self._client.get(SECRETS, SECRET_NAME, namespace)
            return from_data(secret.get("data") or {})
        except (NotFound, ValueError):
            return None
