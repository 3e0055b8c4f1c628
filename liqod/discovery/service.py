"""Discovery: runs the sources, merges their sightings into one table of candidates, publishes it when it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from liqod.config import schema
from liqod.discovery import manual, merge
from liqod.discovery.candidate import Announcement, Candidate
from liqod.discovery.mdns import Mdns
from liqod.discovery.merge import Lost, Resolved, Table
from liqod.flow.timer import Timer

__all__ = ("Announcement", "Candidate", "Discovery")


class MdnsSource(Protocol):
    """Browses for other clusters, and announces this one."""

    def setServiceParent(self, parent: Any) -> object: ...

    def announce(self, me: Announcement) -> None:
        """Replace what is announced."""


class MakeMdnsSource(Protocol):
    """Makes the mDNS source; ``Mdns`` itself is one."""

    def __call__(
        self,
        me: Announcement,
        wanted: Sequence[str],
        clock: IReactorTime,
        on_sightings: Callable[[Sequence[Resolved | Lost]], None],
    ) -> MdnsSource: ...


class Discovery(MultiService):
    """Finds peers, by mDNS and from the configuration, and announces this cluster.

    ``on_change`` gets the full tuple at start and whenever it differs from the last one. It is not paced here: mDNS
    reports what it reads in batches of 50 ms, the search of a domain once for each search. The constructor
    raises ValueError for a configured address that is none.
    """

    def __init__(
        self,
        settings: schema.DiscoverySettings,
        me: Announcement,
        clock: IReactorTime,
        on_change: Callable[[tuple[Candidate, ...]], None],
        *,
        make_mdns: MakeMdnsSource = Mdns,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._on_change = on_change
        self._manual = manual.candidates(settings.peers)
        self._table: Table = {}
        self._published: tuple[Candidate, ...] | None = None
        self._expiry = Timer(clock)
        self._me = me
        self._mdns: MdnsSource | None = None
        if settings.mdns:
            self._mdns = make_mdns(me, settings.interfaces, clock, self.merge_sightings)
            self._mdns.setServiceParent(self)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return the candidates known now: those from the configuration first."""
        return (*self._manual, *merge.candidates(self._table))

    def startService(self) -> None:
        super().startService()
        self.merge_sightings(())

    def stopService(self) -> Deferred[None]:
        self._expiry.cancel()
        return maybeDeferred(super().stopService).addCallback(lambda _: None)

    def announce_key(self, fingerprint: str) -> None:
        """Announce this cluster with another key."""
        self._me = attrs.evolve(self._me, fingerprint=fingerprint)
        if self._mdns is not None:
            self._mdns.announce(self._me)

    def merge_sightings(self, sightings: Sequence[Resolved | Lost]) -> None:
        """Merge the sightings of a source; ignored while the service does not run."""
        if not self.running:
            return
        now = self._clock.seconds()
        self._table = merge.fold(self._table, sightings, now)
        current = self.candidates
        if current != self._published:
            self._published = current
            self._on_change(current)
        self._schedule_expiry(now)

    def _schedule_expiry(self, now: float) -> None:
        self._expiry.cancel()
        moment = merge.next_expiry(self._table)
        if moment is not None:
            self._expiry.start(max(0.0, moment - now), self.merge_sightings, ())
