"""Factories that say nothing in the log when connections begin and end: a daemon dials all day long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol


def quiet(make: Callable[[], Protocol]) -> Factory[Any]:
    """Return a factory that makes its protocols by calling ``make``."""
    factory: Factory[Any] = Factory.forProtocol(make)
    factory.noisy = False
    return factory
