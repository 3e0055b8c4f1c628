"""Kubernetes quantities: exact arithmetic on ``500m``, ``1.5Gi``, ``2e3`` and the like.

A quantity is kept as a ``Fraction`` of its base unit (cores, bytes, pieces) and printed in the canonical form that the
Kubernetes API uses. Source: k8s.io/apimachinery ``resource.Quantity``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from liqod.model.objects.interning import Interner

Resources = Mapping[str, Fraction]


def _key(resources: Resources) -> bytes:
    return msgspec.json.encode([(name, str(value)) for name, value in resources.items()])


shared: Final[Interner[Resources]] = Interner(_key)
"""Interned, because all pods of one owner request the same resources."""
"""Quantities by resource name, such as ``cpu``, ``memory``, ``pods``, ``nvidia.com/gpu``."""

_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_PATTERN: Final = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:([eE][+-]?[0-9]{1,2})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?"
)
LIMIT: Final = Fraction(2**63 - 1)
"""The largest value that Kubernetes represents exactly."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """Return the value of a quantity in base units; raise ValueError for what Kubernetes does not parse."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:60]!r} is not a quantity: a number with an optional suffix such as m, k, Mi, Gi or e3"
        )
    sign, digits, exponent, suffix = found.groups()
    value = Fraction(digits)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix:
        value *= _BINARY.get(suffix) or _DECIMAL[suffix]
    if value > LIMIT:
        raise ValueError(f"{text[:60]!r} is larger than any quantity Kubernetes keeps exactly (2^63-1)")
    return -value if sign == "-" else value


def render(value: Fraction, *, resource: str = "") -> str:
    """Return the shortest canonical form; bytes (memory, storage) prefer binary suffixes, cores prefer ``m``.

    Values finer than a nano-unit are rounded up, as Kubernetes does.
    """
    if value < 0:
        return "-" + render(-value, resource=resource)
    if value.denominator != 1:
        for suffix in ("m", "u", "n"):
            scaled = value / _DECIMAL[suffix]
            if scaled.denominator == 1 or suffix == "n":
                return f"{-(-scaled.numerator // scaled.denominator)}{suffix}"
    whole = int(value)
    if whole and _is_bytes(resource):
        for suffix, unit in reversed(_BINARY.items()):
            if whole % unit == 0:
                return f"{whole // unit}{suffix}"
    return str(whole)


def _is_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-")


def is_extended(resource: str) -> bool:
    """Return whether a resource is an extended one, such as ``example.com/dongle``, and none of Kubernetes' own.

    Source: Kubernetes, pkg/apis/core/v1/helper, IsExtendedResourceName.
    """
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def parse_all(quantities: Mapping[str, str | int | float]) -> dict[str, Fraction]:
    """Parse a Kubernetes resource list; raises ValueError naming the resource whose quantity is wrong."""
    parsed = {}
    for name, text in quantities.items():
        try:
            parsed[name] = parse(str(text))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return parsed


def render_all(resources: Resources) -> dict[str, str]:
    """Return a Kubernetes resource list, sorted by name."""
    return {name: render(resources[name], resource=name) for name in sorted(resources)}


def add(parts: Iterable[Resources]) -> dict[str, Fraction]:
    """Return the sum of resource lists."""
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, value in part.items():
            # Adding Fractions is slow, and most sums have only one part.
            before = total.get(name)
            total[name] = value if before is None else before + value
    return total


def subtract(left: Resources, right: Resources) -> dict[str, Fraction]:
    """Return ``left - right`` for the resources of ``left``; values may be negative."""
    return {name: value - right.get(name, Fraction(0)) for name, value in left.items()}


def scale(resources: Resources, factor: Fraction) -> dict[str, Fraction]:
    """Return every quantity times a factor, exactly."""
    return {name: value * factor for name, value in resources.items()}


def exceeding(wanted: Resources, available: Resources) -> dict[str, Fraction]:
    """Return the amounts by which ``wanted`` exceeds ``available``; an absent resource counts as zero."""
    over = {name: value - available.get(name, Fraction(0)) for name, value in wanted.items()}
    return {name: value for name, value in over.items() if value > 0}
