"""Serves metrics and health checks over HTTP; retries if the port is in use, instead of failing the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from liqod.flow.clocks import Reactor
from liqod.flow.connections.factories import QuietSite
from liqod.flow.connections.port_listener import PortListener
from liqod.metrics.registry import Registry
from liqod.metrics.resource import pages


def metrics_server(
    reactor: Reactor,
    listen: str,
    registry: Registry,
    health: Callable[[], Sequence[str]],
    readiness: Callable[[], Sequence[str]],
) -> PortListener:
    """Return the service that listens where ``listen`` (an endpoint description) says and serves one registry."""
    site = QuietSite(pages(registry, health, readiness))
    service = "metrics, health and readiness"
    return PortListener(reactor, [listen], site, service=service, setting="metrics.listen")
