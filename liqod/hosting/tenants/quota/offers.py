"""The current offer to each tenant: ``status.lent`` of its ForeignCluster, as quantities."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from liqod.flow.observe import Subscribers
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources
from liqod.model.records.views import ForeignCluster

Subscriber = Callable[[str], None]


class TenantOffers:
    """The offers by tenant; subscribers are called with the tenant whose offer is new or changed."""

    def __init__(self, foreign: Informer[ForeignCluster]) -> None:
        self.informer = foreign
        self._lent: dict[str, Resources] = {}
        self._subscribers: Subscribers[Subscriber] = Subscribers()
        self._unsubscribe = foreign.subscribe(self._changed)

    def close(self) -> None:
        """Unsubscribe from the informer."""
        self._unsubscribe()

    def get(self, tenant: str) -> Resources | None:
        """Return what is lent to a tenant; None when nothing is."""
        return self._lent.get(tenant)

    def trusted(self) -> list[str]:
        """Return the IDs of the clusters whose keys are trusted."""
        return [record.metadata.name for record in self.informer.items() if record.spec.fingerprint]

    def assume(self, tenant: str, offered: Mapping[str, str]) -> None:
        """Count an offer that was just accepted as lent until the informer shows the record."""
        if tenant not in self._lent:
            self._set(tenant, _readable(offered))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with the tenant of each changed offer; returns the unsubscribe function."""
        return self._subscribers.add(subscriber)

    def _changed(self, key: Key, old: ForeignCluster | None, new: ForeignCluster | None) -> None:
        lent = None if new is None else new.status.lent
        if new is None or (lent is None and old is not None and old.status.lent is not None):
            self._lent.pop(key.name, None)
        elif lent is not None and (old is None or old.status.lent != lent):
            self._set(key.name, _readable(lent.resources))

    def _set(self, tenant: str, resources: Resources) -> None:
        if not resources:
            self._lent.pop(tenant, None)
        elif self._lent.get(tenant) != resources:
            self._lent[tenant] = resources
            for subscriber in self._subscribers:
                subscriber(tenant)


def _readable(resources: Mapping[str, str]) -> Resources:
    """Return the quantities that can be parsed and are not negative; a resource that cannot be parsed is not lent."""
    found = {}
    for name, text in resources.items():
        try:
            value = quantity.parse(text)
        except ValueError:
            continue
        if value >= 0:
            found[name] = value
    return found
