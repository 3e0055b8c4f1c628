"""The orders to take back what is lent to tenants, and when each is due (``spec.reclaim`` of ForeignClusters)."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import LearnedDates, WallClock
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.records.views import ForeignCluster


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
