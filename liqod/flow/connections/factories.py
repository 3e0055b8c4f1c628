"""Factories without log lines at connection start and end: a daemon dials continuously."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol


def quiet(make: Callable[[], Protocol]) -> Factory[Any]:
    """Return a factory that makes its protocols by calling ``make``."""
    factory: Factory[Any] = Factory.forProtocol(make)
    factory.noisy = False
    return factory
