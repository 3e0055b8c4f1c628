"""Kubernetes quantities (``500m``, ``1.5Gi``, ``2e3``) as exact fractions of their unit.

Source: k8s.io/apimachinery ``resource.Quantity``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

Resources = Mapping[str, Fraction]

_UNITS: Final = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_PATTERN: Final = re.compile(
    r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))(?:[eE]([+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?"
)
_BYTES: Final = ("memory", "ephemeral-storage", "storage")


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """Return the value of a quantity in base units; raises ValueError for what Kubernetes does not parse."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is not a quantity")
    digits, exponent, suffix = found.groups()
    return Fraction(digits) * (Fraction(10) ** int(exponent) if exponent else _UNITS[suffix or ""])


def parse_all(quantities: Mapping[str, str | int | float]) -> dict[str, Fraction]:
    """Parse a resource list; raises ValueError for the first quantity that is wrong."""
    return {name: parse(str(text)) for name, text in quantities.items()}


def render(value: Fraction, *, resource: str = "") -> str:
    """Return the canonical form of a quantity that is not negative: bytes by binary suffixes, others down to ``n``."""
    for suffix in ("", "m", "u", "n"):
        scaled = value / _UNITS[suffix]
        if scaled.denominator == 1 or suffix == "n":
            break
    if suffix or not value or resource not in _BYTES:
        return f"{-(-scaled.numerator // scaled.denominator)}{suffix}"
    for binary in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if (value / _UNITS[binary]).denominator == 1:
            return f"{value / _UNITS[binary]}{binary}"
    return str(value)


def render_all(resources: Resources) -> dict[str, str]:
    """Return a resource list in canonical form, sorted by name."""
    return {name: render(resources[name], resource=name) for name in sorted(resources)}


def add(parts: Iterable[Resources]) -> dict[str, Fraction]:
    """Return the sum of resource lists."""
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def subtract(left: Resources, right: Resources) -> dict[str, Fraction]:
    """Return ``left - right`` for the resources of ``left``; values may be negative."""
    return {name: value - right.get(name, Fraction(0)) for name, value in left.items()}
