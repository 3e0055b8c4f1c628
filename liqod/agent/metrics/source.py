"""What the metrics of a daemon are read from."""

from __future__ import annotations

from typing import Any, Protocol

from liqod.agent.home import Home
from liqod.agent.wiring import Features
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.metrics.registry import Registry
from liqod.metrics.service import MetricsServer


class MetricsSource(Protocol):
    """One daemon; ``features`` None: it stands by."""

    registry: Registry

    @property
    def client(self) -> Client | None:
        """The client of the home API server, once connected."""

    @property
    def home(self) -> Home | None:
        """This cluster, once it was prepared."""

    @property
    def features(self) -> Features | None:
        """The running features of a leading daemon."""

    @property
    def caches(self) -> list[Informer[Any]]:
        """The caches of this cluster's objects, of a daemon that leads or stands by."""

    @property
    def node(self) -> object:
        """What a process with one task does: the agent of a network, a server of names; None in any other."""

    @property
    def pages(self) -> MetricsServer | None:
        """What serves these numbers; None where they are served nowhere."""


def leading(source: MetricsSource) -> list[Features]:
    """Return the features as a list of one or none, for loops."""
    return [] if source.features is None else [source.features]
