"""What bounds a tenant's namespace: it is in place before the tenant can create anything there."""

from __future__ import annotations

from attrs import frozen

from liqod.hosting.context import HostingContext
from liqod.hosting.isolation.controller import TenantIsolation
from liqod.hosting.tenants.namespace_bounds import NamespaceBounds
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.hosting.tenants.quota.tenant_quotas import TenantQuotas
from liqod.hosting.tenants.quota.tenant_records import TenantRecords
from liqod.hosting.tenants.quota.tenant_writes import TenantWrites


@frozen
class NamespaceLimits:
    """The controllers that bound the namespaces of tenants."""

    bounds: NamespaceBounds
    policies: TenantIsolation
    quotas: TenantQuotas
    records: TenantRecords
    writes: TenantWrites

    @classmethod
    def of(cls, context: HostingContext) -> NamespaceLimits:
        """Return them for one cluster; they are to be started."""
        return cls(_bounds(context), _policies(context), _quotas(context), _records(context), _writes(context))

    def namespaces(self, context: HostingContext) -> Namespaces:
        """Return the namespaces of tenants, each of which is bounded before it is granted."""
        grants = context.grants
        steps = [self.quotas.apply, self.bounds.apply, self.policies.apply, self.records.apply, self.writes.apply]
        return Namespaces(
            context.client, context.caches.namespaces, grants.contract, steps, peers=grants.offers.trusted
        )


def _bounds(context: HostingContext) -> NamespaceBounds:
    return NamespaceBounds(
        context.client,
        context.clock,
        namespaces=context.caches.namespaces,
        offers=context.grants.offers,
        contracts=context.grants.contracts,
        metrics=context.metrics,
    )


def _policies(context: HostingContext) -> TenantIsolation:
    caches = context.caches
    return TenantIsolation(
        context.client,
        context.clock,
        namespaces=caches.namespaces,
        records=caches.policysets,
        policies=caches.policies,
        pods=caches.pods,
        facts=caches.facts,
        networks=context.networks,
        contract=context.grants.contract,
        name_servers=context.name_servers,
        streams=context.streams,
        recorder=context.recorder,
        metrics=context.metrics,
    )


def _quotas(context: HostingContext) -> TenantQuotas:
    return TenantQuotas(
        context.client,
        context.clock,
        namespaces=context.caches.namespaces,
        quotas=context.caches.quotas,
        offers=context.grants.offers,
        contracts=context.grants.contracts,
        metrics=context.metrics,
    )


def _records(context: HostingContext) -> TenantRecords:
    return TenantRecords(
        context.client,
        context.clock,
        namespaces=context.caches.namespaces,
        counted=context.caches.counted(),
        offers=context.grants.offers,
        contracts=context.grants.contracts,
        metrics=context.metrics,
        audit=context.audit,
    )


def _writes(context: HostingContext) -> TenantWrites:
    return TenantWrites(
        context.client,
        context.clock,
        namespaces=context.caches.namespaces,
        written=context.caches.counted().values(),
        contracts=context.grants.contracts,
        wall=context.wall,
        metrics=context.metrics,
        audit=context.audit,
    )
