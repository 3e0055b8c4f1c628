"""Serves metrics and health checks over HTTP or HTTPS; retries if the port is in use, instead of failing the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IProtocolFactory

from liqod.config.schema import MetricsSettings
from liqod.flow.clocks import Reactor, WallClock, utc_now
from liqod.flow.connections.admission import PortLimits
from liqod.flow.connections.factories import QuietSite
from liqod.flow.connections.handshake import LimitedFactory, https
from liqod.flow.connections.port_listener import PortListener
from liqod.flow.connections.refused import RefusedConnections
from liqod.flow.observe import Latest
from liqod.kube.client import Client
from liqod.metrics.access import Access, OneToken
from liqod.metrics.callers import ClusterAccess
from liqod.metrics.certificate import Common, Files, ServingCertificate
from liqod.metrics.registry import Registry
from liqod.metrics.resource import Bodiless, pages

LIMITS: Final = PortLimits(64, per_address=16, waiting=48)
"""Connections over TLS: a few scrapers, and the probes of a kubelet, each of which makes a new one."""
IDLE: Final = 90.0
"""Seconds for which an idle connection is kept; scrapers come every minute at least."""


@attrs.frozen(kw_only=True)
class OwnCluster:
    """The cluster that a daemon belongs to, as the pages need it.

    ``client`` returns a client of its API server, None before there is one; ``is_prepared`` whether liqod's namespace
    is there.
    """

    namespace: str = ""
    client: Callable[[], Client | None] = lambda: None
    is_prepared: Callable[[], bool] = lambda: False
    wall: WallClock = utc_now

    def prepared_client(self) -> Client | None:
        """Return the client once liqod's namespace is there."""
        return self.client() if self.is_prepared() else None


class MetricsServer(MultiService):
    """Listens where the settings say and serves one registry.

    ``health`` and ``readiness`` return the problems, one sentence each.
    """

    def __init__(
        self,
        reactor: Reactor,
        settings: MetricsSettings,
        registry: Registry,
        *,
        health: Callable[[], Sequence[str]],
        readiness: Callable[[], Sequence[str]],
        cluster: OwnCluster | None = None,
    ) -> None:
        super().__init__()
        self.refused = RefusedConnections(reactor, settings.listen)
        """The connections and callers that were refused, by reason."""
        own = cluster or OwnCluster()
        access = _access(settings, own, reactor)
        site = QuietSite(
            pages(registry, health, readiness, access, self.refused.record),
            requestFactory=Bodiless,
            timeout=IDLE,
            reactor=reactor,
        )
        self._certificate = _certificate(settings, own, reactor)
        self._encrypted: LimitedFactory | None = None
        factory: IProtocolFactory = site
        if self._certificate is not None:
            self._certificate.setServiceParent(self)
            factory = self._encrypted = https(self._certificate, site, reactor, self.refused.record, LIMITS)
        service = "metrics, health and readiness"
        self._port = PortListener(reactor, [settings.listen], factory, service=service, setting="metrics.listen")
        self._port.setServiceParent(self)

    @property
    def bound(self) -> Latest[int]:
        """The bound port; 0 before."""
        return self._port.bound

    @property
    def certificate_end(self) -> datetime | None:
        """When the certificate that is shown ends; None without TLS, and before the first that counts."""
        return self._certificate.ends if self._certificate is not None else None

    def stopService(self) -> Deferred[Any]:
        return maybeDeferred(super().stopService).addBoth(self._hang_up)

    def _hang_up(self, result: Any) -> Any:
        if self._encrypted is not None:
            self._encrypted.hang_up()
        return result


def _access(settings: MetricsSettings, cluster: OwnCluster, reactor: Reactor) -> Access | None:
    if settings.authentication == "kubernetes":
        return ClusterAccess(cluster.client, reactor)
    if settings.authentication == "token":
        return OneToken(settings.token_file, reactor)
    return None


def _certificate(settings: MetricsSettings, cluster: OwnCluster, reactor: Reactor) -> ServingCertificate | None:
    if settings.tls == "none":
        return None
    if settings.tls == "files":
        source: Files | Common = Files(settings.certificate, settings.key)
    else:
        source = Common(cluster.prepared_client, cluster.namespace, cluster.wall)
    return ServingCertificate(reactor, source, cluster.namespace, cluster.wall)
