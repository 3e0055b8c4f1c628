"""Keeps the ResourceQuotas of a tenant's namespaces: each as contract and offer say, all of them within its total."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.hosting.tenants import bounds
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.shares import QuotaState, divide
from liqod.hosting.tenants.quota.view import ONE, ResourceQuota, units
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import RESOURCEQUOTAS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.granted_namespace import granted_to, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.objects.quantity import Resources

AGAIN: Final = 600.0
"""Seconds until the quotas of a tenant are looked at again, should nothing have led to that before."""
COALESCE: Final = 0.25
"""Seconds for which changes of use are collected: each object that is created changes the status of a quota."""
EACH: Final = 0.001
"""Seconds more for each namespace: a tenant with a thousand of them must not keep the daemon busy with counts."""
SELECTED: Final = f"metadata.name={bounds.NAME}"
"""The field selector of the quotas that liqod writes; rights to watch objects of one name are given so."""


@attrs.define
class _Share:
    """What was decided for one namespace; ``is_writing``: the request is under way."""

    hard: Resources
    is_writing: bool = False


class TenantQuotas(Controller[str]):
    """Reconciles the quotas of each tenant; its keys are tenants.

    Nobody may see a sum beyond the total, and two writes must not give away the same room: a share counts from the
    moment that it is decided (``_decided``) until the answer to its write is known.
    """

    name = "tenant-quotas"
    workers = 2

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespaces: Informer[Object],
        quotas: Informer[ResourceQuota],
        offers: TenantOffers,
        contracts: Contracts,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        super().__init__(clock, metrics=metrics)
        self._client = client
        self._namespaces = namespaces
        self._quotas = MutationCache(quotas, clock)
        self._offers = offers
        self._contracts = contracts
        self._decided: dict[Key, _Share] = {}
        # Quotas that are gone: the namespace controller deletes them before all else that is in a namespace.
        self._last: dict[Key, ResourceQuota] = {}
        self._counts: dict[str, int] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Namespaces, offers, and what the API server counts and enforces."""
        yield watch(self._namespaces, self._namespace_changed)
        yield watch(self._quotas.informer, self._quota_changed)
        yield observe(self._offers, lambda tenant: (tenant,))

    async def prepare(self) -> None:
        """Await what the shares are decided from."""
        for informer in (self._namespaces, self._quotas.informer, self._offers.informer):
            await informer.when_synced()

    async def reconcile(self, tenant: str) -> After | None:
        """Write the quotas of a tenant that differ."""
        if not (names := self._namespaces_of(tenant)):
            self._counts.pop(tenant, None)
            return None
        self._counts[tenant] = len(names)
        if not self._most(tenant):
            for name in names:
                await self._remove(_key(name))
            return After(AGAIN)
        await self._read_doubtful(names)
        shares = self._decide(tenant, names)
        try:
            while shares:
                await self._write(tenant, *shares.popitem())
        finally:
            for name in shares:  # an earlier one was refused: these are not written
                self._decided.pop(_key(name), None)
        return After(AGAIN)

    async def apply(self, tenant: str, namespace: str) -> None:
        """Create the quota of a namespace, before anything is created in it. Raises KubeError."""
        await self.prepare()
        if not self._most(tenant):
            await self._remove(_key(namespace))
        elif self._quotas.get(_key(namespace)) is None:
            names = dict.fromkeys([*self._namespaces_of(tenant), namespace])
            shares = self._decide(tenant, names, only=namespace)
            await self._write(tenant, namespace, shares[namespace])
            self.enqueue(tenant)

    def _decide(self, tenant: str, names: Iterable[str], only: str = "") -> dict[str, _Share]:
        """Return the shares to write: where they differ, or there is no quota; they count at once."""
        most = self._most(tenant)
        total = bounds.most_of_tenant(self._contracts.of(tenant), self._offers.get(tenant))
        present = {name: self._quotas.get(_key(name)) for name in names}
        shares: dict[str, dict[str, Fraction]] = {name: {} for name in present if not self._is_closing(name)}
        for resource, limit in most.items():
            held = {name: self._held(name, quota, resource, limit) for name, quota in present.items()}
            # What is in a namespace that is being deleted is there until it is gone; nothing is created in it.
            gone = sum(one.taken for name, one in held.items() if name not in shares)
            left = max(0, units(total.get(resource, limit * len(held))) - gone)
            for name, share in divide({name: held[name] for name in shares}, left, units(limit), ONE).items():
                shares[name][resource] = Fraction(share, ONE)
        found: dict[str, _Share] = {}
        for name, hard in shares.items():
            quota = present[name]
            if (only and name != only) or (quota is not None and quota.covers(hard)):
                continue
            found[name] = self._decided[_key(name)] = _Share(hard)
        return found

    def _held(self, name: str, quota: ResourceQuota | None, resource: str, limit: Fraction) -> QuotaState:
        key = _key(name)
        if (known := quota or self._last.get(key)) is not None:
            held = known.held(resource)
        elif self._is_closing(name):
            # Nobody knows what is in it: a daemon that starts has not seen its quota.
            held = QuotaState(units(limit), units(limit))
        else:
            held = QuotaState()
        share = self._decided.get(key)
        found = None if share is None else share.hard.get(resource)
        if found is None or (decided := units(found)) == held.spec:
            return held
        # It is being written: nothing else is decided meanwhile, and the larger one counts.
        return QuotaState(max(decided, held.spec), min(decided, held.spec), held.used)

    async def _read_doubtful(self, names: Iterable[str]) -> None:
        """Read the quotas of which it is not known whether they were written, after a request without an answer."""
        for key in map(_key, names):
            share = self._decided.get(key)
            if share is None or share.is_writing:
                continue
            try:
                found = await self._client.get(RESOURCEQUOTAS, key.name, key.namespace, view=ResourceQuota)
            except NotFound:
                self._quotas.forget(key)
            else:
                self._quotas.wrote(key, self._quotas.get(key), found)
            self._decided.pop(key, None)

    async def _write(self, tenant: str, namespace: str, share: _Share) -> None:
        key = _key(namespace)
        share.is_writing = True
        try:
            await self._put(key, bounds.resource_quota(tenant, namespace, share.hard))
        finally:
            share.is_writing = False
        self._decided.pop(key, None)

    async def _put(self, key: Key, body: dict[str, Any]) -> None:
        before = self._quotas.get(key)
        if before is None:
            try:
                made = await self._client.create(RESOURCEQUOTAS, body, key.namespace, view=ResourceQuota)
            except AlreadyExists:
                before = await self._client.get(RESOURCEQUOTAS, key.name, key.namespace, view=ResourceQuota)
            else:
                self._quotas.wrote(key, None, made)
                return
        # A merge patch removes what is null (RFC 7386): entries that do not count any more.
        hard = {**dict.fromkeys(before.spec.hard), **body["spec"]["hard"]}
        patch = {"metadata": {"labels": body["metadata"]["labels"]}, "spec": {"hard": hard}}
        try:
            after = await self._client.patch(RESOURCEQUOTAS, key.name, patch, key.namespace, view=ResourceQuota)
        except NotFound:
            self._quotas.forget(key)
            raise
        self._quotas.wrote(key, before, after)

    async def _remove(self, key: Key) -> None:
        self._decided.pop(key, None)
        if self._quotas.get(key) is not None:
            await self._client.delete(RESOURCEQUOTAS, key.name, key.namespace)

    def _most(self, tenant: str) -> Resources:
        return bounds.most_of_namespace(self._contracts.of(tenant), self._offers.get(tenant))

    def _is_closing(self, name: str) -> bool:
        found = self._namespaces.get(Key("", name))
        return found is not None and found.metadata.deleting

    def _namespaces_of(self, tenant: str) -> list[str]:
        return [one.metadata.name for one in granted_to(tenant, self._namespaces.items())]

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> Iterable[str]:
        tenants = {tenant_of(old), tenant_of(new)}
        if new is None:
            self._decided.pop(_key(key.name), None)
            self._quotas.forget(_key(key.name))
            self._last.pop(_key(key.name), None)
        if old is None or new is None or len(tenants) > 1:
            yield from tenants - {""}

    def _quota_changed(self, key: Key, old: ResourceQuota | None, new: ResourceQuota | None) -> Iterable[str]:
        if new is not None:
            self._last.pop(key, None)
        else:
            self._quotas.forget(key)
            if old is not None and self._namespaces.get(Key("", key.namespace)) is not None:
                self._last[key] = old
        tenant = next((one.metadata.labels.get(REMOTE_CLUSTER_LABEL, "") for one in (new, old) if one is not None), "")
        # Where the total is enough for all namespaces, what they use changes no share.
        if tenant and (new is None or old is None or old.spec != new.spec or not self._is_full(tenant, new)):
            self.enqueue(tenant, max(COALESCE, self._counts.get(tenant, 0) * EACH))
        return ()

    def _is_full(self, tenant: str, quota: ResourceQuota) -> bool:
        """Return whether a namespace has the most that one may have, and the API server enforces that."""
        most = self._most(tenant)
        return bool(most) and quota.covers(most) and quota.is_enforced


def _key(namespace: str) -> Key:
    return Key(namespace, bounds.NAME)
