"""The classes in a lender's offer, and those of them that a namespace allows."""

from __future__ import annotations

from collections.abc import Callable

from liqod.kube.cache.informer import Informer
from liqod.kubelet.reflection.forge.classes import (
    Classes,
    ingress_classes,
    load_balancer_classes,
    spec_of,
    storage_classes,
)
from liqod.model.ids import ClusterID, Key
from liqod.model.names import advertisement_name
from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NAME, NamespaceOffloading
from liqod.model.records.views import Advertisement


class LenderClasses:
    """Reads the classes for objects at one lender; ``offloadings`` say which of them a namespace allows."""

    def __init__(
        self, lender: ClusterID, offers: Informer[Advertisement], offloadings: Informer[NamespaceOffloading]
    ) -> None:
        self._name = advertisement_name(lender)
        self._offers = offers
        self._offloadings = offloadings

    @property
    def synced(self) -> bool:
        """Whether what is not known does not exist."""
        return self._offers.synced and self._offloadings.synced

    def storage(self) -> Classes:
        """Return the storage classes for claims."""
        return storage_classes(self._offer)

    def ingress(self, namespace: str) -> Classes:
        """Return the classes for ingresses of a namespace."""
        return ingress_classes(self._offer, self._offloadings.get(Key(namespace, NAME)))

    def load_balancers(self, namespace: str) -> Classes:
        """Return the classes for services of a namespace with a load balancer."""
        return load_balancer_classes(self._offer, self._offloadings.get(Key(namespace, NAME)))

    def gateways(self) -> tuple[str, ...] | None:
        """Return the gateways that the lender offers to routes; None while its offer is not known."""
        return None if self._offer is None else tuple(self._offer.gateways)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call ``changed`` with the namespace whose classes may be others now, empty for all; return what ends that."""

        def offer_changed(key: Key, old: Advertisement | None, new: Advertisement | None) -> None:
            if key.name == self._name and _offered(old) != _offered(new):
                changed("")

        def offloading_changed(key: Key, old: NamespaceOffloading | None, new: NamespaceOffloading | None) -> None:
            if key.name == NAME and _allowed(old) != _allowed(new):
                changed(key.namespace)

        ends = self._offers.subscribe(offer_changed), self._offloadings.subscribe(offloading_changed)

        def end() -> None:
            for each in ends:
                each()

        return end

    @property
    def _offer(self) -> Offer | None:
        known = self._offers.get(Key("", self._name))
        return None if known is None else known.spec.offer


def _offered(known: Advertisement | None) -> tuple[list[str], ...] | None:
    if known is None:
        return None
    offer = known.spec.offer
    return offer.storage_classes, offer.ingress_classes, offer.load_balancer_classes, offer.gateways


def _allowed(known: NamespaceOffloading | None) -> tuple[list[str], list[str]]:
    spec = spec_of(known)
    return spec.ingress_classes, spec.load_balancer_classes
