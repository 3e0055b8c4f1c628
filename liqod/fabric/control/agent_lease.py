"""The lease of the gateway's network agent, where that is another process: whether the agent renews it."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime

from liqod.kube.cache.informer import Informer
from liqod.kube.leader import Lease
from liqod.model.ids import Key

MARGIN: Final = 20.0
"""Seconds beyond its duration that a lease may stay as it is: a restart, an upgrade and a standby need less."""


class AgentLease:
    """Measures by this host's clock for how long the lease has not changed, as candidates for it do.

    While the watch does not follow the server no time passes. Source: client-go ``tools/leaderelection``.
    """

    def __init__(self, leases: Informer[Lease], clock: IReactorTime) -> None:
        self._leases = leases
        self._clock = clock
        self._changed_at = clock.seconds()
        self._duration: float | None = None
        self._silent = False
        leases.subscribe(self._lease_changed)
        leases.live.subscribe(self._live_changed)

    def _lease_changed(self, _: Key, old: Lease | None, new: Lease | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._silent = False
        self._changed_at = self._clock.seconds()
        self._duration = new.spec.lease_duration_seconds if new is not None else None

    def _live_changed(self, live: bool) -> None:
        if live:
            self._changed_at = self._clock.seconds()

    def is_silent(self) -> bool:
        """Return whether the agent has stopped to renew its lease; False where there is none, or it is not known."""
        if self._duration is not None and self._leases.live.value:
            unchanged = self._clock.seconds() - self._changed_at
            # Once silent it is so until it renews: a watch that was interrupted is no renewal.
            self._silent = self._silent or unchanged > self._duration + MARGIN
        return self._silent
