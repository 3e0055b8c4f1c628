"""The view of a ResourceQuota: what was written, what the API server enforces, and what it has counted."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from liqod.hosting.tenants.quota.shares import QuotaState
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, View
from liqod.model.objects.quantity import Resources

ONE: Final = 1000
"""The smallest part that is counted is a thousandth, as of CPU cores."""


def units(amount: Fraction) -> int:
    """Return an amount in units of ``1 / ONE``; a finer one is rounded up, as Kubernetes does."""
    return math.ceil(amount * ONE)


class Amounts(View, frozen=True):
    """Quantities by resource: ``hard`` is the most, ``used`` what was counted."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    """A ResourceQuota. Creations are held to ``status.hard``, which the controller manager copies from ``spec.hard``
    (Kubernetes, plugin/pkg/admission/resourcequota, ``CheckRequest``).
    """

    spec: Amounts = Amounts()
    status: Amounts = Amounts()

    @property
    def is_enforced(self) -> bool:
        """Whether the API server enforces what was written."""
        return self.spec.hard == self.status.hard

    def covers(self, hard: Resources) -> bool:
        """Return whether these amounts, and no others, are in the spec."""
        return self.spec.hard.keys() == hard.keys() and all(
            _amount(self.spec.hard, name) == amount for name, amount in hard.items()
        )

    def held(self, resource: str) -> QuotaState:
        """Return the quota of one resource, in units of ``1 / ONE``; what is not in it is not granted."""
        spec = _units(self.spec.hard, resource)
        return QuotaState(spec or 0, _units(self.status.hard, resource), _units(self.status.used, resource))


def _units(amounts: dict[str, str], name: str) -> int | None:
    return _units_of(amounts[name]) if name in amounts else None


@lru_cache(maxsize=4096)
def _units_of(text: str) -> int | None:
    try:
        return units(quantity.parse(text))
    except ValueError:
        return None


def _amount(amounts: dict[str, str], name: str) -> Fraction | None:
    try:
        return quantity.parse(amounts[name])
    except (KeyError, ValueError):
        return None
