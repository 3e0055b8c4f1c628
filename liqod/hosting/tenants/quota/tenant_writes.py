"""Counts the bytes that each tenant writes here, and labels its namespaces while it may write no more.

The label is what the admission policy of writes looks at (``policies``); it holds while no daemon runs, too, and a
daemon that starts finds the date in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.clocks import WallClock, wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, watch
from liqod.flow.observe import Subscribers
from liqod.flow.share import Share
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.write_bounds import date_label, held, held_until, share_of
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACES
from liqod.model.ids import ClusterID, Key
from liqod.model.names import HELD_WRITES_LABEL
from liqod.model.objects.granted_namespace import granted_to, tenant_of
from liqod.model.objects.meta import Object

COALESCE: Final = 0.25
"""Seconds for which writes are collected: more than that time allows is never accepted beyond a bound."""
WRITTEN_BYTES: Final = "WrittenBytes"


class Written(Protocol):
    """What tells of each version that is written: ``kube.cache.sizes.Sizes``."""

    def subscribe_writes(self, subscriber: Callable[[Key, int], None]) -> Callable[[], None]:
        """Call ``subscriber`` with the size of each version from now on; return the unsubscribe function."""
        ...


@attrs.frozen
class _Writes:
    """The source of what is written; a list tells of nothing that is."""

    written: Written
    count: Callable[[Key, int], None]

    def start(self, enqueue: Callable[[str], None]) -> Callable[[], None]:
        """Count from now on."""
        return self.written.subscribe_writes(self.count)

    def when_synced(self) -> Deferred[None]:
        """Nothing exists at the start."""
        return succeed(None)


@attrs.frozen
class _Held:
    """Until when a tenant is held, on the reactor's clock and as the label says it; None: it is not."""

    until: float | None = None
    label: str | None = None


class TenantWrites(Controller[str]):
    """Reconciles the label of each tenant's namespaces that says until when it is held; its keys are tenants.

    ``written`` are the caches of what tenants write. ``wall`` is the wall clock; None: that of the reactor's host.
    """

    name = "tenant-writes"

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        written: Iterable[Written],
        contracts: Contracts,
        wall: WallClock | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._written = tuple(written)
        self._contracts = contracts
        self._wall = wall or wall_clock(clock)
        self._audit = audit
        self._shares: dict[str, Share] = {}
        self._held: dict[str, _Held] = {}
        self._at: dict[str, float] = {}
        self._subscribers: Subscribers[Callable[[ClusterID], None]] = Subscribers()

    def subscribe(self, subscriber: Callable[[ClusterID], None]) -> Callable[[], None]:
        """Call ``subscriber`` with each tenant that is held from now on; return the unsubscribe function."""
        return self._subscribers.add(subscriber)

    def sources(self) -> Iterable[Source[str]]:
        """Namespaces, and what is written in them."""
        yield watch(self._namespaces, self._namespace_changed)
        for one in self._written:
            yield _Writes(one, self._count)

    async def reconcile(self, tenant: str) -> After | None:
        """Label the namespaces of a tenant, or take labels away, where they differ."""
        present = granted_to(tenant, self._namespaces.items())
        if not present:
            return self._forget(tenant)
        labels = self._labels(tenant, present)
        # Where it writes now is closed first: there may be a thousand.
        for namespace in sorted(present, key=lambda one: -self._at.get(one.metadata.name, 0.0)):
            metadata = namespace.metadata
            if not metadata.deleting and metadata.labels.get(HELD_WRITES_LABEL) != labels[HELD_WRITES_LABEL]:
                await self._label(metadata.name, labels)
        until = self._held[tenant].until
        return None if until is None else After(max(0.0, until - self.clock.seconds()))

    def _forget(self, tenant: str) -> After | None:
        """Forget a tenant without namespaces as soon as all that it wrote is free again, and it is not held.

        Else it would begin with a new budget at each namespace that it gives back and asks for again.
        """
        now, share, known = self.clock.seconds(), self._shares.get(tenant), self._held.get(tenant)
        until = known.until if known is not None and known.until is not None else now
        if share is not None:
            until = max(until, now + share.taken(now) / share.rate)
        if until > now:
            return After(until - now)
        self._shares.pop(tenant, None)
        self._held.pop(tenant, None)
        return None

    async def apply(self, tenant: str, namespace: str) -> None:
        """Label a namespace before anything is created in it, if its tenant is held. Raises KubeError."""
        await self._namespaces.when_synced()
        labels = self._labels(tenant, granted_to(tenant, self._namespaces.items()))
        if any(labels.values()):
            await self._label(namespace, labels)

    def _labels(self, tenant: str, present: Iterable[Object]) -> dict[str, str | None]:
        """Decide until when a tenant is held, and return the label that says it; None: not this one."""
        now = self.clock.seconds()
        known = self._held.get(tenant)
        if known is None:
            # A daemon that starts has counted nothing, and goes by what is in the labels.
            known = self._labelled(present, now)
        share = self._share(tenant)
        until = None if share is None else held(share, now, known.until)
        if share is None or until is None:
            self._held[tenant] = _Held()
        elif until == known.until:
            # The wall clock may be set meanwhile: one date for all of its namespaces.
            self._held[tenant] = known
        else:
            date = self._wall() + timedelta(seconds=until - now)
            self._held[tenant] = _Held(until, date_label(date))
            if share.wait(now) > 0:
                self._tell(tenant, share, now)
        return {HELD_WRITES_LABEL: self._held[tenant].label}

    def _labelled(self, present: Iterable[Object], now: float) -> _Held:
        dates = [found for one in present if (found := held_until(one)) is not None]
        if not dates:
            return _Held()
        last = max(dates)
        return _Held(now + (last - self._wall()).total_seconds(), date_label(last))

    def _tell(self, tenant: str, share: Share, now: float) -> None:
        self._log.warn(
            "{peer} has written more than it may here in a time, and writes nothing for now: {count} of {limit} bytes "
            "(hosting.tenant-writes)",
            peer=tenant,
            count=int(share.taken(now)),
            limit=int(share.burst),
        )
        self._audit.record(AuditEvent("RateLimited", WRITTEN_BYTES, peer=tenant))
        for subscriber in self._subscribers:
            subscriber(ClusterID(tenant))

    def _share(self, tenant: str) -> Share | None:
        share = self._shares.get(tenant)
        if share is None and (share := share_of(self._contracts.of(tenant))) is not None:
            self._shares[tenant] = share
        return share

    async def _label(self, namespace: str, labels: Mapping[str, str | None]) -> None:
        try:
            await self._client.patch(NAMESPACES, namespace, {"metadata": {"labels": labels}}, kind="merge", view=None)
        except NotFound:
            return

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        if new is None:
            self._at.pop(key.name, None)
        return {tenant_of(old), tenant_of(new)} - {""}

    def _count(self, key: Key, size: int) -> None:
        tenant = tenant_of(self._namespaces.get(Key("", key.namespace)))
        if not tenant or (share := self._share(tenant)) is None:
            return
        now = self.clock.seconds()
        share.take(float(size), now)
        self._at[key.namespace] = now
        known = self._held.get(tenant)
        if share.wait(now) > 0 and (known is None or known.until is None):
            self.enqueue(tenant, COALESCE)
