"""Divides what a lender offers among its virtual nodes (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from attrs import frozen

from liqod.kubelet.common.readiness import Readiness, not_ready
from liqod.model.ids import Key
from liqod.model.objects.quantity import parse, render
from liqod.model.records.views import VirtualNode

_ZERO = Fraction(0)


@frozen
class Share:
    """The part of an offer that one virtual node shows; ``reduced``: resources of which that is less than its limit."""

    resources: Mapping[str, str]
    reduced: tuple[str, ...] = ()


def share_of(key: Key, offered: Mapping[str, str], nodes: Iterable[VirtualNode]) -> Share:
    """Return what the virtual node with this key shows of an offer; ``nodes`` are all of the lender, in any order.

    The limits are taken from the offer one after the other, that of the oldest node first; a node without a limit for a
    resource shows what is left of it, together with all others that have none. So limits never add up to more than the
    offer.
    """
    ordered = sorted(nodes, key=_age)
    own = next((node for node in ordered if node.metadata.key == key), None)
    limits = {} if own is None else own.spec.limits
    shown: dict[str, str] = {}
    reduced: list[str] = []
    for name, text in offered.items():
        left, limit = _amount(text), limits.get(name)
        for node in ordered:
            if limit is not None and node is own:
                break
            left -= min(left, _amount(node.spec.limits.get(name, "0")))
        if limit is None:
            shown[name] = render(left, resource=name) if left != _amount(text) else text
            continue
        shown[name] = render(min(left, _amount(limit)), resource=name)
        if left < _amount(limit):
            reduced.append(name)
    reduced += [name for name, limit in limits.items() if name not in offered and _amount(limit)]
    return Share(shown, tuple(sorted(reduced)))


def limits_readiness(share: Share, limits: Mapping[str, str]) -> Readiness | None:
    """Return whether a node shows all of its limits, for a condition; None for a node without limits."""
    if not limits:
        return None
    if not share.reduced:
        return Readiness(ready=True, reason="LimitsShown", message="the offer has what the limits of this node name")
    parts = ", ".join(f"{name} {share.resources.get(name, '0')} of {limits[name]}" for name in share.reduced)
    return not_ready(
        "OfferExceeded",
        f"the lender offers less than the limits of its virtual nodes: this one shows {parts}; lower the limits, or "
        "ask the lender for more",
    )


def _age(node: VirtualNode) -> tuple[str, str]:
    return node.metadata.creation_timestamp or "", str(node.metadata.key)


def _amount(text: str) -> Fraction:
    """Return a quantity; what is none, or negative, counts as nothing: the definition and acceptance refuse it."""
    try:
        return max(_ZERO, parse(text))
    except ValueError:
        return _ZERO
