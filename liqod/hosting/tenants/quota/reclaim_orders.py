"""The orders to take back what is lent to tenants (``spec.reclaim`` of ForeignClusters): when each is due, how fast."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import LearnedDates, WallClock
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.records.views import ForeignCluster

PACE: Final = 1.0
"""Seconds between the evictions of two pods of one tenant: what replaces them at their home has to start meanwhile."""
SPAN: Final = 600.0
"""Seconds after the notice in which all pods of a tenant are to be evicted, however many they are."""
FASTEST: Final = 0.05
"""The shortest time between two evictions in seconds: each is two requests, and replacements at home are as many."""


def pace_of(since: float, left: int) -> float:
    """Return the seconds to the next eviction, ``since`` seconds after the notice, with so many pods left. Pure."""
    return max(FASTEST, min(PACE, (SPAN - since) / max(1, left)))


def lasts(pods: int) -> float:
    """Return in how many seconds after the notice so many pods are evicted, if no disruption budget keeps any. Pure."""
    return pods * pace_of(0.0, pods)


class ReclaimOrders:
    """Says when the notice of each tenant ends; a date counts from when it was first seen, whatever the clock does."""

    def __init__(self, foreign: Informer[ForeignCluster], clock: IReactorTime, wall: WallClock | None = None) -> None:
        self.informer = foreign
        self._clock = clock
        self._dates: LearnedDates[str] = LearnedDates(clock, wall)

    def due_in(self, tenant: str) -> float | None:
        """Return the seconds until all of a tenant is taken back, 0 or less from then on; None without an order."""
        record = self.informer.get(Key("", tenant))
        # A peering that ends takes all pods with it.
        order = None if record is None or record.metadata.deleting else record.spec.reclaim
        due = None if order is None else self._dates.at(tenant, order.by)
        if due is None:
            self._dates.forget(tenant)
            return None
        return due - self._clock.seconds()

    def is_due(self, tenant: str) -> bool:
        """Return whether a tenant's notice has ended: nothing more of it is started here."""
        due = self.due_in(tenant)
        return due is not None and due <= 0
