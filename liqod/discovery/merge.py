"""The table of sightings: bounded, with expiry. Pure.

A lost announcement is not a lost peer: its candidates become stale and stay for a grace period. A flood of invented
clusters fills at most the places of its source, never evicts a cluster that is shown, and gets only a few entries per
address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.discovery.candidate import Candidate

MAX_CANDIDATES: Final = 256
"""Candidates of one source: what the LAN announces takes no place of what an administrator's domains list."""
MAX_PER_HOST: Final = 16
"""Announcements of one source that may name the same address: clusters that share a machine, each with its port."""
GRACE: Final = 300.0
"""Seconds that a lost announcement's candidates stay: peers restart, and multicast packets get lost."""


@attrs.frozen
class Resolved:
    """An instance was resolved to these candidates."""

    instance: str
    candidates: tuple[Candidate, ...]


@attrs.frozen
class Lost:
    """An instance is shown no longer: it said goodbye (TTL 0, RFC 6762, 10.1) or expired, its records cannot be read, a
    domain lists it no more, or the source closes.
    """

    instance: str


@attrs.frozen
class Entry:
    """What is known of one instance; ``lost_at`` is None while it is shown."""

    candidates: tuple[Candidate, ...]
    lost_at: float | None = None


Table = Mapping[str, Entry]
"""By instance name, in the order of first sight."""


def fold(table: Table, sightings: Iterable[Resolved | Lost], now: float) -> Table:
    """Return the table after some sightings, without entries whose grace period is over."""
    result = {name: entry for name, entry in table.items() if entry.lost_at is None or now < entry.lost_at + GRACE}
    hosts = Counter(_place(candidate) for entry in result.values() for candidate in entry.candidates)
    for sighting in sightings:
        old = result.get(sighting.instance)
        if isinstance(sighting, Lost):
            if old is not None and old.lost_at is None:
                result[sighting.instance] = attrs.evolve(old, lost_at=now)
            continue
        if old is not None:
            hosts.subtract(map(_place, old.candidates))
        fitting = [candidate for candidate in sighting.candidates if hosts[_place(candidate)] < MAX_PER_HOST]
        taken = sum(count for (source, _), count in hosts.items() if fitting and source == fitting[0].source)
        for name in _evictable(result, sighting, taken + len(fitting) - MAX_CANDIDATES):
            gone = result.pop(name).candidates
            hosts.subtract(map(_place, gone))
            taken -= len(gone)
        fitting = fitting[: MAX_CANDIDATES - taken]
        hosts.update(map(_place, fitting))
        if fitting:
            result[sighting.instance] = Entry(tuple(fitting))
        else:
            result.pop(sighting.instance, None)
    return result


def candidates(table: Table) -> tuple[Candidate, ...]:
    """Return all candidates: those shown first, best address first; equal tables give equal tuples."""
    shown: list[Candidate] = []
    stale: list[Candidate] = []
    for name in sorted(table):
        entry = table[name]
        if entry.lost_at is None:
            shown += entry.candidates
        else:
            stale += [attrs.evolve(candidate, stale=True) for candidate in entry.candidates]
    return (*shown, *stale)


def next_expiry(table: Table) -> float | None:
    """Return when the next grace period ends, or None."""
    return min((entry.lost_at + GRACE for entry in table.values() if entry.lost_at is not None), default=None)


def _place(candidate: Candidate) -> tuple[str, str]:
    return candidate.source, candidate.host


def _evictable(table: Table, newcomer: Resolved, excess: int) -> Iterable[str]:
    """Return the instances to evict to free room for ``excess`` candidates: only lost ones of the newcomer's source,
    the longest lost first.
    """
    if excess <= 0:
        return []
    gone = []
    lost = ((entry.lost_at, name) for name, entry in table.items() if entry.lost_at is not None)
    for _, name in sorted(lost):
        if excess <= 0:
            break
        if name != newcomer.instance and table[name].candidates[0].source == newcomer.candidates[0].source:
            gone.append(name)
            excess -= len(table[name].candidates)
    return gone
