"""The free capacity of a borrower: what is lent to it, minus what its pods request.

The ledger is charged before a pod is created and corrected by what the API server then shows, so that pods created at
the same time cannot exceed the offer together. A pod that exists is never evicted, also when the offer shrinks below
what is used: ResourceQuota of Kubernetes does not evict either.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from liqod.hosting.shadowpods.quota.resource_requests import PODS
from liqod.model.ids import Key
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources

MOST_WAITING: Final = 4096
"""Refused ShadowPods of a tenant that are evaluated when capacity is freed; others are retried by time alone."""
MOST_MISFITS: Final = 256
"""Sizes that do not fit, tried in one evaluation at most; a tenant with more of them delays only itself."""


@attrs.frozen
class WaitingShadowPod:
    """A ShadowPod that was refused for lack of capacity: its creation time (for the order), its requests, and what was
    lent then (None: nothing).
    """

    created: str
    key: Key
    wanted: Resources
    offered: Resources | None


def shortage(wanted: Resources, used: Resources, offered: Resources) -> str:
    """Return a message about what is missing, such as ``asks cpu 2, 500m left of 4``; empty when the pod fits.

    The number of pods is limited only where the offer names ``pods``.
    """
    left = quantity.subtract(offered, used)
    over = quantity.exceeding(wanted, left)
    if PODS not in offered:
        over.pop(PODS, None)
    parts = [
        f"asks {name[:63]} {_show(wanted, name)}, "
        + (f"{_show_positive(left, name)} left of {_show(offered, name)}" if name in offered else "none of it is lent")
        for name in sorted(over)
    ]
    return "; ".join(parts)


def fitting(waiting: Iterable[WaitingShadowPod], used: Resources, offered: Resources) -> list[Key]:
    """Return which of the refused fit now, oldest first; each that fits counts against those behind it.

    Comparing sizes is what takes time, and a borrower may create as many ShadowPods as it likes: a size that did not
    fit is not tried again, since capacity only shrinks on the way, and after ``MOST_MISFITS`` of them none is.
    """
    total = dict(used)
    found = []
    misfits: set[Hashable] = set()
    for entry in sorted(waiting, key=lambda entry: (entry.created, entry.key)):
        size = tuple((name, value.numerator, value.denominator) for name, value in entry.wanted.items())
        if size in misfits:
            continue
        if not shortage(entry.wanted, total, offered):
            total = quantity.add((total, entry.wanted))
            found.append(entry.key)
            continue
        misfits.add(size)
        if len(misfits) >= MOST_MISFITS:
            break
    return found


class WaitingList:
    """The ShadowPods that wait for capacity, by tenant; at most ``MOST_WAITING`` of each."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[Key, WaitingShadowPod]] = {}
        self._tenants: dict[Key, str] = {}

    def of(self, tenant: str) -> Collection[WaitingShadowPod]:
        """Return what waits of a tenant."""
        return self._entries.get(tenant, _EMPTY).values()

    def add(self, tenant: str, entry: WaitingShadowPod) -> WaitingShadowPod | None:
        """Add or replace an entry, unless there are too many others; returns the one before."""
        key = entry.key
        if self._tenants.get(key, tenant) != tenant:
            self.remove(key)
        entries = self._entries.get(tenant, {})
        before = entries.get(key)
        if before is not None or len(entries) < MOST_WAITING:
            self._entries[tenant] = entries
            entries[key] = entry
            self._tenants[key] = tenant
        return before

    def remove(self, key: Key) -> None:
        """Drop an entry."""
        if (tenant := self._tenants.pop(key, None)) is None:
            return
        entries = self._entries[tenant]
        del entries[key]
        if not entries:
            del self._entries[tenant]


_EMPTY: Final[dict[Key, WaitingShadowPod]] = {}


class Ledger:
    """The sums of pod requests by tenant; its size is bounded by the number of tenants' pods."""

    def __init__(self) -> None:
        self._charges: dict[Key, tuple[str, Resources]] = {}
        self._totals: dict[str, dict[str, Fraction]] = {}

    def charge(self, key: Key, tenant: str, asked: Resources) -> None:
        """Count a pod, replacing what was counted for it before."""
        if self._charges.get(key) == (tenant, asked):
            return
        self.release(key)
        self._charges[key] = (tenant, quantity.shared(asked))
        self._totals[tenant] = quantity.add((self._totals.get(tenant, {}), asked))

    def release(self, key: Key) -> str:
        """Stop counting a pod; returns the tenant whose capacity was freed, empty when it was not counted."""
        if (charge := self._charges.pop(key, None)) is None:
            return ""
        tenant, asked = charge
        left = {name: v for name, v in quantity.subtract(self._totals[tenant], asked).items() if v}
        if left:
            self._totals[tenant] = left
        else:
            del self._totals[tenant]
        return tenant

    def charged(self, key: Key) -> Resources:
        """Return what is counted for a pod."""
        return self._charges.get(key, ("", {}))[1]

    def used(self, tenant: str) -> Mapping[str, Fraction]:
        """Return the sum of what a tenant's pods request."""
        return self._totals.get(tenant, {})

    def used_without(self, tenant: str, key: Key) -> Mapping[str, Fraction]:
        """Return the same sum without one pod, whether it is counted or not."""
        owner, asked = self._charges.get(key, ("", {}))
        return quantity.subtract(self.used(tenant), asked) if owner == tenant else self.used(tenant)


def _show(resources: Resources, name: str) -> str:
    return quantity.render(resources.get(name, Fraction(0)), resource=name)


def _show_positive(resources: Resources, name: str) -> str:
    return quantity.render(max(resources.get(name, Fraction(0)), Fraction(0)), resource=name)
