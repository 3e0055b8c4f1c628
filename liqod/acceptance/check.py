"""Validates an offer of a peer: everything in it is hostile until it has passed here.

Bounds: names and counts are those of the Kubernetes API and of the Advertisement record's schema; quantities must be
finite, not negative and small enough for Kubernetes to keep exactly. Labels are set on a node of this cluster, so none
may have a prefix to which Kubernetes or liqod give a meaning, but for those that say where and what a node is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from liqod.model.objects import quantity
from liqod.model.records.offer import MAX_CLASSES, MAX_LABELS, MAX_RESOURCES, Offer, Refusal
from liqod.model.records.offer_rules import (
    MAX_TTL,
    is_dns_name,
    is_gateway,
    is_label_value,
    is_qualified_name,
    is_reserved,
    is_ttl,
    reserved_message,
)

REASON: Final = "InvalidOffer"
MAX_QUANTITY: Final = 64
_VERSION = re.compile(r"v?[0-9A-Za-z.+~-]{0,63}")


def check(offer: Offer) -> Offer:
    """Return the offer in canonical form, so that equal offers compare equal; raises Refusal with the invalid field."""
    return Offer(
        resources=_quantities("resources", offer.resources),
        prices=_quantities("prices", offer.prices),
        labels=_labels(offer.labels),
        storage_classes=_classes("storageClasses", offer.storage_classes),
        ingress_classes=_classes("ingressClasses", offer.ingress_classes),
        load_balancer_classes=_classes("loadBalancerClasses", offer.load_balancer_classes, is_qualified_name),
        gateways=_classes("gateways", offer.gateways, is_gateway),
        kubernetes_version=_version(offer.kubernetes_version),
    )


def check_ttl(ttl: int) -> int:
    """Return the time to live in seconds; raises Refusal outside 1 second .. 7 days."""
    if not is_ttl(ttl):
        raise Refusal(REASON, f"ttl: {ttl} is not a number of seconds from 1 to {MAX_TTL}")
    return ttl


def _refuse(field: str, why: str) -> Refusal:
    return Refusal(REASON, f"{field}: {why}")


def _show(text: str) -> str:
    return repr(text[:80])


def _quantities(field: str, given: Mapping[str, str]) -> dict[str, str]:
    if len(given) > MAX_RESOURCES:
        raise _refuse(field, f"{len(given)} entries, at most {MAX_RESOURCES} are taken")
    checked = {}
    for name in sorted(given):
        text = given[name]
        if not is_qualified_name(name):
            raise _refuse(field, f"{_show(name)} is not a resource name")
        if len(text) > MAX_QUANTITY:
            raise _refuse(f"{field}.{name}", f"a quantity of {len(text)} characters, at most {MAX_QUANTITY} are taken")
        try:
            value = quantity.parse(text)
        except ValueError as error:
            raise _refuse(f"{field}.{name}", str(error)) from None
        if value < 0:
            raise _refuse(f"{field}.{name}", f"{_show(text)} is negative")
        checked[name] = quantity.render(value, resource=name)
    return checked


def _labels(given: Mapping[str, str]) -> dict[str, str]:
    if len(given) > MAX_LABELS:
        raise _refuse("labels", f"{len(given)} entries, at most {MAX_LABELS} are taken")
    for name in sorted(given):
        if not is_qualified_name(name):
            raise _refuse("labels", f"{_show(name)} is not a label name")
        if is_reserved(name):
            raise _refuse("labels", f"{_show(name)} is not for peers to set: it {reserved_message()}")
        if not is_label_value(given[name]):
            raise _refuse(f"labels.{name}", f"{_show(given[name])} is not a label value")
    return {name: given[name] for name in sorted(given)}


def _classes(field: str, given: Sequence[str], is_name: Callable[[str], bool] = is_dns_name) -> list[str]:
    if len(given) > MAX_CLASSES:
        raise _refuse(field, f"{len(given)} entries, at most {MAX_CLASSES} are taken")
    for name in given:
        if not is_name(name):
            raise _refuse(field, f"{_show(name)} is not the name of a class")
    # In the lender's order: the first storage class is its default one.
    return list(dict.fromkeys(given))


def _version(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise _refuse("kubernetesVersion", f"{_show(text)} is not a version")
    return text
