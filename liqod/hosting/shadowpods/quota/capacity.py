"""Counts the use of offers by tenant, and retries refused ShadowPods when capacity is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe
from liqod.flow.observe import Subscribers
from liqod.hosting.shadowpods.quota import resource_requests
from liqod.hosting.shadowpods.quota.ledger import Ledger, WaitingList, WaitingShadowPod, fitting
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.views import Pod, is_managed
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects.meta import controller_of
from liqod.model.objects.quantity import Resources

COALESCE: Final = 0.05
"""Seconds for which finished pods are collected before their tenant's waiting ShadowPods are evaluated again."""

Subscriber = Callable[[Key], None]


class TenantCapacity(Controller[str]):
    """Counts pods by tenant; its keys are tenants that have free capacity.

    Subscribers are called with the key of each waiting ShadowPod that must be evaluated again: those that fit now, the
    oldest first.
    """

    name = "shadowpods-capacity"

    def __init__(
        self,
        clock: IReactorTime,
        *,
        pods: MutationCache[Pod],
        namespaces: Namespaces,
        offers: TenantOffers,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._pods = pods
        self._namespaces = namespaces
        self._offers = offers
        self._ledger = Ledger()
        self._waiting = WaitingList()
        self._subscribers: Subscribers[Subscriber] = Subscribers()

    def sources(self) -> Iterable[Source[str]]:
        """Changed offers; pods that finish are counted by ``recount``."""
        yield observe(self._offers, lambda tenant: (tenant,))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with the keys of ShadowPods to evaluate again; returns the unsubscribe function."""
        return self._subscribers.add(subscriber)

    def offered(self, tenant: str) -> Resources | None:
        """Return what is lent to a tenant; None when nothing is."""
        return self._offers.get(tenant)

    def used(self, tenant: str) -> Mapping[str, Fraction]:
        """Return the sum of what a tenant's pods request."""
        return self._ledger.used(tenant)

    def used_without(self, tenant: str, key: Key) -> Mapping[str, Fraction]:
        """Return the same sum without one pod, whether it is counted or not."""
        return self._ledger.used_without(tenant, key)

    def charged(self, key: Key) -> Resources:
        """Return what is counted for a pod."""
        return self._ledger.charged(key)

    def charge(self, key: Key, tenant: str, requested: Resources) -> None:
        """Count a pod before it is created or resized, so that no other one is admitted for the same capacity."""
        self._ledger.charge(key, tenant, requested)

    def recount(self, key: Key) -> None:
        """Count a pod by its state at the API server."""
        pod, known = self._pods.get(key), self._namespaces.known_tenant(key.namespace)
        # A finished pod holds nothing: the scheduler and ResourceQuota do not count it either.
        # One that has no owner any more is a tenant's where a namespace was granted to a tenant.
        if pod is None or pod.finished or not is_managed(pod) or not (known or controller_of(pod)):
            if tenant := self._ledger.release(key):
                self._freed(tenant)
            return
        tenant = known or pod.metadata.labels.get(ORIGIN_LABEL, "")
        self._ledger.charge(key, tenant, _requested(pod))
        self._freed(tenant)  # it may have been resized to less

    def wait(self, tenant: str, entry: WaitingShadowPod) -> WaitingShadowPod | None:
        """Add a refused ShadowPod to the waiting list; returns its previous entry."""
        return self._waiting.add(tenant, entry)

    def stop_waiting(self, key: Key) -> None:
        """Remove a ShadowPod that runs, is gone, or was refused for another reason, from the waiting list."""
        self._waiting.remove(key)

    async def reconcile(self, tenant: str) -> After | None:
        """Notify of the waiting ShadowPods of a tenant that fit now."""
        waiting, offered = self._waiting.of(tenant), self._offers.get(tenant)
        if waiting and offered is not None:
            fit = fitting(waiting, self._ledger.used(tenant), offered)
            # Those refused because nothing was lent are refused with what is lent now, also when it is too little.
            for key in dict.fromkeys([*fit, *(entry.key for entry in waiting if entry.offered is None)]):
                for subscriber in self._subscribers:
                    subscriber(key)
        return None

    def _freed(self, tenant: str) -> None:
        if self._waiting.of(tenant):
            self.enqueue(tenant, COALESCE)


def _requested(pod: Pod) -> Mapping[str, Fraction]:
    try:
        return resource_requests.of_pod(pod.spec, status=pod.status)
    except ValueError:
        # The API server accepted a quantity that cannot be parsed here; the pod still counts as one pod.
        return {resource_requests.PODS: Fraction(1)}
