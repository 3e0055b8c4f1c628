"""How much a tenant may write in a time: the decision, what its namespaces are labelled with, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.flow.clocks import installed_reactor
from liqod.flow.share import Share
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.policies import WRITE_POLICY, policies
from liqod.hosting.tenants.quota.levels import Contracts
from liqod.hosting.tenants.quota.tenant_writes import TenantWrites
from liqod.hosting.tenants.quota.write_bounds import (
    AT_ONCE,
    LONGEST,
    SHORTEST,
    date_label,
    held,
    held_until,
    share_of,
)
from liqod.hosting.tenants.rights import borrower_role, user_of
from liqod.kube.cache.sizes import Sizes
from liqod.kube.resources import NAMESPACES, Resource
from liqod.model.ids import ClusterID, Key
from liqod.model.names import HELD_WRITES_LABEL, ORIGIN_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object, ObjectMeta
from tests.hosting import counting
from tests.hosting.shadowpods.admission import Request, refusals
from tests.hosting.shadowpods.test_controller import Cache
from tests.waiting import becomes

ROME = user_of(ClusterID("rome"))
DAEMON = "system:serviceaccount:liqo-system:liqod"
DATE = "2026-11-27T08.31.10Z"


class BoundTests(SynchronousTestCase):
    """Until when a tenant is held."""

    def test_table(self) -> None:
        """From more than the burst on, until half of it is free; at least a minute, at most ten."""
        for taken, before, until in (
            (0.0, None, None),
            (4000.0, None, None),
            (4001.0, None, 200.05),  # 2001 are free again after this time
            (4001.0, 50.0, 200.05),  # it is over
            (0.0, 150.0, 150.0),
            (9000.0, 150.0, 150.0),
            (0.0, 1e9, 100.0 + LONGEST),
            (1e9, None, 100.0 + LONGEST),
        ):
            share = Share(20.0, 4000.0)
            share.take(taken, 100.0)
            found = held(share, 100.0, before)
            if until is None:
                self.assertIsNone(found, (taken, before))
            else:
                self.assertAlmostEqual(found or 0.0, until, places=3, msg=str((taken, before)))
        quick = Share(1000.0, 4000.0)
        quick.take(4001.0, 0.0)
        self.assertEqual(held(quick, 0.0, None), SHORTEST)

    @given(st.lists(st.tuples(st.floats(0.0, 5000.0), st.floats(0.0, 90.0)), max_size=60))
    def test_never_more(self, tried: list[tuple[float, float]]) -> None:
        """Whatever is tried, in any time no more is written than the burst, one piece, and the rate."""
        share, now, total = Share(20.0, 4000.0), 0.0, 0.0
        until: float | None = None
        for size, pause in tried:
            now += pause
            until = held(share, now, until)
            if until is None:
                share.take(size, now)
                total += size
            self.assertLessEqual(total, 4000.0 + 5000.0 + 20.0 * now + 1e-6)

    def test_amounts(self) -> None:
        """The setting is for a minute; empty is no bound."""
        share = share_of(Contract(HostingSettings(tenant_writes="60Ki")))
        assert share is not None
        self.assertEqual((share.rate, share.burst), (1024.0, AT_ONCE * 60 * 1024.0))
        self.assertIsNone(share_of(Contract(HostingSettings(tenant_writes=""))))

    def test_label(self) -> None:
        """A date is read back; what is none is no date."""
        date = datetime(2026, 11, 27, 8, 31, 10, tzinfo=UTC)
        self.assertEqual(date_label(date), DATE)
        for value, found in ((DATE, date), ("", None), ("soon", None), ("9.9", None)):
            namespace = Object(metadata=ObjectMeta(labels={HELD_WRITES_LABEL: value}))
            self.assertEqual(held_until(namespace), found, value)
        self.assertIsNone(held_until(Object(metadata=ObjectMeta())))


class PolicyTests(SynchronousTestCase):
    """What the API server refuses in a namespace with the label."""

    def refused(
        self, resource: str, new: dict[str, Any] | None, old: dict[str, Any] | None, *, user: str = ROME
    ) -> list[str]:
        """Return why a request is refused for what was written before."""
        operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
        group = next(
            rule["apiGroups"][0] for rule in borrower_role(services=True)["rules"] if resource in rule["resources"]
        )
        labels = {HELD_WRITES_LABEL: DATE}
        request = Request(user, operation, resource, new, old, group=group, namespace="shop", namespace_labels=labels)
        own = [one for one in policies() if one["metadata"]["name"] == WRITE_POLICY]
        self.assertEqual(len(own), 1)
        return refusals(own, request)

    def test_all_that_it_writes(self) -> None:
        """All kinds that a borrower may create, and their changes; deletions not, nor what others write."""
        written = [
            name
            for rule in borrower_role(services=True)["rules"]
            if "update" in rule["verbs"]
            for name in rule["resources"]
        ]
        self.assertEqual(len(written), 10)
        body = {"metadata": {"name": "a", "labels": {ORIGIN_LABEL: "rome"}}}
        for resource in written:
            for new, old, refused in ((body, None, True), (body, body, True), (None, body, False)):
                found = self.refused(resource, new, old)
                self.assertEqual(["[hosting] tenant-writes" in one for one in found], [True] * refused, resource)
                self.assertEqual(self.refused(resource, new, old, user=DAEMON), [])

    def test_finalizers(self) -> None:
        """A change that takes a finalizer away passes, so that what is deleted can go."""

        def body(*finalizers: str) -> dict[str, Any]:
            return {"metadata": {"name": "a", **({"finalizers": list(finalizers)} if finalizers else {})}}

        for new, old, refused in (
            (body(), body("a/b"), False),
            (body("a/b"), body("a/b", "c/d"), False),
            (body("a/b"), body("a/b"), True),
            (body("a/b"), body(), True),
        ):
            self.assertEqual(bool(self.refused("secrets", new, old)), refused, (new, old))

    def test_message(self) -> None:
        """It says when the tenant may write again."""
        (rule,) = next(one for one in policies() if one["metadata"]["name"] == WRITE_POLICY)["spec"]["validations"]
        self.assertIn(f"namespaceObject.metadata.labels['{HELD_WRITES_LABEL}']", rule["messageExpression"])


class Labels:
    """Notes the labels that namespaces get."""

    def __init__(self) -> None:
        self.of: dict[str, str | None] = {}

    async def patch(self, resource: Resource, name: str, body: dict[str, Any], *, kind: str, view: Any) -> None:
        self.of[name] = body["metadata"]["labels"][HELD_WRITES_LABEL]


class ReturnTests(SynchronousTestCase):
    """A tenant that gives its namespace back, and asks for another one."""

    def test_it_does_not_begin_again(self) -> None:
        """What it wrote in the former one counts, and where it was held it is held in the new one."""
        clock, namespaces, sizes, labels = Clock(), Cache(), Sizes(), Labels()
        writes = TenantWrites(
            cast(Any, labels),
            clock,
            namespaces=cast(Any, namespaces),
            written=[sizes],
            contracts=Contracts(Contract(HostingSettings(tenant_writes="60Ki", quota="hard")), cast(Any, namespaces)),
            wall=lambda: datetime(2026, 11, 27, 8, 30, tzinfo=UTC) + timedelta(seconds=clock.seconds()),
        )
        writes.startService()
        self.addCleanup(writes.stopService)
        # More than half of what may be written at once, each time.
        for name, held_here in (("a-rome", False), ("b-rome", True), ("c-rome", True)):
            meta = ObjectMeta(
                name=name, labels={REMOTE_CLUSTER_LABEL: "rome"}, annotations={ORIGINAL_NAME_ANNOTATION: name}
            )
            namespaces.put(Object(metadata=meta))
            clock.advance(1)
            self.successResultOf(Deferred.fromCoroutine(writes.apply("rome", name)))
            if not labels.of.get(name):
                sizes.note(Key(name, "a"), 150_000)
                clock.advance(1)
            self.assertEqual(bool(labels.of.get(name)), held_here, name)
            namespaces.remove(Key("", name))
            clock.advance(1)


class CountTests(counting.Counting):
    """A tenant that writes again and again."""

    full = HELD_WRITES_LABEL

    async def count(self, granted: HostingSettings) -> tuple[TenantWrites, Sizes]:
        """Start what counts; returns the table of sizes that it follows."""
        client, _ = await self.start(HostingSettings())
        sizes = Sizes()
        writes = TenantWrites(
            client,
            installed_reactor(),
            namespaces=self.namespaces,
            written=[sizes],
            contracts=Contracts(Contract(granted), self.namespaces),
        )
        writes.startService()
        self.addCleanup(writes.stopService)
        return writes, sizes

    async def is_labelled(self) -> None:
        async def check() -> bool:
            return "" not in await self.label()

        await becomes(check, "the label of all namespaces", 20)

    async def test_one_object_again_and_again(self) -> None:
        """All namespaces have the label, a new one before anything is in it; each time it is said once. A daemon that
        starts goes by the label; one without the bound takes it away.
        """
        granted = HostingSettings(tenant_writes="10Ki")
        writes, sizes = await self.count(granted)
        said: list[ClusterID] = []
        writes.subscribe(said.append)
        for _ in range(5):
            sizes.note(Key("shop-rome", "a"), 10_000)
        sizes.note(Key("elsewhere", "a"), 1 << 30)
        await self.is_labelled()
        self.assertEqual(len(await self.label()), 1)
        self.assertEqual(said, [ClusterID("rome")])
        await self.admin.create(NAMESPACES, {"metadata": {"name": "new-rome"}})
        await writes.apply("rome", "new-rome")
        self.assertEqual(await self.label("new-rome"), await self.label())
        before = await self.label()
        await writes.stopService()
        writes, _ = await self.count(granted)
        await writes.apply("rome", "new-rome")
        self.assertEqual(await self.label(), before)
        await writes.stopService()
        await self.count(HostingSettings(tenant_writes=""))
        await self.labels_become("")
