"""The view of a ResourceQuota: what was written, what the API server enforces, and what it has counted."""

from __future__ import annotations

from fractions import Fraction

from liqod.hosting.tenants.quota.shares import Held
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object, View
from liqod.model.objects.quantity import Resources


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
        """Return whether these amounts are in the spec."""
        return all(_amount(self.spec.hard, name) == amount for name, amount in hard.items())

    def held(self, resource: str) -> Held:
        """Return the quota of one resource; what is not in it is not granted."""
        spec = _amount(self.spec.hard, resource)
        if spec is None:
            return Held()
        return Held(spec, _amount(self.status.hard, resource), _amount(self.status.used, resource))


def _amount(amounts: dict[str, str], name: str) -> Fraction | None:
    try:
        return quantity.parse(amounts[name])
    except (KeyError, ValueError):
        return None
