"""Divides a tenant's total among the quotas of its namespaces, so that all of them together never exceed it. Pure.

The API server checks the ResourceQuota of one namespace when an object is created, and knows no sum over namespaces. So
the sum is divided: what the quotas of all namespaces allow together is never more than the total. A namespace that is
close to its share gets more, at first out of what nobody has, then out of what others hold and do not use. What is
taken away counts as held until the API server enforces the smaller quota (``status.hard``): there is no moment in which
two namespaces have the same room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import attrs

_IDLE: Final = 2
"""Steps of room that a namespace keeps when others need what it does not use."""
_PARTS: Final = 4
"""A step is at most this part of an equal share of what is left, so that idle namespaces hold half of that at most."""
_NOTHING: Final = Fraction(0)


@attrs.frozen
class Held:
    """The quota of one resource in one namespace: what was written last (``spec``), what the API server enforces
    (``hard``, None: nothing yet, and nothing can be created), and what it has counted (``used``, None: nothing yet).
    """

    spec: Fraction = _NOTHING
    hard: Fraction | None = None
    used: Fraction | None = None

    @property
    def granted(self) -> Fraction:
        """The most that the namespace may use as long as nothing is written."""
        return self.spec if self.hard is None else max(self.spec, self.hard)

    @property
    def is_enforced(self) -> bool:
        """Whether what was written last is enforced: only then may it become less, or less be followed by more."""
        return self.hard == self.spec

    @property
    def taken(self) -> Fraction:
        """What counts as used: what was not counted may all be used."""
        return self.granted if self.used is None else self.used

    @property
    def held(self) -> Fraction:
        """What no other namespace may have; objects from before a quota became smaller stay."""
        return max(self.granted, self.taken)


def divide(namespaces: Mapping[str, Held], total: Fraction, most: Fraction) -> dict[str, Fraction]:
    """Return the share of each namespace: at most ``most`` for one, and ``total`` for all together.

    A share is larger than what is granted only by what nobody holds, and what is not enforced yet stays as it was
    written: an old state shows too much as granted, never too little. What would not change anything is not
    changed. Repeated when the API server enforces what was returned, it comes to rest within a few steps; then a
    namespace has room for one more, at least, while there is any left.
    """
    most = min(most, total)
    left = max(_NOTHING, total - sum((one.taken for one in namespaces.values()), _NOTHING))
    step = _step(left, len(namespaces))
    if sum((max(most, one.taken) for one in namespaces.values()), _NOTHING) <= total:
        idle = dict.fromkeys(namespaces, most)
    elif step:
        idle = {name: min(most, one.taken + _IDLE * step) for name, one in namespaces.items()}
    else:
        idle = {name: min(most, one.taken) for name, one in namespaces.items()} | _one_each(namespaces, left, most)
    shares = {name: min(one.spec, most) if one.is_enforced else one.spec for name, one in namespaces.items()}
    free = total - sum((one.held for one in namespaces.values()), _NOTHING)
    is_short = free < 0
    for name, one in sorted(namespaces.items(), key=lambda item: (item[1].granted, item[0])):
        if not (one.is_enforced or one.hard is None):
            continue
        present, wanted = min(one.held, most), _wanted(one, idle[name], step, most)
        # What is used is held in any case: it may be replaced.
        shares[name] = max(shares[name], min(present, wanted))
        if (more := wanted - present) <= 0:
            continue
        given = max(_NOTHING, min(more, free))
        if given:
            shares[name] = present + given
            free -= given
        is_short |= given < more
    if is_short:
        for name, one in namespaces.items():
            if shares[name] <= one.spec and one.is_enforced:
                shares[name] = min(shares[name], idle[name])
    return shares


def _step(left: Fraction, count: int) -> Fraction:
    """Return a power of two, so that it changes seldom; 0 where not everybody can have some of what is left."""
    part = math.floor(left / (_PARTS * (count + 1)))
    return Fraction(1 << (part.bit_length() - 1)) if part else _NOTHING


def _one_each(namespaces: Mapping[str, Held], left: Fraction, most: Fraction) -> dict[str, Fraction]:
    """Return room for one more in as many namespaces as there is room, those first that have it already."""
    order = sorted(
        (name for name, one in namespaces.items() if one.taken < most),
        key=lambda name: (namespaces[name].granted <= namespaces[name].taken, name),
    )
    return {name: min(most, namespaces[name].taken + 1) for name in order[: math.floor(left)]}


def _wanted(one: Held, idle: Fraction, step: Fraction, most: Fraction) -> Fraction:
    """Return what a namespace should have: as much again as it uses, where its room is nearly used up."""
    if idle == most:
        return most
    if (one.used is None and one.granted > 0) or one.granted - one.taken >= max(step, Fraction(1)):
        return one.granted
    return max(idle, min(most, 2 * one.taken)) if step else idle
