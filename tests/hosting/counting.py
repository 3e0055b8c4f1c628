"""A lender's part that counts what its tenants keep, with a tenant that has two namespaces, on the sandbox.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from liqod.config.schema import HostingSettings
from liqod.demo.access import client_config
from liqod.flow.clocks import installed_reactor
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import selector
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.tenant_records import TenantRecords
from liqod.hosting.views import Counted
from liqod.kube import manifests
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.cache.sizes import Sizes
from liqod.kube.client import Client
from liqod.kube.resources import (
    CONFIGMAPS,
    FOREIGNCLUSTERS,
    NAMESPACES,
    SECRETS,
    SHADOWENDPOINTSLICES,
    SHADOWPODS,
)
from liqod.model.names import FULL_LABEL, ORIGIN_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.views import ForeignCluster, ShadowEndpointSlice, ShadowPod
from tests.peering.clusters import RecordedAudit
from tests.waiting import becomes


class Counting(TestCase):
    """A tenant with two namespaces; ``full`` is the label that is looked at."""

    timeout = 120
    full = FULL_LABEL

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        self.audit = RecordedAudit()
        cluster = SandboxCluster(reactor, "lender", [])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.config = client_config(cluster)
        self.admin = Client(self.config, reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        for name in ("shop-rome", "web-rome"):
            metadata = {"labels": {REMOTE_CLUSTER_LABEL: "rome"}, "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"}}
            await self.admin.create(NAMESPACES, {"metadata": {"name": name, **metadata}})

    async def start(
        self, granted: HostingSettings, view: type[Object] = ShadowPod, *, secrets: Sizes | None = None
    ) -> tuple[Client, TenantRecords]:
        """Start a daemon's part that counts; ``secrets``: their sizes, in place of those that the sandbox lists."""
        from twisted.internet import reactor

        client = Client(self.config, reactor)
        informers = Informers(client, reactor)
        namespaces = informers.of(NAMESPACES, Object, labels=selector())
        self.namespaces = namespaces
        self.contents: list[Informer[Counted]] = [
            informers.of(kind, Counted, labels=ORIGIN_LABEL, sizes=True) for kind in (CONFIGMAPS, SECRETS)
        ]
        records = TenantRecords(
            client,
            installed_reactor(),
            namespaces=namespaces,
            counted={
                "shadowpods": informers.of(SHADOWPODS, view, sizes=True).sizes,
                "shadowendpointslices": informers.of(SHADOWENDPOINTSLICES, ShadowEndpointSlice, sizes=True).sizes,
                **{one.resource.plural: one.sizes for one in self.contents},
                **({} if secrets is None else {SECRETS.plural: secrets}),
            },
            offers=TenantOffers(informers.of(FOREIGNCLUSTERS, ForeignCluster)),
            contracts=Contracts(Contract(granted), namespaces),
            audit=self.audit,
        )
        informers.startService()
        records.startService()

        async def end() -> None:
            await records.stopService()
            await informers.stopService()
            await client.close()

        self.addCleanup(end)
        await informers.when_synced()
        return client, records

    async def label(self, *namespaces: str) -> set[str]:
        found = [await self.admin.get(NAMESPACES, name) for name in namespaces or ("shop-rome", "web-rome")]
        return {one["metadata"]["labels"].get(self.full, "") for one in found}

    async def labels_become(self, value: str) -> None:
        async def check() -> bool:
            return await self.label() == {value}

        await becomes(check, f"the label {value!r} of all namespaces", 20)
