"""What a container, or a pod as a whole, requests at least where there are default requests. Pure.

A request of 0 is none, and one of a byte next to it: such pods would fit an offer however many there are, and each may
use all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from liqod.model.objects.quantity import Resources

LEAST: Final[Resources] = {
    "cpu": Fraction(1, 1000),
    "memory": Fraction(4 << 20),
    "ephemeral-storage": Fraction(4 << 20),
}
"""What counts where less is named: the smallest CPU request that Kubernetes knows ("Resource Management for Pods"), and
memory that a small process needs."""


def at_least(asked: Resources, limits: Resources, defaults: Resources, names: Iterable[str]) -> Resources:
    """Return requests with the default for each of ``names`` that is missing or 0, and ``LEAST`` for one that is less.

    ``asked`` has the limits of what is not requested. Neither is more than the limit, beyond which nothing is used; a
    limit of 0 is none (CRI, LinuxContainerResources).
    """
    found = dict(asked)
    for name in names:
        default, named = defaults[name], asked.get(name)
        least = max(named or default, min(default, LEAST.get(name, default)))
        most = limits.get(name) or least
        found[name] = max(named or Fraction(0), min(least, most))
    return found
