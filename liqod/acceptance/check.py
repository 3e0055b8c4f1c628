"""Validates an offer of a peer: everything in it is hostile until it has passed here.

Bounds: names and counts are those of the Kubernetes API and of the Advertisement record's schema; quantities must be
finite, not negative and small enough for Kubernetes to keep exactly. Labels are set on a node of this cluster, so none
may have a prefix to which Kubernetes or liqod give a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from liqod.model.objects import quantity
from liqod.model.records.offer import MAX_CLASSES, MAX_LABELS, MAX_RESOURCES, Offer, Refusal

REASON: Final = "InvalidOffer"
MAX_QUANTITY: Final = 64
RESERVED: Final = ("kubernetes.io", "k8s.io", "liqo.io")
MAX_TTL: Final = 86400 * 7
"""Seconds of the longest time to live: the offer of a provider that vanished expires within a week."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VERSION = re.compile(r"v?[0-9A-Za-z.+~-]{0,63}")


def is_qualified_name(text: str) -> bool:
    """Return whether a text is a qualified name: an optional DNS prefix and "/", then 1 to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= 253 and _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a text may be a label's value: empty, or at most 63 of the characters of a name."""
    return text == "" or _NAME.fullmatch(text) is not None


def is_reserved(label: str) -> bool:
    """Return whether a label has a prefix (or a subdomain of one) that only the cluster itself may set."""
    prefix, slash, _ = label.partition("/")
    if not slash:
        return False
    return any(prefix == domain or prefix.endswith("." + domain) for domain in RESERVED)


def check(offer: Offer) -> Offer:
    """Return the offer in canonical form, so that equal offers compare equal; raises Refusal with the invalid field."""
    return Offer(
        resources=_quantities("resources", offer.resources),
        prices=_quantities("prices", offer.prices),
        labels=_labels(offer.labels),
        storage_classes=_classes("storageClasses", offer.storage_classes),
        ingress_classes=_classes("ingressClasses", offer.ingress_classes),
        load_balancer_classes=_classes("loadBalancerClasses", offer.load_balancer_classes, is_qualified_name),
        kubernetes_version=_version(offer.kubernetes_version),
    )


def check_ttl(ttl: int) -> int:
    """Return the time to live in seconds; raises Refusal outside 1 second .. 7 days."""
    if not 1 <= ttl <= MAX_TTL:
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
            raise _refuse("labels", f"{_show(name)} is under a prefix that peers may not set ({', '.join(RESERVED)})")
        if not is_label_value(given[name]):
            raise _refuse(f"labels.{name}", f"{_show(given[name])} is not a label value")
    return {name: given[name] for name in sorted(given)}


def _is_class(name: str) -> bool:
    return len(name) <= 253 and _PREFIX.fullmatch(name) is not None


def _classes(field: str, given: Sequence[str], is_name: Callable[[str], bool] = _is_class) -> list[str]:
    if len(given) > MAX_CLASSES:
        raise _refuse(field, f"{len(given)} entries, at most {MAX_CLASSES} are taken")
    for name in given:
        if not is_name(name):
            raise _refuse(field, f"{_show(name)} is not the name of a class")
    return sorted(set(given))


def _version(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise _refuse("kubernetesVersion", f"{_show(text)} is not a version")
    return text
