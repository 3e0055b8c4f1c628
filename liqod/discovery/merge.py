"""The table of what was seen: a pure fold of sightings, bounded, with expiry.

A lost announcement is not a lost peer: its candidates turn stale and stay for a grace period. Whoever floods the
network with invented clusters fills at most the table, never pushes out a cluster that is shown in it, and gets only a
few entries per address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from liqod.discovery.candidate import Candidate

MAX_CANDIDATES: Final = 256
MAX_PER_HOST: Final = 16
"""Announcements that may name the same address: clusters that share a machine, each with its port."""
GRACE: Final = 300.0
"""Seconds that a lost announcement's candidates stay, for a peer that restarts or a network that hiccups."""


@attrs.frozen
class Seen:
    """An announcement was resolved to these candidates."""

    instance: str
    candidates: tuple[Candidate, ...]


@attrs.frozen
class Lost:
    """An announcement was taken back, or expired."""

    instance: str


@attrs.frozen
class Entry:
    """What is known of one announcement; ``lost_at`` is None while it is shown."""

    candidates: tuple[Candidate, ...]
    lost_at: float | None = None


Table = Mapping[str, Entry]
"""By instance name, in the order of first sight."""


def fold(table: Table, sightings: Iterable[Seen | Lost], now: float) -> Table:
    """Return the table after some sightings, without what outlived its grace."""
    result = {name: entry for name, entry in table.items() if entry.lost_at is None or now < entry.lost_at + GRACE}
    hosts = Counter(candidate.host for entry in result.values() for candidate in entry.candidates)
    for sighting in sightings:
        old = result.get(sighting.instance)
        if isinstance(sighting, Lost):
            if old is not None and old.lost_at is None:
                result[sighting.instance] = attrs.evolve(old, lost_at=now)
            continue
        if old is not None:
            hosts.subtract(candidate.host for candidate in old.candidates)
        fitting = [candidate for candidate in sighting.candidates if hosts[candidate.host] < MAX_PER_HOST]
        for name in _in_the_way(result, sighting.instance, hosts.total() + len(fitting) - MAX_CANDIDATES):
            hosts.subtract(candidate.host for candidate in result.pop(name).candidates)
        fitting = fitting[: MAX_CANDIDATES - hosts.total()]
        hosts.update(candidate.host for candidate in fitting)
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


def _in_the_way(table: Table, newcomer: str, excess: int) -> Iterable[str]:
    """Return the announcements to forget for so many candidates' room: only lost ones, the longest lost first."""
    if excess <= 0:
        return []
    gone = []
    lost = ((entry.lost_at, name) for name, entry in table.items() if entry.lost_at is not None and name != newcomer)
    for _, name in sorted(lost):
        if excess <= 0:
            break
        gone.append(name)
        excess -= len(table[name].candidates)
    return gone
