"""Divides a tenant's total among the quotas of its namespaces, so that all of them together never exceed it. Pure.

The API server checks the ResourceQuota of one namespace when an object is created, and knows no sum over namespaces. So
the sum is divided: what the quotas of all namespaces allow together is never more than the total. A namespace that is
close to its share gets more, at first out of what nobody has, then out of what others hold and do not use. What is
taken away counts as held until the API server enforces the smaller quota (``status.hard``): there is no moment in which
two namespaces have the same room.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs

_IDLE: Final = 2
"""Steps of room that a namespace keeps when others need what it does not use."""
_PARTS: Final = 4
"""A step is at most this part of an equal share of what is left, so that idle namespaces hold half of that at most."""


@attrs.frozen
class QuotaState:
    """The quota of one resource in one namespace: what was written last (``spec``), what the API server enforces
    (``hard``, None: nothing yet, and nothing can be created), and what it has counted (``used``, None: nothing yet).

    All are whole numbers, of a unit that the caller chooses: a tenant may have a thousand namespaces that change all
    the time, and fractions take ten times as long.
    """

    spec: int = 0
    hard: int | None = None
    used: int | None = None

    @cached_property
    def granted(self) -> int:
        """The most that the namespace may use as long as nothing is written."""
        return self.spec if self.hard is None else max(self.spec, self.hard)

    @cached_property
    def is_enforced(self) -> bool:
        """Whether what was written last is enforced: only then may it become less, or less be followed by more."""
        return self.hard == self.spec

    @cached_property
    def taken(self) -> int:
        """What counts as used: what was not counted may all be used."""
        return self.granted if self.used is None else self.used

    @cached_property
    def held(self) -> int:
        """What no other namespace may have; objects from before a quota became smaller stay."""
        return max(self.granted, self.taken)


def divide(namespaces: Mapping[str, QuotaState], total: int, most: int, one: int = 1) -> dict[str, int]:
    """Return the share of each namespace: at most ``most`` for one, and ``total`` for all together.

    ``one`` is the amount of a single object.

    A share is larger than what is granted only by what nobody holds, and what is not enforced yet stays as it was
    written: an old state shows too much as granted, never too little. What would not change anything is not
    changed. Repeated when the API server enforces what was returned, it comes to rest within a few steps; then a
    namespace has room for one more, at least, while there is any left.
    """
    most = min(most, total)
    left = max(0, total - sum(own.taken for own in namespaces.values()))
    step = _step(left // one, len(namespaces)) * one
    if sum(max(most, own.taken) for own in namespaces.values()) <= total:
        idle = dict.fromkeys(namespaces, most)
    elif step:
        idle = {name: min(most, own.taken + _IDLE * step) for name, own in namespaces.items()}
    else:
        idle = {name: min(most, own.taken) for name, own in namespaces.items()}
        idle |= _one_each(namespaces, left, most, one)
    shares = {name: min(own.spec, most) if own.is_enforced else own.spec for name, own in namespaces.items()}
    free = total - sum(own.held for own in namespaces.values())
    is_short = free < 0
    for name, own in sorted(namespaces.items(), key=lambda item: (item[1].granted, item[0])):
        if not (own.is_enforced or own.hard is None):
            continue
        present, wanted = min(own.held, most), _wanted(own, idle[name], most, step, one)
        # What is used is held in any case: it may be replaced.
        shares[name] = max(shares[name], min(present, wanted))
        if (more := wanted - present) <= 0:
            continue
        given = max(0, min(more, free))
        if given:
            shares[name] = present + given
            free -= given
        is_short |= given < more
    if is_short:
        for name, own in namespaces.items():
            if shares[name] <= own.spec and own.is_enforced:
                shares[name] = min(shares[name], idle[name])
    return shares


def _step(left: int, count: int) -> int:
    """Return a power of two, so that it changes seldom; 0 where not everybody can have some of what is left."""
    part = left // (_PARTS * (count + 1))
    return 1 << (part.bit_length() - 1) if part else 0


def _one_each(namespaces: Mapping[str, QuotaState], left: int, most: int, one: int) -> dict[str, int]:
    """Return room for one more in as many namespaces as there is room, those first that have it already."""
    order = sorted(
        (name for name, own in namespaces.items() if own.taken < most),
        key=lambda name: (namespaces[name].granted <= namespaces[name].taken, name),
    )
    return {name: min(most, namespaces[name].taken + one) for name in order[: left // one]}


def _wanted(own: QuotaState, idle: int, most: int, step: int, one: int) -> int:
    """Return what a namespace should have: as much again as it uses, where its room is nearly used up."""
    if idle == most:
        return most
    if (own.used is None and own.granted > 0) or own.granted - own.taken >= max(step, one):
        return own.granted
    return max(idle, min(most, 2 * own.taken)) if step else idle
