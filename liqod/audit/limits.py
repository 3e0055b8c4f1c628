"""Limits how many lines are written, such as security events for each type, and for each source of a type. Pure.

What is left out is counted, and reported with the next line of that source or, where none comes, by ``pending``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

from liqod.audit.events import AuditEvent, Type
from liqod.flow.connections.admission import Bucket, source_of
from liqod.model.host_port import host_of

G = TypeVar("G", bound=Hashable)

PER_SOURCE: Final = (0.1, 20)
"""Events of one type and source, per second and in a burst."""
PER_TYPE: Final = (1.0, 200)
"""Events of one type from all sources, per second and in a burst: many sources are no way to fill the log either."""
MAX_SOURCES: Final = 1024
"""Sources of all groups that are remembered; what was left out of a forgotten one is still reported."""


@attrs.define
class _Source:
    bucket: Bucket
    omitted: int = 0


class LineLimits(Generic[G]):
    """Decides which lines are written: of one group, and of one source in it, so many per second and in a burst.

    The number of groups must be bounded by the caller.
    """

    def __init__(self, per_source: tuple[float, int], per_group: tuple[float, int]) -> None:
        self._per_source = per_source
        self._per_group = per_group
        self._groups: dict[G, Bucket] = {}
        self._sources: dict[tuple[G, Hashable], _Source] = {}
        self._forgotten: Counter[G] = Counter()

    def admit(self, group: G, source: Hashable, now: float) -> int | None:
        """Return how many lines of this source were left out since the last; None when this one is left out too."""
        key = (group, source)
        # Taken out and put back as the newest: the oldest is forgotten first.
        known = self._sources.pop(key, None) or _Source(Bucket(*self._per_source))
        self._sources[key] = known
        if len(self._sources) > MAX_SOURCES:
            oldest = next(iter(self._sources))
            self._forgotten[oldest[0]] += self._sources.pop(oldest).omitted
        total = self._groups.setdefault(group, Bucket(*self._per_group))
        if known.bucket.delay(now) > 0 or total.delay(now) > 0:
            known.omitted += 1
            return None
        known.bucket.take(now)
        total.take(now)
        omitted, known.omitted = known.omitted, 0
        return omitted

    def pending(self) -> dict[G, int]:
        """Return what was left out and not reported yet, by group, and count it as reported."""
        counts, self._forgotten = self._forgotten, Counter()
        # Other threads log as well: the dictionary may change meanwhile.
        for (group, _), source in list(self._sources.items()):
            counts[group] += source.omitted
            source.omitted = 0
        return {group: count for group, count in counts.items() if count}


class EventLimits(LineLimits[Type]):
    """Decides which security events are written; a group is a type."""

    def __init__(self) -> None:
        super().__init__(PER_SOURCE, PER_TYPE)

    def admit_event(self, event: AuditEvent, now: float) -> int | None:
        """Like ``admit``. A source is an address, by the network that one site has, else a peer."""
        return self.admit(event.type, _source(event), now)


def _source(event: AuditEvent) -> str:
    # A peer that is merely claimed must not be a way around the limit of an address.
    return source_of(host_of(event.address)) if event.address else event.peer
