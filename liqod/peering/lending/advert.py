"""Composes an offer from free capacity and the sharing policy; decides whether a new offer is worth sending. Pure.

offer = percentage of (allocatable of real, ready, schedulable nodes - requests of the pods on them)
        + what this peer's own pods already use here, capped by the configured limits, never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec

from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources
from liqod.model.records.offer import MAX_LABELS, Offer, reclaim_label

MEBI: Final = Fraction(1 << 20)
MILLI: Final = Fraction(1, 1000)
_ZERO: Final = Fraction(0)
_NATIVE: Final = ("cpu", "memory", "pods", "ephemeral-storage", "storage")


def free(nodes: Iterable[tuple[Resources, Resources]]) -> dict[str, Fraction]:
    """Return what is free on nodes given as (allocatable, requested).

    An overcommitted node counts as full: its deficit is not subtracted from other nodes.
    """
    return quantity.add(
        {name: max(_ZERO, value) for name, value in quantity.subtract(allocatable, requested).items()}
        for allocatable, requested in nodes
    )


def terms(
    percentage: int, limits: Resources, own_percentage: int | None, own_limits: Mapping[str, str]
) -> tuple[int, Resources]:
    """Return percentage and limits for one peer: those of its record, else the default ones.

    A limit in the record that cannot be parsed counts as 0: a typing error never lends more than was intended.
    """
    merged = dict(limits)
    for name, text in own_limits.items():
        try:
            merged[name] = quantity.parse(text)
        except ValueError:
            merged[name] = _ZERO
    return percentage if own_percentage is None else max(0, min(100, own_percentage)), merged


def share(
    unused: Resources, used: Resources, percentage: int, limits: Resources, floor: Resources | None = None
) -> dict[str, Fraction]:
    """Return the resources to offer to one peer.

    ``used`` is what the peer's pods request here: it is added in full, or an offer would shrink as it is used. A limit
    caps the sum. Devices are not rounded down to zero while at least one is free. ``floor``: what slices were granted,
    which stays offered while others use what was free.
    """
    offered = {}
    # Resources in use stay in the offer although their node is cordoned or lost and none of them is free.
    granted = floor or {}
    for name in {**unused, **used, **granted}:
        value = unused.get(name, _ZERO)
        part = round_down(name, value * percentage / 100)
        if part == 0 and percentage > 0 and is_device(name) and value >= 1:
            part = Fraction(1)
        total = max(max(_ZERO, part) + max(_ZERO, used.get(name, _ZERO)), granted.get(name, _ZERO))
        if name in limits:
            total = min(total, max(_ZERO, limits[name]))
        offered[name] = round_down(name, total)
    return offered


def without(free: Resources, promised: Resources) -> dict[str, Fraction]:
    """Return what is free beside what was promised to others."""
    return {name: max(_ZERO, value) for name, value in quantity.subtract(free, promised).items()}


def round_down(name: str, value: Fraction) -> Fraction:
    """Round a quantity down to the unit of its resource: millicores, MiB, huge pages, whole devices."""
    unit = _unit(name)
    return value // unit * unit


def is_device(name: str) -> bool:
    """Return whether a resource is extended, such as ``nvidia.com/gpu``: those are integers (Kubernetes API)."""
    return "/" in name and name not in _NATIVE


def _unit(name: str) -> Fraction:
    if name == "cpu":
        return MILLI
    if name in ("memory", "ephemeral-storage", "storage"):
        return MEBI
    if name.startswith("hugepages-"):
        try:
            page = quantity.parse(name.removeprefix("hugepages-"))
        except ValueError:
            page = _ZERO
        return page if page > 0 else MEBI
    return Fraction(1)


def compose(
    resources: Resources,
    labels: Mapping[str, str],
    prices: Mapping[str, str],
    *,
    version: str = "",
    storage_classes: Iterable[str] = (),
    ingress_classes: Iterable[str] = (),
    load_balancer_classes: Iterable[str] = (),
    gateways: Iterable[str] = (),
) -> Offer:
    """Return the offer to send, with the prices of the offered resources only."""
    return Offer(
        resources=quantity.render_all(resources),
        prices={name: prices[name] for name in sorted(prices) if name in resources},
        labels={name: labels[name] for name in sorted(labels)},
        storage_classes=list(storage_classes),
        ingress_classes=list(ingress_classes),
        load_balancer_classes=list(load_balancer_classes),
        gateways=list(gateways),
        kubernetes_version=version,
    )


def reclaimed(offer: Offer, by: datetime | None) -> Offer:
    """Return an offer of which nothing is left, with the moment ``by`` from which on its pods are evicted.

    The moment is a label: a borrower that does not know it leaves it out, and schedules nothing where nothing is left.
    It is not sent to one that would refuse the offer for having a label too many.
    """
    label = reclaim_label(by) if by is not None and len(offer.labels) < MAX_LABELS else {}
    nothing = dict.fromkeys(offer.resources, "0")
    return msgspec.structs.replace(offer, resources=nothing, labels={**offer.labels, **label})


def worth_sending(old: Offer | None, new: Offer, threshold: int) -> bool:
    """Return whether a new offer differs enough from the last one that was sent.

    A quantity counts when it changed by at least ``threshold`` percent of its old value, or to or from zero; all other
    fields count when they differ.
    """
    if old is None:
        return True
    if old == new:
        return False
    if old.resources.keys() != new.resources.keys() or _rest(old) != _rest(new):
        return True
    return any(
        moved(quantity.parse(old.resources[name]), quantity.parse(text), threshold)
        for name, text in new.resources.items()
    )


def moved(old: Fraction, new: Fraction, threshold: int) -> bool:
    """Return whether a quantity changed by at least ``threshold`` percent of its old value, or to or from zero."""
    if old == new:
        return False
    if old == 0 or new == 0:
        return True
    return abs(new - old) * 100 >= abs(old) * threshold


def _rest(offer: Offer) -> tuple[object, ...]:
    return (
        offer.prices,
        offer.labels,
        offer.storage_classes,
        offer.ingress_classes,
        offer.load_balancer_classes,
        offer.gateways,
        offer.kubernetes_version,
    )
