"""The quotas of a tenant on the sandbox's API server; a controller manager enforces and counts them in its time."""

from __future__ import annotations

import random
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.trial.unittest import TestCase

from liqod.config.schema import HostingSettings
from liqod.demo.access import client_config
from liqod.flow.clocks import installed_reactor
from liqod.hosting.tenants.bounds import most_of_namespace, resource_quota
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import selector
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.offers import TenantOffers
from liqod.hosting.tenants.quota.tenant_quotas import SELECTED, TenantQuotas
from liqod.hosting.tenants.quota.view import ResourceQuota
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import ServerError
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS, NAMESPACES, RESOURCEQUOTAS
from liqod.model.names import ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from liqod.model.records.views import ForeignCluster
from tests.waiting import becomes

WHAT = "services.loadbalancers"
TOTAL = 40
"""Load balancers that all namespaces of a tenant may have together; one may have ten."""


class Tenant:
    """A tenant that creates as many load balancers as it is let, in namespaces where it ``wants`` that."""

    def __init__(self, admin: Client) -> None:
        self._admin = admin
        self._random = random.Random(7)
        self.used: dict[str, int] = {}
        self.wants: set[str] = set()
        self.most_at_once = 0

    async def turn(self) -> None:
        """Enforce and count some quotas, and create what they allow."""
        for quota in (await self._admin.list(RESOURCEQUOTAS)).items:
            name, hard = quota["metadata"]["namespace"], (quota.get("status") or {}).get("hard") or {}
            allowed = int(hard.get(WHAT, "0"))
            if name in self.wants:
                self.used[name] = max(self.used.get(name, 0), allowed)
            if self._random.random() < 0.6:
                used = dict.fromkeys(quota["spec"]["hard"], "0") | {WHAT: str(self.used.get(name, 0))}
                status, before = {"hard": quota["spec"]["hard"], "used": used}, quota.get("status") or {}
                if before != status:
                    # The controller manager replaces the status: what left the spec leaves it.
                    parts = {part: {**dict.fromkeys(before.get(part) or {}), **new} for part, new in status.items()}
                    await self._admin.patch(
                        RESOURCEQUOTAS, quota["metadata"]["name"], {"status": parts}, name, subresource="status"
                    )
        self.most_at_once = max(self.most_at_once, sum(self.used.values()))


class TenantQuotaTests(TestCase):
    """A tenant with more namespaces than its total is enough for."""

    timeout = 120

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        cluster = SandboxCluster(reactor, "lender", [])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.config = client_config(cluster)
        self.admin = Client(self.config, reactor)
        self.addCleanup(self.admin.close)
        await manifests.ensure(self.admin)
        self.client, self.quotas = await self.start()
        self.greedy = Tenant(self.admin)
        turns = LoopingCall(lambda: Deferred.fromCoroutine(self.greedy.turn()))
        self.addCleanup(turns.stop)
        turns.start(0.05)

    async def start(self, contract: Contract | None = None) -> tuple[Client, TenantQuotas]:
        """Start a daemon's part for quotas."""
        from twisted.internet import reactor

        client = Client(self.config, reactor)
        informers = Informers(client, reactor)
        namespaces = informers.of(NAMESPACES, Object, labels=selector())
        quotas = TenantQuotas(
            client,
            installed_reactor(),
            namespaces=namespaces,
            quotas=informers.of(RESOURCEQUOTAS, ResourceQuota, fields=SELECTED),
            offers=TenantOffers(informers.of(FOREIGNCLUSTERS, ForeignCluster)),
            contracts=Contracts(contract or Contract(), namespaces),
        )
        informers.startService()
        quotas.startService()

        async def end() -> None:
            await quotas.stopService()
            await informers.stopService()
            await client.close()

        self.addCleanup(end)
        await informers.when_synced()
        return client, quotas

    async def namespaces(self, quota: dict[str, Any] | None = None) -> list[str]:
        """Grant namespaces, as ``Namespaces`` does: each has its quota before anything can be created in it; or with
        a quota that is there already.
        """
        names = [f"shop{number}-rome" for number in range(7)]
        for name in names:
            if quota is not None:
                await self.admin.create(NAMESPACES, {"metadata": {"name": name}})
                own = {**quota, "metadata": {**quota["metadata"], "namespace": name}}
                await self.admin.create(RESOURCEQUOTAS, own, name)
                await self.admin.patch(
                    RESOURCEQUOTAS, "liqod-tenant", {"status": quota["status"]}, name, subresource="status"
                )
        for name in names:
            metadata = {"labels": {REMOTE_CLUSTER_LABEL: "rome"}, "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"}}
            if quota is not None:
                await self.admin.patch(NAMESPACES, name, {"metadata": metadata})
                continue
            await self.admin.create(NAMESPACES, {"metadata": {"name": name, **metadata}})
            await self.quotas.apply("rome", name)
        return names

    async def settle(self) -> None:
        from twisted.internet import reactor

        await deferLater(reactor, 1.5)

    async def uses(self, count: int) -> None:
        async def reached() -> bool:
            return sum(self.greedy.used.values()) >= count

        await becomes(reached, f"{count} are used", 20)

    async def test_greed(self) -> None:
        """All of the total can be used, in namespaces that the tenant likes, and never more; what one of them does not
        need any more another one gets; then nothing is written, also not by a daemon that starts.
        """
        names = await self.namespaces()
        self.greedy.wants = set(names[2:])
        await self.uses(TOTAL - 2)  # there is room for one in each of the others
        self.greedy.wants = {names[0]}
        self.greedy.used[names[4]] = 0

        async def moved() -> bool:
            return self.greedy.used.get(names[0], 0) > 0

        await becomes(moved, "another namespace has room", 20)
        self.greedy.wants = set(names)
        await self.uses(TOTAL)
        await self.settle()
        self.assertEqual(self.greedy.most_at_once, TOTAL)
        before = self.client.requests.copy()
        await self.settle()
        self.assertEqual(self.client.requests - before, {})
        await self.quotas.stopService()
        client, _ = await self.start()
        await self.settle()
        self.assertEqual([key for key in client.requests if key[0] not in ("list", "watch")], [])

    async def test_an_entry_that_is_not_counted_any_more(self) -> None:
        """It leaves the quotas; then nothing is written."""
        await self.namespaces()
        await self.quotas.stopService()
        client, _ = await self.start(Contract(HostingSettings(uncounted=[WHAT])))

        async def left() -> bool:
            quotas = (await self.admin.list(RESOURCEQUOTAS)).items
            return len(quotas) == 7 and not any(WHAT in one["spec"]["hard"] for one in quotas)

        await becomes(left, "no quota has the entry", 20)
        self.assertTrue(all(one["spec"]["hard"] for one in (await self.admin.list(RESOURCEQUOTAS)).items))
        await self.settle()
        before = client.requests.copy()
        await self.settle()
        self.assertEqual(client.requests - before, {})

    async def test_answers_are_lost(self) -> None:
        """A write without an answer may have been done or not: the larger share counts until that is known, and what
        was not done is done again. The quotas are those of an earlier release: together they allow more.
        """
        patch = self.client.patch
        lost = {"more": 0, "less": 0}

        async def lossy(resource: Any, name: str, body: Any, namespace: str = "", **named: Any) -> Any:
            present = (await self.admin.get(RESOURCEQUOTAS, name, namespace))["spec"]["hard"][WHAT]
            kind = "less" if int(body["spec"]["hard"][WHAT]) < int(present) else "more"
            if lost[kind] < 5:
                lost[kind] += 1
                if kind == "more":
                    await patch(resource, name, body, namespace, **named)
                raise ServerError(500, "InternalError", "no answer", {})
            return await patch(resource, name, body, namespace, **named)

        self.client.patch = lossy  # type: ignore[assignment, method-assign]
        before = resource_quota("rome", "", most_of_namespace(Contract(), None))
        names = await self.namespaces(
            {"metadata": before["metadata"], "spec": before["spec"], "status": before["spec"]}
        )

        async def smaller() -> bool:
            quotas = (await self.admin.list(RESOURCEQUOTAS)).items
            return sum(int(one["status"]["hard"][WHAT]) for one in quotas) <= TOTAL

        await becomes(smaller, "the quotas are within the total", 20)
        self.greedy.wants = set(names)
        await self.uses(TOTAL)
        await self.settle()
        self.assertEqual(self.greedy.most_at_once, TOTAL)
        self.assertEqual(lost["less"], 5)

    async def test_a_namespace_that_ends(self) -> None:
        """What was in a namespace is free for others when it is gone."""
        names = await self.namespaces()
        self.greedy.wants = set(names[:4])
        await self.uses(TOTAL - 3)
        await self.admin.delete(NAMESPACES, names[0])

        async def gone() -> bool:
            present = {one["metadata"]["name"] for one in (await self.admin.list(NAMESPACES)).items}
            return names[0] not in present

        await becomes(gone, "the namespace is gone", 20)
        freed = self.greedy.used.pop(names[0])
        self.assertGreater(freed, 0)
        self.greedy.wants = set(names[1:])
        await self.uses(TOTAL)
        await self.settle()
        self.assertEqual(self.greedy.most_at_once, TOTAL)

    async def ends_slowly(self, name: str) -> None:
        """Delete a namespace that has something with a finalizer, and wait until its quota is gone."""
        body = {"metadata": {"name": "kept", "finalizers": ["example.com/kept"]}}
        await self.admin.create(CONFIGMAPS, body, name)
        await self.admin.delete(NAMESPACES, name)

        async def unbounded() -> bool:
            return not (await self.admin.list(RESOURCEQUOTAS, name)).items

        await becomes(unbounded, "the quota of the namespace is gone", 20)

    async def ends(self, name: str) -> None:
        """Let such a namespace go."""
        await self.admin.patch(CONFIGMAPS, "kept", {"metadata": {"finalizers": None}}, name)

        async def gone() -> bool:
            return name not in {one["metadata"]["name"] for one in (await self.admin.list(NAMESPACES)).items}

        await becomes(gone, "the namespace is gone", 20)

    async def test_a_namespace_that_ends_slowly(self) -> None:
        """Its quota goes first: what was counted in it is no one else's before it is gone."""
        names = await self.namespaces()
        self.greedy.wants = set(names[:4])
        await self.uses(TOTAL - 3)
        self.assertGreater(self.greedy.used[names[0]], 0)
        await self.ends_slowly(names[0])
        self.greedy.wants = set(names[1:])
        await self.uses(TOTAL)
        await self.settle()
        self.assertEqual(self.greedy.most_at_once, TOTAL)
        await self.ends(names[0])
        self.greedy.used.pop(names[0])
        await self.uses(TOTAL)
        await self.settle()
        self.assertEqual(self.greedy.most_at_once, TOTAL)

    async def test_a_start_while_a_namespace_ends(self) -> None:
        """What is in a namespace without a quota nobody knows: it counts with the most that a namespace may have."""
        names = await self.namespaces()
        self.greedy.wants = {names[0]}

        async def most() -> bool:
            return self.greedy.used.get(names[0], 0) >= 8

        await becomes(most, "a namespace has nearly its most", 20)
        await self.quotas.stopService()
        await self.ends_slowly(names[0])
        await self.start()
        self.greedy.wants = set(names[1:])
        await self.uses(TOTAL - 10 + self.greedy.used[names[0]])
        await self.settle()
        self.assertLessEqual(self.greedy.most_at_once, TOTAL)
