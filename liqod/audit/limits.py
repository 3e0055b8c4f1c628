"""Limits how many security events are written: for each type, and for each source of a type. Pure.

What is left out is counted, and reported with the next event of that source or, where none comes, by ``pending``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from liqod.audit.events import AuditEvent, Type
from liqod.flow.connections.admission import Bucket, source_of
from liqod.model.host_port import host_of

PER_SOURCE: Final = (0.1, 20)
"""Events of one type and source, per second and in a burst."""
PER_TYPE: Final = (1.0, 200)
"""Events of one type from all sources, per second and in a burst: many sources are no way to fill the log either."""
MAX_SOURCES: Final = 1024
"""Sources of all types that are remembered; what was left out of a forgotten one is still reported."""


@attrs.define
class _Source:
    bucket: Bucket
    omitted: int = 0


class EventLimits:
    """Decides which events are written. A source is an address, by the network that one site has, else a peer."""

    def __init__(self) -> None:
        self._types: dict[Type, Bucket] = {}
        self._sources: dict[tuple[Type, str], _Source] = {}
        self._forgotten: Counter[Type] = Counter()

    def admit(self, event: AuditEvent, now: float) -> int | None:
        """Return how many events of this source were left out since the last; None when this one is left out too."""
        key = (event.type, _source(event))
        # Taken out and put back as the newest: the oldest is forgotten first.
        source = self._sources.pop(key, None) or _Source(Bucket(*PER_SOURCE))
        self._sources[key] = source
        if len(self._sources) > MAX_SOURCES:
            oldest = next(iter(self._sources))
            self._forgotten[oldest[0]] += self._sources.pop(oldest).omitted
        total = self._types.setdefault(event.type, Bucket(*PER_TYPE))
        if source.bucket.delay(now) > 0 or total.delay(now) > 0:
            source.omitted += 1
            return None
        source.bucket.take(now)
        total.take(now)
        omitted, source.omitted = source.omitted, 0
        return omitted

    def pending(self) -> dict[Type, int]:
        """Return what was left out and not reported yet, by type, and count it as reported."""
        counts, self._forgotten = self._forgotten, Counter()
        for (type_, _), source in self._sources.items():
            counts[type_] += source.omitted
            source.omitted = 0
        return {type_: count for type_, count in counts.items() if count}


def _source(event: AuditEvent) -> str:
    # A peer that is merely claimed must not be a way around the limit of an address.
    return source_of(host_of(event.address)) if event.address else event.peer
