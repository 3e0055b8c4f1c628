"""The class that an object gets at the lender: the first one of the offer that the object's namespace allows. Pure.

The order is the lender's, whose default class comes first. The class of the object at home is not looked at: it is
another cluster's. An object keeps the class that it has at the lender, also when the offer changes: with another one it
would get another address, or other rules.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from liqod.model.records.offer import Offer
from liqod.model.records.offloading import NamespaceOffloading, NamespaceOffloadingSpec

SHOWN: Final = 5
"""Classes that are named in a message."""


@frozen
class Classes:
    """The classes of one kind that a lender offers, in its order, and those that a namespace allows (empty: any).

    ``offered`` None: the offer is not known. ``setting``: the field of the NamespaceOffloading with those allowed.
    """

    offered: tuple[str, ...] | None = ()
    allowed: tuple[str, ...] = ()
    setting: str = ""

    @property
    def first(self) -> str:
        """The class of a new object; empty: none is named."""
        return next((name for name in self.offered or () if not self.allowed or name in self.allowed), "")

    @property
    def objection(self) -> str:
        """Why a new object is not made; empty if it is."""
        if self.offered is None or not self.allowed or self.first:
            return ""
        return (
            f"the lender offers none of the classes that the namespace allows, {_some(self.allowed)} ({self.setting} "
            f"in its NamespaceOffloading), but {_some(self.offered)}"
        )

    def has_lost(self, used: str, *, was_offered: bool) -> bool:
        """Return whether the lender no longer offers a class that an object has there.

        Without any class an offer is incomplete, as it is when a lender starts, unless this one ``was_offered``.
        """
        if not used or self.offered is None or used in self.offered:
            return False
        return bool(self.offered) or was_offered

    def loss(self, used: str) -> str:
        """Return what to say of an object that has a class which is no longer offered."""
        then = f"the class {self.first}" if self.first else "the lender's default class"
        return f"the lender no longer offers the class {used}, which it has there and keeps; a new one gets {then}"


def storage_classes(offer: Offer | None) -> Classes:
    """Return the storage classes for claims; None is an offer that is not known."""
    return Classes(None if offer is None else tuple(offer.storage_classes))


def ingress_classes(offer: Offer | None, offloading: NamespaceOffloading | None) -> Classes:
    """Return the classes for ingresses of a namespace."""
    offered = None if offer is None else tuple(offer.ingress_classes)
    return Classes(offered, tuple(spec_of(offloading).ingress_classes), "ingressClasses")


def load_balancer_classes(offer: Offer | None, offloading: NamespaceOffloading | None) -> Classes:
    """Return the classes for services of a namespace with a load balancer."""
    offered = None if offer is None else tuple(offer.load_balancer_classes)
    return Classes(offered, tuple(spec_of(offloading).load_balancer_classes), "loadBalancerClasses")


def spec_of(offloading: NamespaceOffloading | None) -> NamespaceOffloadingSpec:
    """Return what a namespace's users want; the defaults without such an object, or when it is being deleted."""
    return NamespaceOffloadingSpec() if offloading is None or offloading.metadata.deleting else offloading.spec


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or "no class"
