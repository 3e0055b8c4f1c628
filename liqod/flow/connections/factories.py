"""Factories without log lines at connection start and end: a daemon dials continuously, and is called continuously."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.web.server import Site


def quiet(make: Callable[[], Protocol]) -> Factory[Any]:
    """Return a factory that makes its protocols by calling ``make``."""
    factory: Factory[Any] = Factory.forProtocol(make)
    factory.noisy = False
    return factory


class QuietSite(Site):
    """A site without an access log, which would have a line per created pod and per scrape."""

    displayTracebacks = False
    noisy = False

    def startFactory(self) -> None:
        """Open no log, and start no clock for its lines."""

    def stopFactory(self) -> None:
        """Do nothing: no log was opened."""

    def log(self, request: object) -> None:
        """Write no line."""
