"""How many records a tenant may keep here, and how large they may be together. Pure.

Records are what a borrower writes for the daemon: custom resources, which a ResourceQuota counts as well. It does so
for each that is created, at the price of a write of its own, and refuses all of them until the controller manager has
discovered the kind, which takes minutes. So the daemon counts them, and has an admission policy refuse more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from liqod.hosting.tenants.bounds import DEFAULT_PODS
from liqod.hosting.tenants.contract import Contract
from liqod.model.names import FULL_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources

SHADOWPODS: Final = "shadowpods"
SLICES: Final = "shadowendpointslices"
SETS: Final = "shadownetworkpolicysets"
KINDS: Final = (SHADOWPODS, SLICES, SETS)
"""The kinds of records, by their plurals."""
BYTES: Final = "bytes"
"""The size of all records of a tenant together, as the API server sends them: with ``metadata.managedFields``."""
REOPENED: Final = Fraction(9, 10)
"""The part of a bound below which what was full is no longer full: records come and go, and each change is a write."""

_OF_TENANT: Final = {SLICES: "10000", SETS: "1000", BYTES: "256Mi"}
_PER_POD: Final = 10
"""ShadowPods for each pod that is lent: those of pods that have ended stay as long as the pods do at home."""


def most_records(contract: Contract, offered: Resources | None) -> Resources:
    """Return the most of each kind, and of bytes, that all namespaces of a tenant have together."""
    lent = int((offered or {}).get("pods", DEFAULT_PODS))
    most = {**_OF_TENANT, SHADOWPODS: str(DEFAULT_PODS + _PER_POD * lent)}
    most.update((str(name), text) for name, text in contract.granted.tenant_records.items())
    return quantity.parse_all(most)


def full(used: Mapping[str, int], most: Resources, before: frozenset[str]) -> frozenset[str]:
    """Return what a tenant has no room for: kinds, or ``BYTES``; ``before`` was full until now."""
    return frozenset(
        name for name, limit in most.items() if used.get(name, 0) >= limit * (REOPENED if name in before else 1)
    )


def label_of(names: Iterable[str]) -> str | None:
    """Return the value of a label of a tenant's namespaces; None: no label. All records fit into its 63 characters."""
    return ".".join(sorted(names)) or None


def labelled(namespace: Object, label: str = FULL_LABEL) -> frozenset[str]:
    """Return what a label of a namespace says to be full."""
    return frozenset(filter(None, namespace.metadata.labels.get(label, "").split(".")))
