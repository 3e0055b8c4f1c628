"""How large the config maps and secrets of a tenant may be together. Pure.

A ResourceQuota counts them and not their bytes, so the daemon does, as it does for records (``record_bounds``), and has
an admission policy refuse more. What is there may still change while it does not grow: tokens of pods are renewed. But
a policy sees the entries of an object, and not all that etcd keeps of it: from a quarter more on nothing may change.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.quota.record_bounds import BYTES, KINDS
from liqod.model.objects import quantity
from liqod.model.objects.quantity import Resources

GROWTH: Final = "growth"
"""What is full first: for new objects, and for changes that add an entry or make one longer."""
CHANGES: Final = "changes"
"""What is full then: for all changes."""
BEYOND: Final = Fraction(5, 4)
"""The part of the bound from which nothing may change."""


def most_contents(contract: Contract) -> Resources:
    """Return the most bytes of config maps and secrets for growth and for changes; empty: without a bound."""
    if not contract.granted.tenant_contents:
        return {}
    most = quantity.parse(contract.granted.tenant_contents)
    return {GROWTH: most, CHANGES: most * BEYOND}


def sums_of(kind: str) -> tuple[str, ...]:
    """Return what the bytes of an object of a kind are added to, by its plural: those of records, or of contents."""
    return (BYTES,) if kind in KINDS else (GROWTH, CHANGES)
